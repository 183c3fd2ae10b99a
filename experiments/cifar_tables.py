"""The rows of every experiment on CIFAR-10."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments import summary
from experiments.cifar import EVERY, HIGHER, LOW, LOWER, MEMORY, OTHERS, Plan, Table
from experiments.continual import RECALIBRATED, ContinualRow
from experiments.methods import (
    continual_row,
    continual_rows,
    coreset_row,
    counted,
    imbalanced_rows,
    moment_rows,
    stream_row,
    summary_rows,
)
from experiments.networks import GROUPED_RESIDUAL, NORMALISED_RESIDUAL
from experiments.paper import published
from experiments.problems import CIFAR_POOL, IMBALANCED_CIFAR, SPLIT_CIFAR
from experiments.rows import Row, Source, experiment
from experiments.selections import PenaltyRow
from experiments.selectors import (
    CORESET,
    RBF_CORESET,
    UNIFORM,
    ByDirections,
    ByEmbedding,
    Named,
    Picker,
    Proxy,
)
from experiments.stores import RESERVOIR, ByMoments, ByNetwork
from experiments.streaming import Optimiser, StreamRow, Weighting

#: Epochs a task, and by how much fewer steps a batch, of the runs that look for β.
BETA_EPOCHS = 80
FEWER_STEPS = 3
#: β of the paper's rows where they are not the usual ones.
TRIED = {
    "Uniform sampling": EVERY,
    "Coreset": EVERY,
    "k-means of grads": HIGHER,
    "k-center of features": HIGHER,
    "Gradient matching": OTHERS,
}
#: At full length, held-out points choose between what few epochs say and the authors' best for the
#: coreset.
ALSO = {"Uniform sampling": (100.0,), "Coreset": (100.0,)}
#: This λ was found with a narrow network on the first task, by held-out points.
DIRECTIONS_PENALTY = 0.1
#: The row of ``cifar-penalty`` by which λ is chosen.
LAMBDA_ROW = "Coreset"
#: Of networks that are normalised, which learn a task sooner: many seeds, and few epochs for each.
NORMALISED_EPOCHS = 40
#: Memories by moments, in random features of images.
CONVOLUTIONS = ByMoments(features="convolutions")
MOMENTS: dict[str, Any] = {
    "Moments, random convolutions": CONVOLUTIONS,
    "Moments, random ReLU": ByMoments(features="relu"),
    "Moments, pooled random features": ByMoments(features="pooled", on_host=False),
    "Moments, the network's embedding": ByNetwork(),
}
#: The same on the imbalanced stream, with every class counted alike.
EQUAL_CONVOLUTIONS = replace(CONVOLUTIONS, prior="equal")
EQUAL_MOMENTS = {
    key.replace("Moments, ", "Moments, equal prior, "): replace(store, prior="equal")
    for key, store in MOMENTS.items()
}
#: Both streams begin every batch with a fresh optimiser, as in the authors' code, but where a row
#: says otherwise.
IMBALANCED: dict[str, Any] = {"steps": 150, "slots": 1, "optimiser": Optimiser.FRESH}
BALANCED: dict[str, Any] = {"steps": 40, "slots": 10, "optimiser": Optimiser.FRESH}


def _row(key: str, picker: Picker | None, **facts: Any) -> ContinualRow:
    return continual_row(SPLIT_CIFAR, MEMORY, key, picker, **facts)


def _plan(row: ContinualRow, **how: Any) -> Plan[ContinualRow]:
    return Plan(Table.CONTINUAL, row, **how)


def continual_plans() -> list[Plan[ContinualRow]]:
    """The paper's rows, and our own."""
    matching, scaled = "Gradient matching", Named("gradient-matching", scaled=True)
    paper = published("continual_learning", matching, SPLIT_CIFAR)
    at_end = _row("Per task coreset, λ by the proxy, train at the end", CORESET, at_end=True)
    return [
        *(
            _plan(row, tried=TRIED.get(row.key, LOWER), also=ALSO.get(row.key, ()))
            for row in continual_rows(SPLIT_CIFAR, MEMORY)
        ),
        _plan(at_end, by_proxy=True),
        _plan(_row("Coreset, λ by the proxy", CORESET), tried=EVERY, by_proxy=True),
        # the authors' code scales gradients to length 1 before it matches them
        _plan(_row("Gradient matching, normalised", scaled, paper=paper), follows=matching),
        *_normalised(),
    ]


def _normalised() -> list[Plan[ContinualRow]]:
    """A network as one would train it today, normalised: on the memory of the paper's rows, and
    with its own embedding as the proxy.

    A network that has fitted a task seems to tell its points apart by what is odd in them, and
    their directions by what is common.
    """
    facts: dict[str, Any] = {"network": NORMALISED_RESIDUAL, "reference": True}
    name = "Coreset, normalised network"
    directions = f"{name}, directions of its embedding as the proxy"
    coresets = [
        _row(name, CORESET, **facts),
        _row(f"{name}, its embedding as the proxy", ByEmbedding(), **facts),
        _row(directions, ByDirections(), penalty=DIRECTIONS_PENALTY, **facts),
    ]
    uniform = _row("Uniform sampling, normalised network", UNIFORM, network=NORMALISED_RESIDUAL)
    return [
        _plan(uniform, follows="Uniform sampling"),
        *(_plan(row, follows="Coreset") for row in coresets),
    ]


def normalised_plans() -> list[Plan[ContinualRow]]:
    """Does a coreset win with a normalised network? Its statistics are those of a batch and all of
    the memory together; or groups of channels are normalised, and nothing is shared."""
    ways: dict[str, dict[str, Any]] = {
        "Uniform sampling": {"picker": UNIFORM},
        "Coreset": {"picker": CORESET, "reference": True},
        "Joint moments, random convolutions": {"picker": None, "jointly": CONVOLUTIONS},
    }
    plans = []
    for network in (NORMALISED_RESIDUAL, GROUPED_RESIDUAL):
        shared = network is NORMALISED_RESIDUAL
        facts = {"network": network, "epochs": NORMALISED_EPOCHS, "recalibrated": shared}
        for key, way in ways.items():
            row = _row(f"{key}, {network.normalised}", **way, **facts)
            plans.append(Plan(Table.NORMALISED, row, LOWER, () if shared else HIGHER))
    facts = {"epochs": NORMALISED_EPOCHS, "recalibrated": True, "network": NORMALISED_RESIDUAL}
    embedded = _row("Coreset, its embedding as the proxy, BatchNorm", ByEmbedding(), **facts)
    return [*plans, Plan(Table.NORMALISED, embedded, follows="Coreset, BatchNorm")]


def _rbf() -> Plan[ContinualRow]:
    """Which the paper says fails on CIFAR-10."""
    return _plan(_row("Coreset RBF", RBF_CORESET))


def imbalanced_plans() -> list[Plan[StreamRow]]:
    """The paper's rows, and our own: slots that count for their batches, the RBF kernel, memories
    by moments, and one optimiser that lasts through the stream."""
    reservoir, balanced, coreset = (
        replace(row, **IMBALANCED) for row in imbalanced_rows(IMBALANCED_CIFAR, MEMORY)
    )
    lasting = {"optimiser": Optimiser.LASTING, "paper": None, "reference": False}
    sampled = reservoir.variant("Reservoir, one optimiser", **lasting)
    weighted = balanced.variant(
        "CBRS, one optimiser, weights of the stream", weighting=Weighting.SHARE, **lasting
    )
    by_proxy = coreset.variant("Coreset, λ by the proxy, one optimiser", **lasting)
    rbf = coreset_row(IMBALANCED_CIFAR, MEMORY, "Coreset RBF", RBF_CORESET, **IMBALANCED)
    moments = moment_rows(IMBALANCED_CIFAR, MEMORY, EQUAL_MOMENTS, EQUAL_CONVOLUTIONS, **IMBALANCED)
    by_sample = Plan(Table.IMBALANCED, reservoir, LOWER)
    by_coreset = Plan(Table.IMBALANCED, coreset, HIGHER)
    by_moments = [Plan(Table.IMBALANCED, row, LOWER) for row in moments]
    return [
        by_sample,
        Plan(Table.IMBALANCED, balanced, LOWER),
        by_coreset,
        Plan(Table.IMBALANCED, counted(coreset), LOWER),
        Plan(Table.IMBALANCED, rbf, LOWER),
        *by_moments,
        *(grouped(plan) for plan in (by_sample, by_coreset, by_moments[0])),
        Plan(Table.IMBALANCED, sampled, LOW),
        Plan(Table.IMBALANCED, weighted, LOW),
        Plan(Table.IMBALANCED, coreset.variant("Coreset, one optimiser", **lasting), LOWER),
        Plan(Table.IMBALANCED, by_proxy, LOWER, by_proxy=True),
    ]


def balanced_plans() -> list[Plan[StreamRow]]:
    """The paper's negative result; the RBF kernel, which it says fails; and memories by moments."""

    def row(key: str, picker: Picker, **facts: Any) -> StreamRow:
        return coreset_row(SPLIT_CIFAR, MEMORY, key, picker, **BALANCED, **facts)

    coreset = row("Streaming coreset", CORESET, reference=True)
    reservoir = stream_row(SPLIT_CIFAR, MEMORY, "Reservoir sampling", RESERVOIR, **BALANCED)
    moments = moment_rows(SPLIT_CIFAR, MEMORY, MOMENTS, CONVOLUTIONS, **BALANCED)
    by_sample = Plan(Table.STREAMING, reservoir)
    by_coreset = Plan(Table.STREAMING, coreset, HIGHER)
    by_moments = [Plan(Table.STREAMING, row) for row in moments]
    return [
        by_sample,
        by_coreset,
        Plan(Table.STREAMING, row("Streaming coreset RBF", RBF_CORESET)),
        Plan(Table.STREAMING, counted(coreset)),
        *by_moments,
        *(grouped(plan) for plan in (by_sample, by_coreset, by_moments[0])),
    ]


def grouped(plan: Plan[StreamRow]) -> Plan[StreamRow]:
    """The same row with a network whose groups of channels are normalised; it tries the same β."""
    key = f"{plan.row.key}, GroupNorm"
    return replace(plan, row=plan.row.variant(key, network=GROUPED_RESIDUAL, paper=None))


def every_plan() -> Sequence[Plan[Any]]:
    """All rows whose β are looked for."""
    return [*continual_plans(), _rbf(), *normalised_plans(), *imbalanced_plans(), *balanced_plans()]


@experiment("cifar-penalty", "SplitCIFAR-10: λ by the proxy's held-out loss", one_seed=True)
def penalty_experiment() -> list[Row]:
    """The network's kernel, by which λ is chosen; and the RBF kernel."""
    return [
        PenaltyRow(problem=SPLIT_CIFAR, key=LAMBDA_ROW, proxy=Proxy.NETWORK, reference=True),
        PenaltyRow(problem=SPLIT_CIFAR, key="Coreset RBF", proxy=Proxy.RBF),
    ]


@experiment(
    "cifar-betas", "SplitCIFAR-10: β by held-out points, one seed, fewer epochs", one_seed=True
)
def beta_experiment() -> list[Row]:
    """β on held-out points with one seed and fewer epochs."""
    epochs = {BETA_EPOCHS: [*continual_plans(), _rbf()], NORMALISED_EPOCHS // 2: normalised_plans()}
    return [
        plan.searching(epochs=few)
        for few, plans in epochs.items()
        for plan in plans
        if plan.searched
    ]


@experiment(
    "cifar-stream-betas",
    "Streams of SplitCIFAR-10: β by held-out points, fewer steps",
    one_seed=True,
)
def stream_beta_experiment() -> list[Row]:
    """β of the streams, with fewer steps a batch."""
    plans = [*imbalanced_plans(), *balanced_plans()]
    return [plan.searching(steps=plan.row.steps // FEWER_STEPS) for plan in plans]


@experiment("cifar-imbalanced", "An imbalanced stream of SplitCIFAR-10")
def imbalanced_experiment() -> list[Row]:
    return [plan.build() for plan in imbalanced_plans()]


@experiment("cifar-continual", "Continual learning on SplitCIFAR-10 with a memory of 200")
def continual_experiment() -> list[Row]:
    """The β that ``cifar-betas`` found; of the rows that matter most one more."""
    return [plan.build() for plan in continual_plans()]


@experiment(
    "cifar-normalised", "SplitCIFAR-10 with networks that are normalised, many seeds, fewer epochs"
)
def normalised_experiment() -> list[Row]:
    """Networks with statistics are tested twice: with those that training leaves, and with those of
    the memory."""
    rows = [plan.build() for plan in normalised_plans()]
    again = [
        replace(
            row.variant(f"{row.key} recalibrated"),
            source=Source("cifar-normalised", row.key, RECALIBRATED),
            network=replace(row.network, normalised=f"{row.network.normalised} recalibrated"),
        )
        for row in rows
        if row.recalibrated
    ]
    return [*rows, *again]


@experiment("cifar-streaming", "A balanced stream of SplitCIFAR-10")
def streaming_experiment() -> list[Row]:
    return [plan.build() for plan in balanced_plans()]


@experiment("cifar-summary", "CIFAR-10 in 30 … 210 points for the ResNet-18 (figure 3c)")
def summary_experiment() -> list[Row]:
    return list(summary_rows(CIFAR_POOL, summary.CIFAR))


@experiment("cifar-proxy", "An RBF kernel as the proxy on SplitCIFAR-10")
def proxy_experiment() -> list[Row]:
    """Uniform samples and the network's kernel, which are runs of another table, and the RBF."""
    plans = {plan.row.key: plan for plan in continual_plans()}
    shown = [
        replace(plans[key].build(), paper=None, source=Source("cifar-continual", key))
        for key in ("Uniform sampling", "Coreset")
    ]
    return [*shown, _rbf().build()]

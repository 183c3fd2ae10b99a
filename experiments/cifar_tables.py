"""The rows of every experiment on CIFAR-10."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from experiments import cifar, summary
from experiments.cifar import EVERY, HIGHER, LOW, LOWER, MEMORY, OTHERS, Plan
from experiments.continual import RECALIBRATED
from experiments.methods import (
    continual_row,
    continual_rows,
    imbalanced_rows,
    moment_rows,
    stream_row,
    summary_rows,
    with_counted_batches,
)
from experiments.networks import GROUPED_RESIDUAL, NORMALISED_RESIDUAL
from experiments.paper import published
from experiments.problems import CIFAR_POOL, IMBALANCED_CIFAR, SPLIT_CIFAR
from experiments.rows import Row, Source, experiment
from experiments.selections import PenaltyRow
from experiments.selectors import (
    CORESET,
    DIRECTIONS_CORESET,
    EMBEDDING_CORESET,
    RBF_CORESET,
    UNIFORM,
    Named,
    Proxy,
)
from experiments.stores import RESERVOIR, ByMoments, ByNetwork
from experiments.streaming import Weighting

#: Epochs a task, and by how much fewer steps a batch, of the runs that search β.
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
#: Both streams begin every batch with a fresh optimiser, as in the authors' code, unless a row says
#: otherwise.
IMBALANCED: dict[str, Any] = {"steps": 150, "slots": 1, "fresh": True}
BALANCED: dict[str, Any] = {"steps": 40, "slots": 10, "fresh": True}

_row = partial(continual_row, SPLIT_CIFAR, MEMORY)
_plan = partial(Plan, cifar.CONTINUAL)
#: The paper says that it fails on CIFAR-10.
_RBF = _plan(_row("Coreset RBF", RBF_CORESET))


def continual_plans() -> list[Plan]:
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


def _normalised() -> list[Plan]:
    """A network as one would train it today, normalised: on the memory of the paper's rows, and
    with its own embedding as the proxy.

    A network that has fitted a task seems to separate its points by what is odd in them, and their
    directions by what is common.
    """
    row = partial(_row, network=NORMALISED_RESIDUAL)
    name = "Coreset, normalised network"
    directions = f"{name}, directions of its embedding as the proxy"
    coresets = [
        row(name, CORESET),
        row(f"{name}, its embedding as the proxy", EMBEDDING_CORESET),
        row(directions, DIRECTIONS_CORESET, penalty=DIRECTIONS_PENALTY),
    ]
    return [
        _plan(row("Uniform sampling, normalised network", UNIFORM), follows="Uniform sampling"),
        *(_plan(replace(one, reference=True), follows="Coreset") for one in coresets),
    ]


def normalised_plans() -> list[Plan]:
    """Does a coreset win with a normalised network? Its statistics are those of a batch and all of
    the memory together; or groups of channels are normalised, and nothing is shared."""
    ways = {
        "Uniform sampling": UNIFORM,
        "Coreset": CORESET,
        "Joint moments, random convolutions": replace(CONVOLUTIONS, jointly=True),
    }
    plan, row = partial(Plan, cifar.NORMALISED), partial(_row, epochs=NORMALISED_EPOCHS)
    plans = []
    for network in (NORMALISED_RESIDUAL, GROUPED_RESIDUAL):
        shared = network is NORMALISED_RESIDUAL
        for key, how in ways.items():
            facts = {"network": network, "recalibrated": shared, "reference": key == "Coreset"}
            one = row(f"{key}, {network.normalised}", how, **facts)
            plans.append(plan(one, LOWER, () if shared else HIGHER))
    facts = {"network": NORMALISED_RESIDUAL, "recalibrated": True}
    embedded = row("Coreset, its embedding as the proxy, BatchNorm", EMBEDDING_CORESET, **facts)
    return [*plans, plan(embedded, follows="Coreset, BatchNorm")]


def imbalanced_plans() -> list[Plan]:
    """The paper's rows, and our own: slots that count for their batches, the RBF kernel, memories
    by moments, and one optimiser that lasts through the stream."""
    plan = partial(Plan, cifar.IMBALANCED)
    reservoir, balanced, coreset = (
        replace(row, **IMBALANCED) for row in imbalanced_rows(IMBALANCED_CIFAR, MEMORY)
    )
    lasting = {"fresh": False, "paper": None, "reference": False}
    sampled = reservoir.variant("Reservoir, one optimiser", **lasting)
    weighted = balanced.variant(
        "CBRS, one optimiser, weights of the stream", weighting=Weighting.SHARE, **lasting
    )
    by_proxy = coreset.variant("Coreset, λ by the proxy, one optimiser", **lasting)
    rbf = stream_row(IMBALANCED_CIFAR, MEMORY, "Coreset RBF", RBF_CORESET, **IMBALANCED)
    moments = moment_rows(IMBALANCED_CIFAR, MEMORY, EQUAL_MOMENTS, EQUAL_CONVOLUTIONS, **IMBALANCED)
    by_sample, by_coreset = plan(reservoir, LOWER), plan(coreset, HIGHER)
    by_moments = [plan(row, LOWER) for row in moments]
    return [
        by_sample,
        plan(balanced, LOWER),
        by_coreset,
        plan(with_counted_batches(coreset), LOWER),
        plan(rbf, LOWER),
        *by_moments,
        *map(with_groups, (by_sample, by_coreset, by_moments[0])),
        plan(sampled, LOW),
        plan(weighted, LOW),
        plan(coreset.variant("Coreset, one optimiser", **lasting), LOWER),
        plan(by_proxy, LOWER, by_proxy=True),
    ]


def balanced_plans() -> list[Plan]:
    """The paper's negative result; the RBF kernel, which it says fails; and memories by moments."""
    plan = partial(Plan, cifar.STREAMING)
    row = partial(stream_row, SPLIT_CIFAR, MEMORY, **BALANCED)
    coreset = row("Streaming coreset", CORESET, reference=True)
    moments = moment_rows(SPLIT_CIFAR, MEMORY, MOMENTS, CONVOLUTIONS, **BALANCED)
    by_sample, by_coreset = plan(row("Reservoir sampling", RESERVOIR)), plan(coreset, HIGHER)
    by_moments = list(map(plan, moments))
    return [
        by_sample,
        by_coreset,
        plan(row("Streaming coreset RBF", RBF_CORESET)),
        plan(with_counted_batches(coreset)),
        *by_moments,
        *map(with_groups, (by_sample, by_coreset, by_moments[0])),
    ]


def with_groups(plan: Plan) -> Plan:
    """The same row with a network whose groups of channels are normalised; it tries the same β."""
    key = f"{plan.row.key}, GroupNorm"
    return replace(plan, row=plan.row.variant(key, network=GROUPED_RESIDUAL, paper=None))


def every_plan() -> Sequence[Plan]:
    """All rows whose β are searched."""
    return [*continual_plans(), _RBF, *normalised_plans(), *imbalanced_plans(), *balanced_plans()]


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
    epochs = {BETA_EPOCHS: [*continual_plans(), _RBF], NORMALISED_EPOCHS // 2: normalised_plans()}
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
        row.variant(
            f"{row.key} recalibrated",
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
    return [*shown, _RBF.build()]

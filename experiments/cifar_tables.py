"""The rows of every experiment on CIFAR-10, and how each row's β and λ are found.

Every training is long, so β is searched with one seed and fewer epochs or steps, on held-out
points; ``choose`` writes what was found to ``chosen.json``. Tables then hold one β a row, two for
the rows that matter most.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments import summary
from experiments.continual import RECALIBRATED
from experiments.courses import BETAS, RehearsingRow
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
from experiments.paper import find_published
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

MEMORY = 200
#: β tried: everything for the rows that matter most; for the others the published best (1 for most,
#: 10, 100 for k-means of grads) and its neighbours; in continual learning on beyond an end that was
#: best.
EVERY = BETAS
OTHERS = (1.0, 10.0, 100.0)
LOWER = (0.1, *OTHERS)
HIGHER = (*OTHERS, 1000.0)
LOW = (0.01, 0.1, 1.0)
CHOSEN = Path(__file__).with_name("chosen.json")
#: Tables of the file of β that were chosen.
CONTINUAL, NORMALISED = "continual", "normalised"
ON_IMBALANCED, ON_BALANCED = "imbalanced", "streaming"
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


@dataclass(frozen=True)
class Plan:
    """A row, and how it finds its β: among those ``tried``, or as the row it ``follows`` does.

    ``also`` is run in addition to the choice of few epochs, which learn a last task less well than
    many and so favour a small β. ``by_proxy`` takes the λ that gives the proxy the lowest held-out
    loss; it is much smaller than that of the authors' scripts.
    """

    table: str
    row: RehearsingRow
    tried: tuple[float, ...] = OTHERS
    also: tuple[float, ...] = ()
    follows: str | None = None
    by_proxy: bool = False

    @property
    def betas_to_try(self) -> tuple[float, ...]:
        """The β to try; none if none is rehearsed, or if the row follows another."""
        return self.tried if self.row.is_rehearsed and self.follows is None else ()

    @property
    def beta(self) -> float:
        """The β found on held-out points; not a number before that."""
        found = _read_chosen().get(self.table, {})
        return float(found.get(self.follows or self.row.key, math.nan))

    @property
    def penalty(self) -> float:
        """λ: the row's own, or the proxy's choice."""
        own = self.row.penalty
        return float(_read_chosen().get("penalty", own)) if self.by_proxy else own

    def build(self) -> RehearsingRow:
        """The row of the table, with the β that it runs."""
        betas = tuple(dict.fromkeys((self.beta, *self.also)))
        return replace(self.row, betas=betas, penalty=self.penalty)

    def searching(self, **fewer: Any) -> RehearsingRow:
        """The row that searches β, with ``fewer`` steps or epochs."""
        return replace(self.row, betas=self.betas_to_try, penalty=self.penalty, paper=None, **fewer)


def _read_chosen() -> dict[str, Any]:
    return json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}


def choose(
    plans: Sequence[Plan],
    betas: Mapping[str, Iterable[dict[str, Any]]],
    penalties: Iterable[dict[str, Any]],
) -> dict[str, Any]:
    """For each row whose β have all been tried that of the highest accuracy on held-out points; λ
    of the lowest held-out loss."""
    found: dict[str, Any] = {}
    losses = {float(record["penalty"]): float(np.mean(record["held_loss"])) for record in penalties}
    if losses:
        found["penalty"] = min(losses, key=lambda value: losses[value])
    for table, records in betas.items():
        searched = {plan.row.key: plan.betas_to_try for plan in plans if plan.table == table}
        held: dict[str, dict[float, float]] = {key: {} for key in sorted(searched)}
        for record in records:
            if record["method"] in held:
                held[record["method"]][float(record["beta"])] = float(np.mean(record["held"]))
        best = {
            key: max(scores, key=lambda beta: scores[beta])
            for key, scores in held.items()
            if scores and set(searched[key]) <= set(scores)
        }
        if best:
            found[table] = best
    return found


_row = partial(continual_row, SPLIT_CIFAR, MEMORY)
_plan = partial(Plan, CONTINUAL)
#: The paper says that it fails on CIFAR-10.
_RBF = _plan(_row("Coreset RBF", RBF_CORESET))


def continual_plans() -> list[Plan]:
    """The paper's rows, and our own."""
    matching, scaled = "Gradient matching", Named("gradient-matching", scaled=True)
    paper = find_published("continual_learning", matching, SPLIT_CIFAR)
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
        *_normalised_coresets(),
    ]


def _normalised_coresets() -> list[Plan]:
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
    plan, row = partial(Plan, NORMALISED), partial(_row, epochs=NORMALISED_EPOCHS)
    plans = []
    for network in (NORMALISED_RESIDUAL, GROUPED_RESIDUAL):
        shared = network is NORMALISED_RESIDUAL
        for key, how in ways.items():
            facts = {"network": network, "recalibrated": shared, "reference": key == "Coreset"}
            one = row(f"{key}, {network.normalisation}", how, **facts)
            plans.append(plan(one, LOWER, () if shared else HIGHER))
    facts = {"network": NORMALISED_RESIDUAL, "recalibrated": True}
    embedded = row("Coreset, its embedding as the proxy, BatchNorm", EMBEDDING_CORESET, **facts)
    return [*plans, plan(embedded, follows="Coreset, BatchNorm")]


def imbalanced_plans() -> list[Plan]:
    """The paper's rows, and our own: slots that count for their batches, the RBF kernel, memories
    by moments, and one optimiser that lasts through the stream."""
    plan = partial(Plan, ON_IMBALANCED)
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
    plan = partial(Plan, ON_BALANCED)
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


@experiment("cifar-penalty", "SplitCIFAR-10: λ from the proxy's held-out loss", one_seed=True)
def penalty_experiment() -> list[Row]:
    """The network's kernel, by which λ is chosen; and the RBF kernel."""
    return [
        PenaltyRow(problem=SPLIT_CIFAR, key=LAMBDA_ROW, proxy=Proxy.NETWORK, reference=True),
        PenaltyRow(problem=SPLIT_CIFAR, key="Coreset RBF", proxy=Proxy.RBF),
    ]


@experiment(
    "cifar-betas", "SplitCIFAR-10: β from held-out rows (one seed, fewer epochs)", one_seed=True
)
def beta_experiment() -> list[Row]:
    """β on held-out points with one seed and fewer epochs."""
    epochs = {BETA_EPOCHS: [*continual_plans(), _RBF], NORMALISED_EPOCHS // 2: normalised_plans()}
    return [
        plan.searching(epochs=few)
        for few, plans in epochs.items()
        for plan in plans
        if plan.betas_to_try
    ]


@experiment(
    "cifar-stream-betas",
    "Streams of SplitCIFAR-10: β from held-out rows (fewer steps)",
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
    "cifar-normalised", "SplitCIFAR-10 with batch or group normalisation (many seeds, fewer epochs)"
)
def normalised_experiment() -> list[Row]:
    """Networks with statistics are tested twice: with those that training leaves, and with those of
    the memory."""
    rows = [plan.build() for plan in normalised_plans()]
    again = [
        row.variant(
            f"{row.key} recalibrated",
            source=Source("cifar-normalised", row.key, RECALIBRATED),
            network=replace(row.network, normalisation=f"{row.network.normalisation} recalibrated"),
        )
        for row in rows
        if row.recalibrated
    ]
    return [*rows, *again]


@experiment("cifar-streaming", "A balanced stream of SplitCIFAR-10")
def streaming_experiment() -> list[Row]:
    return [plan.build() for plan in balanced_plans()]


@experiment("cifar-summary", "CIFAR-10: 30 to 210 rows for the ResNet-18 (figure 3c)")
def summary_experiment() -> list[Row]:
    return list(summary_rows(CIFAR_POOL, summary.CIFAR))


@experiment("cifar-proxy", "An RBF kernel as the proxy on SplitCIFAR-10")
def proxy_experiment() -> list[Row]:
    """Random samples and the network's kernel, which are runs of another table, and the RBF."""
    plans = {plan.row.key: plan for plan in continual_plans()}
    shown = [
        replace(plans[key].build(), paper=None, source=Source("cifar-continual", key))
        for key in ("Uniform sampling", "Coreset")
    ]
    return [*shown, _RBF.build()]

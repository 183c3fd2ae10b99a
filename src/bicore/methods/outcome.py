"""The end of a search: optimise weights, compare paths, verify the objective, build the coreset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bicore.bilevel.contract import Demand, Quantity, ReweighableEngine
from bicore.bilevel.engines import reweighable
from bicore.bilevel.greedy import Outcome, zero_weight_message
from bicore.bilevel.prepare import Prepared
from bicore.bilevel.solvers.weights import WeightOptimiser, optimised
from bicore.bilevel.strategies.base import Assembly
from bicore.bilevel.verification import Verification
from bicore.coreset import Coreset, Provenance, Status
from bicore.data import Array, Dataset, as_weights
from bicore.errors import InputError
from bicore.picking import Start, as_start
from bicore.runtime.clock import Clock, TimeOver

#: Two objectives that differ by less than this share are equally good.
EQUAL = 1e-7
_FALLBACK = "while weights were learned after every point: those of the end alone, all points"
#: Outcomes if only the path of unit weights was completed.
ONLY_FINAL = {
    Status.OUT_OF_TIME: Outcome(Status.NOT_REFINED, f"stopped by max_seconds {_FALLBACK}"),
    Status.INTERRUPTED: Outcome(Status.INTERRUPTED, f"interrupted {_FALLBACK}"),
}


def optimise_weights(assembly: Assembly, ending: Outcome, optimiser: WeightOptimiser) -> Outcome:
    """Optimise the weights of all points once; points of weight zero leave."""
    run = assembly.run
    engine = assembly.reweighable(len(run.indices))
    complete = ending.status is Status.COMPLETE
    kept = "before the weights were optimised: all points, with unit weights"
    try:
        engine.extend(run.indices.tolist(), run.weights.tolist())
        optimiser.optimise(optimised(engine), final=True, clock=assembly.clock)
        assembly.problem = engine.problem
    except KeyboardInterrupt:
        return Outcome(Status.INTERRUPTED, f"interrupted {kept}")
    except TimeOver:
        late = Outcome(Status.NOT_REFINED, f"stopped by max_seconds {kept}")
        return late if complete else ending
    indices, run.weights = positive_weights(engine)
    run.objectives = [*run.objectives[: len(indices) - 1], engine.objective]
    before = len(run.indices)
    run.indices = indices
    return weights_outcome(len(indices), before, assembly.clock) if complete else ending


def positive_weights(engine: ReweighableEngine) -> tuple[Array, Array]:
    """Return the points of positive weight and their weights."""
    weights = engine.weights.double().cpu().numpy()
    kept = weights > 0
    return np.array(engine.chosen, dtype=np.int64)[kept], weights[kept]


def weights_outcome(left: int, size: int, clock: Clock) -> Outcome:
    """Return how an optimisation of weights ended."""
    if left < size:
        return Outcome(Status.FEWER, zero_weight_message(left, size))
    if not clock.over:
        return Outcome()
    return Outcome(
        Status.NOT_REFINED,
        "stopped by max_seconds while the weights were optimised: all points, not refined",
    )


def better_path(
    final: Assembly, ending: Outcome, learned: Assembly, learnt_ending: Outcome
) -> tuple[Assembly, Outcome]:
    """Return the path that ends lower, with a note if weights were learned at the end only."""
    status = learnt_ending.status
    if not status.whole and len(learned.run.indices) < learned.size:
        return final, ONLY_FINAL[status]
    lower, other = final.run.objectives[-1], learned.run.objectives[-1]
    if other <= lower + EQUAL * abs(lower):
        return learned, learnt_ending
    final.notes.append(
        "weights were learned at the end only, for points chosen with weights of 1: points chosen "
        f"with weights learned after every point end at {other:.6g}, these at {lower:.6g}"
    )
    return final, ending if status.whole else ONLY_FINAL[status]


def build_coreset(
    data: Dataset,
    points: Array,
    weights: Array,
    objectives: Sequence[float],
    ending: Outcome,
    provenance: Provenance,
    details: dict[str, Any],
    verify: Callable[[Array, Array, float], Verification],
) -> Coreset:
    """Build the coreset, and verify its objective."""
    coreset = Coreset(
        points,
        weights,
        data.ids[points],
        np.array(objectives),
        ending.status,
        ending.message,
        provenance,
        details,
    )
    return verify(points, weights, objectives[-1]).apply(coreset) if len(objectives) else coreset


def fit_engine(prepared: Prepared, start: Start) -> ReweighableEngine:
    """Fit the model on points with weights."""
    needs = frozenset({Quantity.GRADIENT})
    demand = Demand(len(start.points), needs, closed_form=False, solvers=prepared.solvers)
    engine = reweighable(prepared.problem, demand)
    if start.points:
        engine.extend(start.points, start.weights)
    return engine


def weighted_points(data: Dataset, indices: Sequence[int], weights: Any) -> Start:
    """Check points whose weights are to be learned, and the weights to start from."""
    found = as_start(indices, data, max(len(indices), 1), "indices", continues=False)
    if not found.points:
        raise InputError("indices must hold at least one row number; got none.")
    if weights is None:
        return found
    return Start(found.points, as_weights(weights, len(found.points), "start").tolist())

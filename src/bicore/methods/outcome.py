"""The end of a search: optimise weights, compare paths, verify the objective, build the coreset."""

from __future__ import annotations

import numpy as np

from bicore.bilevel.contract import ReweighableEngine
from bicore.bilevel.greedy import (
    WEIGHTS_NOT_REFINED,
    Outcome,
    unrefined_outcome,
    zero_weight_outcome,
)
from bicore.bilevel.prepare import Prepared
from bicore.bilevel.solvers.weights import WeightOptimiser, as_reweighable
from bicore.bilevel.strategies.base import Assembly
from bicore.bilevel.verification import verify_objective
from bicore.coreset import Coreset, Status
from bicore.data import Array
from bicore.runtime.clock import Clock, TimeOver

#: Two objectives that differ by less than this share are equally good.
EQUAL = 1e-7
#: When a search ended if only the path of uniform weights was completed.
WHILE_LEARNING = "while weights were learned after every row: those of the end alone, all rows"


def optimise_weights(assembly: Assembly, optimiser: WeightOptimiser) -> None:
    """Optimise the weights of all points once; points of weight zero leave."""
    run, before = assembly.run, assembly.outcome
    complete = before.status is Status.COMPLETE
    when = "before the weights were optimised: all rows, with unit weights"
    try:
        engine = assembly.reweighable(run.indices.tolist())
        optimiser.optimise(as_reweighable(engine), final=True, clock=assembly.clock)
        assembly.problem = engine.problem
    except KeyboardInterrupt:
        assembly.outcome = unrefined_outcome(when, interrupted=True)
        return
    except TimeOver:
        assembly.outcome = unrefined_outcome(when) if complete else before
        return
    taken = len(run.indices)
    run.indices, run.weights = positive_weights(engine)
    run.objectives = [*run.objectives[: len(run.indices) - 1], engine.objective]
    if complete:
        assembly.outcome = weights_outcome(len(run.indices), taken, assembly.clock)


def positive_weights(engine: ReweighableEngine) -> tuple[Array, Array]:
    """Return the points of positive weight and their weights."""
    weights = engine.weights.double().cpu().numpy()
    kept = weights > 0
    return np.array(engine.chosen, dtype=np.int64)[kept], weights[kept]


def weights_outcome(left: int, size: int, clock: Clock) -> Outcome:
    """Return how an optimisation of weights ended."""
    if left < size:
        return zero_weight_outcome(left, size)
    return WEIGHTS_NOT_REFINED if clock.over else Outcome()


def choose_path(final: Assembly, learned: Assembly) -> Assembly:
    """Return the path that ends lower, with a note if weights were learned at the end only."""
    status = learned.outcome.status
    if status.whole or len(learned.run.indices) >= learned.size:
        lower, other = final.run.objectives[-1], learned.run.objectives[-1]
        if other <= lower + EQUAL * abs(lower):
            return learned
        final.notes.append(
            "weights were learned at the end only, for rows chosen with weights of 1: rows "
            f"chosen with weights learned after every row end at {other:.6g}, these at "
            f"{lower:.6g}"
        )
    if not status.whole:
        final.outcome = unrefined_outcome(WHILE_LEARNING, status is Status.INTERRUPTED)
    return final


def verify(prepared: Prepared, coreset: Coreset) -> Coreset:
    """Verify the objective of a coreset."""
    if not len(coreset.objectives):
        return coreset
    reported = float(coreset.objectives[-1])
    return verify_objective(prepared, coreset.indices, coreset.weights, reported).apply(coreset)

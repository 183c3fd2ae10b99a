"""Weights that are optimised when the points are there, and which of two paths to them is kept."""

from __future__ import annotations

from bicore.bilevel.greedy import Ending, weightless
from bicore.bilevel.solvers.weights import WeightOptimiser
from bicore.bilevel.strategies.base import Assembly
from bicore.coreset import Status
from bicore.runtime import Clock, TimeOver

#: The weights of two paths whose objectives differ by less than this share are equally good.
EQUAL = 1e-7
_FALLBACK = "while weights were learnt after every point: those of the end alone, all points"
#: What is said where only the path of unit weights came to its end.
UNLEARNT = {
    Status.OUT_OF_TIME: Ending(Status.LESS_REFINED, f"stopped by max_seconds {_FALLBACK}"),
    Status.INTERRUPTED: Ending(Status.INTERRUPTED, f"interrupted {_FALLBACK}"),
}
#: What is said where the time was over before the weights were looked at, and while they were.
UNWEIGHTED = Ending(
    Status.LESS_REFINED,
    "stopped by max_seconds before the weights were optimised: all points, with unit weights",
)
HALFWAY = Ending(
    Status.LESS_REFINED,
    "stopped by max_seconds while the weights were optimised: all points, less refined",
)


def reweighted(assembly: Assembly, ending: Ending, optimiser: WeightOptimiser) -> Ending:
    """The same points with weights optimised once; those whose weight is zero leave."""
    if ending.status is Status.INTERRUPTED:
        return ending
    run = assembly.run
    engine = assembly.reweighable(len(run.indices))
    try:
        engine.extend(run.indices.tolist(), run.weights.tolist())
        optimiser.optimise(engine, final=True, clock=assembly.clock)
    except KeyboardInterrupt:
        return Ending(
            Status.INTERRUPTED,
            "interrupted while the weights were optimised: all points, with unit weights",
        )
    except TimeOver:
        return ending if ending.status is not Status.COMPLETE else UNWEIGHTED
    weights = engine.weights.double().cpu().numpy()
    kept = weights > 0
    run.objectives = [*run.objectives[: int(kept.sum()) - 1], engine.objective]
    run.indices = run.indices[kept]
    run.weights = weights[kept]
    if ending.status is not Status.COMPLETE:
        return ending
    return optimised(int(kept.sum()), len(kept), assembly.clock)


def better(
    plain: Assembly, plain_ending: Ending, own: Assembly, own_ending: Ending
) -> tuple[Assembly, Ending]:
    """Of two paths to the same size the one that ends lower, with a word where that is the one of
    unit weights."""
    status = own_ending.status
    if not status.whole and len(own.run.indices) < own.size:
        return plain, UNLEARNT[status]
    lower = plain.run.objectives[-1]
    other = own.run.objectives[-1]
    if other <= lower + EQUAL * abs(lower):
        return own, own_ending
    plain.notes.append(
        "weights were learnt at the end alone, for points chosen with weights of 1: those chosen "
        f"with weights learnt after every point end at {other:.6g}, these at {lower:.6g}"
    )
    return plain, plain_ending if status.whole else UNLEARNT[status]


def optimised(left: int, size: int, clock: Clock) -> Ending:
    """How an optimisation of weights ended."""
    if left < size:
        return Ending(Status.FEWER, weightless(left, size))
    return HALFWAY if clock.over else Ending()

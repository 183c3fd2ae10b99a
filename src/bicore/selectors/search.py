"""Search a prepared problem: run the strategy, weight the points, verify, build the coreset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bicore.bilevel.contract import Demand, Quantity, ReweighableEngine, Scoring
from bicore.bilevel.engines import choose, reweighable
from bicore.bilevel.greedy import Ending, Plan, Run, weightless
from bicore.bilevel.prepare import Prepared
from bicore.bilevel.solvers.weights import Weighing, WeightMode, WeightOptimiser, optimised
from bicore.bilevel.strategies.base import Assembly, Strategy
from bicore.bilevel.verification import Verification, verify_objective
from bicore.coreset import Coreset, Provenance, Status
from bicore.data import Array, Dataset, as_weights
from bicore.errors import InputError
from bicore.picking import Start, as_start
from bicore.runtime import Clock, ProgressLine, TimeOver

#: Two objectives that differ by less than this share are equally good.
EQUAL = 1e-7
_FALLBACK = "while weights were learnt after every point: those of the end alone, all points"
#: Outcomes if only the path of unit weights was completed.
ONLY_FINAL = {
    Status.OUT_OF_TIME: Ending(Status.LESS_REFINED, f"stopped by max_seconds {_FALLBACK}"),
    Status.INTERRUPTED: Ending(Status.INTERRUPTED, f"interrupted {_FALLBACK}"),
}


@dataclass(frozen=True, eq=False)
class Search:
    """A prepared problem, how to search it, and the limits."""

    prepared: Prepared
    strategy: Strategy
    rule: Scoring
    demand: Demand
    plan: Plan
    weights: WeightMode
    optimiser: WeightOptimiser
    start: Start
    #: Whether the objectives of the initial points are those of this problem.
    same_problem: bool
    size: int
    clock: Clock
    line: ProgressLine

    def run(self) -> tuple[Assembly, Ending]:
        """Find points and weights."""
        if self.weights is not WeightMode.LEARNT:
            return self._run_strategy()
        # Which greedy path ends lower is known only after both. The path of unit weights comes
        # first: it is cheaper, and the fallback if the search ends early.
        final, ending = self._without_learning()._run_strategy()
        if not ending.status.whole:
            return final, ending
        try:
            learnt, learnt_ending = self._run_strategy()
        except KeyboardInterrupt:
            return final, ONLY_FINAL[Status.INTERRUPTED]
        except TimeOver:
            return final, ONLY_FINAL[Status.OUT_OF_TIME]
        return _better_path(final, ending, learnt, learnt_ending)

    def _without_learning(self) -> Search:
        """Return the search with weights learnt at the end only, without reporting its points."""
        line = self.line
        if line.callback is not None:
            line = ProgressLine(False, self.clock, line.total, line.label)
        demand = replace(self.demand, reweighs=False)
        return replace(self, weights=WeightMode.FINAL, demand=demand, same_problem=False, line=line)

    def _run_strategy(self) -> tuple[Assembly, Ending]:
        problem = self.prepared.problem
        weighing = None
        if self.demand.reweighs:
            weighing = Weighing(reweighable(problem, self.demand), self.optimiser)
        engine = choose(problem, self.demand) if weighing is None else weighing.engine
        plan = replace(self.plan, open=self.plan.open.copy())
        run = Run(engine, self.rule, plan, self.clock, self.line, weighing)
        assembly = Assembly(
            problem, self.demand, run, self.start, self.same_problem, self.size, self.clock
        )
        ending = self.strategy.assemble(assembly)
        assembly.problem = engine.problem  # with the ρ that was learned
        if self.weights is WeightMode.FINAL and ending.status is not Status.INTERRUPTED:
            ending = _optimise_weights(assembly, ending, self.optimiser)
        return assembly, ending


def _optimise_weights(assembly: Assembly, ending: Ending, optimiser: WeightOptimiser) -> Ending:
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
        return Ending(Status.INTERRUPTED, f"interrupted {kept}")
    except TimeOver:
        late = Ending(Status.LESS_REFINED, f"stopped by max_seconds {kept}")
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


def weights_outcome(left: int, size: int, clock: Clock) -> Ending:
    """Return how an optimisation of weights ended."""
    if left < size:
        return Ending(Status.FEWER, weightless(left, size))
    if not clock.over:
        return Ending()
    return Ending(
        Status.LESS_REFINED,
        "stopped by max_seconds while the weights were optimised: all points, less refined",
    )


def _better_path(
    final: Assembly, ending: Ending, learnt: Assembly, learnt_ending: Ending
) -> tuple[Assembly, Ending]:
    """Return the path that ends lower, with a note if weights were learnt at the end only."""
    status = learnt_ending.status
    if not status.whole and len(learnt.run.indices) < learnt.size:
        return final, ONLY_FINAL[status]
    lower, other = final.run.objectives[-1], learnt.run.objectives[-1]
    if other <= lower + EQUAL * abs(lower):
        return learnt, learnt_ending
    final.notes.append(
        "weights were learnt at the end only, for points chosen with weights of 1: points chosen "
        f"with weights learnt after every point end at {other:.6g}, these at {lower:.6g}"
    )
    return final, ending if status.whole else ONLY_FINAL[status]


def build_coreset(
    prepared: Prepared,
    points: Array,
    weights: Array,
    objectives: Sequence[float],
    ending: Ending,
    provenance: Provenance,
    details: dict[str, Any],
) -> Coreset:
    """Verify the objective and build the coreset."""
    checked = Verification(0.0)
    if len(objectives):
        checked = verify_objective(prepared, points, weights, objectives[-1])
    coreset = Coreset(
        points,
        weights,
        prepared.ids[points],
        np.array(objectives),
        ending.status,
        ending.message,
        provenance,
        details,
    )
    return checked.apply(coreset)


def fit_engine(prepared: Prepared, start: Start) -> ReweighableEngine:
    """Fit the model on points with weights."""
    needs = frozenset({Quantity.GRADIENT})
    demand = Demand(len(start.points), needs, closed_form=False, solvers=prepared.solvers)
    engine = reweighable(prepared.problem, demand)
    if start.points:
        engine.extend(start.points, start.weights)
    return engine


def weighted_points(data: Dataset, indices: Sequence[int], weights: Any) -> Start:
    """Check points whose weights are to be learnt, and the weights to start from."""
    found = as_start(indices, data, max(len(indices), 1), "indices", continues=False)
    if not found.points:
        raise InputError("indices must hold at least one row number; got none.")
    if weights is None:
        return found
    return Start(found.points, as_weights(weights, len(found.points), "start").tolist())

"""How a coreset is assembled: the base of all strategies, and those that only grow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.contract import Demand, Effort, Quantity, ReweighableEngine
from bicore.bilevel.engines import choose, reweighable
from bicore.bilevel.greedy import Outcome, Plan, Run
from bicore.bilevel.posterior import PASSES_A_POINT
from bicore.bilevel.problem import Problem
from bicore.bilevel.rules import Gradient, Rule
from bicore.bilevel.strategies.exact import greedy_order
from bicore.coreset import Status, ended
from bicore.data import Array
from bicore.errors import TimeLimitError, check_integer
from bicore.kernels.operators import Features, Gram, KernelOperator
from bicore.picking import Start, ranks_of
from bicore.runtime.clock import Clock, ProgressLine, TimeOver


@dataclass(eq=False)
class Assembly:
    """The points so far and what a strategy did with them; whole at every moment."""

    problem: Problem
    demand: Demand
    #: The greedy run that takes the first points.
    run: Run
    start: Start
    #: Whether the objectives of the points given are those of this very problem.
    same_problem: bool
    #: How many points are asked for; the run may take more.
    size: int
    #: How long it may take.
    clock: Clock
    #: What a strategy has to say, for display, and in sentences.
    details: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def fixed(self) -> int:
        """How many points were given and stay."""
        return min(len(self.start.points), self.size)

    @property
    def ranks(self) -> list[int]:
        """The place of every point in the order of the ids."""
        ranks: list[int] = ranks_of(self.run.plan.ids).tolist()
        return ranks

    @property
    def open(self) -> Tensor:
        """A mask of the points that may still join, where the engine computes."""
        return torch.from_numpy(self.run.plan.open.copy()).to(self.problem.train.like.device)

    def grow(self) -> Outcome:
        """Take points one by one, or as the plan has it."""
        ending = self.run.complete(self.start, self.same_problem)
        if self.run.engine.effort:
            self.details["effort"] = dict(self.run.engine.effort)
        return ending

    def reweighable(self, capacity: int) -> ReweighableEngine:
        """An empty engine of the same problem whose weights may change."""
        needs = frozenset({Quantity.GRADIENT})
        return reweighable(self.problem, replace(self.demand, capacity=capacity, needs=needs))

    def ordered(self, points: Sequence[int], exact: bool) -> Status:
        """Put the points into greedy order, the given ones first: by exact gains, or by the
        gradient.

        The run is theirs if that could be finished: within the time, and a little more.
        """
        clock = self.clock.closing()
        try:
            with clock.running():
                if exact:
                    self._by_gains(points)
                    return Status.COMPLETE
                again = self._again(np.array(points, dtype=np.int64), Gradient(), clock)
                fixed = list(range(self.fixed))
                status = again.complete(Start(fixed, [1.0] * len(fixed))).status
        except TimeLimitError:
            return Status.OUT_OF_TIME
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        if status is Status.COMPLETE:
            again.indices = np.array(points, dtype=np.int64)[again.indices]
            self.run = again
        return status

    def _by_gains(self, points: Sequence[int]) -> None:
        order, objectives = greedy_order(self.problem, points, self.fixed, self.ranks)
        self.run.indices = np.array(order, dtype=np.int64)
        self.run.weights = np.ones(len(order))
        self.run.objectives = objectives

    def _again(self, points: Array, rule: Rule, clock: Clock) -> Run:
        """A run among these points alone, numbered from 0."""
        count = len(points)
        needs = frozenset({rule.quantity})
        demand = replace(self.demand, capacity=count, needs=needs, exact=False, repeats=False)
        quiet = ProgressLine(False, clock, count, "ordering")
        plan = Plan(count, self.run.plan.ids[points], np.ones(count, dtype=bool))
        again = Run(choose(restricted(self.problem, points), demand), rule, plan, clock, quiet)
        again.empty_objective = self.run.empty_objective
        return again


class Strategy(ABC):
    """How points are put together into a coreset."""

    name: str
    #: Whether it needs the exact objective of every exchange and removal.
    exact = False
    #: Whether it has something to do when the points are taken; it then needs weights of 1 while it
    #: works, and a constant regulariser.
    refines = False
    #: Whether a prefix of its answer is its answer for a smaller size.
    ordered = True
    #: Points taken between two looks at the scores.
    together = 1
    #: Whether it is chosen when the data are known.
    open = False

    def grown(self, size: int, available: int) -> int:
        """How many points are taken at first.

        Parameters
        ----------
        size : int
            How many are asked for.
        available : int
            How many there are.

        Returns
        -------
        int
            At least ``size``.
        """
        return size

    def effort(self, taken: int, points: int, outer: int) -> Effort:
        """The cost of refining in addition to growing.

        Parameters
        ----------
        taken : int
            How many points are taken at first.
        points, outer : int
            How many there are, and how many the objective is measured on.

        Returns
        -------
        Effort
            Nothing, where nothing is refined.
        """
        return Effort()

    @abstractmethod
    def assemble(self, assembly: Assembly) -> Outcome:
        """Bring an assembly to its size.

        Parameters
        ----------
        assembly : Assembly
            The problem, an engine without points, and what is asked for.

        Returns
        -------
        Outcome
            How it ended.
        """


class Refining(Strategy):
    """Grow, improve the points by what is known only when they are all there, put them in order."""

    refines = True
    ordered = False

    def effort(self, taken: int, points: int, outer: int) -> Effort:
        # The columns of all points taken, twice, and their products.
        return Effort(held=3 * taken, passes=2 + PASSES_A_POINT * taken)

    def assemble(self, assembly: Assembly) -> Outcome:
        ending = assembly.grow()
        assembly.details["strategy"] = repr(self)
        if not ending.status.whole:
            return _cut(assembly, ending.status)
        points = assembly.run.indices.tolist()
        known = dict(assembly.details)
        try:
            points, refined = self.refine(assembly, points)
            if refined.status is not Status.COMPLETE:
                ending = refined  # otherwise what growing had to say stands
        except KeyboardInterrupt:
            ending = Outcome(
                Status.INTERRUPTED,
                "interrupted while the points were refined: all points, not refined",
            )
        except TimeOver:
            ending = Outcome(
                Status.NOT_REFINED,
                "stopped by max_seconds while the points were refined: all points, not refined",
            )
        status = assembly.ordered(points[: assembly.size], self.exact)
        if status is Status.COMPLETE:
            return ending
        # Better points without an order are no coreset: those stand that growing took.
        assembly.details = known
        assembly.notes.clear()
        return _cut(assembly, status)

    @abstractmethod
    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Outcome]:
        """Better points.

        Parameters
        ----------
        assembly : Assembly
            The problem and what may join.
        points : list of int
            Those that were taken. After an interrupt this list is what is kept: a strategy whose
            steps each leave a better coreset changes it in place.

        Returns
        -------
        tuple
            The points, of which the first ``assembly.size`` count, and how it ended.
        """


def restricted(problem: Problem, points: Array) -> Problem:
    """The same problem with these points alone to choose from; the outer set stays as it is.

    Their columns are all that a choice among them needs: no pass over the kernel matrix.
    """
    index = torch.from_numpy(points).to(problem.train.like.device)
    own = problem.train.feature_rows
    other = problem.cross.feature_rows
    train: KernelOperator
    cross: KernelOperator
    if own is not None and other is not None:
        columns = own[1][index]
        train, cross = Features(columns, columns), Features(other[0], columns)
    else:
        outer = problem.cross.columns(index)
        columns = outer if problem.same else problem.train.columns(index)
        train, cross = Gram(columns[index].contiguous(), symmetric=True), Gram(outer)
    return replace(problem, train=train, cross=cross, inner_targets=problem.inner_targets[index])


def _cut(assembly: Assembly, status: Status) -> Outcome:
    """What a run that ended early leaves: at most the points asked for, as they were taken."""
    run = assembly.run
    size = assembly.size
    run.indices = run.indices[:size]
    run.weights = run.weights[:size]
    run.objectives = run.objectives[:size]
    taken = len(run.indices)
    if taken < size:
        return Outcome(status, ended(status, taken, size))
    how = "interrupted"
    if status is Status.OUT_OF_TIME:
        status = Status.NOT_REFINED
        how = "stopped by max_seconds"
    return Outcome(status, f"{how} before the points were refined: all points, not refined")


def unit_objective(engine: ReweighableEngine, points: Array | list[int]) -> float:
    """G of these points with weight 1."""
    engine.extend([int(k) for k in points], [1.0] * len(points))
    return engine.objective


@dataclass(frozen=True)
class Greedy(Strategy):
    """One point at a time, by the rule alone.

    Examples
    --------
    >>> Greedy().ordered
    True
    """

    name = "greedy"

    def assemble(self, assembly: Assembly) -> Outcome:
        return assembly.grow()


@dataclass(frozen=True)
class OpenStrategy(Greedy):
    """Chosen when the data are known; until then one point at a time."""

    name = "auto"
    open = True
    ordered = False  # it may turn out to refine


@dataclass(frozen=True)
class Batches(Strategy):
    """Several points at a time, for large coresets and expensive fits.

    With the squared error they are chosen greedily and exactly among the four times as many best
    scores and taken at once: one block product in place of a pass over the kernel matrix for each.
    With other losses the best scores are taken as they are.

    Parameters
    ----------
    count : int
        The largest batch; a batch has at most a tenth of the points chosen so far.

    Examples
    --------
    >>> Batches(20).together
    20
    """

    count: int = 10

    name = "batches"

    def __post_init__(self) -> None:
        check_integer("count", self.count)

    @property
    def together(self) -> int:  # type: ignore[override]
        """Points taken between two looks at the scores."""
        return self.count

    def assemble(self, assembly: Assembly) -> Outcome:
        return assembly.grow()

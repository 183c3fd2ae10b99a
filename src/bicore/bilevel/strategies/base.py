"""The base of all strategies, and the strategies that only add points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.arguments import Start, ranks_of
from bicore.bilevel.contract import Gain, Gradient, RefinementCost, Requirements, Rule
from bicore.bilevel.engines import choose, choose_reweighable
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.engines.ridge import PASSES_A_POINT
from bicore.bilevel.greedy import Outcome, Plan, Run, unrefined_outcome, weights_outcome
from bicore.bilevel.problem import Problem
from bicore.bilevel.weights import WeightOptimiser, as_reweighable
from bicore.coreset import Status, describe_early_end
from bicore.data import Array
from bicore.errors import TimeLimitError, check_integer
from bicore.kernels.operators import Features, Gram, KernelOperator, square_block
from bicore.runtime.clock import Clock, ProgressLine, TimeOver


@dataclass(eq=False)
class Assembly:
    """The state of a strategy: the points so far and its notes, valid at any time."""

    problem: Problem
    requirements: Requirements
    #: The greedy run that adds points.
    run: Run
    start: Start
    #: Number of points to select; the run may add more.
    size: int
    clock: Clock
    outcome: Outcome = field(default_factory=Outcome)
    #: Details for display, and notes in sentences.
    details: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def fixed(self) -> int:
        """Number of initial points, which cannot leave."""
        return min(len(self.start.points), self.size)

    @property
    def ranks(self) -> list[int]:
        """The rank of every point in the order of ids."""
        ranks: list[int] = ranks_of(self.run.plan.ids).tolist()
        return ranks

    @property
    def open(self) -> Tensor:
        """Mask of the points that may still join, on the engine's device."""
        return torch.from_numpy(self.run.plan.open.copy()).to(self.problem.train.like.device)

    @property
    def groups(self) -> Array | None:
        """The class of every point if quotas fix the number of points per class."""
        quotas = self.run.plan.quotas
        return None if quotas is None else quotas.codes

    def grow(self) -> Outcome:
        """Add points by the plan of the run."""
        outcome = self.run.complete(self.start)
        if self.run.engine.operation_counts:
            self.details["effort"] = dict(self.run.engine.operation_counts)
        return outcome

    def reweighable(self, points: Sequence[int]) -> ImplicitEngine:
        """Return an engine with these points, whose weights may change."""
        engine = choose_reweighable(self.problem, len(points), self.requirements.solvers)
        engine.extend(points)
        return engine

    def optimise_weights(self, optimiser: WeightOptimiser) -> None:
        """Optimise the weights of all points once; points of weight zero leave."""
        run, before = self.run, self.outcome
        complete = before.status is Status.COMPLETE
        when = "before the weights were optimised: complete, with unit weights"
        try:
            engine = self.reweighable(run.indices.tolist())
            optimiser.optimise(as_reweighable(engine), final=True, clock=self.clock)
            self.problem = engine.problem
        except KeyboardInterrupt:
            self.outcome = unrefined_outcome(when, interrupted=True)
            return
        except TimeOver:
            self.outcome = unrefined_outcome(when) if complete else before
            return
        taken = len(run.indices)
        run.indices, run.weights = engine.positive_points()
        run.objectives = [*run.objectives[: len(run.indices) - 1], engine.objective]
        if complete:
            self.outcome = weights_outcome(len(run.indices), taken, self.clock)

    def sort_by_rule(self, points: Sequence[int], rule: Rule) -> Status:
        """Sort the points into greedy order, the initial ones first.

        It may exceed the time limit a little. The run is unchanged if that is not enough.
        """
        clock = self.clock.closing()
        every, count = np.array(points, dtype=np.int64), len(points)
        quiet = ProgressLine(False, clock, count, "ordering")
        quotas = self.run.plan.quotas
        if quotas is not None:
            quotas = replace(quotas, codes=quotas.codes[every])
        plan = Plan(count, self.run.plan.ids[every], np.ones(count, dtype=bool), quotas=quotas)
        needs = frozenset({rule.quantity})
        requirements = replace(
            self.requirements, capacity=count, needs=needs, exact=False, repeats=False
        )
        fixed = list(range(self.fixed))
        try:
            with clock.running():
                engine = choose(restrict_problem(self.problem, every), requirements)
                again = Run(engine, rule, plan, clock, quiet)
                status = again.complete(Start(fixed, [1.0] * len(fixed))).status
        except TimeLimitError:
            return Status.OUT_OF_TIME
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        if status is Status.COMPLETE:
            again.empty_objective = self.run.empty_objective
            again.indices = every[again.indices]
            self.run = again
        return status

    def truncate(self, status: Status) -> Outcome:
        """Keep the first points, at most ``size``, of a run that ended early."""
        run, size = self.run, self.size
        run.indices, run.weights = run.indices[:size], run.weights[:size]
        run.objectives = run.objectives[:size]
        taken = len(run.indices)
        if taken < size:
            return Outcome(status, describe_early_end(status, taken, size))
        when = "before the rows were refined: complete, not refined"
        return unrefined_outcome(when, status is Status.INTERRUPTED)


class Strategy:
    """An order of adding, removing and exchanging points."""

    name: str
    #: Whether it needs the exact objective of every exchange and removal.
    exact = False
    #: Whether it changes the greedy points, which requires uniform weights and a constant
    #: regulariser.
    refines = False
    #: Whether a prefix of a coreset is the coreset of a smaller size.
    ordered = True
    #: Points added after each evaluation of the scores.
    points_per_step = 1
    #: Whether its coresets satisfy quotas.
    keeps_quotas = False
    #: Whether the strategy is chosen from the data (``strategy="auto"``).
    unset = False

    def greedy_size(self, size: int, available: int) -> int:
        """Return the number of points that the greedy run takes.

        Parameters
        ----------
        size : int
            Number of points to select.
        available : int
            Number of candidates.

        Returns
        -------
        int
            At least ``size``.
        """
        return size

    def refinement_cost(self, taken: int, points: int, depth: int = 0) -> RefinementCost:
        """Return the cost of refinement in addition to that of the greedy run.

        Parameters
        ----------
        taken : int
            Number of points that are taken at first.
        points : int
            Number of candidates, and of rows that measure the objective.
        depth : int
            Multiplications for one number of a product with the kernel matrix.

        Returns
        -------
        RefinementCost
            Zero if nothing is refined.
        """
        return RefinementCost()

    def assemble(self, assembly: Assembly) -> Outcome:
        """Select the coreset.

        Parameters
        ----------
        assembly : Assembly
            The problem, the greedy run without points, and the size.

        Returns
        -------
        Outcome
            The status of the selection and its message.
        """
        return assembly.grow()


class RefiningStrategy(Strategy, ABC):
    """Select greedily, improve the set, and sort it into greedy order."""

    refines = True
    ordered = False

    def refinement_cost(self, taken: int, points: int, depth: int = 0) -> RefinementCost:
        # The columns of all points, twice, and their products.
        return RefinementCost(held=3 * taken, passes=2 + PASSES_A_POINT * taken)

    def assemble(self, assembly: Assembly) -> Outcome:
        outcome = assembly.grow()
        assembly.details["strategy"] = repr(self)
        if not outcome.status.whole:
            return assembly.truncate(outcome.status)
        if reason := self._reason_to_keep(assembly):
            assembly.notes.append(reason)
            return outcome
        points = assembly.run.indices.tolist()
        known = dict(assembly.details)
        when = "while the rows were refined: complete, not refined"
        try:
            points, refined = self.refine(assembly, points)
            if refined.status is not Status.COMPLETE:
                outcome = refined  # otherwise keep the outcome of the greedy run
        except KeyboardInterrupt:
            outcome = unrefined_outcome(when, interrupted=True)
        except TimeOver:
            outcome = unrefined_outcome(when)
        rule = Gain() if self.exact else Gradient()
        status = assembly.sort_by_rule(points[: assembly.size], rule)
        if status is Status.COMPLETE:
            return outcome
        # Points without an order are no coreset, so the greedy points are returned.
        assembly.details = known
        assembly.notes.clear()
        return assembly.truncate(status)

    def _reason_to_keep(self, assembly: Assembly) -> str:
        """Return a note if the points of the greedy run are to be kept; empty if not."""
        return ""

    @abstractmethod
    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Outcome]:
        """Improve the points.

        Parameters
        ----------
        assembly : Assembly
            The problem and the points that may join.
        points : list of int
            The chosen points. After an interrupt this list is kept: a strategy whose
            steps each leave a better coreset changes it in place.

        Returns
        -------
        tuple
            The points, of which the first ``assembly.size`` are selected, and the outcome.
        """


def restrict_problem(problem: Problem, points: Array) -> Problem:
    """Return the problem in float64, with these points as the only candidates.

    It needs only their columns of the kernel matrix, not a pass over all of it.
    """
    index = torch.from_numpy(points).to(problem.train.like.device)
    if problem.inner_loss.quadratic and problem.outer_loss.quadratic:
        problem = problem.with_few_outer_rows()
    own, other = problem.train.feature_rows, problem.cross.feature_rows
    train: KernelOperator
    cross: KernelOperator
    if own is not None and other is not None:
        columns = own[1][index].double()
        train, cross = Features(columns, columns), Features(other[0].double(), columns)
    else:
        outer = problem.cross.columns(index).double()
        square = outer[index] if problem.same else square_block(problem.train, index)
        train, cross = Gram(square, symmetric=True, spare=problem.train.spare), Gram(outer)
    return replace(
        problem,
        train=train,
        cross=cross,
        inner_targets=problem.inner_targets[index].double(),
        outer_targets=problem.outer_targets.double(),
        outer_weights=problem.outer_weights.double(),
    )


@dataclass(frozen=True)
class Greedy(Strategy):
    """One point per step, by the rule.

    Examples
    --------
    >>> Greedy().ordered
    True
    """

    name = "greedy"
    keeps_quotas = True


@dataclass(frozen=True)
class UnsetStrategy(Greedy):
    """A placeholder, replaced when the data are known; until then one point per step."""

    name = "auto"
    unset = True
    ordered = False  # the data may choose a refinement


@dataclass(frozen=True)
class Batches(Strategy):
    """Several points per step, for large coresets and expensive fits.

    With the squared error the points of a batch are chosen greedily among four times as many points
    with the best scores: one block product replaces a pass over the kernel matrix for each. With
    other losses the points with the best scores are taken.

    Parameters
    ----------
    count : int
        Maximum size of a batch; a batch has at most a tenth of the points chosen so far.

    Examples
    --------
    >>> Batches(20).points_per_step
    20
    """

    count: int = 10

    name = "batches"

    def __post_init__(self) -> None:
        check_integer("count", self.count)

    @property
    def points_per_step(self) -> int:  # type: ignore[override]
        """Points added after each evaluation of the scores."""
        return self.count

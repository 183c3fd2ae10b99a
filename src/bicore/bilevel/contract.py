"""Rules, and the interface between engines, strategies and the greedy loop.

A rule scores points by a quantity that engines compute. An engine is the state of a growing and
shrinking coreset of one problem. Other modules do not know which engine is used: the table
``bicore.bilevel.engines.ENGINES`` decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bicore.arguments import TIE, argmin_by_id, non_finite_score_error, ranks_of
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.inner import Solvers
from bicore.data import Array

#: Maximum number of points chosen on a device before results are read back; only then a time limit
#: or an interrupt takes effect.
MOST_UNREAD_STEPS = 16


@dataclass(frozen=True)
class RefinementCost:
    """Memory and operations of refining, in addition to those of greedy selection."""

    #: Number of columns of all rows that are stored, and of points on a shortlist.
    held: int = 0
    listed: int = 0
    #: Passes over the kernel matrix, further multiplications, and numbers read.
    passes: float = 0.0
    multiplications: float = 0.0
    reads: float = 0.0


class Quantity(Enum):
    """A number of every training point that an engine can compute."""

    #: ∂G/∂w_k, the implicit gradient.
    GRADIENT = auto()
    #: The exact decrease of G when the point joins with weight 1.
    GAIN = auto()
    #: The gradient with the identity instead of the inverse Hessian.
    FIRST_ORDER = auto()
    #: The inner loss of the point under the fit.
    LOSS = auto()


@dataclass(frozen=True)
class Requirements:
    """The requirements of a selection, by which its engine is chosen."""

    capacity: int
    needs: frozenset[Quantity]
    #: Whether both losses are the squared error, ρ is constant, and no solver is given.
    closed_form: bool
    #: Whether the exact objective of every exchange and removal is needed too.
    exact: bool = False
    #: Whether the weights of chosen points change; only ``ImplicitEngine`` supports that.
    reweighs: bool = False
    #: Whether every step takes the best open points, starting with an empty coreset, so that steps
    #: can be recorded.
    repeats: bool = False
    solvers: Solvers = field(default_factory=Solvers)


@dataclass(frozen=True, eq=False)
class StepOptions:
    """The points that may be taken in a step, and their number."""

    #: Mask of the points that may be taken.
    open: Array
    #: Ids of all points; ties go to the smallest.
    ids: Array
    #: Number of points to take together, after the scores are computed once …
    count: int = 1
    #: … chosen among this many points with the best scores; 1: only the best.
    shortlist: int = 1
    #: Maximum number of steps before the engine returns.
    steps: int = 1
    #: Whether the open points are a small sample, so that only they need a score.
    sampled: bool = False

    @property
    def one_by_one(self) -> bool:
        """Whether points are taken one by one, each the best of all open points."""
        return self.shortlist == 1 and self.count == 1 and not self.sampled

    @property
    def unread_steps(self) -> int:
        """How many points a device chooses before results are read."""
        return min(MOST_UNREAD_STEPS, self.steps)


class Rule:
    """Scores points by a quantity of the engine; the lowest score is taken."""

    name: ClassVar[str]
    #: Name of selection by this rule in tables.
    method: ClassVar[str] = "bilevel"
    #: Quantity that it reads from an engine.
    quantity: ClassVar[Quantity]
    #: Whether it compares with a model of all data.
    compares: ClassVar[bool] = False
    #: Whether it is to be replaced when the data are known.
    unset: ClassVar[bool] = False

    def scores(self, engine: Engine, columns: Tensor | None) -> Tensor:
        """Return the scores of all training points, or of ``columns``: the quantity by default."""
        return engine.quantity(self.quantity, columns)

    def with_reference(self, losses: Callable[[], Tensor]) -> Rule:
        """Return the rule with the losses of the model of all data."""
        return self


@dataclass(frozen=True)
class Gradient(Rule):
    """Score points by the implicit gradient ∂G/∂w_k: the paper's rule, for any loss."""

    name = "gradient"
    quantity = Quantity.GRADIENT


@dataclass(frozen=True)
class UnsetRule(Gradient):
    """A placeholder, replaced when the data are known; until then the gradient."""

    name = "auto"
    unset = True


@dataclass(frozen=True)
class Gain(Rule):
    """Score points by the exact decrease of the objective, for the squared error and uniform
    weights."""

    name = "gain"
    quantity = Quantity.GAIN

    def scores(self, engine: Engine, columns: Tensor | None) -> Tensor:
        return -engine.quantity(self.quantity, columns)


@dataclass(frozen=True)
class FirstOrder(Rule):
    """Score points by the gradient with the identity instead of the inverse Hessian.

    GLISTER (Killamsetty et al. 2021) scores points like this while it trains a network.
    """

    name = "first-order"
    method = "glister"
    quantity = Quantity.FIRST_ORDER


@dataclass(frozen=True)
class ReducibleLoss(Rule):
    """Score points by their loss minus their loss under the model of all data.

    This is CSReL (Tong et al. 2025): points that no model can learn are not taken.
    """

    reference: Tensor | None = field(default=None, compare=False, repr=False)

    name = "reducible"
    method = "reducible loss"
    quantity = Quantity.LOSS
    compares = True

    def with_reference(self, losses: Callable[[], Tensor]) -> ReducibleLoss:
        return ReducibleLoss(losses())

    def scores(self, engine: Engine, columns: Tensor | None) -> Tensor:
        assert self.reference is not None, "a rule is bound to its problem before it scores"
        reference = self.reference if columns is None else self.reference[columns]
        return reference - engine.quantity(self.quantity, columns)


#: Rules by name.
RULES: dict[str, Callable[[], Rule]] = {
    rule.name: rule for rule in (UnsetRule, Gradient, Gain, FirstOrder, ReducibleLoss)
}


class Engine(ABC):
    """The state of a coreset of one problem: its points, its fit, the outer objective."""

    #: Quantities that the engine can compute.
    supported_quantities: frozenset[Quantity] = frozenset()
    #: Whether taking points one by one costs no more than taking them together.
    cheap_steps = True

    problem: Problem
    #: The chosen points, in order of selection.
    chosen: list[int]
    #: G of the model fitted on them.
    objective: float

    @property
    def operation_counts(self) -> Mapping[str, int]:
        """Counts of fits and iterations, for display."""
        return {}

    @abstractmethod
    def extend(self, points: Sequence[int]) -> None:
        """Add points with weight 1."""

    @abstractmethod
    def drop(self, places: Sequence[int]) -> None:
        """Remove the points at these places of the order."""

    @abstractmethod
    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        """Compute a supported quantity for every training point, or for ``columns`` only."""

    def check_supported(self, what: Quantity) -> None:
        """Refuse a quantity that the engine does not offer."""
        if what not in self.supported_quantities:
            kind = type(self).__name__
            raise LookupError(
                f"{kind} was built without {what.name}; add it to Requirements.needs."
            )

    def places_except(self, places: Sequence[int]) -> list[int]:
        """Return all other places of the order."""
        gone = set(places)
        return [place for place in range(len(self.chosen)) if place not in gone]

    def scores(self, rule: Rule, columns: Tensor | None = None) -> Tensor:
        """Score every point by the rule; the lowest is the one to take."""
        return rule.scores(self, columns)

    def take_best(self, rule: Rule, options: StepOptions) -> list[float]:
        """Take the best open points and return the objective after each of them.

        Points taken together have the objective of all of them.
        """
        points = self.best(rule, options)
        self.extend(points)
        return [self.objective] * len(points)

    def best(self, rule: Rule, options: StepOptions) -> list[int]:
        """Return the points that the rule selects next."""
        places = np.flatnonzero(options.open)
        columns = torch.from_numpy(places) if options.sampled else None
        scores = self.scores(rule, columns).double().cpu().numpy()
        scores = scores if options.sampled else scores[places]
        if options.shortlist == 1:
            return [int(places[argmin_by_id(scores, options.ids[places])])]
        if not np.isfinite(scores).all():
            raise non_finite_score_error()
        order = places[np.lexsort((options.ids[places], scores))]
        return self.pick_from(order[: options.shortlist], rule, options)

    def pick_from(self, shortlist: Array, rule: Rule, options: StepOptions) -> list[int]:
        """Return the points of a shortlist, best first, to take at once."""
        return [int(place) for place in shortlist[: options.count]]


class ListedEngine(Engine):
    """An engine listed in ``ENGINES``; each has its own module."""

    @classmethod
    @abstractmethod
    def supports(cls, requirements: Requirements) -> bool:
        """Whether the engine meets the requirements for this kind of problem."""

    @classmethod
    def fits(cls, problem: Problem) -> bool:
        """Whether the engine suits the size, storage and device of the problem."""
        return True

    @classmethod
    @abstractmethod
    def build(cls, problem: Problem, requirements: Requirements) -> Self:
        """Return the engine for a problem, without chosen points."""


class DeviceChooser:
    """A mask of the open points on the device, which chooses the best of them there."""

    def __init__(self, options: StepOptions, device: torch.device) -> None:
        self.open = options.open.copy()
        self.closed = torch.from_numpy(~options.open).to(device)
        self.ranks = torch.from_numpy(ranks_of(options.ids)).to(device)
        self.fine = torch.ones((), dtype=torch.bool, device=device)

    def matches(self, options: StepOptions) -> bool:
        """Whether the mask still agrees with the open points."""
        return bool(np.array_equal(self.open, options.open))

    def step(self, scores: Tensor, take: Callable[[Tensor], None]) -> None:
        """Take the open point with the lowest score, without reading results."""
        scores = scores.double().masked_fill(self.closed, torch.inf)
        best = scores.min()
        self.fine.logical_and_(torch.isfinite(best))
        tied = scores <= best + TIE * best.abs()
        k = torch.where(tied, self.ranks, len(self.ranks)).argmin().view(1)
        take(k)
        self.closed.index_fill_(0, k, True)

    def check(self, points: list[int]) -> None:
        """Check the scores of the points that the device took, and record the points."""
        if not self.fine:
            raise non_finite_score_error()
        self.open[points] = False

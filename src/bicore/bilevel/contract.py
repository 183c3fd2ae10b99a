"""What an engine offers, and what a rule, a strategy and the greedy loop may ask of it.

An engine is the state of a growing and shrinking coreset of one problem. Other modules do not know
which engine serves: ``bicore.bilevel.engines.ENGINES`` is the table that decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.inner import Solvers
from bicore.data import Array
from bicore.picking import TIE, lowest, non_finite_score_error, ranks_of


@dataclass(frozen=True)
class Effort:
    """Memory and arithmetic of refining, in addition to those of growing."""

    held: int = 0
    listed: int = 0
    passes: float = 0.0
    products: float = 0.0
    multiplications: float = 0.0
    pairs: float = 0.0
    reads: float = 0.0


class Quantity(Enum):
    """A number of every training point that an engine can compute."""

    #: ∂G/∂w_k, the implicit gradient.
    GRADIENT = auto()
    #: By how much G falls when the point joins with weight 1, exactly.
    GAIN = auto()
    #: The gradient with the identity in place of the inverse Hessian.
    FIRST_ORDER = auto()
    #: The inner loss of the point under the fit.
    LOSS = auto()


@dataclass(frozen=True)
class Demand:
    """What a selection asks of an engine, before there is one."""

    capacity: int
    needs: frozenset[Quantity]
    #: Both losses are the squared error, ρ is constant, and no solver was asked for by name.
    closed_form: bool
    #: The exact objective of every exchange and removal is asked for as well.
    exact: bool = False
    #: The weights of points change after they were taken; only a :class:`ReweighableEngine`
    #: supports that.
    reweighs: bool = False
    #: Every step takes the best of all open points, from none on: the same list of operations.
    repeats: bool = False
    solvers: Solvers = field(default_factory=Solvers)


@dataclass(frozen=True, eq=False)
class Turn:
    """Which points may be taken now, and how many."""

    #: A mask over all points.
    open: Array
    #: Who wins a tie.
    ids: Array
    #: Points to take together, after one look at the scores …
    count: int = 1
    #: … among so many of the best scores; 1 means: only ever the best one.
    shortlist: int = 1
    #: Looks at the scores that the engine may take before it answers.
    steps: int = 1
    #: The open points are a small sample: no others need a score.
    sampled: bool = False


class Scoring(Protocol):
    """What an engine must know of a rule (:mod:`bicore.bilevel.rules`)."""

    @property
    def quantity(self) -> Quantity: ...

    def scores(self, engine: Engine, columns: Tensor | None) -> Tensor: ...


class Engine(ABC):
    """The state of a coreset of one problem: its points, its fit, the outer objective."""

    #: What it can compute.
    offers: frozenset[Quantity] = frozenset()
    #: Whether points taken one by one cost no more than points taken together.
    cheap_steps = True

    problem: Problem
    #: The points, in the order in which they joined.
    chosen: list[int]
    #: G of the model fitted on them.
    objective: float

    @property
    @abstractmethod
    def weights(self) -> Tensor:
        """One for each chosen point."""

    @property
    def effort(self) -> Mapping[str, int]:
        """What the arithmetic took, by name; for display."""
        return {}

    @abstractmethod
    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        """Take points in, with these weights."""

    @abstractmethod
    def drop(self, places: Sequence[int]) -> None:
        """Let the points at these places of the order go."""

    @abstractmethod
    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        """One of ``offers`` for every training point, or for ``columns`` only."""

    def not_offered(self, what: Quantity) -> LookupError:
        """What is raised where another quantity is asked for."""
        kind = type(self).__name__
        return LookupError(f"{kind} was built without {what.name}; name it in the demand.")

    def without(self, places: Sequence[int]) -> list[int]:
        """The places of the order that are left when these go."""
        gone = set(places)
        return [place for place in range(len(self.chosen)) if place not in gone]

    def scores(self, rule: Scoring, columns: Tensor | None = None) -> Tensor:
        """What the rule makes of every point; the lowest is the one to take."""
        return rule.scores(self, columns)

    def take_best(self, rule: Scoring, turn: Turn) -> list[float]:
        """Take the best open points; the objective after each of them.

        Points taken together have the objective of all of them.
        """
        points = self.best(rule, turn)
        self.extend(points, [1.0] * len(points))
        return [self.objective] * len(points)

    def best(self, rule: Scoring, turn: Turn) -> list[int]:
        """The points that the rule would take now; nothing is taken yet."""
        if turn.shortlist == 1 and not turn.sampled:
            scores = self.scores(rule).double().cpu().numpy()
            return [lowest(np.where(turn.open, scores, np.inf), turn.ids)]
        places = np.flatnonzero(turn.open)
        if turn.sampled:
            scores = self.scores(rule, torch.from_numpy(places)).double().cpu().numpy()
        else:
            scores = self.scores(rule).double().cpu().numpy()[places]
        if turn.shortlist == 1:
            return [int(places[lowest(scores, turn.ids[places])])]
        if not np.isfinite(scores).all():
            raise non_finite_score_error()
        order = places[np.lexsort((turn.ids[places], scores))]
        return self.pick_from(order[: turn.shortlist], rule, turn)

    def pick_from(self, shortlist: Array, rule: Scoring, turn: Turn) -> list[int]:
        """Those of a shortlist, best first, to take at once: the best unless it knows better."""
        return [int(place) for place in shortlist[: turn.count]]


class ListedEngine(Engine):
    """An engine that the table may choose: one file, and one line of ``ENGINES``."""

    @classmethod
    @abstractmethod
    def supports(cls, demand: Demand) -> bool:
        """Whether it can do what is asked, for a problem of that kind."""

    @classmethod
    def fits(cls, problem: Problem) -> bool:
        """Whether this problem's size, storage and device suit it."""
        return True

    @classmethod
    @abstractmethod
    def build(cls, problem: Problem, demand: Demand) -> Self:
        """An empty coreset of the problem."""


class ReweighableEngine(ListedEngine):
    """An engine whose points can have any weights, which an optimiser may change."""

    @property
    @abstractmethod
    def predictions(self) -> Tensor:
        """Of the outer set, by the fit."""

    @abstractmethod
    def reweigh(self, weights: Tensor) -> None:
        """Give the chosen points other weights and fit again."""

    @abstractmethod
    def weight_gradient(self) -> Tensor:
        """∂G/∂w of the chosen points."""

    @abstractmethod
    def joint_gradient(self) -> Tensor:
        """∂G/∂w of the chosen points, and ∂G/∂ρ as the last entry."""


#: Points chosen before their numbers are read back: time limits and interrupts are heard that
#: often.
UNASKED = 16


class DeviceChooser:
    """The open points of an engine as a mask on its device, and the choice of the best of them."""

    def __init__(self, turn: Turn, device: torch.device) -> None:
        self.open = turn.open.copy()
        self.closed = torch.from_numpy(~turn.open).to(device)
        self.ranks = torch.from_numpy(ranks_of(turn.ids)).to(device)
        self.fine = torch.ones((), dtype=torch.bool, device=device)

    def serves(self, turn: Turn) -> bool:
        """Whether it still agrees with what may be taken."""
        return bool(np.array_equal(self.open, turn.open))

    def took(self, points: Array | list[int]) -> None:
        """Note on the host what the device took."""
        self.open[points] = False

    def step(self, scores: Tensor, take: Callable[[Tensor], None]) -> None:
        """Take the open point of the lowest score; nothing is read back."""
        scores = scores.double().masked_fill(self.closed, torch.inf)
        best = scores.min()
        self.fine.logical_and_(torch.isfinite(best))
        tied = scores <= best + TIE * best.abs()
        k = torch.where(tied, self.ranks, len(self.ranks)).argmin().view(1)
        take(k)
        self.closed.index_fill_(0, k, True)

    def check(self) -> None:
        """Raise what the steps since the last look have shown."""
        if not self.fine:
            raise non_finite_score_error()


def unasked(turn: Turn, taken: int) -> int:
    """How many points may be chosen before the next look; the first one is looked at alone."""
    return 1 if taken == 0 else min(UNASKED, turn.steps)


def one_by_one(turn: Turn) -> bool:
    """Whether the engine may go on by itself: the best of all open points, one by one."""
    return turn.shortlist == 1 and turn.count == 1 and not turn.sampled

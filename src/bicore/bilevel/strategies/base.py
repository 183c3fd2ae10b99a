"""How a coreset is assembled: one point at a time, several at a time, by exchanges, or by taking
too many and letting some go, the cheapest first or by weights that a penalty makes sparse.

Each is an object of the same selector: ``BilevelSelector(strategy=Exchange())``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bicore.bilevel.engines.implicit import ImplicitForward
from bicore.bilevel.problem import Problem
from bicore.bilevel.strategies.sparse_weights import Sparsity
from bicore.bilevel.strategies.swaps import Chosen
from bicore.errors import InputError, unknown_name
from bicore.runtime import Clock


@dataclass
class Assembly:
    """The points so far, the first ``fixed`` of which were given, and what a strategy did with
    them. Whole at every moment."""

    problem: Problem
    engine: Callable[[int], ImplicitForward]  # an empty one with room for so many points
    points: list[int]
    fixed: int
    open: Tensor  # points that may join
    ranks: Tensor  # places of all points in the order of their ids
    info: dict[str, Any]


@dataclass(frozen=True)
class Strategy:
    """One point at a time, by the rule alone: the strategy "greedy"."""

    #: Whether it has something to do when the points are taken.
    refines = False
    #: Whether it needs the closed form of the squared error.
    exact = False
    #: Whether a prefix of its answer is its answer for a smaller size.
    ordered = True

    @property
    def name(self) -> str:
        return "greedy"

    @property
    def together(self) -> int:
        """Points taken between two looks at the scores."""
        return 1

    def grown(self, size: int, available: int) -> int:
        """How many points are taken before :meth:`refine`."""
        return size

    def refine(self, assembly: Assembly, size: int, clock: Clock) -> str | None:
        """Bring the assembly to ``size`` points; a word on what was left undone."""
        return None


@dataclass(frozen=True)
class Batches(Strategy):
    """Several points at a time, for large coresets and dear fits.

    A batch has up to ``count`` points, and never more than a tenth of the coreset so far. With the
    squared error they are chosen greedily and exactly among the four times as many best scores and
    taken at once: one block product in place of a pass over the kernel matrix for each. With other
    losses the best scores are taken as they are.
    """

    count: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise InputError(
                f"count={self.count!r} is not a whole number >= 1; give the points taken at a time."
            )

    @property
    def name(self) -> str:
        return "batches"

    @property
    def together(self) -> int:
        return self.count


@dataclass(frozen=True)
class Exchange(Strategy):
    """Greedy selection, then Fedorov exchanges: of all pairs of a chosen and another point, swap
    the one that lowers the objective most, by the exact gain, until none lowers it by more than
    ``tolerance`` of it or ``rounds`` swaps are made (None: the size).

    With binary weights it never ends above greedy. The first round costs one product of the kernel
    matrix with the chosen columns, each other one a pass.
    """

    rounds: int | None = None
    tolerance: float = 1e-6

    refines = True
    exact = True
    ordered = False

    def __post_init__(self) -> None:
        if self.rounds is not None and (not isinstance(self.rounds, int) or self.rounds < 0):
            raise InputError(
                f"rounds={self.rounds!r} is not a whole number >= 0; give the most swaps, or None."
            )
        if not 0 <= self.tolerance < 1:
            raise InputError(
                f"tolerance={self.tolerance!r} is outside 0 … 1; give the share of the objective "
                "that is worth a swap."
            )

    @property
    def name(self) -> str:
        return "exchange"

    def refine(self, assembly: Assembly, size: int, clock: Clock) -> str | None:
        rounds = size if self.rounds is None else self.rounds
        assembly.info |= {"exchanges": 0, "exchange_gain": 0.0}
        chosen = Chosen(assembly.problem, assembly.points)
        for _ in range(rounds):
            if clock.over:
                return "stopped by max_seconds during the exchanges: all points, less refined"
            place, joining, gain = chosen.best_exchange(
                assembly.open, assembly.ranks, assembly.fixed
            )
            if not gain > self.tolerance * chosen.objective:
                break
            assembly.open[assembly.points[place]], assembly.open[joining] = True, False
            chosen = chosen.exchanged(place, joining)
            assembly.points[place] = joining
            assembly.info["exchanges"] += 1
            assembly.info["exchange_gain"] += gain
        return None


@dataclass(frozen=True)
class Shrinking(Strategy):
    """Takes ``excess`` times as many points as are wanted; how some leave again is what its kinds
    differ in."""

    excess: float = 2.0

    refines = True
    ordered = False

    def __post_init__(self) -> None:
        if not self.excess >= 1:
            raise InputError(
                f"excess={self.excess!r} is below 1; give how many times the size is taken first."
            )

    def grown(self, size: int, available: int) -> int:
        return (
            available if math.isinf(self.excess) else min(available, math.ceil(self.excess * size))
        )


@dataclass(frozen=True)
class Elimination(Shrinking):
    """Greedy selection of ``excess`` times as many points; then the one whose leaving costs least
    leaves, down to the size.

    ``excess=math.inf`` starts from all points, which costs the cube of their number.
    """

    exact = True

    @property
    def name(self) -> str:
        return "elimination"

    def refine(self, assembly: Assembly, size: int, clock: Clock) -> str | None:
        chosen = Chosen(assembly.problem, assembly.points)
        assembly.info["eliminated"] = max(0, len(assembly.points) - size)
        while len(chosen.points) > size:
            chosen.drop(chosen.cheapest(assembly.ranks, assembly.fixed))
        assembly.points = chosen.points
        return None


@dataclass(frozen=True)
class Simplex(Shrinking):
    """Greedy selection of ``excess`` times as many points; then weights over them, Σw = size, 0 ≤ w
    ≤ ``largest``, that lower the objective while a penalty on Σ√w grows until only the size is left
    (the L½ penalty of Borsos et al., JMLR 2024). Where the greedy points of that size are better,
    they are kept: with binary weights it never ends above greedy.

    With ``largest=1`` a sparse answer has weights of 1 and is a coreset itself; ``math.inf`` is the
    plain simplex, as published, whose weights are thrown away here unless ``weights="final"``
    learns them again. For any loss; ``steps`` fits for each β.
    """

    excess: float = 1.5
    largest: float = 1.0
    steps: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.largest >= 1:
            raise InputError(
                f"largest={self.largest!r} is below 1, and the weights could not sum to the size; "
                "give 1 or more."
            )
        if not isinstance(self.steps, int) or self.steps < 1:
            raise InputError(
                f"steps={self.steps!r} is not a whole number >= 1; give the steps for each weight "
                "of the penalty."
            )

    @property
    def name(self) -> str:
        return "simplex"

    def refine(self, assembly: Assembly, size: int, clock: Clock) -> str | None:
        if len(assembly.points) <= size or assembly.fixed >= size:
            return None
        state = assembly.engine(len(assembly.points))
        state.extend(assembly.points, [1.0] * len(assembly.points))
        weighing = Sparsity(state, size, assembly.fixed, self.largest)
        weighing.run(self.steps, clock)
        greedy = assembly.points[:size]
        found = weighing.ranked()[:size]
        values = [_objective(assembly.engine(size), points) for points in (greedy, found)]
        assembly.points = found if values[1] < values[0] else greedy
        assembly.info |= {
            "relaxed_objective": state.objective,
            "relaxed_support": weighing.left,
            "penalty": weighing.beta,
        }
        assembly.info["simplex_gain"] = max(values[0] - values[1], 0.0)
        return (
            "stopped by max_seconds while the weights grew sparse: the largest were taken"
            if clock.over
            else None
        )


def _objective(state: ImplicitForward, points: list[int]) -> float:
    state.extend(points, [1.0] * len(points))
    return state.objective


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "greedy": Strategy,
    "batches": Batches,
    "exchange": Exchange,
    "elimination": Elimination,
    "simplex": Simplex,
}


def as_strategy(value: Any) -> Strategy:
    """A strategy, or the default one of a name."""
    if isinstance(value, Strategy):
        return value
    if not isinstance(value, str) or value not in STRATEGIES:
        raise unknown_name("strategy", value, STRATEGIES)
    return STRATEGIES[value]()

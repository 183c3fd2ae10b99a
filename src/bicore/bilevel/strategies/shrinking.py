"""Too many points, of which some leave again: the cheapest first, or by weights made sparse."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bicore.bilevel.greedy import Ending
from bicore.bilevel.strategies.base import Assembly, Refining, unit_objective
from bicore.bilevel.strategies.sparse_weights import SparseWeights
from bicore.bilevel.strategies.swaps import Chosen
from bicore.coreset import Status
from bicore.errors import InputError
from bicore.picking import whole_number
from bicore.runtime import checkpoint


@dataclass(frozen=True)
class Shrinking(Refining):
    """Takes ``excess`` times as many points as are wanted."""

    excess: float = 2.0

    def __post_init__(self) -> None:
        if not self.excess >= 1:
            raise InputError(
                f"excess={self.excess!r} is below 1; give how many times the size is taken first."
            )

    def grown(self, size: int, available: int) -> int:
        if math.isinf(self.excess):
            return available
        return min(available, math.ceil(self.excess * size))


@dataclass(frozen=True)
class Elimination(Shrinking):
    """Greedy selection of too many points; then the one whose leaving costs least leaves.

    For the squared error.

    Parameters
    ----------
    excess : float
        How many times the size is taken first; ``math.inf`` starts from all points, which costs the
        cube of their number.

    Examples
    --------
    >>> Elimination(excess=3).grown(10, 100)
    30
    """

    name = "elimination"
    exact = True

    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Ending]:
        assembly.details["eliminated"] = max(0, len(points) - assembly.size)
        chosen = Chosen(assembly.problem, points)
        ranks = assembly.ranks
        while len(chosen.points) > assembly.size:
            checkpoint()
            chosen = chosen.without(chosen.cheapest(ranks, assembly.fixed))
        return chosen.points, Ending()


@dataclass(frozen=True)
class Simplex(Shrinking):
    """Greedy selection of too many points; then weights over them that a penalty makes sparse.

    Σw = size and 0 ≤ w ≤ ``largest`` while a penalty on Σ√w grows until only the size is left (the
    L½ penalty of Borsos et al., JMLR 2024). Where the greedy points of that size are better, they
    are kept: with binary weights it never ends above greedy. For any loss.

    Parameters
    ----------
    excess : float
        How many times the size is taken first.
    largest : float
        With 1 a sparse answer has weights of 1 and is a coreset itself; ``math.inf`` is the plain
        simplex, as published, whose weights are thrown away here unless ``weights="final"`` learns
        them again.
    steps : int
        Fits for each weight of the penalty.

    Examples
    --------
    >>> Simplex(excess=2).grown(10, 15)
    15
    """

    excess: float = 1.5
    largest: float = 1.0
    steps: int = 10

    name = "simplex"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.largest >= 1:
            raise InputError(
                f"largest={self.largest!r} is below 1, and the weights could not sum to the size; "
                "give 1 or more."
            )
        whole_number(
            self.steps,
            1,
            f"steps={self.steps!r} is not a whole number >= 1; give the steps for each weight of "
            "the penalty.",
        )

    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Ending]:
        size = assembly.size
        if len(points) <= size or assembly.fixed >= size:
            return points, Ending()
        engine = assembly.reweighable(len(points))
        engine.extend(points, [1.0] * len(points))
        weighing = SparseWeights(engine, size, assembly.fixed, self.largest)
        weighing.run(self.steps, assembly.clock)
        greedy = points[:size]
        found = weighing.ranked()[:size]
        before = _objective(assembly, greedy)
        after = _objective(assembly, found)
        assembly.details |= {
            "relaxed_objective": engine.objective,
            "relaxed_support": weighing.left,
            "penalty": weighing.beta,
            "simplex_gain": max(before - after, 0.0),
        }
        ending = Ending()
        if assembly.clock.over:
            ending = Ending(
                Status.LESS_REFINED,
                "stopped by max_seconds while the weights grew sparse: the largest were taken",
            )
        return found if after < before else greedy, ending


def _objective(assembly: Assembly, points: list[int]) -> float:
    """G of these points with weight 1; in float64 where it has a closed form."""
    if assembly.demand.closed_form:
        return Chosen(assembly.problem, points).objective
    return unit_objective(assembly.reweighable(len(points)), points)

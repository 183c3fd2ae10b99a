"""Strategies that only grow: one point at a time, or several."""

from __future__ import annotations

from dataclasses import dataclass

from bicore.bilevel.greedy import Ending
from bicore.bilevel.strategies.base import Assembly, Strategy
from bicore.picking import whole_number


@dataclass(frozen=True)
class Greedy(Strategy):
    """One point at a time, by the rule alone.

    Examples
    --------
    >>> Greedy().ordered
    True
    """

    name = "greedy"

    def assemble(self, assembly: Assembly) -> Ending:
        return assembly.grow()


@dataclass(frozen=True)
class OpenStrategy(Greedy):
    """Decided when the data are seen; until then one point at a time.

    Examples
    --------
    >>> OpenStrategy().name
    'auto'
    """

    name = "auto"
    open = True
    ordered = False  # it may turn out to refine


@dataclass(frozen=True)
class Batches(Strategy):
    """Several points at a time, for large coresets and dear fits.

    With the squared error they are chosen greedily and exactly among the four times as many best
    scores and taken at once: one block product in place of a pass over the kernel matrix for each.
    With other losses the best scores are taken as they are.

    Parameters
    ----------
    count : int
        At most so many points a batch, and never more than a tenth of the coreset so far.

    Examples
    --------
    >>> Batches(20).together
    20
    """

    count: int = 10

    name = "batches"

    def __post_init__(self) -> None:
        whole_number(
            self.count,
            1,
            f"count={self.count!r} is not a whole number >= 1; give the points taken at a time.",
        )

    @property
    def together(self) -> int:  # type: ignore[override]
        """Points taken between two looks at the scores."""
        return self.count

    def assemble(self, assembly: Assembly) -> Ending:
        return assembly.grow()

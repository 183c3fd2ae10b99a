"""Greedy selection, then the best swaps."""

from __future__ import annotations

from dataclasses import dataclass

from bicore.bilevel.greedy import Ending
from bicore.bilevel.strategies.base import Assembly, Refining
from bicore.bilevel.strategies.swaps import Chosen
from bicore.coreset import Status
from bicore.errors import InputError
from bicore.picking import whole_number

STOPPED = Ending(
    Status.LESS_REFINED, "stopped by max_seconds during the exchanges: all points, less refined"
)
#: Swaps in a row whose promised gain did not come about before the exchanges end.
BROKEN_PROMISES = 5
IMPRECISE = (
    "exchanges ended by rounding: the gains promised for this kernel and inner_reg did not come "
    "about; a larger inner_reg goes on, or dtype='float64' where that is not in use"
)


@dataclass(frozen=True)
class Exchange(Refining):
    """Greedy selection, then Fedorov exchanges: the best swap of all, again and again.

    Of all pairs of a chosen and another point, swap the one that lowers the objective most, by the
    exact gain. The objective of the swapped set itself has the last word: with binary weights it
    never ends above greedy. The first round costs one product of the kernel matrix with the chosen
    columns, each other one a pass. For the squared error.

    Parameters
    ----------
    rounds : int, optional
        The most swaps; by default as many as the coreset has points.
    tolerance : float
        A swap must lower the objective by more than this share of it.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore import BilevelSelector, Dataset
    >>> x = np.arange(12.0)[:, None]
    >>> chooser = BilevelSelector(kernel="rbf", inner_reg=0.1, strategy=Exchange())
    >>> chooser.select(Dataset(x, x[:, 0] > 5), 2).provenance.notes
    ('exchanges: 1, which lowered the objective by 0.04602',)
    """

    rounds: int | None = None
    tolerance: float = 1e-6

    name = "exchange"
    exact = True

    def __post_init__(self) -> None:
        if self.rounds is not None:
            whole_number(
                self.rounds,
                0,
                f"rounds={self.rounds!r} is not a whole number >= 0; give the most swaps, or None.",
            )
        if not 0 <= self.tolerance < 1:
            raise InputError(
                f"tolerance={self.tolerance!r} is outside 0 … 1; give the share of the objective "
                "that is worth a swap."
            )

    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Ending]:
        swaps = 0
        free = assembly.open
        ranks = assembly.ranks
        chosen = Chosen(assembly.problem, points)
        begin = chosen.objective
        barred: set[tuple[int, int]] = set()  # swaps of the set as it stands that were no gain
        try:
            while swaps < (assembly.size if self.rounds is None else self.rounds):
                if assembly.clock.over:
                    return points, STOPPED
                place, joining, gain = chosen.best_exchange(free, ranks, assembly.fixed, barred)
                if not gain > self.tolerance * chosen.objective:
                    break
                swapped = chosen.exchanged(place, joining)
                if not chosen.objective - swapped.objective > self.tolerance * chosen.objective:
                    barred.add((place, joining))
                    if len(barred) < BROKEN_PROMISES:
                        continue
                    break
                chosen = swapped
                free[points[place]] = True
                free[joining] = False
                points[place] = joining
                barred.clear()
                swaps += 1
            return points, Ending()
        finally:  # an interrupt keeps the swaps that were made
            lowered = begin - chosen.objective
            assembly.details |= {"exchanges": swaps, "exchange_gain": lowered}
            assembly.notes.append(
                f"exchanges: {swaps}, which lowered the objective by {lowered:.4g}"
            )
            if len(barred) == BROKEN_PROMISES:
                assembly.notes.append(IMPRECISE)

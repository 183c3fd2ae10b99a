"""Greedy selection, then the best swaps: passes over all pairs, and a shortlist after each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.bilevel.effort import Effort
from bicore.bilevel.greedy import Ending
from bicore.bilevel.strategies.base import Assembly, Refining
from bicore.bilevel.strategies.pool import Pool
from bicore.bilevel.strategies.swaps import Chosen
from bicore.coreset import Status
from bicore.errors import InputError
from bicore.picking import TIE, whole_number

STOPPED = Ending(
    Status.LESS_REFINED, "stopped by max_seconds during the exchanges: all points, less refined"
)
#: Swaps in a row whose promised gain did not come about before the exchanges end.
BROKEN_PROMISES = 5
#: At least so many points beside the chosen are exchanged with, after every pass over all pairs.
SHORTLIST = 64
#: … as many as there are chosen, and one of so many points.
SHARE = 50
#: Passes go over one of so many points, those of the best promises, until they are exhausted.
WIDER = 4
#: Passes that exchanges usually make, and swaps for each point: for 20 to 200 points of digits and
#: of made data these were 5 to 15 and 0.3 to 1.6.
USUAL_PASSES, USUAL_SWAPS = 10, 1.0
#: Passes before the first: what no exchange changes, and the products of the points taken.
FIRST_PASSES = 3
#: Numbers read and written for a pair of points: two dozen operations of two numbers and a result.
READS_A_PAIR = 72
IMPRECISE = (
    "exchanges ended by rounding: the gains promised for this kernel and inner_reg did not come "
    "about; a larger inner_reg goes on, or dtype='float64' where that is not in use"
)


@dataclass(frozen=True)
class Exchange(Refining):
    """Greedy selection, then exchanges: the best swap of all, again and again.

    A pass over all pairs of a chosen and another point says by how much each swap would lower the
    objective, exactly. The points of the best ones are exchanged with, each swap by rank-one terms
    and each the best at its moment, until none is left; then comes the next pass. The last one is
    over all pairs: when it ends by itself, no swap at all lowers the objective by more than the
    tolerance. The objective of the swapped set has the last word: with binary weights it never
    ends above greedy. For the squared error.

    Parameters
    ----------
    rounds : int, optional
        The most swaps; by default as many as there are.
    tolerance : float
        A swap must lower the objective by more than this share of it.
    passes : int, optional
        The most passes over all pairs; by default as many as it takes.
    work : int, optional
        Where rows times the square of the points chosen exceed this, no exchanges are made, and a
        note says so.

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
    passes: int | None = None
    work: int | None = None

    name = "exchange"
    exact = True

    def __post_init__(self) -> None:
        for name, value, words in (
            ("rounds", self.rounds, "the most swaps"),
            ("passes", self.passes, "the most passes"),
            ("work", self.work, "rows times points squared"),
        ):
            if value is not None:
                whole_number(
                    value, 0, f"{name}={value!r} is not a whole number >= 0; give {words}, or None."
                )
        if not 0 <= self.tolerance < 1:
            raise InputError(
                f"tolerance={self.tolerance!r} is outside 0 … 1; give the share of the objective "
                "that is worth a swap."
            )

    def effort(self, taken: int, points: int, outer: int) -> Effort:
        if self._too_much(taken, points):
            return Effort()
        width = min(shortlist(taken, points), points)
        passes = USUAL_PASSES if self.passes is None else min(self.passes, USUAL_PASSES)
        swaps = USUAL_SWAPS * taken if self.rounds is None else min(self.rounds, taken)
        of_a_pass = 3 * points * taken**2 + 2 * outer * taken**2
        return Effort(
            held=3 * taken,  # the set's columns, their products and the pool's copy
            listed=width,
            # After each pass the columns of those that joined are new, before it the shortlist's.
            passes=FIRST_PASSES + passes * (1 + width / points),
            products=taken + swaps,
            multiplications=passes * of_a_pass,
            pairs=passes * width**2,
            reads=passes * points * taken * READS_A_PAIR + swaps * outer * taken,
        )

    def _too_much(self, taken: int, points: int) -> bool:
        return self.work is not None and points * taken**2 > self.work

    def assemble(self, assembly: Assembly) -> Ending:
        rows = len(assembly.ranks)
        if not self._too_much(assembly.size, rows):
            return super().assemble(assembly)
        assembly.details["strategy"] = repr(self)
        assembly.notes.append(
            f"exchanges: none, for {assembly.size} points of {rows} they would take long "
            "(strategy='exchange' makes them)"
        )
        return assembly.grow()

    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Ending]:
        work = _Exchanges(assembly, points, self)
        try:
            return points, work.run()
        finally:  # an interrupt keeps the swaps that were made
            lowered = work.begin - work.objective
            assembly.details |= {"exchanges": work.swaps, "exchange_gain": lowered}
            assembly.notes.append(
                f"exchanges: {work.swaps}, which lowered the objective by {lowered:.4g}"
            )
            if len(work.barred) == BROKEN_PROMISES:
                assembly.notes.append(IMPRECISE)


def shortlist(chosen: int, points: int) -> int:
    """How many points are exchanged with after a pass."""
    return max(SHORTLIST, chosen, points // SHARE)


class _Exchanges:
    """One run of exchanges: passes over all pairs, and the swaps among the best of each pass."""

    def __init__(self, assembly: Assembly, points: list[int], settings: Exchange) -> None:
        self.assembly = assembly
        self.points = points
        self.tolerance = settings.tolerance
        self.most = math.inf if settings.rounds is None else settings.rounds
        self.passes = math.inf if settings.passes is None else settings.passes
        self.ranks = assembly.ranks
        self.rank_list = self.ranks.tolist()
        self.free = assembly.open
        self.chosen = Chosen(assembly.problem, points)
        self.begin = self.objective = self.chosen.objective
        self.swaps = 0
        #: Swaps of the set as it stands, by their points, that were no gain.
        self.barred: set[tuple[int, int]] = set()

    def run(self) -> Ending:
        some: Tensor | None = None  # the points of the best promises; None for all of them
        while self.swaps < self.most and self.passes > 0:
            if self.assembly.clock.over:
                return STOPPED
            self.passes -= 1
            promises = self.chosen.promises(self.free, self.assembly.fixed, self.barred, some)
            made = False
            if bool(promises.max() > self.tolerance * self.objective):
                made = self._exhaust(Pool(self.chosen, self._best(promises, self._width)))
            if len(self.barred) == BROKEN_PROMISES or not (made or some is not None):
                break
            if not made:
                some = None
            elif some is None and len(self.free) > WIDER**2 * self._width:
                own = torch.tensor(self.points, device=self.free.device)
                some = torch.cat([self._best(promises, len(self.free) // WIDER), own])
            if self.chosen.points != self.points:
                self.chosen = self.chosen.moved_to(self.points)
        return Ending()

    @property
    def _width(self) -> int:
        """Of a shortlist."""
        return shortlist(len(self.points), len(self.free))

    def _best(self, promises: Tensor, count: int) -> Tensor:
        """The points of the best promises; of equal ones those of the lowest ranks."""
        count = min(count, int((promises > -torch.inf).sum()))
        least = promises.topk(count).values[-1]
        tie = TIE * self.objective
        better = promises > least + tie
        equal = ((promises >= least - tie) & ~better).nonzero()[:, 0]
        order = self.ranks[equal].argsort()
        left = count - int(better.sum())
        return torch.cat([better.nonzero()[:, 0], equal[order[:left]]])

    def _exhaust(self, pool: Pool) -> bool:
        """The best swaps of a pool, until none is left or they came to no good; whether anything
        is known that was not."""
        before = self.swaps, len(self.barred)
        while self.swaps < self.most and not self.assembly.clock.over:
            swap = pool.best(self.rank_list, self.assembly.fixed, self.barred)
            least = self.tolerance * self.objective
            if not swap.gain > least:
                break
            leaves, joins = pool.points[swap.place], pool.points[swap.row]
            pool.swap(swap.place, swap.row)
            if not self.objective - pool.objective > least:
                self.barred.add((leaves, joins))
                if len(self.barred) == BROKEN_PROMISES:
                    break
                pool.swap(swap.place, swap.row)
                continue
            self.points[swap.place] = joins
            self.free[leaves] = True
            self.free[joins] = False
            self.objective = pool.objective
            self.barred.clear()
            self.swaps += 1
            if not pool.drift <= self.chosen.allowed:
                break
        return (self.swaps, len(self.barred)) != before

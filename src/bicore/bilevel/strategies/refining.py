"""Weights on a simplex made sparse by a concave penalty, after Borsos, Mutný, Tagliasacchi and
Krause (JMLR 2024).

    minimise   G(w) + β Σ_k √(w_k + ε)     over   w ≥ 0, Σ_k w_k = m

On the simplex the sum of the weights says nothing about how many there are; the sum of their roots
does. β starts at a small share of the objective and doubles until at most m weights are left.
Projected gradients with Barzilai–Borwein steps; every step is a fit of the points that still have
weight.

Too many points, of which some leave again: the cheapest first, or by weights made sparse.

Greedy selection, then the best swaps: passes over all pairs, and a shortlist after each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.bilevel.contract import Effort, ReweighableEngine
from bicore.bilevel.greedy import Ending
from bicore.bilevel.strategies.base import Assembly, Refining, unit_objective
from bicore.bilevel.strategies.pool import Chosen, Pool
from bicore.coreset import Status
from bicore.errors import InputError
from bicore.numerics.descent import ProjectedDescent, capped, steepest
from bicore.picking import TIE, whole_number
from bicore.runtime import Clock, checkpoint

#: The first β makes the penalty this share of the objective.
FIRST_SHARE = 0.01
#: ε, as a share of the mean weight.
SMOOTHING = 1e-3
#: Doublings of β after which the search ends where it stands.
DOUBLINGS = 30
#: A step is tried at most at so many lengths, each a quarter of the one before.
ATTEMPTS, FACTOR = 12, 4.0
#: A step that promises less than this share of the penalised objective is none.
FLAT = 1e-9


class SparseWeights:
    """The weights of an engine's points, the first ``fixed`` of which keep weight 1."""

    def __init__(self, engine: ReweighableEngine, size: int, fixed: int, largest: float) -> None:
        self.engine = engine
        self.size = size
        self.fixed = fixed
        self.largest = largest
        self.departed: list[int] = []  # points without weight, the last to go last
        self.beta = 0.0
        count = len(engine.chosen)
        mean = (size - fixed) / max(count - fixed, 1)
        self.smoothing = SMOOTHING * mean
        weights = engine.weights.new_ones(count)
        weights[fixed:] = mean
        self.move(weights)

    @property
    def weights(self) -> Tensor:
        """Where the penalised objective was evaluated last."""
        return self.engine.weights

    @property
    def left(self) -> int:
        """Points that still have weight."""
        return int((self.weights > 0).sum())

    def run(self, steps: int, clock: Clock) -> None:
        """Lower the objective, then raise β until few enough points are left."""
        self._descend(steps, clock)
        self.beta = FIRST_SHARE * self.engine.objective / float(self._roots().sum())
        for _ in range(DOUBLINGS):
            if self.left <= self.size or clock.over:
                return
            self._descend(steps, clock)
            self._depart()
            self.beta *= 2

    def ranked(self) -> list[int]:
        """All points, those of the largest weight first, then those that lost theirs last."""
        free = self.weights[self.fixed :]
        order = torch.argsort(free, descending=True, stable=True).tolist()
        points = self.engine.chosen
        kept = [points[self.fixed + place] for place in order]
        return [*points[: self.fixed], *kept, *reversed(self.departed)]

    def value(self) -> float:
        """G + β Σ√(w + ε)."""
        return self.engine.objective + self.beta * float(self._roots().sum())

    def gradient(self) -> Tensor:
        """Of the same."""
        gradient = self.engine.weight_gradient()
        gradient[self.fixed :] += 0.5 * self.beta / self._roots()
        return gradient

    def move(self, weights: Tensor) -> None:
        """Evaluate it elsewhere."""
        self.engine.reweigh(weights)

    def _roots(self) -> Tensor:
        return (self.weights[self.fixed :] + self.smoothing).sqrt()

    def _descend(self, steps: int, clock: Clock) -> None:
        descent = ProjectedDescent(self._projected, ATTEMPTS, factor=FACTOR, flat=FLAT)
        descent.run(self, self._first_length, steps, clock)

    def _first_length(self, gradient: Tensor) -> float:
        return 1 / steepest(gradient) * float(self.weights.mean())

    def _projected(self, weights: Tensor) -> Tensor:
        """The nearest point of the simplex; the given points keep weight 1."""
        weights[: self.fixed] = 1.0
        free = weights[self.fixed :]
        weights[self.fixed :] = capped(free, self.size - self.fixed, self.largest)
        return weights

    def _depart(self) -> None:
        """Points without weight leave the fits; the penalty would hardly let them return."""
        gone = torch.nonzero(self.weights == 0).flatten().tolist()
        if gone:
            self.departed += [self.engine.chosen[place] for place in gone]
            self.engine.drop(gone)


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

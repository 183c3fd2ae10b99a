"""Strategies that refine a greedy coreset: exchange, elimination, simplex, class means.

Exchanges within classes follow the log-loss of class means, for a few rows of many classes. With a
row or two of each class, a classifier scores class c by the distance to the mean of its chosen
rows, in the space of the kernel:

    s_c(x) = 2/m Σ_{k∈S_c} K(x, k) − 1/m² Σ_{k,l∈S_c} K(k, l) = ‖φ(x)‖² − ‖φ(x) − μ_c‖²
    L(S)   = Σ_x v_x (log Σ_c exp(τ s_c(x)) − τ s_{y(x)}(x)),    τ fitted before every sweep

With few rows the squared error of a ridge regression mostly measures the size of its predictions,
but L measures which class is nearest. An exchange within class c changes s_c alone, so one product
scores all drawn rows of a class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import softplus

from bicore._deprecated import renamed_fields
from bicore.arguments import TIE, step_rng
from bicore.bilevel.contract import RefinementCost
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.greedy import Outcome, unrefined_outcome
from bicore.bilevel.strategies.base import Assembly, RefiningStrategy
from bicore.bilevel.strategies.exact import SCORED_PAIRS, ExchangePool, Limits, fit_set
from bicore.data import Array
from bicore.errors import InputError, check_integer, check_number
from bicore.kernels.operators import square_block
from bicore.numerics.descent import ProjectedDescent, cap_weights
from bicore.runtime.clock import Clock, checkpoint

#: The penalty at the first β, as a share of the objective.
FIRST_SHARE = 0.01
#: ε, as a share of the mean weight.
SMOOTHING = 1e-3
#: Maximum number of doublings of β.
DOUBLINGS = 30
#: Maximum number of lengths tried for a step, and the factor by which each is shorter.
ATTEMPTS, FACTOR = 12, 4.0
#: The search ends if the predicted decrease is below this share of the penalised objective.
FLAT = 1e-9
STOPPED = unrefined_outcome("during the exchanges: complete, not refined")
#: The exchanges end after this many consecutive swaps without their predicted gain.
MOST_FAILED_SWAPS = 5
#: The shortlist after a sweep has at least this many points …
SHORTLIST = 64
#: … and at least as many as are chosen, and one in ``SHARE`` of all points.
SHARE = 50
#: Later sweeps read the best 1 in ``WIDER`` points until these give no more gain.
WIDER = 4
#: Usual numbers of sweeps, and of swaps per point. Measured with 20 to 200 points of digits and
#: synthetic data: 5 to 15, and 0.3 to 1.6.
USUAL_SWEEPS, USUAL_SWAPS = 10, 1.0
#: The same in features, where sweeps after the first read a part of the rows. Measured with 200 to
#: 1,000 points of synthetic data: 3 to 7, and 0.04 to 0.3.
FEATURE_SWEEPS, FEATURE_SWAPS = 5, 0.3
#: Cost of the preparation, in passes: constant terms, and products with the chosen points.
FIRST_PASSES = 3
#: Numbers read and written for a pair of points: 24 operations with two arguments and a result.
READS_A_PAIR = 72
SPARSE = unrefined_outcome("while weights were made sparse: complete, not refined")
IMPRECISE = (
    "exchanges: stopped by rounding errors, because exchanges did not lower the objective as "
    "computed; use a larger inner_reg, or dtype='float64'"
)
#: The sweeps end if one lowers the log-loss by less than this share.
LEAST_DECREASE = 5e-3
#: Largest |log τ|, in units of the standard deviation of the scores.
WIDEST = 4.0
#: Number of rows of a class drawn as candidates in a sweep.
DRAWN = 32


class SparseWeights:
    """Weights on a simplex made sparse by a concave penalty (Borsos et al., JMLR 2024).

        minimise   G(w) + β Σ_k √(w_k + ε)     over   w ≥ 0, Σ_k w_k = m

    On the simplex the sum of the weights is constant, but the sum of their roots grows with the
    number of positive weights. β starts at a small share of the objective and doubles until at most
    m weights are positive. The first ``fixed`` points keep weight 1.
    """

    def __init__(self, engine: ImplicitEngine, size: int, fixed: int, largest: float) -> None:
        self.engine = engine
        self.size = size
        self.fixed = fixed
        self.largest = largest
        self.removed: list[int] = []  # points without weight, in order of removal
        self.beta = 0.0
        mean = (size - fixed) / max(len(engine.chosen) - fixed, 1)
        self.smoothing = SMOOTHING * mean
        weights = engine.weights.new_ones(len(engine.chosen))
        weights[fixed:] = mean
        self.reweigh(weights)

    @property
    def weights(self) -> Tensor:
        """The weights of the last evaluation of the penalised objective."""
        return self.engine.weights

    @property
    def remaining(self) -> int:
        """Points with positive weight."""
        return int((self.weights > 0).sum())

    @property
    def objective(self) -> float:
        """G + β Σ√(w + ε)."""
        return self.engine.objective + self.beta * float(self._roots().sum())

    def weight_gradient(self) -> Tensor:
        """The gradient of the penalised objective."""
        gradient = self.engine.weight_gradient()
        gradient[self.fixed :] += 0.5 * self.beta / self._roots()
        return gradient

    def reweigh(self, weights: Tensor) -> None:
        """Evaluate the penalised objective at other weights."""
        self.engine.reweigh(weights)

    def _roots(self) -> Tensor:
        return (self.weights[self.fixed :] + self.smoothing).sqrt()

    def run(self, steps: int, clock: Clock) -> None:
        """Lower the objective, then raise β until few enough points remain."""
        self.descend(steps, clock)
        beta = FIRST_SHARE * self.engine.objective / float(self._roots().sum())
        for _ in range(DOUBLINGS):
            if self.remaining <= self.size or clock.over:
                return
            self.beta = beta
            self.descend(steps, clock)
            self._drop_zero_weights()
            beta *= 2

    def descend(self, steps: int, clock: Clock) -> None:
        """Lower the penalised objective."""
        descent = ProjectedDescent(self._project, ATTEMPTS, factor=FACTOR, flat=FLAT)
        descent.run(self, float(self.weights.mean()), steps, clock)

    def _project(self, weights: Tensor) -> Tensor:
        weights[: self.fixed] = 1.0
        free = weights[self.fixed :]
        weights[self.fixed :] = cap_weights(free, self.size - self.fixed, self.largest)
        return weights

    def _drop_zero_weights(self) -> None:
        """Remove points without weight from the fits; the penalty would hardly let them return."""
        gone = torch.nonzero(self.weights == 0).flatten().tolist()
        if gone:
            self.removed += [self.engine.chosen[place] for place in gone]
            self.engine.drop(gone)

    def rank_points(self) -> list[int]:
        """Return all points: by weight, then points without weight, the last removed first."""
        free = self.weights[self.fixed :]
        order = torch.argsort(free, descending=True, stable=True).tolist()
        points = self.engine.chosen
        kept = [points[self.fixed + place] for place in order]
        return [*points[: self.fixed], *kept, *reversed(self.removed)]


@dataclass(frozen=True)
class ShrinkingStrategy(RefiningStrategy):
    """A strategy that first takes ``excess`` times as many points as requested."""

    excess: float = 2.0

    def __post_init__(self) -> None:
        if not (isinstance(self.excess, Real) and self.excess >= 1):
            raise InputError(f"excess must be a number >= 1; got {self.excess!r}.")

    def greedy_size(self, size: int, available: int) -> int:
        if math.isinf(self.excess):
            return available
        return min(available, math.ceil(self.excess * size))


@dataclass(frozen=True)
class Elimination(ShrinkingStrategy):
    """Greedy selection of too many points, then removal of those with the smallest removal cost.

    For the squared error.

    Parameters
    ----------
    excess : float
        Factor by which the first selection is larger; ``math.inf`` starts from all points, which
        costs the cube of their number.

    Examples
    --------
    >>> Elimination(excess=3).greedy_size(10, 100)
    30
    """

    name = "elimination"
    exact = True

    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Outcome]:
        assembly.details["eliminated"] = max(0, len(points) - assembly.size)
        pool = fit_set(assembly.problem, points).pool()
        limits = Limits(assembly.ranks, assembly.fixed)
        while pool.size > assembly.size:
            checkpoint()
            pool.remove_cheapest(limits)
            if not pool.drift <= pool.allowed:  # rounding errors have accumulated
                pool = fit_set(assembly.problem, pool.points[: pool.size], pool.terms).pool()
        return pool.points[: pool.size], Outcome()


@dataclass(frozen=True)
class Simplex(ShrinkingStrategy):
    """Greedy selection of too many points, then weights that a penalty makes sparse.

    Σw = size and 0 ≤ w ≤ ``largest``, while a penalty on Σ√w grows until at most ``size`` weights
    are positive (the L½ penalty of Borsos et al., JMLR 2024). If the greedy points of that size are
    better, they are kept: with unit weights the objective is never above that of greedy selection.
    For any loss.

    Parameters
    ----------
    excess : float
        Factor by which the first selection is larger.
    largest : float
        Largest weight. With 1 the remaining weights are 1; ``math.inf`` is the plain simplex, as
        published, whose weights are discarded here unless ``weighting="final"`` learns them again.
    steps : int
        Maximum number of descent steps for each β; a step needs one fit or more.

    Examples
    --------
    >>> Simplex(excess=2).greedy_size(10, 15)
    15
    """

    excess: float = 1.5
    largest: float = 1.0
    steps: int = 10

    name = "simplex"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (
            isinstance(self.largest, Real) and self.largest >= 1
        ):  # otherwise the weights could not sum to the size
            raise InputError(f"largest must be a number >= 1; got {self.largest!r}.")
        check_integer("steps", self.steps)

    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Outcome]:
        size = assembly.size
        if len(points) <= size or assembly.fixed >= size:
            return points, Outcome()
        engine = assembly.reweighable(points)
        sparse = SparseWeights(engine, size, assembly.fixed, self.largest)
        sparse.run(self.steps, assembly.clock)
        greedy, found = points[:size], sparse.rank_points()[:size]
        before, after = (self._objective(assembly, some) for some in (greedy, found))
        assembly.details |= {
            "relaxed_objective": engine.objective,
            "relaxed_support": sparse.remaining,
            "penalty": sparse.beta,
            "simplex_gain": max(before - after, 0.0),
        }
        return found if after < before else greedy, SPARSE if assembly.clock.over else Outcome()

    @staticmethod
    def _objective(assembly: Assembly, points: list[int]) -> float:
        """Return G of these points with weight 1, in float64 if it has a closed form."""
        if assembly.requirements.closed_form:
            return fit_set(assembly.problem, points).objective
        return assembly.reweighable(points).objective


@renamed_fields(passes="sweeps")
@dataclass(frozen=True)
class Exchange(RefiningStrategy):
    """Greedy selection, then repeatedly the best exchange.

    A sweep over all pairs of a chosen and another point computes exactly by how much each swap
    would lower the objective. The points of the best swaps form a shortlist. The best swap with a
    point of the shortlist is made, by rank-one updates, until none lowers the objective; then the
    next sweep begins, which may be over the best quarter of the points. The last sweep is over all
    pairs: unless a limit or rounding ends the search, no swap lowers the objective by more than the
    tolerance. The objective is computed again after every swap, and a
    swap that does not lower it is undone: with unit weights it is never above that of greedy
    selection. For the squared error.

    Parameters
    ----------
    rounds : int, optional
        Maximum number of exchanges (default: no limit).
    tolerance : float
        A swap must lower the objective by more than this share of it.
    sweeps : int, optional
        Maximum number of sweeps, over all points or the best quarter (default: no limit).
    work : int, optional
        If rows times the square of the number of chosen rows exceed this, no exchanges are made,
        with a note.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore import BilevelSelector, Dataset
    >>> x = np.arange(12.0)[:, None]
    >>> selector = BilevelSelector(kernel="rbf", inner_reg=0.1, strategy=Exchange())
    >>> selector.select(Dataset(x, x[:, 0] > 5), 2).provenance.notes
    ('exchanges: 2, objective lowered by 0.03101',)
    """

    rounds: int | None = None
    tolerance: float = 1e-6
    sweeps: int | None = None
    work: int | None = None

    name = "exchange"
    exact = True
    keeps_quotas = True

    def __post_init__(self) -> None:
        for name in ("rounds", "sweeps", "work"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least=0, fix="or None")
        check_number("tolerance", self.tolerance, least=0, below=1)

    def refinement_cost(self, taken: int, points: int, depth: int = 0) -> RefinementCost:
        if self._takes_long(taken, points):
            return RefinementCost()
        width = min(shortlist(taken, points), points)
        in_features = 0 < depth < taken
        sweeps: float = FEATURE_SWEEPS if in_features else USUAL_SWEEPS
        swaps = (FEATURE_SWAPS if in_features else USUAL_SWAPS) * taken
        sweeps = sweeps if self.sweeps is None else min(self.sweeps, sweeps)
        swaps = swaps if self.rounds is None else min(self.rounds, swaps)
        pairs = sweeps * points * taken
        if in_features:
            pairs += swaps * min(SCORED_PAIRS, width * taken)
            multiplications = 2 * depth * (pairs + 2 * swaps * (taken + width))
            multiplications += (
                4 * depth**2 * sweeps * points
            )  # every row times Σ and A, about twice
            return RefinementCost(
                passes=FIRST_PASSES, multiplications=multiplications, reads=pairs * READS_A_PAIR
            )
        of_a_sweep = 5 * points * taken**2 + width**2 * depth
        return RefinementCost(
            held=3 * taken,  # the set's columns, their products and the pool's copy
            listed=width,
            # A sweep reads the columns of the shortlist, and then those of the points that joined.
            passes=FIRST_PASSES + sweeps * (1 + width / points),
            multiplications=sweeps * of_a_sweep + (taken + swaps) * points * depth,
            reads=pairs * READS_A_PAIR + swaps * points * taken,
        )

    def _takes_long(self, taken: int, points: int) -> bool:
        return self.work is not None and points * taken**2 > self.work

    def _reason_to_keep(self, assembly: Assembly) -> str:
        rows = len(assembly.ranks)
        if not self._takes_long(assembly.size, rows):
            return ""
        return (
            f"exchanges: none, because exchanging {assembly.size} of {rows} rows takes long "
            "(use strategy='exchange' to run them)"
        )

    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Outcome]:
        work = _Exchanges(assembly, points, self)
        try:
            return points, work.run()
        finally:  # an interrupt keeps the swaps made so far
            lowered = work.begin - work.objective
            assembly.details |= {"exchanges": work.swaps, "exchange_gain": lowered}
            made = f"{work.swaps}, objective lowered by {lowered:.4g}"
            assembly.notes.append(f"exchanges: {made if work.swaps else work.why_none}")
            if len(work.excluded) == MOST_FAILED_SWAPS:
                assembly.notes.append(IMPRECISE)


def shortlist(chosen: int, points: int) -> int:
    """Return the number of candidates for exchange after a sweep."""
    return max(SHORTLIST, chosen, points // SHARE)


class _Exchanges:
    """One run of exchanges: sweeps over pairs, and after each swaps among the best points."""

    def __init__(self, assembly: Assembly, points: list[int], settings: Exchange) -> None:
        self.assembly = assembly
        self.points = points
        self.tolerance = settings.tolerance
        self.most = math.inf if settings.rounds is None else settings.rounds
        self.sweeps = math.inf if settings.sweeps is None else settings.sweeps
        self.limits = Limits(assembly.ranks, assembly.fixed, assembly.groups)
        #: Swaps of the current set that did not lower the objective, as pairs of points.
        self.excluded = self.limits.excluded
        self.free = assembly.open
        self.chosen = fit_set(assembly.problem, points)
        self.begin = self.objective = self.chosen.objective
        self.swaps = 0
        self.why_none = "none, because a limit ended the search first"

    def run(self) -> Outcome:
        listed: Tensor | None = None  # the points that a sweep reads; None for all
        while self.swaps < self.most and self.sweeps > 0:
            if self.assembly.clock.over:
                return STOPPED
            self.sweeps -= 1
            best_gains = self.chosen.best_gains(self.free, self.limits, listed)
            made = False
            if bool(best_gains.max() > self.tolerance * self.objective):
                made = self._exhaust(self.chosen.pool(self._best(best_gains, self._width)))
            if len(self.excluded) == MOST_FAILED_SWAPS or not (made or listed is not None):
                self.why_none = "none, because none lowers the objective"
                break
            if not made:
                listed = None
            elif listed is None and len(self.free) > WIDER**2 * self._width:
                own = torch.tensor(self.points, device=self.free.device)
                listed = torch.cat([self._best(best_gains, len(self.free) // WIDER), own])
            if self.chosen.points != self.points:
                self.chosen = self.chosen.with_points(self.points)
        return Outcome()

    @property
    def _width(self) -> int:
        """The length of a shortlist."""
        return shortlist(len(self.points), len(self.free))

    def _best(self, best_gains: Tensor, count: int) -> Tensor:
        """Return the points with the best gains; ties go to the lowest ranks."""
        count = min(count, int((best_gains > -torch.inf).sum()))
        least = best_gains.topk(count).values[-1]
        tie = TIE * self.objective
        better = best_gains > least + tie
        equal = ((best_gains >= least - tie) & ~better).nonzero()[:, 0]
        by_rank = sorted(equal.tolist(), key=self.limits.ranks.__getitem__)
        lowest = by_rank[: count - int(better.sum())]
        return torch.cat([better.nonzero()[:, 0], equal.new_tensor(lowest)])

    def _exhaust(self, pool: ExchangePool) -> bool:
        """Make the best swaps of a pool; return whether any was made or excluded."""
        before = self.swaps, len(self.excluded)
        while self.swaps < self.most and not self.assembly.clock.over:
            swap = pool.best_swap(self.limits)
            least = self.tolerance * self.objective
            if not swap.gain > least:
                break
            leaves, joins = pool.points[swap.leaving], pool.points[swap.joining]
            pool.swap(swap.leaving, swap.joining)
            if not self.objective - pool.objective > least:
                self.excluded.add((leaves, joins))
                if len(self.excluded) == MOST_FAILED_SWAPS:
                    break
                pool.swap(swap.leaving, swap.joining)  # undo it
                continue
            self.points[swap.leaving] = joins
            self.free[leaves] = True
            self.free[joins] = False
            self.objective = pool.objective
            self.excluded.clear()
            self.swaps += 1
            if not pool.drift <= pool.allowed:
                break
        return (self.swaps, len(self.excluded)) != before


@dataclass(frozen=True)
class ClassMeans(Exchange):
    """Greedy selection with quotas, then exchanges within classes by the log-loss of class means.

    Every place in turn takes the row with the lowest log-loss among random ones of its class; of
    equal ones that of the lowest id. ``rounds`` has no effect.
    """

    name = "class-means"

    def refine(self, assembly: Assembly, points: list[int]) -> tuple[list[int], Outcome]:
        work = _ClassMeans(assembly, points, self.tolerance)
        try:
            return points, work.run(math.inf if self.sweeps is None else self.sweeps)
        finally:  # an interrupt keeps the swaps made so far
            gain = work.begin - work.loss
            assembly.details |= {"exchanges": work.swaps, "exchange_gain": gain}
            assembly.notes.append(
                f"exchanges: {work.swaps} within classes, log-loss of class means lowered from "
                f"{work.begin:.4g} to {work.loss:.4g}"
            )


@dataclass(frozen=True)
class _Candidates:
    """Candidate rows of a class, with the terms of their losses."""

    rows: Array
    #: K[:, rows] on the outer set, and K[rows, rows].
    columns: Tensor
    square: Tensor
    #: log Σ exp(τ s_c) over the other classes, and the weights of the outer rows of this class.
    rest: Tensor
    own: Tensor


class _ClassMeans:
    """The points of each class, and the scores of class means on the outer set."""

    def __init__(self, assembly: Assembly, points: list[int], tolerance: float) -> None:
        problem = assembly.problem
        assert assembly.groups is not None
        self.assembly, self.points, self.tolerance = assembly, points, tolerance
        self.train, self.cross = problem.train, problem.cross
        self.codes = assembly.groups
        self.labels = problem.outer_targets.argmax(1)
        self.free = assembly.open.cpu().numpy()
        self.ranks, self.by_rank = np.array(assembly.ranks), assembly.run.plan.by_id
        found = set(self.codes[points].tolist())
        present = [code in found for code in range(problem.outer_targets.shape[1])]
        # Rows of classes without a point have no score.
        known = torch.tensor(present, device=self.labels.device)[self.labels]
        weights = torch.where(known, problem.outer_weights, torch.zeros_like(problem.outer_weights))
        self.weights = weights / weights.sum()
        self.scores = problem.outer_targets.new_full((len(known), len(present)), -torch.inf)
        for code in sorted(found):
            own = self._index([points[place] for place in self._places(code)])
            self._rescore(code, self.cross.columns(own), square_block(self.train, own))
        self.swaps = self.visits = 0
        self.temperature = self._fit_temperature()
        self.begin = self.loss = self._loss(self.temperature)

    def run(self, sweeps: float) -> Outcome:
        """Sweep over the classes until the loss hardly changes."""
        classes = np.unique(self.codes[self.points]).tolist()
        while sweeps > 0 and len(classes) > 1:  # with one class the loss is 0
            sweeps -= 1
            before = self.loss
            for code in classes:
                if self.assembly.clock.over:
                    return STOPPED
                checkpoint()
                self._exchange(code)
            self.temperature = self._fit_temperature()
            self.loss = self._loss(self.temperature)
            if not before - self.loss > LEAST_DECREASE * before:
                break
        return Outcome()

    def _places(self, code: int) -> list[int]:
        return np.flatnonzero(self.codes[self.points] == code).tolist()

    def _index(self, rows: list[int]) -> Tensor:
        return torch.tensor(rows, device=self.labels.device)

    def _rescore(self, code: int, columns: Tensor, square: Tensor) -> None:
        """Compute the scores of a class from the columns of its points."""
        self.scores[:, code] = 2 * columns.mean(1) - square.mean().to(columns)

    def _loss(self, temperature: float) -> float:
        scores = temperature * self.scores
        own = scores.gather(1, self.labels[:, None])[:, 0]
        losses = torch.where(self.weights > 0, scores.logsumexp(1) - own, torch.zeros_like(own))
        return float(self.weights.double() @ losses.double())

    def _fit_temperature(self) -> float:
        scale = float(self.scores[self.scores.isfinite()].double().std())
        if not scale > 0:
            return 1.0
        found = minimize_scalar(
            lambda log: self._loss(math.exp(log) / scale),
            bounds=(-WIDEST, WIDEST),
            method="bounded",
            options={"xatol": 1e-2},
        )
        return math.exp(found.x) / scale

    def _exchange(self, code: int) -> None:
        """Put the best row of the class at each of its places."""
        found = self.candidates(code)
        for place in self._places(code):
            if place < self.assembly.fixed:
                continue
            losses = self.losses(found, place)
            now = int(np.flatnonzero(found.rows == self.points[place])[0])
            least = self.tolerance * self.loss
            best = int((losses <= losses.min() + least).nonzero()[0, 0])
            if losses[now] - losses[best] > least:
                self.free[[self.points[place], found.rows[best]]] = [True, False]
                self.points[place] = int(found.rows[best])
                self.swaps += 1
        taken = self._mask(found, self._places(code))
        self._rescore(code, found.columns[:, taken], found.square[taken][:, taken])

    def candidates(self, code: int) -> _Candidates:
        """Return the points of a class and some of its free rows, by rank."""
        rows = self.by_rank[self.free[self.by_rank] & (self.codes[self.by_rank] == code)]
        rng = step_rng(self.assembly.run.plan.seed, self.visits)
        self.visits += 1
        drawn = rng.choice(rows, min(DRAWN, len(rows)), replace=False)
        mine = np.r_[drawn, [self.points[place] for place in self._places(code)]]
        rows = mine[np.argsort(self.ranks[mine])]
        index = self._index(rows.tolist())
        others = self.temperature * self.scores
        others[:, code] = -torch.inf
        own = torch.where(self.labels == code, self.weights, torch.zeros_like(self.weights))
        columns, square = self.cross.columns(index), square_block(self.train, index)
        return _Candidates(rows, columns, square, others.logsumexp(1), own)

    def losses(self, found: _Candidates, place: int) -> Tensor:
        """Compute L, up to a constant, with each row of a class in a place; ∞ for other points."""
        code = self.codes[self.points[place]]
        stays = self._mask(found, [other for other in self._places(code) if other != place])
        columns, square, share = found.columns, found.square, 1 / (1 + int(stays.sum()))
        norms = square[stays][:, stays].sum() + 2 * square[:, stays].sum(1) + square.diagonal()
        shift = (self.temperature * share**2 * norms).to(columns)
        slope = 2 * self.temperature * share
        base = slope * columns[:, stays].sum(1)
        total = (shift * found.own.sum() - slope * (found.own @ columns)).double()
        scores = slope * columns - shift + (base - found.rest)[:, None]
        total += (self.weights @ softplus(scores)).double()
        return total.masked_fill(stays, torch.inf)

    def _mask(self, found: _Candidates, places: list[int]) -> Tensor:
        """Mark the candidates that are the points of some places."""
        taken = np.isin(found.rows, [self.points[place] for place in places])
        return torch.from_numpy(taken).to(self.labels.device)

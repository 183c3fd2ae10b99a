"""The exact objective of every exchange and removal, for the squared error, in float64.

A pass over all pairs of a chosen and another point costs one product of K with m columns, no more
than choosing the m points did; after a swap only the column of the point that joined is new.

The symbols are those of :mod:`bicore.moments.ridge`: t, q, r and h of a row; between two rows, T =
φ_kᵀΣφ_i and V = φ_kᵀΣAΣφ_i. D holds the weights of the outer set, and α = Q Y_S. If a chosen row i
leaves, with d = 1 − t_i, every row k outside has

    t' = t + T²/d      q' = q + 2TV/d + q_i T²/d²      r' = r + T r_i/d
    h' = h + T (h_i + 2 q_i r_i/d)/d + 2V r_i/d

and the gain of adding it then is :func:`bicore.numerics.linear_algebra.exact_gain`. With a kernel,
T = K'/ρ and V = K'DK'/ρ² for the posterior kernel K', so with Q = (K_SS + ρI)⁻¹ of the chosen
points S and U = K[:, S] Q, a chosen row has d = ρQ_ii, q = (UᵀDU)_ii, r = ρα_i and h = 2(UᵀDr)_i,
and T = U, V = K'DU/ρ. The code uses only operations that arrays and tensors share.

Sets with more points than the kernel has features are represented by features: with the features
Φ_S of the points, Σ = (Φ_SᵀΦ_S + ρI)⁻¹ and A = ΦᵀDΦ (p×p), the tables follow for every row from its
features:

    K' = ρ ΦΣΦᵀ      K'DK' = ρ² ΦΣAΣΦᵀ      K[:, S] Q = ΦΣΦ_Sᵀ      K'DU = ρ ΦΣAΣΦ_Sᵀ

:mod:`bicore.moments.ridge` updates Σ, the fit and the diagonals when a point joins or leaves. No
n×m matrix is stored: a pass over all pairs multiplies blocks of rows by p×m matrices. The outer set
is replaced by the rows of the triangular factor of √D [Φ, Y]: as many rows as features and targets
together, with the same objective.

Exchanges subtract numbers that are larger than the result by a factor of up to the condition number
of K_SS + ρI. Rounding of the stored matrix does no harm if all terms use the same rounded matrix,
so the stored numbers are read as they are and multiplied in float64. A matrix that is evaluated
again for every product stays in its own precision: float64 would take twice as long.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from bicore.arguments import TIE
from bicore.bilevel.problem import Problem
from bicore.data import Array
from bicore.kernels.operators import Features, KernelOperator, RowSubset, parts, slices
from bicore.moments.moments import Outer
from bicore.moments.ridge import FeatureRows, FeatureState, PairRows, RidgeRows, to_device
from bicore.numerics.linear_algebra import (
    cholesky_factor,
    exact_gain,
    row_products,
    tall_product,
    transposed_product,
)
from bicore.runtime.clock import checkpoint
from bicore.runtime.threads import all_threads

#: Number of pairs computed together, so that they fit the cache of a core …
CACHED_PAIRS = 1 << 14
#: … and on a GPU, so that it is busy.
DEVICE_PAIRS = 1 << 22
#: Numbers of a stored matrix copied to float64 at a time.
COPIED = 1 << 22
#: Numbers in one block of the matrix of all exchanges.
BLOCK = 1 << 20
#: The set is refitted if (K_SS + ρI) α differs from Y_S by more than this share of Y_S …
DRIFT = 1e-9
#: … and by more than this multiple of the share after the last fit.
WORSE = 100
#: Rows of a pool are scored in blocks of at least this many rows …
SCORED = 64
#: … or as many as make up this number of pairs.
PAIRS = 1 << 17


def as_host_array(values: Tensor) -> Any:
    """Return an array that shares the memory of a CPU tensor; a GPU tensor stays as it is."""
    return values if values.is_cuda else values.numpy()


def nonzero_places(mask: Any) -> Any:
    """Return the indices of the true entries, one array or tensor per dimension."""
    if isinstance(mask, Tensor):
        return torch.nonzero(mask, as_tuple=True)
    # np.nonzero is many times slower on a matrix
    return np.unravel_index(np.flatnonzero(mask), mask.shape)


@dataclass
class Limits:
    """Restrictions on exchanges."""

    #: The rank of every point, by which ties are broken.
    ranks: Sequence[int]
    #: Number of chosen points, the first ones, that stay.
    fixed: int = 0
    #: The group of every point, within which exchanges are allowed. None: any two points.
    groups: Array | None = None
    #: Pairs of a leaving and a joining point that are not allowed.
    excluded: set[tuple[int, int]] = field(default_factory=set)

    def mask(self, gains: Any, joining: Array, leaving: list[int]) -> Any:
        """Set the gains of exchanges that are not allowed to −∞, in place."""
        gains[:, : self.fixed] = -torch.inf
        if self.groups is not None:
            across = self.groups[joining][:, None] != self.groups[leaving]
            gains[torch.from_numpy(across) if isinstance(gains, Tensor) else across] = -torch.inf
        for leaves, joins in self.excluded:
            if leaves in leaving:
                gains[np.flatnonzero(joining == joins), leaving.index(leaves)] = -torch.inf
        return gains


class Others(NamedTuple):
    """Tables of rows outside: 1 + t, q, r next to h, and T and V with the chosen rows."""

    divisor: Any
    q: Any
    both: Any
    t: Any
    v: Any


class Removals:
    """The effect of removing each chosen row, from 1 − t, q, and r next to h."""

    def __init__(self, divisor: Any, q: Any, both: Any) -> None:
        residuals, slopes = _halves(both)
        self.inverse = 1 / divisor
        self.q = q
        step = residuals * self.inverse[:, None]
        turn = (slopes + (2 * q)[:, None] * step) * self.inverse[:, None]
        self.size = row_products(step, step)
        self.skew = row_products(step, turn)
        squares = row_products(residuals, residuals)
        #: Increase of the objective when a row leaves.
        self.costs = -exact_gain(row_products(slopes, residuals), q, squares, -divisor)
        self.step = step.T
        self.turn = turn.T

    def swap_gains(self, others: Others) -> Any:
        """Return the decrease of G for every pair of another row and a chosen one."""
        on_device = isinstance(others.t, Tensor)
        pairs = DEVICE_PAIRS if on_device else CACHED_PAIRS
        height = max(1, pairs // max(1, others.t.shape[1]))
        if len(others.t) <= height:
            return self._block(others)
        result = torch.empty_like(others.t) if on_device else np.empty_like(others.t)
        for top in range(0, len(result), height):
            checkpoint()
            rows = slice(top, top + height)
            result[rows] = self._block(Others(*(part[rows] for part in others)))
        return result

    def _block(self, some: Others) -> Any:
        """Compute a block of pairs with as few passes over it as possible."""
        t = some.t
        residuals, slopes = _halves(some.both)
        along = residuals @ self.step
        # ⟨h', r'⟩
        agreement = t * self.skew
        agreement += slopes @ self.step
        agreement += residuals @ self.turn
        agreement *= t
        agreement += row_products(slopes, residuals)[:, None]
        moved = t * self.size
        moved += along
        # ‖r'‖²
        along += moved
        along *= t
        along += row_products(residuals, residuals)[:, None]
        moved *= some.v
        moved *= 2
        agreement += moved
        # q'
        scaled = t * self.inverse
        energy = scaled * self.q
        energy += some.v
        energy += some.v
        energy *= scaled
        energy += some.q[:, None]
        # 1 + t'
        scaled *= t
        scaled += some.divisor[:, None]
        energy *= along
        energy /= scaled
        agreement -= energy
        agreement /= scaled
        agreement -= self.costs
        return agreement


def _halves(both: Any) -> tuple[Any, Any]:
    outputs = both.shape[1] // 2
    return both[:, :outputs], both[:, outputs:]


def others_of(rows: RidgeRows, index: Any, own: Any) -> Others:
    """Return the tables of some rows; ``own`` identifies the chosen ones."""
    return Others(rows.divisor[index], rows.q[index], rows.both[index], *rows.pairs(index, own))


def removals_of(rows: RidgeRows, index: slice) -> Removals:
    """Return the effect of removing each of some chosen rows."""
    return Removals(rows.divisor[index], rows.q[index], rows.both[index])


class DoubleOperator:
    """A kernel operator whose stored numbers are multiplied in float64.

    ``like`` is one with the same columns: their features are copied once.
    """

    def __init__(self, operator: KernelOperator, like: DoubleOperator | None = None) -> None:
        self.operator = operator
        self.matrix: Tensor | None = None
        if operator.feature_rows is not None:
            rows, columns = operator.feature_rows
            known = None if like is None else like.operator.feature_rows
            doubled = columns.double() if known is None else known[1]
            self.operator = Features(doubled if rows is columns else rows.double(), doubled)
        elif operator.like.dtype != torch.float64:
            self.matrix = operator.matrix

    def columns(self, index: Tensor) -> Tensor:
        """K[:, index]."""
        return self.operator.columns(index).double()

    def transposed_matmul(self, right: Tensor) -> Tensor:
        """Kᵀ @ right."""
        if self.matrix is not None:
            return torch.cat([part.double().T @ right for part in self._parts(self.matrix)])
        return self.operator.transposed_matmul(right.to(self.operator.like)).double()

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        """Σ_j weights_j K_jk² for every column k."""
        if self.matrix is not None:
            return torch.cat(
                [weights @ part.double().square() for part in self._parts(self.matrix)]
            )
        return self.operator.weighted_column_norms(weights.to(self.operator.like)).double()

    @staticmethod
    def _parts(matrix: Tensor) -> Iterator[Tensor]:
        return iter(matrix.split(max(1, COPIED // max(len(matrix), 1)), 1))  # type: ignore[no-untyped-call]


class SharedTerms:
    """Terms of sets represented by columns of the kernel matrix, which exchanges do not change."""

    def __init__(self, problem: Problem) -> None:
        problem = problem.with_few_outer_rows()
        self.train = DoubleOperator(problem.train)
        self.cross = self.train if problem.same else DoubleOperator(problem.cross, self.train)
        self.weights = problem.outer_weights.double()
        self.targets = problem.inner_targets.double()
        self.outer_targets = problem.outer_targets.double()

    @cached_property
    def pulled(self) -> Tensor:
        """Kᵀ D Y."""
        return self.cross.transposed_matmul(self.weights[:, None] * self.outer_targets)

    @cached_property
    def variance(self) -> Tensor:
        """K_kk."""
        return self.train.operator.diagonal().double()

    @cached_property
    def norms(self) -> Tensor:
        """Σ_o D_o K_ok²."""
        return self.cross.weighted_column_norms(self.weights)

    def columns(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """K[:, index] at the training points and at the outer set."""
        columns = self.train.columns(index)
        return columns, columns if self.train is self.cross else self.cross.columns(index)

    def products(self, columns: Tensor) -> Tensor:
        """Kᵀ D K[:, S], where K[:, S] is known at the outer set."""
        return self.cross.transposed_matmul(self.weights[:, None] * columns)

    def between(self, index: Tensor) -> Tensor:
        """Kᵀ D K among some points."""
        columns = self.cross.columns(index)
        return transposed_product(columns, columns, self.weights)


class ExchangeSet(ABC):
    """A fitted set of points with weight 1, and the effect of every exchange."""

    points: list[int]
    objective: float
    rho: float
    #: Terms that exchanges do not change.
    terms: Any
    #: Largest allowed drift of the coefficients, see :func:`allowed_drift`.
    allowed: float

    @abstractmethod
    def with_points(self, points: Sequence[int]) -> Self:
        """Fit other points in the same places; this set must not be used again."""

    @abstractmethod
    def removals(self) -> Removals:
        """Return the effect of removing each point."""

    @abstractmethod
    def others(self, rows: Tensor | slice) -> Others:
        """Return the tables of some points outside the set."""

    @abstractmethod
    def pool(self, shortlist: Tensor | None = None) -> ExchangePool:
        """Return the pool of the set and a shortlist of candidates."""

    def best_gains(self, open_points: Tensor, limits: Limits, some: Tensor | None = None) -> Tensor:
        """Compute the gain of the best exchange for each point, or for ``some``.

        This takes a pass over their pairs with the chosen points.
        """
        best = torch.full_like(open_points, -torch.inf, dtype=torch.float64)
        if limits.fixed >= len(self.points):
            return best
        every, removals = np.arange(len(best)), self.removals()
        height = max(1, BLOCK // len(self.points))
        for part in slices(len(best), height) if some is None else parts(some, height):
            joining = every[part] if isinstance(part, slice) else part.cpu().numpy()
            gains = removals.swap_gains(self.others(part))
            best[part] = torch.as_tensor(limits.mask(gains, joining, self.points)).amax(1)
        return best.masked_fill(~open_points, -torch.inf)


class MatrixSet(ExchangeSet):
    """A set of points represented by columns of the kernel matrix."""

    terms: SharedTerms

    def __init__(
        self,
        problem: Problem,
        points: Sequence[int],
        terms: SharedTerms | None = None,
        columns: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.problem = problem
        self.rho = problem.regulariser.rho(1)
        self.points = list(points)
        self.terms = terms or SharedTerms(problem)
        weights = self.terms.weights
        self.index = torch.tensor(self.points, device=weights.device)
        self.columns, self.outer_columns = columns or self.terms.columns(self.index)
        self.targets = self.terms.targets[self.index]
        shifted = self.columns[self.index]
        shifted.diagonal().add_(self.rho)
        factor = cholesky_factor(shifted)
        self.inverse = torch.cholesky_inverse(factor)
        self.alpha = torch.cholesky_solve(self.targets, factor)
        self.residual = self.terms.outer_targets - self.outer_columns @ self.alpha
        # U = O Q first, with O the columns on the outer set: the rounding error of Q (OᵀDO) Q
        # grows with the square of the condition number.
        functions = tall_product(self.outer_columns, self.inverse)
        self.sandwich = transposed_product(functions, functions, weights)
        pulled = transposed_product(functions, self.residual, weights)
        #: The residuals and slopes of the points, side by side.
        self.both = torch.cat([self.rho * self.alpha, 2 * pulled], 1)
        self.objective = float(weights @ self.residual.square().sum(1))
        self.allowed = allowed_drift(
            relative_residual(shifted @ self.alpha - self.targets, self.targets)
        )

    def with_points(self, points: Sequence[int]) -> MatrixSet:
        """The fit of other points in the same places. Columns and products of those that stayed
        are kept and the others computed together, in place: this set must not be used again."""
        places = [place for place, k in enumerate(points) if k != self.points[place]]
        if places:
            index = torch.tensor([points[place] for place in places], device=self.index.device)
            columns, outer = self.terms.columns(index)
            self.products[:, places] = self.terms.products(outer)
            self.columns[:, places] = columns
            if self.outer_columns is not self.columns:
                self.outer_columns[:, places] = outer
        found = MatrixSet(self.problem, points, self.terms, (self.columns, self.outer_columns))
        found.products = self.products
        return found

    @cached_property
    def products(self) -> Tensor:
        """Kᵀ D K[:, S]."""
        return self.terms.products(self.outer_columns)

    @cached_property
    def inside(self) -> tuple[Tensor, Tensor]:
        """OᵀDO and OᵀDr, with O the columns of the outer set."""
        outer, weights = self.outer_columns, self.terms.weights
        pulled = transposed_product(outer, self.residual, weights)
        return transposed_product(outer, outer, weights), pulled

    def removals(self) -> Removals:
        divisor = self.rho * self.inverse.diagonal()
        return Removals(*map(as_host_array, (divisor, self.sandwich.diagonal(), self.both)))

    def others(self, rows: Tensor | slice) -> Others:
        moment, pulled = self.inside
        terms, rho = self.terms, self.rho
        columns = self.columns[rows]
        products = self.products[rows]
        half = tall_product(columns, self.inverse)
        moved = products - tall_product(half, moment)  # K'ᵀD O
        pull = terms.pulled[rows] - products @ self.alpha - half @ pulled
        residual = terms.targets[rows] - columns @ self.alpha
        variance = terms.variance[rows] - row_products(half, columns)
        energy = terms.norms[rows] - row_products(half, products) - row_products(half, moved)
        divisor, q = 1 + variance.clamp_min_(0) / rho, energy.clamp_min_(0) / rho**2
        both = torch.cat([residual, 2 / rho * pull], 1)
        image = tall_product(moved, self.inverse / rho)
        return Others(*map(as_host_array, (divisor, q, both, half, image)))

    def pool(self, shortlist: Tensor | None = None) -> MatrixPool:
        return MatrixPool(self, shortlist)


def relative_residual(missing: Any, targets: Any) -> float:
    """Return the norm of the residual relative to that of the targets."""
    scale = math.sqrt(float((targets * targets).sum()))
    return math.sqrt(float((missing * missing).sum())) / scale if scale > 0 else 0.0


def allowed_drift(share: float) -> float:
    """Return the largest drift of the coefficients, for a fit with this relative residual."""
    return max(DRIFT, WORSE * share)


@dataclass(frozen=True)
class Swap:
    """A place of the set, the row of the pool that replaces it, and the gain."""

    place: int
    row: int
    gain: float


class ExchangePool(ABC):
    """A fitted set and a shortlist of candidates for exchange.

    The first ``size`` of ``points`` are the set. A swap changes the gains of all pairs, but little.
    So a row is scored again only if its estimated best gain reaches the best one computed: its last
    best gain, plus the change of its level since then. The level is the gain of adding the row,
    minus the lowest cost of a removal.
    """

    rows: RidgeRows

    def __init__(self, chosen: ExchangeSet, points: list[int]) -> None:
        self.terms = chosen.terms
        self.objective = chosen.objective
        #: Largest drift before the set is refitted.
        self.allowed = chosen.allowed
        self.rho = chosen.rho
        self.points = points
        self.size = len(chosen.points)
        #: The largest gain of every row when it was last computed, and the level at that time.
        self.best = np.full(len(points), np.inf)
        self.level = np.zeros(len(points))

    @property
    @abstractmethod
    def drift(self) -> float:
        """The relative residual of the coefficients after the updates."""

    @abstractmethod
    def _evaluate(self, place: int) -> float:
        """Compute G after a change at this place."""

    def removals(self) -> Removals:
        """Return the effect of removing each chosen point."""
        return removals_of(self.rows, slice(0, self.size))

    def score(self, limits: Limits) -> tuple[Any, Array]:
        """Compute the gains of pairs of another row and a place, and the others' rows.

        The best pair is among them if no gain grew more than estimated.
        """
        removals = self.removals()
        others = np.arange(self.size, len(self.points))
        together = max(SCORED, PAIRS // self.size)
        if len(others) <= together:
            return self._gains(removals, slice(self.size, None), others, limits), others
        level = self.rows.gains()[others] - float(removals.costs[limits.fixed :].min())
        estimates = self.best[others] + level - self.level[others]
        blocks: list[Any] = []
        found: list[Array] = []
        top = -np.inf
        while len(others) and not estimates.max() < top - TIE * self.objective:
            likely = np.zeros(len(others), dtype=bool)
            likely[np.argsort(-estimates, kind="stable")[:together]] = True
            some = others[likely]
            gains = self._gains(removals, some, some, limits)
            self.best[some] = torch.as_tensor(gains).amax(1).cpu().numpy()
            self.level[some] = level[likely]
            top = max(top, float(self.best[some].max()))
            blocks.append(gains)
            found.append(some)
            others, estimates, level = others[~likely], estimates[~likely], level[~likely]
        gains = torch.cat(blocks) if torch.is_tensor(blocks[0]) else np.concatenate(blocks)
        return gains, np.concatenate(found)

    def _gains(self, removals: Removals, index: Any, rows: Array, limits: Limits) -> Any:
        """Compute the gains of some rows with each place, −∞ if not allowed.

        ``index`` is a slice if the rows are all the others, because a slice needs no copy.
        """
        checkpoint()
        gains = removals.swap_gains(others_of(self.rows, index, slice(0, self.size)))
        points = np.array(self.points)
        return limits.mask(gains, points[rows], self.points[: self.size])

    def best_swap(self, limits: Limits) -> Swap:
        """Return the best exchange with the shortlist.

        Of equal exchanges the one whose joining point has the lowest rank is taken, then whose
        leaving point has the highest.
        """
        gains, others = self.score(limits)
        found, places = nonzero_places(gains >= gains.max() - TIE * self.objective)
        ranks = [limits.ranks[point] for point in self.points]
        one, place = min(
            zip(found.tolist(), places.tolist(), strict=True),
            key=lambda pair: (ranks[others[pair[0]]], -ranks[pair[1]]),
        )
        return Swap(place, int(others[one]), float(gains[one, place]))

    def swap(self, place: int, row: int) -> None:
        """Exchange a chosen point and a candidate; the same call undoes it."""
        for one in (place, row):
            self.rows.change(one)
        self._exchange(place, row)
        self.best[row] = np.inf
        self.objective = self._evaluate(place)

    def remove(self, place: int) -> None:
        """Remove the point at this place; the last point moves there."""
        self.rows.change(place)
        self.size -= 1
        self._exchange(place, self.size)

    def _exchange(self, place: int, other: int) -> None:
        """Exchange a chosen place and another one."""
        points = self.points
        points[place], points[other] = points[other], points[place]
        self.rows.exchange(place, other)

    def remove_cheapest(self, limits: Limits) -> None:
        """Remove the point that costs least to lose; of equal ones that of the highest rank."""
        costs = self.removals().costs
        costs[: limits.fixed] = torch.inf
        (tied,) = nonzero_places(costs <= costs.min() + TIE * self.objective)
        place = max(tied.tolist(), key=lambda one: limits.ranks[self.points[one]])
        self.objective += float(costs[place])
        self.remove(place)


class MatrixPool(ExchangePool):
    """The pool of a set represented by columns of the kernel matrix."""

    terms: SharedTerms

    def __init__(self, chosen: MatrixSet, shortlist: Tensor | None = None) -> None:
        index = chosen.index if shortlist is None else torch.cat([chosen.index, shortlist])
        super().__init__(chosen, index.tolist())
        rho, terms, count = self.rho, self.terms, self.size
        kernel = chosen.columns[index]
        # T and V side by side, filled in place: they are as large as the pool's other matrices.
        tables = kernel.new_empty(len(index), 2 * len(index))
        t, v = tables[:, : len(index)], tables[:, len(index) :]
        t[:count, :count] = -rho * chosen.inverse
        t.diagonal()[:count] += 1
        v[:count, :count] = chosen.sandwich
        both = chosen.both
        if shortlist is not None:
            others = Others(*map(torch.as_tensor, chosen.others(shortlist)))
            some = DoubleOperator(RowSubset.of(terms.train.operator, index))
            kernel = torch.cat([kernel, some.columns(shortlist)], 1)
            # The kernel's diagonal is exact, unlike evaluated pairs of equal points.
            kernel.diagonal().copy_(terms.variance[index])
            across = kernel[:count, count:]
            between = torch.addmm(kernel[count:, count:], others.t, across, alpha=-1).div_(rho)
            _border(t, others.t, between, others.divisor - 1)
            moment = terms.between(shortlist)
            moment.addmm_(others.t, chosen.products[shortlist].T, alpha=-1)
            moment.addmm_(others.v, across, alpha=-rho).div_(rho**2)
            _border(v, others.v, moment, others.q)
            both = torch.cat([both, others.both])
        inside = np.arange(len(index)) < count
        targets, *given = (one.cpu().numpy() for one in (terms.targets[index], tables, both))
        self.rows = PairRows(targets, inside, *given)
        self.rows.divisor[:count] = rho * chosen.inverse.diagonal().cpu().numpy()
        self.kernel, self._columns = kernel.cpu().numpy(), chosen.outer_columns
        self._root = terms.weights.sqrt()

    @cached_property
    def _outer(self) -> tuple[Tensor, Tensor]:
        """K[S, outer] √D, updated by exchanges, and the targets √D with a row for each output."""
        columns, targets = self._columns.T, self.terms.outer_targets.T
        return (self._root * columns).contiguous(), (self._root * targets).contiguous()

    @property
    def _alpha(self) -> Array:
        alpha: Array = self.rows.both[: self.size, : self.rows.targets.shape[1]] / self.rho
        return alpha

    @property
    def drift(self) -> float:
        size, alpha = self.size, self._alpha
        targets = self.rows.targets[:size]
        missing = self.kernel[:size, :size] @ alpha + self.rho * alpha - targets
        return relative_residual(missing, targets)

    def _exchange(self, place: int, other: int) -> None:
        super()._exchange(place, other)
        for table in (self.kernel, self.kernel.T):
            table[[place, other]] = table[[other, place]]

    def _evaluate(self, place: int) -> float:
        outer, targets = self._outer
        joined = torch.tensor([self.points[place]], device=outer.device)
        torch.mul(self._root, self.terms.cross.columns(joined)[:, 0], out=outer[place])
        alpha = torch.from_numpy(self._alpha.T).to(outer)
        with all_threads(outer.numel() * len(alpha)):
            missing = torch.addmm(targets, alpha, outer, alpha=-1).view(-1)
        return float(missing @ missing)


def _border(table: Tensor, across: Tensor, others: Tensor, diagonal: Tensor) -> None:
    """Complete a symmetric matrix of which the first block is filled."""
    count = across.shape[1]
    table[count:, :count], table[:count, count:] = across, across.T
    table[count:, count:] = others
    table[count:, count:].add_(others.T).div_(2)
    table.diagonal()[count:] = diagonal


class FeatureTerms:
    """Features, targets and the outer objective, which exchanges do not change."""

    def __init__(self, problem: Problem) -> None:
        assert problem.train.feature_rows is not None
        features = problem.train.feature_rows[1]
        self.rho = problem.regulariser.rho(1)
        self.device = features.device if features.is_cuda else None
        self.features: Array = features.double().cpu().numpy()
        self.targets: Array = problem.inner_targets.double().cpu().numpy()
        few = problem.with_few_outer_rows()
        assert few.cross.feature_rows is not None
        root = few.outer_weights[:, None].double().sqrt()
        outer, goals = few.cross.feature_rows[0], few.outer_targets
        #: A few rows and targets with the objective of the outer set.
        self.outer, self.goals = ((root * part.double()).cpu().numpy() for part in (outer, goals))
        quadratic, linear = self.outer.T @ self.outer, self.outer.T @ self.goals
        moments = Outer(quadratic, linear, float(np.vdot(self.goals, self.goals)))
        self.state = FeatureState(moments, self.rho, self.device)

    def objective(self, state: FeatureState) -> float:
        """Compute G of a fit."""
        outer, goals = (to_device(part, self.device) for part in (self.outer, self.goals))
        missing = goals + outer @ state.both[:, : goals.shape[1]]
        return float((missing * missing).sum())

    def relative_residual(self, state: FeatureState, features: Array, targets: Array) -> float:
        """Return the residual of the fit of W, relative to Φ_SᵀY_S."""
        rows, goals = (to_device(part, self.device) for part in (features, targets))
        model = -state.both[:, : goals.shape[1]]
        return relative_residual(rows.T @ (goals - rows @ model) - self.rho * model, rows.T @ goals)


class FeatureSet(ExchangeSet):
    """A set of points represented by features."""

    terms: FeatureTerms

    def __init__(
        self, problem: Problem, points: Sequence[int], terms: FeatureTerms | None = None
    ) -> None:
        self.problem = problem
        self.points = list(points)
        self.terms = terms or FeatureTerms(problem)
        self.rho = self.terms.rho
        own, targets = self.terms.features[self.points], self.terms.targets[self.points]
        self.state = self.terms.state.refit(own, targets)
        self.rows = FeatureRows(self.state, own, targets, np.ones(len(own), dtype=bool))
        self.objective = self.terms.objective(self.state)
        self.allowed = allowed_drift(self.terms.relative_residual(self.state, own, targets))

    def with_points(self, points: Sequence[int]) -> FeatureSet:
        return FeatureSet(self.problem, points, self.terms)

    def removals(self) -> Removals:
        return removals_of(self.rows, slice(None))

    @cached_property
    def _own(self) -> Any:
        """The features of the points."""
        return to_device(self.rows.features, self.terms.device)

    def others(self, rows: Tensor | slice) -> Others:
        checkpoint()
        index = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        terms = self.terms
        some = FeatureRows(self.state, terms.features[index], terms.targets[index])
        return others_of(some, slice(None), self._own)

    def pool(self, shortlist: Tensor | None = None) -> FeaturePool:
        more = [] if shortlist is None else shortlist.tolist()
        return FeaturePool(self, [*self.points, *more])


class FeaturePool(ExchangePool):
    """The pool of a set represented by features."""

    terms: FeatureTerms
    rows: FeatureRows

    def __init__(self, chosen: FeatureSet, points: list[int]) -> None:
        super().__init__(chosen, points)
        inside = np.arange(len(points)) < self.size
        features, targets = self.terms.features[points], self.terms.targets[points]
        self.rows = FeatureRows(chosen.state.copy(), features, targets, inside)

    @property
    def drift(self) -> float:
        rows, size = self.rows, self.size
        return self.terms.relative_residual(rows.state, rows.features[:size], rows.targets[:size])

    def _evaluate(self, place: int) -> float:
        return self.terms.objective(self.rows.state)


def fit_set(problem: Problem, points: Sequence[int], terms: Any = None) -> ExchangeSet:
    """Fit some points, represented by features if the kernel has fewer features than points.

    ``terms`` are those of another set of the problem.
    """
    features = problem.train.feature_rows
    if features is not None and features[1].shape[1] < len(points):
        return FeatureSet(problem, points, terms if isinstance(terms, FeatureTerms) else None)
    return MatrixSet(problem, points, terms if isinstance(terms, SharedTerms) else None)

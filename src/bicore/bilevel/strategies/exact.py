"""The exact objective of every exchange and removal, for the squared error, in float64.

A pass over all pairs of a chosen and another point costs one product of K with m columns, no more
than choosing the m points did; after a swap only the column of the point that joined is new.

The symbols are those of :mod:`bicore.moments.ridge`: t, q, the residuals r and the adjoints h of a
row; between two rows, T = φ_kᵀΣφ_i and V = φ_kᵀΣAΣφ_i. D holds the weights of the outer set, and α
= Q Y_S. If a chosen row i leaves, with d = 1 − t_i, every row k outside has

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
DRIFT_RATIO = 100
#: Rows of a pool are scored in blocks of at least this many rows …
SCORED_ROWS = 64
#: … or as many as make up this number of pairs.
SCORED_PAIRS = 1 << 17


def as_host_array(values: Tensor) -> Any:
    """Return an array that shares the memory of a CPU tensor; a GPU tensor stays as it is."""
    return values if values.is_cuda else values.numpy()


def nonzero_indices(mask: Any) -> Any:
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


class JoiningTerms(NamedTuple):
    """Of rows that may join: 1 + t, q, r next to h, and T and V with the chosen rows."""

    divisor: Any
    q: Any
    both: Any
    t: Any
    v: Any


class Removals:
    """The effect of removing each chosen row, from d = 1 − t, q, and r next to h.

    It changes r of another row by T·residual_shift, and h by T·adjoint_shift + 2V·residual_shift,
    with the T and V of the two rows.
    """

    def __init__(self, divisor: Any, q: Any, both: Any) -> None:
        residuals, adjoints = _halves(both)
        self.inverse_divisor = 1 / divisor
        self.q = q
        shift = residuals * self.inverse_divisor[:, None]
        adjoint_shift = (adjoints + (2 * q)[:, None] * shift) * self.inverse_divisor[:, None]
        #: ‖residual_shift‖² and ⟨residual_shift, adjoint_shift⟩.
        self.squared_shift = row_products(shift, shift)
        self.shift_product = row_products(shift, adjoint_shift)
        squares = row_products(residuals, residuals)
        #: Increase of the objective when a row leaves.
        self.costs = -exact_gain(row_products(adjoints, residuals), q, squares, -divisor)
        #: r/d and (h + 2q r/d)/d, with a column for each row.
        self.residual_shift = shift.T
        self.adjoint_shift = adjoint_shift.T

    def swap_gains(self, joining: JoiningTerms) -> Any:
        """Return the decrease of G for every pair of a joining row and a chosen one."""
        on_device = isinstance(joining.t, Tensor)
        pairs = DEVICE_PAIRS if on_device else CACHED_PAIRS
        height = max(1, pairs // max(1, joining.t.shape[1]))
        if len(joining.t) <= height:
            return self._block(joining)
        result = torch.empty_like(joining.t) if on_device else np.empty_like(joining.t)
        for top in range(0, len(result), height):
            checkpoint()
            rows = slice(top, top + height)
            result[rows] = self._block(JoiningTerms(*(part[rows] for part in joining)))
        return result

    def _block(self, some: JoiningTerms) -> Any:
        """Compute a block of pairs with as few passes over it as possible."""
        t = some.t
        residuals, adjoints = _halves(some.both)
        squares = residuals @ self.residual_shift  # ⟨r, shift⟩, and ‖r'‖² below
        # ⟨h', r'⟩
        gains = t * self.shift_product
        gains += adjoints @ self.residual_shift
        gains += residuals @ self.adjoint_shift
        gains *= t
        gains += row_products(adjoints, residuals)[:, None]
        projections = t * self.squared_shift  # ⟨r', shift⟩
        projections += squares
        # ‖r'‖²
        squares += projections
        squares *= t
        squares += row_products(residuals, residuals)[:, None]
        projections *= some.v
        projections *= 2
        gains += projections
        # q'
        divisor = t * self.inverse_divisor
        q = divisor * self.q
        q += some.v
        q += some.v
        q *= divisor
        q += some.q[:, None]
        # 1 + t'
        divisor *= t
        divisor += some.divisor[:, None]
        # (⟨h', r'⟩ − q'‖r'‖²/(1 + t'))/(1 + t'), less the cost of the removal
        q *= squares
        q /= divisor
        gains -= q
        gains /= divisor
        gains -= self.costs
        return gains


def _halves(both: Any) -> tuple[Any, Any]:
    outputs = both.shape[1] // 2
    return both[:, :outputs], both[:, outputs:]


def joining_terms(rows: RidgeRows, index: Any, own: Any) -> JoiningTerms:
    """Return the terms of some rows that may join; ``own`` identifies the chosen ones."""
    pairs = rows.pairs(index, own)
    return JoiningTerms(rows.divisor[index], rows.q[index], rows.both[index], *pairs)


def removals_of(rows: RidgeRows, index: slice) -> Removals:
    """Return the effect of removing each of some chosen rows."""
    return Removals(rows.divisor[index], rows.q[index], rows.both[index])


class DoubleOperator:
    """A kernel operator whose stored numbers are multiplied in float64.

    The features of the columns are those of ``shared``, an operator with these columns, or a copy.
    """

    def __init__(self, operator: KernelOperator, shared: DoubleOperator | None = None) -> None:
        self.operator = operator
        self.matrix: Tensor | None = None
        if operator.feature_rows is not None:
            rows, columns = operator.feature_rows
            known = None if shared is None else shared.operator.feature_rows
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
    def target_products(self) -> Tensor:
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
    def joining(self, rows: Tensor | slice) -> JoiningTerms:
        """Return the terms of some points outside the set."""

    @abstractmethod
    def pool(self, shortlist: Tensor | None = None) -> ExchangePool:
        """Return the pool of the set and a shortlist of candidates."""

    def best_gains(self, may_join: Tensor, limits: Limits, some: Tensor | None = None) -> Tensor:
        """Compute the gain of the best exchange for each point, or for ``some``.

        This takes a pass over their pairs with the chosen points. The mask ``may_join`` is False
        for points whose gain is −∞.
        """
        best = torch.full_like(may_join, -torch.inf, dtype=torch.float64)
        if limits.fixed >= len(self.points):
            return best
        every, removals = np.arange(len(best)), self.removals()
        height = max(1, BLOCK // len(self.points))
        for part in slices(len(best), height) if some is None else parts(some, height):
            joining = every[part] if isinstance(part, slice) else part.cpu().numpy()
            gains = removals.swap_gains(self.joining(part))
            best[part] = torch.as_tensor(limits.mask(gains, joining, self.points)).amax(1)
        return best.masked_fill(~may_join, -torch.inf)


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
        #: r = ρα and h = 2UᵀDr of the points, side by side, with r of the outer set on the right.
        adjoints = 2 * transposed_product(functions, self.residual, weights)
        self.both = torch.cat([self.rho * self.alpha, adjoints], 1)
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
    def outer_products(self) -> tuple[Tensor, Tensor]:
        """OᵀDO and OᵀDr, with O the columns and r the residuals of the outer set."""
        outer, weights = self.outer_columns, self.terms.weights
        with_residuals = transposed_product(outer, self.residual, weights)
        return transposed_product(outer, outer, weights), with_residuals

    def removals(self) -> Removals:
        divisor = self.rho * self.inverse.diagonal()
        return Removals(*map(as_host_array, (divisor, self.sandwich.diagonal(), self.both)))

    def joining(self, rows: Tensor | slice) -> JoiningTerms:
        own_products, residual_products = self.outer_products
        terms, rho = self.terms, self.rho
        columns = self.columns[rows]
        products = self.products[rows]
        t = tall_product(columns, self.inverse)  # T = U
        posterior_products = products - tall_product(t, own_products)  # K'DO
        # h = 2K'Dr/ρ with K'Dr = KᵀDr − T OᵀDr
        with_residuals = terms.target_products[rows] - products @ self.alpha - t @ residual_products
        residual = terms.targets[rows] - columns @ self.alpha
        variance = terms.variance[rows] - row_products(t, columns)
        q = terms.norms[rows] - row_products(t, products)
        q -= row_products(t, posterior_products)
        divisor, q = 1 + variance.clamp_min_(0) / rho, q.clamp_min_(0) / rho**2
        both = torch.cat([residual, 2 / rho * with_residuals], 1)
        v = tall_product(posterior_products, self.inverse / rho)  # V = K'DU/ρ
        return JoiningTerms(*map(as_host_array, (divisor, q, both, t, v)))

    def pool(self, shortlist: Tensor | None = None) -> MatrixPool:
        return MatrixPool(self, shortlist)


def relative_residual(missing: Any, targets: Any) -> float:
    """Return the norm of the residual relative to that of the targets."""
    scale = math.sqrt(float((targets * targets).sum()))
    return math.sqrt(float((missing * missing).sum())) / scale if scale > 0 else 0.0


def allowed_drift(share: float) -> float:
    """Return the largest drift of the coefficients, for a fit with this relative residual."""
    return max(DRIFT, DRIFT_RATIO * share)


@dataclass(frozen=True)
class Swap:
    """The places in a pool of the leaving and the joining point, and the gain."""

    leaving: int
    joining: int
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
        """Compute gains of pairs of a candidate and a chosen point, and the candidates' places.

        The best pair is among them if no gain grew more than estimated.
        """
        removals = self.removals()
        candidates = np.arange(self.size, len(self.points))
        together = max(SCORED_ROWS, SCORED_PAIRS // self.size)
        if len(candidates) <= together:
            return self._gains(removals, slice(self.size, None), candidates, limits), candidates
        level = self.rows.gains()[candidates] - float(removals.costs[limits.fixed :].min())
        estimates = self.best[candidates] + level - self.level[candidates]
        blocks: list[Any] = []
        found: list[Array] = []
        top = -np.inf
        while len(candidates) and not estimates.max() < top - TIE * self.objective:
            likely = np.zeros(len(candidates), dtype=bool)
            likely[np.argsort(-estimates, kind="stable")[:together]] = True
            some = candidates[likely]
            gains = self._gains(removals, some, some, limits)
            self.best[some] = torch.as_tensor(gains).amax(1).cpu().numpy()
            self.level[some] = level[likely]
            top = max(top, float(self.best[some].max()))
            blocks.append(gains)
            found.append(some)
            candidates, estimates, level = candidates[~likely], estimates[~likely], level[~likely]
        gains = torch.cat(blocks) if torch.is_tensor(blocks[0]) else np.concatenate(blocks)
        return gains, np.concatenate(found)

    def _gains(self, removals: Removals, index: Any, rows: Array, limits: Limits) -> Any:
        """Compute the gains of some rows with each place, −∞ if not allowed.

        ``index`` is a slice if the rows are all candidates, because a slice needs no copy.
        """
        checkpoint()
        gains = removals.swap_gains(joining_terms(self.rows, index, slice(0, self.size)))
        points = np.array(self.points)
        return limits.mask(gains, points[rows], self.points[: self.size])

    def best_swap(self, limits: Limits) -> Swap:
        """Return the best exchange with the shortlist.

        Of equal exchanges the one whose joining point has the lowest rank is taken, then whose
        leaving point has the highest.
        """
        gains, candidates = self.score(limits)
        found, places = nonzero_indices(gains >= gains.max() - TIE * self.objective)
        ranks = [limits.ranks[point] for point in self.points]
        one, leaving = min(
            zip(found.tolist(), places.tolist(), strict=True),
            key=lambda pair: (ranks[candidates[pair[0]]], -ranks[pair[1]]),
        )
        return Swap(leaving, int(candidates[one]), float(gains[one, leaving]))

    def swap(self, leaving: int, joining: int) -> None:
        """Exchange the points at two places; the same call undoes it."""
        for place in (leaving, joining):
            self.rows.change(place)
        self._exchange(leaving, joining)
        self.best[joining] = np.inf
        self.objective = self._evaluate(leaving)

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
        (tied,) = nonzero_indices(costs <= costs.min() + TIE * self.objective)
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
            joining = JoiningTerms(*map(torch.as_tensor, chosen.joining(shortlist)))
            some = DoubleOperator(RowSubset.of(terms.train.operator, index))
            kernel = torch.cat([kernel, some.columns(shortlist)], 1)
            # The kernel's diagonal is exact, unlike evaluated pairs of equal points.
            kernel.diagonal().copy_(terms.variance[index])
            across = kernel[:count, count:]
            posterior = torch.addmm(kernel[count:, count:], joining.t, across, alpha=-1).div_(rho)
            _border(t, joining.t, posterior, joining.divisor - 1)
            moment = terms.between(shortlist)
            moment.addmm_(joining.t, chosen.products[shortlist].T, alpha=-1)
            moment.addmm_(joining.v, across, alpha=-rho).div_(rho**2)
            _border(v, joining.v, moment, joining.q)
            both = torch.cat([both, joining.both])
        is_chosen = np.arange(len(index)) < count
        targets, *given = (one.cpu().numpy() for one in (terms.targets[index], tables, both))
        self.rows = PairRows(targets, is_chosen, *given)
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


def _border(table: Tensor, across: Tensor, block: Tensor, diagonal: Tensor) -> None:
    """Complete a symmetric matrix of which the first block is filled."""
    count = across.shape[1]
    table[count:, :count], table[:count, count:] = across, across.T
    table[count:, count:] = block
    table[count:, count:].add_(block.T).div_(2)
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

    def joining(self, rows: Tensor | slice) -> JoiningTerms:
        checkpoint()
        index = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        terms = self.terms
        some = FeatureRows(self.state, terms.features[index], terms.targets[index])
        return joining_terms(some, slice(None), self._own)

    def pool(self, shortlist: Tensor | None = None) -> FeaturePool:
        more = [] if shortlist is None else shortlist.tolist()
        return FeaturePool(self, [*self.points, *more])


class FeaturePool(ExchangePool):
    """The pool of a set represented by features."""

    terms: FeatureTerms
    rows: FeatureRows

    def __init__(self, chosen: FeatureSet, points: list[int]) -> None:
        super().__init__(chosen, points)
        is_chosen = np.arange(len(points)) < self.size
        features, targets = self.terms.features[points], self.terms.targets[points]
        self.rows = FeatureRows(chosen.state.copy(), features, targets, is_chosen)

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

"""The exact objective of every exchange and every removal, for the squared error, in float64.

A pass over all pairs of a chosen and another point costs one product of K with m columns, no more
than choosing the m points did; after a swap only the column of the point that joined is new.
:mod:`bicore.bilevel.pool` has the formulas and the steps among a few points. Sets with more points
than the kernel has features are in :mod:`bicore.bilevel.strategies.in_features`.

Exchanges subtract numbers that are larger than the result by up to the condition of K_SS + ρI.
Rounding of one matrix plays no part in that as long as everything comes from the same one, so the
stored numbers are read as they are and multiplied in float64. A matrix that is evaluated again for
every product stays in its own precision: float64 would take twice as long.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from bicore.bilevel.pool import Others, PoolState, Removals, copy_rows, plain, where
from bicore.bilevel.problem import Problem
from bicore.data import Array
from bicore.kernels.operators import Features, KernelOperator, SomeRows, parts, slices
from bicore.numerics.linear_algebra import (
    cholesky_factor,
    height,
    row_by_row,
    row_products,
    summed_over_rows,
)
from bicore.picking import TIE
from bicore.runtime.clock import checkpoint
from bicore.runtime.threads import wide

#: Numbers of a stored matrix that are copied to float64 at a time.
COPIED = 1 << 22
#: Numbers of one block of the matrix of all exchanges.
BLOCK = 1 << 20
#: Steps go on while (K_SS + ρI) α = Y_S holds to this share of Y_S …
DRIFT = 1e-9
#: … or to this multiple of the share it held to when the set was fitted.
WORSE = 100


class DoubleOperator:
    """A kernel operator whose stored numbers are multiplied in float64."""

    def __init__(self, operator: KernelOperator) -> None:
        self.operator = operator
        self.matrix: Tensor | None = None
        if operator.feature_rows is not None:
            self.operator = Features(*(part.double() for part in operator.feature_rows))
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


class ExchangeTerms:
    """Terms that no exchange changes."""

    #: The group of every point; exchanges stay within a group. None: any two points.
    groups: Array | None = None

    def swap_gains(
        self, removals: Removals, others: Others, joining: Any, leaving: Sequence[int]
    ) -> Any:
        """Compute the gains of exchanges; −∞ across groups."""
        gains = removals.swap_gains(others)
        if self.groups is not None:
            joining = joining.cpu().numpy() if isinstance(joining, Tensor) else joining
            across = self.groups[joining][:, None] != self.groups[list(leaving)]
            on_device = isinstance(gains, Tensor)
            gains[torch.from_numpy(across).to(gains.device) if on_device else across] = -math.inf
        return gains


class SharedTerms(ExchangeTerms):
    """Terms of sets that are held by columns of the kernel matrix."""

    def __init__(self, problem: Problem) -> None:
        problem = problem.with_few_outer_rows()
        self.cross = DoubleOperator(problem.cross)
        self.train = self.cross if problem.same else DoubleOperator(problem.train)
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
        return summed_over_rows(columns, columns, self.weights)


class ExchangeSet(ABC):
    """A set of points with weight 1, its fit, and the effect of exchanging each of them."""

    points: list[int]
    objective: float
    terms: ExchangeTerms
    #: How far steps may take the coefficients from a fit, see :func:`allowed_drift`.
    allowed: float

    @abstractmethod
    def moved_to(self, points: Sequence[int]) -> Self:
        """The fit of other points in the same places; this set must not be used again."""

    @abstractmethod
    def removals(self) -> Removals:
        """The effect of removing each of the points."""

    @abstractmethod
    def others(self, rows: Tensor | slice) -> Others:
        """The tables of some points that are not chosen."""

    @abstractmethod
    def pool(self, shortlist: Tensor | None = None) -> ExchangePool:
        """The set, and a shortlist of others that may take the places of its points."""

    def promises(
        self,
        open_points: Tensor,
        fixed: int = 0,
        barred: Collection[tuple[int, int]] = (),
        some: Tensor | None = None,
    ) -> Tensor:
        """By how much the best exchange for each point, or for ``some``, lowers the objective.

        It is a pass over their pairs with the chosen. The first ``fixed`` places stay, and pairs of
        a leaving and a joining point that are ``barred`` do not count.
        """
        best = torch.full_like(open_points, -torch.inf, dtype=torch.float64)
        if fixed >= len(self.points):
            return best
        removals = self.removals()
        height = max(1, BLOCK // len(self.points))
        for part in slices(len(best), height) if some is None else parts(some, height):
            gains = self.terms.swap_gains(removals, self.others(part), part, self.points)
            best[part] = torch.as_tensor(gains)[:, fixed:].amax(1)
        for joins in {joins for _, joins in barred}:  # few, and computed once more
            row = slice(joins, joins + 1)
            gains = self.terms.swap_gains(removals, self.others(row), row, self.points)[0]
            staying = {leaves for leaves, other in barred if other == joins}
            places = [k for k in range(fixed, len(self.points)) if self.points[k] not in staying]
            best[joins] = float(gains[places].max()) if places else -math.inf
        return best.masked_fill(~open_points, -torch.inf)


class MatrixSet(ExchangeSet):
    """A set of points by the columns of the kernel matrix."""

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
        # U = O Q first: Q O'DO Q made from the inside loses the square of the condition of K_SS.
        functions = row_by_row(self.outer_columns, self.inverse)
        self.sandwich = summed_over_rows(functions, functions, weights)
        self.pulled = summed_over_rows(functions, self.residual, weights)
        self.objective = float(weights @ self.residual.square().sum(1))
        self.allowed = allowed_drift(misfit(shifted @ self.alpha - self.targets, self.targets))

    def moved_to(self, points: Sequence[int]) -> MatrixSet:
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
        pulled = summed_over_rows(outer, self.residual, weights)
        return summed_over_rows(outer, outer, weights), pulled

    def removals(self) -> Removals:
        """The effect of removing each of the points."""
        diagonals = self.inverse.diagonal(), self.sandwich.diagonal()
        own, spread, alpha, pulled = map(plain, (*diagonals, self.alpha, self.pulled))
        return Removals(own, spread, alpha, pulled, self.rho)

    def others(self, rows: Tensor | slice) -> Others:
        """The tables of some points that are not chosen."""
        moment, pulled = self.inside
        terms = self.terms
        columns = self.columns[rows]
        products = self.products[rows]
        half = row_by_row(columns, self.inverse)
        moved = products - row_by_row(half, moment)  # K'ᵀD O
        pull = terms.pulled[rows] - products @ self.alpha - half @ pulled
        residual = terms.targets[rows] - columns @ self.alpha
        variance = terms.variance[rows] - row_products(half, columns)
        energy = terms.norms[rows] - row_products(half, products) - row_products(half, moved)
        image = row_by_row(moved, self.inverse)
        tables = (residual, pull, variance.clamp_min(0), energy.clamp_min(0), half, image)
        return Others(*map(plain, tables))

    def pool(self, shortlist: Tensor | None = None) -> MatrixPool:
        return MatrixPool(self, shortlist)


def misfit(missing: Any, targets: Any) -> float:
    """The size of what is missing relative to the targets."""
    scale = math.sqrt(float((targets * targets).sum()))
    return math.sqrt(float((missing * missing).sum())) / scale if scale > 0 else 0.0


def allowed_drift(share: float) -> float:
    """How far steps may take the coefficients, where the fit itself misses this share."""
    return max(DRIFT, WORSE * share)


@dataclass(frozen=True)
class Swap:
    """A place of the set, the row of the pool whose point takes it, and the gain."""

    place: int
    row: int
    gain: float


class ExchangePool(ABC):
    """A fitted set of points and a shortlist of others that may take their places.

    The first ``size`` of ``points`` are the set.
    """

    points: list[int]
    size: int
    objective: float
    #: Terms that no exchange changes.
    terms: Any
    #: How large ``drift`` may become before the set must be fitted again.
    allowed: float

    @property
    @abstractmethod
    def drift(self) -> float:
        """How far the coefficients are from the fit of the points, relative to their targets."""

    @abstractmethod
    def removals(self) -> Removals:
        """The effect of removing each chosen point."""

    @abstractmethod
    def swap(self, place: int, row: int) -> None:
        """Exchange a chosen point and another one; doing it again undoes it."""

    @abstractmethod
    def remove(self, place: int) -> None:
        """Let the point at this place leave; the last chosen one takes its place."""

    @abstractmethod
    def score(self, fixed: int, barred: Collection[tuple[int, int]]) -> tuple[Any, Any]:
        """Compute the gains of pairs of another row and a place, and the others' rows.

        The best pair and its equals are among them.
        """

    def exclude(self, gains: Any, rows: Any, fixed: int, barred: Collection[Any]) -> None:
        """Let pairs that are not allowed have no gain."""
        gains[:, :fixed] = -torch.inf
        places = {self.points[row]: k for k, row in enumerate(rows)} if barred else {}
        for leaves, joins in barred:
            if joins in places and leaves in self.points[: self.size]:
                gains[places[joins], self.points.index(leaves)] = -torch.inf

    def best_swap(self, ranks: Any, fixed: int, barred: Collection[tuple[int, int]] = ()) -> Swap:
        """The best exchange with the shortlist; the first ``fixed`` places stay, and pairs of a
        leaving and a joining point that are ``barred`` do not count.

        Of equal exchanges the one whose joining point has the lowest rank is taken, then whose
        leaving point has the highest.
        """
        gains, others = self.score(fixed, barred)
        found, places = where(gains >= gains.max() - TIE * self.objective)
        pairs = zip(found.tolist(), places.tolist(), strict=True)
        one, place = min(
            pairs,
            key=lambda pair: (ranks[self.points[others[pair[0]]]], -ranks[self.points[pair[1]]]),
        )
        return Swap(place, int(others[one]), float(gains[one, place]))

    def remove_cheapest(self, ranks: list[int], fixed: int = 0) -> None:
        """Remove the point that costs least to lose; of equal ones that of the highest rank. The
        first ``fixed`` stay."""
        costs = self.removals().costs
        costs[:fixed] = torch.inf
        (tied,) = where(costs <= costs.min() + TIE * self.objective)
        place = max(tied.tolist(), key=lambda one: ranks[self.points[one]])
        self.objective += float(costs[place])
        self.remove(place)


class MatrixPool(PoolState, ExchangePool):
    """The pool of a set that is held by columns of the kernel matrix."""

    def __init__(self, chosen: MatrixSet, shortlist: Tensor | None = None) -> None:
        self.terms = chosen.terms
        self.allowed = chosen.allowed
        self.objective = chosen.objective
        self._columns = chosen.outer_columns
        self._targets = plain(self.terms.targets)
        index = chosen.index if shortlist is None else torch.cat([chosen.index, shortlist])
        unused = chosen.alpha.new_zeros(len(chosen.points))
        tables = [chosen.alpha, chosen.pulled, unused, unused, -chosen.inverse, chosen.sandwich]
        kernel, moment = chosen.columns[index], None
        if shortlist is not None:
            others = chosen.others(shortlist)
            pairs = zip(tables, others, strict=True)
            tables = [torch.cat([one, torch.as_tensor(other)]) for one, other in pairs]
            some = DoubleOperator(SomeRows.of(self.terms.train.operator, index))
            kernel = torch.cat([kernel, some.columns(shortlist)], 1)
            # The kernel's own diagonal is exact where evaluating a pair of equal points is not.
            kernel.diagonal().copy_(self.terms.variance[index])
            across = chosen.products[shortlist]
            rows = torch.cat([across, self.terms.between(shortlist)], 1)
            moment = plain(torch.cat([torch.cat([chosen.inside[0], across.T], 1), rows]))
        others = Others(*map(copy_rows, tables))
        super().__init__(
            index.tolist(), plain(kernel), moment, chosen.rho, others, len(chosen.points)
        )

    @cached_property
    def _outer(self) -> tuple[Any, Any]:
        """K[S, outer], a row for each chosen point, and the targets of the outer set."""
        targets = self.terms.outer_targets.T.contiguous()
        return copy_rows(self._columns.T), plain(targets)

    @property
    def drift(self) -> float:
        alpha = self.residual[: self.size]
        targets = self._targets[self.points[: self.size]]
        return misfit(
            self.kernel[: self.size, : self.size] @ alpha + self.rho * alpha - targets, targets
        )

    def score(self, fixed: int, barred: Collection[tuple[int, int]]) -> tuple[Any, Any]:
        rows = range(self.size, len(self.points))
        joining, leaving = self.points[self.size :], self.points[: self.size]
        gains = self.terms.swap_gains(self.removals(), self.others(), joining, leaving)
        self.exclude(gains, rows, fixed, barred)
        return gains, rows

    def swap(self, place: int, row: int) -> None:
        super().swap(place, row)
        joined = torch.tensor([self.points[place]], device=self.terms.weights.device)
        self._outer[0][place] = plain(self.terms.cross.columns(joined)[:, 0])
        self.objective = self._objective()

    def _objective(self) -> float:
        """G by the coefficients as they stand; some of the outer set at a time."""
        alpha = 1 * self.residual[: self.size].T
        outer, targets = self._outer
        weights = plain(self.terms.weights)
        step = height(alpha.shape[0] * alpha.shape[1])
        total = 0.0
        with wide(alpha.shape[0] * alpha.shape[1] * len(weights)):
            for top in range(0, len(weights), step):
                checkpoint()
                some = slice(top, top + step)
                missing = targets[:, some] - alpha @ outer[:, some]
                missing *= missing
                total += float(missing.sum(0) @ weights[some])
        return total

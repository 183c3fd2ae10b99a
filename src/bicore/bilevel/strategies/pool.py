"""Columns and products of a kernel operator in float64, whatever precision it is stored in.

What exact exchanges subtract from one another is larger than what is left by up to the condition of
K_SS + ρI. Rounding of one matrix plays no part in that as long as everything comes from the same
one: its stored numbers are read as they are, and multiplied in float64. A matrix that is evaluated
again for every product stays in its own precision; twice the time would be the price.

What every exchange of a chosen point for another is worth, exactly, for the squared error.

Beside the chosen points S every other point k has

    r_k   its residual                   (K'Dr)_k    its pull           K'_kk   its variance
    (K'DK')_kk   its energy              U_k = K[k, S] Q                W_k = (K'D U)_k

with Q = (K_SS + ρI)⁻¹. When point i leaves, K' grows by u uᵀ/q with u the column of U and q = Q_ii,
and r by u α_iᵀ/q: the gain of every k after that is :func:`bicore.bilevel.posterior.exact_gain`
with these put in. All m·n exchanges take a few products of the set's width and two dozen operations
a pair.

What is written here and in :mod:`bicore.bilevel.strategies.pool` are operators that arrays and
tensors share. On a CPU they are given arrays, whose calls cost a fifth; on a device tensors.

The exact objective of every exchange and every removal, for the squared error.

With Q = (K_SS + ρI)⁻¹, α = Q Y_S and U = K[:, S] Q diag(Q)^-½, leaving point i of S out is a
rank-one step back:

    r ← r + u_i a_iᵀ        K' ← K' + u_i u_iᵀ        a_i = α_i/√Q_ii

so that G rises by 2⟨u_iᵀDr, a_i⟩ + (u_iᵀDu_i)‖a_i‖², and the gain of every other point after it
follows from K'Dr, K'Du_i, (K'DK')_kk and K'_kk: all m·n exchanges cost one product of K with m
columns, no more than choosing the m points did, and after a swap only the column of the point that
joined is new.

Exchanges with a few points, each by rank-one terms.

The pool is the chosen points S and a shortlist of others, the chosen first: a swap exchanges two
rows. With Q = (K_SS + ρI)⁻¹ and U = K[:, S] Q its tables have a row for every point of the pool,
and two of them a column for every place of S:

                         back           image        residual      pull
    of the shortlist     K[k, S] Q      (K'D U)_k       r_k      (K'Dr)_k
    of the chosen          −Q_i         (UᵀD U)_i       α_i      (UᵀDr)_i

One and the same step changes both kinds of rows when a point leaves, and another when one joins
(they are the sweeps of K + ρI, carried to everything that follows from K'): no fit, and no pass
over the kernel matrix. K and KᵀDK of the pool are all that a step needs; the outer set is met in
the objective alone, which is that of the coefficients as they stand.

The greedy order of points that are chosen already, for the squared error.

Among m points every exact gain follows from K_SS, OᵀDO and OᵀDY, with O the columns of the outer
set: m rank-one steps of m × m matrices, and no pass over the outer set. What the objective is after
each of them does not come from there, but from the residuals of one Cholesky factor in that order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.posterior import exact_gain
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.factors import lower_factor
from bicore.kernels.operators import KernelOperator, SomeRows
from bicore.numerics.linear_algebra import height, row_by_row, summed_over_rows
from bicore.picking import TIE
from bicore.runtime import checkpoint, wide

#: Numbers of a stored matrix that are copied to float64 at a time.
COPIED = 1 << 22


def double_columns(operator: KernelOperator, index: Tensor) -> Tensor:
    """K[:, index]."""
    features = operator.feature_rows
    if features is None or _double(operator):
        return operator.columns(index).double()
    rows, cols = features
    return rows.double() @ cols[index].double().T


def double_diagonal(operator: KernelOperator) -> Tensor:
    """The diagonal of a square operator."""
    features = operator.feature_rows
    if features is None or _double(operator):
        return operator.diagonal().double()
    rows, cols = features
    return (rows.double() * cols.double()).sum(1)


def double_transposed_matmul(operator: KernelOperator, right: Tensor) -> Tensor:
    """Kᵀ @ right, for a right side in float64."""
    if _double(operator):
        return operator.transposed_matmul(right)
    if operator.feature_rows is not None:
        rows, cols = operator.feature_rows
        return cols.double() @ (rows.double().T @ right)
    matrix = operator.matrix_or_none
    if matrix is None:
        return operator.transposed_matmul(right.to(operator.like)).double()
    return torch.cat([part.double().T @ right for part in _parts(matrix)])


def double_weighted_column_norms(operator: KernelOperator, weights: Tensor) -> Tensor:
    """Σ_j weights_j K_jk² for every column k, for weights in float64."""
    if _double(operator):
        return operator.weighted_column_norms(weights).double()
    if operator.feature_rows is not None:
        rows, cols = (part.double() for part in operator.feature_rows)
        return ((cols @ (rows.T @ (weights[:, None] * rows))) * cols).sum(1)
    matrix = operator.matrix_or_none
    if matrix is None:
        return operator.weighted_column_norms(weights.to(operator.like)).double()
    return torch.cat([weights @ part.double().square() for part in _parts(matrix)])


def _double(operator: KernelOperator) -> bool:
    return operator.like.dtype == torch.float64


def _parts(matrix: Tensor) -> Iterator[Tensor]:
    """Some columns at a time."""
    width = max(1, COPIED // max(len(matrix), 1))
    for start in range(0, matrix.shape[1], width):
        yield matrix[:, start : start + width]


#: Pairs looked at together: what stays in a core's cache …
PAIRS = 1 << 14
#: … and what keeps a GPU busy.
DEVICE_PAIRS = 1 << 22


def plain(values: Tensor) -> Any:
    """The same numbers as an array where they are in memory, which is shared."""
    return values if values.is_cuda else values.numpy()


def where(mask: Any) -> Any:
    """The places of a mask, an array or tensor for each dimension."""
    return torch.nonzero(mask, as_tuple=True) if isinstance(mask, Tensor) else np.nonzero(mask)


@dataclass(frozen=True, eq=False)
class Standing:
    """Some points that were not chosen, beside the set."""

    residual: Any
    pull: Any
    variance: Any
    energy: Any
    back: Any
    image: Any

    def __getitem__(self, rows: slice) -> Standing:
        return Standing(*(getattr(self, part.name)[rows] for part in fields(self)))

    def plain(self) -> Standing:
        """Arrays, where that is faster."""
        return Standing(*(plain(getattr(self, part.name)) for part in fields(self)))


@dataclass(frozen=True, eq=False)
class Leaving:
    """What the leaving of each chosen point does: the diagonals of Q and of UᵀDU, α, and UᵀDr."""

    own: Any
    spread: Any
    alpha: Any
    pulled: Any
    rho: float

    @property
    def rises(self) -> Any:
        """By how much the objective rises, for each place."""
        return (
            2 * (self.pulled * self.alpha).sum(1) / self.own
            + self.spread * (self.alpha * self.alpha).sum(1) / self.own**2
        )

    def plain(self) -> Leaving:
        """Arrays, where that is faster."""
        own, spread, alpha, pulled = (
            plain(part) for part in (self.own, self.spread, self.alpha, self.pulled)
        )
        return Leaving(own, spread, alpha, pulled, self.rho)

    def nets(self, standing: Standing, result: Any) -> Any:
        """(points, places): by how much the objective falls when a point takes a place.

        It fills ``result``, some points at a time.
        """
        steps = _Steps(self)
        pairs = DEVICE_PAIRS if isinstance(result, Tensor) else PAIRS
        height = max(1, pairs // max(1, result.shape[1]))
        for top in range(0, len(result), height):
            checkpoint()
            rows = slice(top, top + height)
            result[rows] = steps.of(standing[rows])
        return result


class _Steps:
    """The operations on one block of pairs, in as few passes over it as there are terms."""

    def __init__(self, leaving: Leaving) -> None:
        self.rho = leaving.rho
        self.rises = leaving.rises
        self.inverse = 1 / leaving.own
        self.spread = leaving.spread
        step = leaving.alpha * self.inverse[:, None]
        turn = (leaving.pulled + leaving.spread[:, None] * step) * self.inverse[:, None]
        self.size = (step * step).sum(1)
        self.skew = (step * turn).sum(1)
        self.step = step.T
        self.turn = turn.T

    def of(self, some: Standing) -> Any:
        back, image = some.back, some.image
        along = some.residual @ self.step
        # ⟨K'Dr, r⟩ once the point is gone
        agreement = back * self.skew
        agreement += some.pull @ self.step
        agreement += some.residual @ self.turn
        agreement *= back
        agreement += (some.pull * some.residual).sum(1)[:, None]
        grown = back * self.size
        grown += along
        # ‖r‖²
        along += grown
        along *= back
        along += (some.residual * some.residual).sum(1)[:, None]
        grown *= image
        agreement += grown
        # (K'DK')_kk
        scaled = back * self.inverse
        energy = scaled * self.spread
        energy += image
        energy += image
        energy *= scaled
        energy += some.energy[:, None]
        # ρ + K'_kk
        scaled *= back
        scaled += (some.variance + self.rho)[:, None]
        energy *= along
        energy /= scaled
        agreement *= 2
        agreement -= energy
        agreement /= scaled
        agreement -= self.rises
        return agreement


#: Numbers of one block of the matrix of all exchanges.
BLOCK = 1 << 20
#: Removals go on while (K_SS + ρI) α = Y_S holds to this share of Y_S …
DRIFT = 1e-9
#: … or to so many times the share it held to when the set was fitted.
WORSE = 100


@dataclass(frozen=True, eq=False)
class Common:
    """What no exchange changes: Kᵀ D Y, Σ_o D_o K_ok² and K_kk; with features Φᵀ D Φ, from which
    products with KᵀDK follow without the outer set."""

    problem: Problem
    weights: Tensor
    pulled: Tensor
    norms: Tensor
    variance: Tensor
    moment: Tensor | None

    @classmethod
    def of(cls, problem: Problem) -> Common:
        weights = problem.outer_weights.double()
        weighted = weights[:, None] * problem.outer_targets.double()
        pulled = double_transposed_matmul(problem.cross, weighted)
        variance = double_diagonal(problem.train)
        if problem.cross.feature_rows is None:
            norms = double_weighted_column_norms(problem.cross, weights)
            return cls(problem, weights, pulled, norms, variance, None)
        rows, cols = (part.double() for part in problem.cross.feature_rows)
        moment = summed_over_rows(rows, rows, weights)
        norms = (row_by_row(cols, moment) * cols).sum(1)
        return cls(problem, weights, pulled, norms, variance, moment)

    def products(self, index: Tensor, columns: Tensor) -> Tensor:
        """Kᵀ D K[:, index], where K[:, index] is known."""
        if self.moment is None:
            weighted = self.weights[:, None] * columns
            return double_transposed_matmul(self.problem.cross, weighted)
        cols = self._cols
        return row_by_row(cols, self.moment @ cols[index].T)

    def between(self, index: Tensor) -> Tensor:
        """Kᵀ D K among some points."""
        if self.moment is None:
            columns = outer_columns_of(self.problem, index)
            return summed_over_rows(columns, columns, self.weights)
        some = self._cols[index]
        return some @ self.moment @ some.T

    @property
    def _cols(self) -> Tensor:
        features = self.problem.cross.feature_rows
        assert features is not None
        return features[1].double()


class Chosen:
    """A set of points with weight 1, its fit, and the rank-one step back for each of them. All in
    float64."""

    def __init__(
        self, problem: Problem, points: Sequence[int], columns: tuple[Tensor, Tensor] | None = None
    ) -> None:
        self.problem = problem
        self.rho = problem.regulariser.rho(1)
        self.points = list(points)
        self.weights = problem.outer_weights.double()
        index = torch.tensor(self.points, device=self.weights.device)
        self.columns, self.outer_columns = _both(problem, index) if columns is None else columns
        self.shifted = self.columns[index]
        self.shifted.diagonal().add_(self.rho)
        self.targets = problem.inner_targets.double()[index]
        factor = lower_factor(self.shifted)
        self.inverse = torch.cholesky_inverse(factor)
        self.alpha = torch.cholesky_solve(self.targets, factor)
        self.residual = problem.outer_targets.double() - self.outer_columns @ self.alpha
        # U = O Q first: Q O'DO Q made from the inside loses the square of the condition of K_SS.
        functions = row_by_row(self.outer_columns, self.inverse)
        self.sandwich = summed_over_rows(functions, functions, self.weights)
        self.pulled = summed_over_rows(functions, self.residual, self.weights)
        self.objective = float(self.weights @ self.residual.square().sum(1))
        self.allowed = max(DRIFT, WORSE * self.drift)

    @property
    def drift(self) -> float:
        """How far α is from the fit of the points, relative to their targets."""
        missing = torch.linalg.vector_norm(self.shifted @ self.alpha - self.targets)
        scale = float(torch.linalg.vector_norm(self.targets))
        return float(missing) / scale if scale > 0 else 0.0

    def without(self, place: int) -> Chosen:
        """The set that is left when the point at this place goes: by a rank-one step, or fitted
        anew once rounding has added up."""
        self.drop(place)
        # Written so that a drift that is no number counts as one.
        return self if self.drift <= self.allowed else Chosen(self.problem, self.points)

    def moved_to(self, points: Sequence[int]) -> Chosen:
        """The fit of other points in the same places. Columns and products of those that stayed
        are kept, and those of the others made together, in place: this set is no more."""
        places = [place for place, k in enumerate(points) if k != self.points[place]]
        if places:
            index = torch.tensor([points[place] for place in places], device=self.weights.device)
            columns, outer = _both(self.problem, index)
            self.products[:, places] = self.common.products(index, outer)
            self.columns[:, places] = columns
            if outer is not columns:
                self.outer_columns[:, places] = outer
        found = Chosen(self.problem, points, (self.columns, self.outer_columns))
        found.products = self.products
        found.common = self.common
        return found

    @cached_property
    def common(self) -> Common:
        """What every set has; kept from one to the next."""
        return Common.of(self.problem)

    @cached_property
    def products(self) -> Tensor:
        """Kᵀ D K[:, S]."""
        index = torch.tensor(self.points, device=self.weights.device)
        return self.common.products(index, self.outer_columns)

    @cached_property
    def inside(self) -> tuple[Tensor, Tensor]:
        """OᵀDO and OᵀDr, with O the columns of the outer set."""
        outer = self.outer_columns
        pulled = summed_over_rows(outer, self.residual, self.weights)
        return summed_over_rows(outer, outer, self.weights), pulled

    @property
    def leaving(self) -> Leaving:
        """What the leaving of each of them does."""
        own = self.inverse.diagonal()
        return Leaving(own, self.sandwich.diagonal(), self.alpha, self.pulled, self.rho)

    def rises(self) -> Tensor:
        """By how much the objective rises when a point leaves, for each of them."""
        rises: Tensor = self.leaving.rises
        return rises

    def drop(self, place: int) -> None:
        """Let the point at this place leave: rank-one terms of matrices of the set's size."""
        self.objective += float(self.rises()[place])
        q = self.inverse[:, place].clone()
        own = float(self.inverse[place, place])
        alpha = self.alpha[place].clone()
        w = self.sandwich[:, place].clone()
        pulled = self.pulled[place].clone()
        self.pulled += torch.outer(w, alpha) / own - torch.outer(
            q, pulled / own + float(w[place]) * alpha / own**2
        )
        self.alpha -= torch.outer(q, alpha) / own
        self.sandwich += (
            torch.outer(q, q) * (float(w[place]) / own**2)
            - (torch.outer(w, q) + torch.outer(q, w)) / own
        )
        self.inverse -= torch.outer(q, q) / own
        kept = torch.tensor([k for k in range(len(self.points)) if k != place], device=q.device)
        self.shifted = self.shifted[kept][:, kept]
        self.targets = self.targets[kept]
        self.inverse = self.inverse[kept][:, kept]
        self.sandwich = self.sandwich[kept][:, kept]
        self.alpha = self.alpha[kept]
        self.pulled = self.pulled[kept]
        del self.points[place]

    def standing(self, rows: Tensor | slice) -> Standing:
        """Some points beside the set."""
        moment, pulled = self.inside
        columns = self.columns[rows]
        products = self.products[rows]
        half = row_by_row(columns, self.inverse)
        moved = products - row_by_row(half, moment)  # K'ᵀD O
        pull = self.common.pulled[rows] - products @ self.alpha - half @ pulled
        residual = self.problem.inner_targets[rows].double() - columns @ self.alpha
        variance = self.common.variance[rows] - _row_products(half, columns)
        energy = self.common.norms[rows] - _row_products(half, products)
        energy -= _row_products(half, moved)
        image = row_by_row(moved, self.inverse)
        return Standing(residual, pull, variance.clamp_min(0), energy.clamp_min(0), half, image)

    def promises(
        self,
        open_points: Tensor,
        fixed: int = 0,
        barred: Collection[tuple[int, int]] = (),
        some: Tensor | None = None,
    ) -> Tensor:
        """By how much the best exchange for each point, or for ``some``, would lower the objective:
        a pass over their pairs with the chosen. The first ``fixed`` places stay, and pairs of a
        leaving and a joining point that are ``barred`` are none."""
        leaving = self.leaving.plain()
        best = torch.full_like(self.weights.new_empty(len(open_points)), -torch.inf)
        if fixed >= len(self.points):
            return best
        rows = torch.arange(len(best), device=best.device) if some is None else some
        for part in torch.split(rows, max(1, BLOCK // len(self.points))):
            standing = self.standing(part if some is not None else slice(part[0], part[-1] + 1))
            nets = leaving.nets(standing.plain(), plain(torch.empty_like(standing.back)))
            best[part] = torch.as_tensor(nets)[:, fixed:].amax(1)
        for joins in {joins for _, joins in barred}:  # few, and looked at once more
            best[joins] = self._promise(joins, fixed, {a for a, b in barred if b == joins})
        return best.masked_fill(~open_points, -torch.inf)

    def _promise(self, joins: int, fixed: int, staying: Collection[int]) -> float:
        """Of one point, where some of the chosen stay."""
        standing = self.standing(slice(joins, joins + 1))
        nets = torch.as_tensor(self.leaving.nets(standing, torch.empty_like(standing.back)))[0]
        places = range(fixed, len(self.points))
        left = [place for place in places if self.points[place] not in staying]
        return float(nets[left].max()) if left else -math.inf

    def cheapest(self, ranks: Tensor, fixed: int = 0) -> int:
        """The place whose point costs least to lose; of equal ones that of the highest rank. The
        first ``fixed`` stay."""
        rises = self.rises()
        rises[:fixed] = torch.inf
        own = ranks[torch.tensor(self.points, device=ranks.device)]
        return int(own.masked_fill(rises > rises.min() + TIE * self.objective, -1).argmax())


def columns_of(problem: Problem, index: Tensor) -> Tensor:
    """K[:, index] of the training points."""
    return double_columns(problem.train, index)


def outer_columns_of(problem: Problem, index: Tensor) -> Tensor:
    """K[:, index] of the outer set."""
    return double_columns(problem.cross, index)


def _row_products(left: Tensor, right: Tensor) -> Tensor:
    """⟨a_i, b_i⟩ for every row."""
    if left.is_cuda:
        return (left * right).sum(1)
    # one pass and no matrix of products
    return torch.from_numpy(np.einsum("nc,nc->n", left.numpy(), right.numpy()))


def _both(problem: Problem, index: Tensor) -> tuple[Tensor, Tensor]:
    columns = columns_of(problem, index)
    return columns, columns if problem.same else outer_columns_of(problem, index)


@dataclass(frozen=True)
class Swap:
    """A place of the set, the row of the pool whose point takes it, and what that is worth."""

    place: int
    row: int
    gain: float


class Pool:
    """A set of points and a shortlist of others that may take their places."""

    def __init__(self, chosen: Chosen, shortlist: Tensor) -> None:
        problem = chosen.problem
        own = torch.tensor(chosen.points, device=shortlist.device)
        index = torch.cat([own, shortlist])
        standing = chosen.standing(shortlist)
        unused = chosen.weights.new_zeros(len(own))
        self.problem = problem
        self.points: list[int] = index.tolist()
        self.size = len(own)
        self.rho = chosen.rho
        self.objective = chosen.objective
        self.weights = plain(chosen.weights)
        self.outer = plain(chosen.outer_columns.T.clone(memory_format=torch.contiguous_format))
        self.kernel = plain(_kernel(chosen, index, shortlist))
        self.moment = plain(_moment(chosen, shortlist))
        self.outer_targets = plain(problem.outer_targets.double().T.contiguous())
        self.targets = plain(problem.inner_targets.double()[index])
        self.back = plain(torch.cat([-chosen.inverse, standing.back]))
        self.image = plain(torch.cat([chosen.sandwich, standing.image]))
        self.residual = plain(torch.cat([chosen.alpha, standing.residual]))
        self.pull = plain(torch.cat([chosen.pulled, standing.pull]))
        self.variance = plain(torch.cat([unused, standing.variance]))
        self.energy = plain(torch.cat([unused, standing.energy]))
        self._nets = plain(standing.back)  # a place to work in

    @property
    def drift(self) -> float:
        """How far α is from the fit of the points, relative to their targets."""
        alpha = self.residual[: self.size]
        targets = self.targets[: self.size]
        missing = self.kernel[: self.size, : self.size] @ alpha + self.rho * alpha - targets
        scale = float((targets * targets).sum())
        return (float((missing * missing).sum()) / scale) ** 0.5 if scale > 0 else 0.0

    def best(self, ranks: Any, fixed: int, barred: Collection[tuple[int, int]] = ()) -> Swap:
        """The best exchange with the shortlist; the first ``fixed`` places stay, and pairs of a
        leaving and a joining point that are ``barred`` are none.

        Of equal exchanges the one whose joining point has the lowest rank is taken, then whose
        leaving point has the highest.
        """
        size = self.size
        nets = self._leaving().nets(self._standing(), self._nets)
        nets[:, :fixed] = -torch.inf
        for leaves, joins in barred:
            if leaves in self.points[:size] and joins in self.points[size:]:
                nets[self.points.index(joins) - size, self.points.index(leaves)] = -torch.inf
        rows, places = where(nets >= nets.max() - TIE * self.objective)
        pairs = zip(rows.tolist(), places.tolist(), strict=True)
        row, place = min(
            pairs,
            key=lambda pair: (ranks[self.points[size + pair[0]]], -ranks[self.points[pair[1]]]),
        )
        return Swap(place, size + row, float(nets[row, place]))

    def _leaving(self) -> Leaving:
        chosen = slice(0, self.size)
        return Leaving(
            -self.back[chosen].diagonal(),
            self.image[chosen].diagonal(),
            self.residual[chosen],
            self.pull[chosen],
            self.rho,
        )

    def _standing(self) -> Standing:
        parts = (self.residual, self.pull, self.variance, self.energy, self.back, self.image)
        return Standing(*(part[self.size :] for part in parts))

    def swap(self, place: int, row: int) -> None:
        """The point of this row takes the place, and the one that held it the row: doing it again
        undoes it."""
        self._leave(place)
        self._join(place, row)
        tables = (self.back, self.image, self.residual, self.pull, self.targets)
        squares = (self.kernel, self.kernel.T, self.moment, self.moment.T)
        for table in (*tables, *squares):
            _exchange(table, place, row)
        self.variance[row] = self.variance[place]
        self.energy[row] = self.energy[place]
        self.points[place], self.points[row] = self.points[row], self.points[place]
        joined = torch.tensor([self.points[place]], device=self.problem.train.like.device)
        self.outer[place] = plain(outer_columns_of(self.problem, joined)[:, 0])
        self.objective = self._objective()

    def _leave(self, place: int) -> None:
        """The point at this place becomes one of the others."""
        line = -self.back[place]
        spread = 1 * self.image[place]
        alpha = 1 * self.residual[place]
        own = float(line[place])
        size = float(spread[place]) / own
        pulled = self.pull[place] + alpha * size
        spread -= line * size
        column = self.back[:, place] / own
        image = self.image[:, place] / own
        self.energy += column * (2 * own * image + own * size * column)
        self.variance += own * column * column
        self._step(column, image, alpha, pulled, -line, spread)
        # its own row, of which that left nothing
        self._write(place, -line, spread, alpha, pulled, own)
        self.variance[place] = 1 / own - self.rho
        self.energy[place] = size / own
        self.back[:, place] = 0
        self.image[:, place] = 0

    def _join(self, place: int, row: int) -> None:
        """The point of this row joins at the empty place."""
        column, image = self._column(place, row)
        own = self.rho + max(float(column[row]), 0.0)
        size = max(float(image[row]), 0.0) / own
        line = 1 * self.back[row]
        line[place] = -1
        residual = 1 * self.residual[row]
        pulled = self.pull[row] - residual * size
        spread = self.image[row] - line * size
        column /= -own
        image /= -own
        self.energy += column * (own * size * column - 2 * own * image)
        self.variance -= own * column * column
        self.energy *= self.energy > 0
        self.variance *= self.variance > 0
        self._step(column, image, residual, pulled, line, spread)
        self._write(row, line, spread, residual, pulled, own)

    def _column(self, place: int, row: int) -> tuple[Any, Any]:
        """K' and K'DK' of the point that joins with the others, and what the steps of the chosen
        need in their rows."""
        chosen = slice(0, self.size)
        column = 1 * self.kernel[row]
        image = 1 * self.moment[row]
        own, moment = 1 * column[chosen], 1 * image[chosen]
        column[chosen] = image[chosen] = 0
        column[place], image[place] = own[place], moment[place]  # that place is empty
        column -= self.back @ own
        image -= self.back @ moment
        image -= self.image @ own
        return column, image

    def _step(
        self, column: Any, image: Any, residual: Any, pulled: Any, line: Any, spread: Any
    ) -> None:
        """The rank-one terms of all tables but their diagonals."""
        self.residual += column[:, None] * residual
        self.pull += column[:, None] * pulled
        self.pull += image[:, None] * residual
        self.back += column[:, None] * line
        self.image += column[:, None] * spread
        self.image += image[:, None] * line

    def _write(
        self, row: int, line: Any, spread: Any, residual: Any, pulled: Any, own: float
    ) -> None:
        """The row of a point that changed sides."""
        self.back[row] = line / own
        self.image[row] = spread / own
        self.residual[row] = residual / own
        self.pull[row] = pulled / own

    def _objective(self) -> float:
        """G by the coefficients as they stand; some of the outer set at a time."""
        alpha = 1 * self.residual[: self.size].T
        count = len(self.weights)
        step = height(alpha.shape[0] * alpha.shape[1])
        total = 0.0
        with wide(alpha.shape[0] * alpha.shape[1] * count):
            for top in range(0, count, step):
                checkpoint()
                some = slice(top, top + step)
                missing = self.outer_targets[:, some] - alpha @ self.outer[: self.size, some]
                missing *= missing
                total += float(missing.sum(0) @ self.weights[some])
        return total


def _kernel(chosen: Chosen, index: Tensor, shortlist: Tensor) -> Tensor:
    """K of the pool."""
    beside = double_columns(SomeRows.of(chosen.problem.train, index), shortlist)
    found = torch.cat([chosen.columns[index], beside], 1)
    # The kernel's own diagonal is exact where evaluating a pair of equal points is not.
    found.diagonal().copy_(chosen.common.variance[index])
    return found


def _moment(chosen: Chosen, shortlist: Tensor) -> Tensor:
    """KᵀDK of the pool."""
    own, _ = chosen.inside
    across = chosen.products[shortlist]
    among = chosen.common.between(shortlist)
    return torch.cat([torch.cat([own, across.T], 1), torch.cat([across, among], 1)])


def _exchange(rows: Any, one: int, other: int) -> None:
    kept = 1 * rows[one]
    rows[one] = rows[other]
    rows[other] = kept


#: Residuals followed together: what stays in a core's cache.
RESIDUALS = 1 << 15


def greedy_order(
    problem: Problem, points: Sequence[int], fixed: int, ranks: Tensor
) -> tuple[list[int], list[float]]:
    """The points as exact gains take them, the first ``fixed`` as they are, and the objective after
    each of them. Of equal ones that of the lowest rank goes first."""
    index = torch.tensor(list(points), device=ranks.device)
    outer = outer_columns_of(problem, index)
    kernel = (outer if problem.same else columns_of(problem, index))[index]
    kernel.diagonal().add_(problem.regulariser.rho(1))
    targets = problem.inner_targets.double()[index]
    weights = problem.outer_weights.double()
    pull = summed_over_rows(outer, problem.outer_targets.double(), weights)
    moment = summed_over_rows(outer, outer, weights)
    order = _Left(kernel.clone(), moment, targets.clone(), pull, ranks[index].tolist()).all(fixed)
    objectives = _along(problem, kernel[order][:, order], outer[:, order], targets[order])
    return [points[place] for place in order], objectives


class _Left:
    """The points not taken yet: the first rows of K' + ρI, K'DK', r and K'Dr among them."""

    def __init__(
        self, kernel: Tensor, moment: Tensor, residual: Tensor, pull: Tensor, ranks: list[int]
    ) -> None:
        self.kernel = plain(kernel)
        self.moment = plain(moment)
        self.residual = plain(residual)
        self.pull = plain(pull)
        self.ranks = ranks
        self.places = list(range(len(ranks)))
        self.left = len(ranks)

    def all(self, fixed: int) -> list[int]:
        """Every place in the order in which it is taken."""
        found = []
        for step in range(len(self.ranks)):
            checkpoint()
            row = self.places.index(step) if step < fixed else self._best()
            found.append(self.places[row])
            self._take(row)
        return found

    def _best(self) -> int:
        some = slice(0, self.left)
        residual = self.residual[some]
        agreement = (self.pull[some] * residual).sum(1)
        norm = (residual * residual).sum(1)
        energy = self.moment[some, some].diagonal()
        divisor = self.kernel[some, some].diagonal()
        gains = exact_gain(agreement, energy, norm, divisor)
        best = float(gains.max())
        (tied,) = where(gains >= best - TIE * abs(best))
        return min(tied.tolist(), key=lambda row: self.ranks[self.places[row]], default=0)

    def _take(self, row: int) -> None:
        """The rank-one step of its joining; the last row takes its place."""
        some = slice(0, self.left)
        column = 1 * self.kernel[row, some]
        own = float(column[row])
        column[row] = 0  # what follows is for the others
        image = 1 * self.moment[row, some]
        size = float(image[row]) / own
        residual = self.residual[row] / own
        pulled = self.pull[row] / own - residual * size
        scaled = column / own
        self.residual[some] -= column[:, None] * residual
        self.pull[some] -= column[:, None] * pulled + image[:, None] * residual
        self.kernel[some, some] -= scaled[:, None] * column
        half = scaled[:, None] * (image - column * (size / 2))
        self.moment[some, some] -= half + half.T
        self.left -= 1
        last = self.left
        for table in (self.kernel, self.moment, self.residual, self.pull):
            table[row] = table[last]
        for table in (self.kernel, self.moment):
            table[:, row] = table[:, last]
        self.places[row] = self.places[last]


def _along(problem: Problem, shifted: Tensor, outer: Tensor, targets: Tensor) -> list[float]:
    """The objective after each of some points, in their order."""
    lower = lower_factor(shifted)
    steps = torch.linalg.solve_triangular(lower, targets, upper=False)
    weights = problem.outer_weights.double()
    total = weights.new_zeros(len(steps))
    rows = min(height(len(steps) ** 2), 1 + RESIDUALS // steps.shape[1])
    for top in range(0, len(weights), rows):
        some = slice(top, top + rows)
        checkpoint()
        functions = plain(torch.linalg.solve_triangular(lower, outer[some].T, upper=False))
        residual = plain(problem.outer_targets[some].double().T.clone())
        total += _squares(functions, plain(steps), residual, plain(weights[some]))
    values: list[float] = total.tolist()
    return values


def _squares(functions: Any, steps: Any, residual: Any, weights: Any) -> Tensor:
    """Σ D r² of some of the outer set, after each step."""
    found = []
    for function, step in zip(functions, steps, strict=True):
        residual -= step[:, None] * function
        found.append(((residual * residual).sum(0) * weights).sum())
    return torch.stack([torch.as_tensor(one) for one in found])

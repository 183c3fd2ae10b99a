"""The exact objective of every exchange and every removal, for the squared error.

With Q = (K_SS + ρI)⁻¹, α = Q Y_S and U = K[:, S] Q diag(Q)^-½, leaving point i of S out is a
rank-one step back:

    r ← r + u_i a_iᵀ        K' ← K' + u_i u_iᵀ        a_i = α_i/√Q_ii

so that G rises by 2⟨u_iᵀDr, a_i⟩ + (u_iᵀDu_i)‖a_i‖², and the gain of every other point after it
follows from K'Dr, K'Du_i, (K'DK')_kk and K'_kk: all m·n exchanges cost one product of K with m
columns, no more than choosing the m points did, and after a swap only the column of the point that
joined is new.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.factors import lower_factor
from bicore.bilevel.strategies import double
from bicore.bilevel.strategies.gains import Leaving, Standing, plain
from bicore.numerics.tiles import row_by_row, summed_over_rows
from bicore.picking import TIE

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
        pulled = double.transposed_matmul(problem.cross, weighted)
        variance = double.diagonal(problem.train)
        if problem.cross.feature_rows is None:
            norms = double.weighted_column_norms(problem.cross, weights)
            return cls(problem, weights, pulled, norms, variance, None)
        rows, cols = (part.double() for part in problem.cross.feature_rows)
        moment = summed_over_rows(rows, rows, weights)
        norms = (row_by_row(cols, moment) * cols).sum(1)
        return cls(problem, weights, pulled, norms, variance, moment)

    def products(self, index: Tensor, columns: Tensor) -> Tensor:
        """Kᵀ D K[:, index], where K[:, index] is known."""
        if self.moment is None:
            weighted = self.weights[:, None] * columns
            return double.transposed_matmul(self.problem.cross, weighted)
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
    return double.columns(problem.train, index)


def outer_columns_of(problem: Problem, index: Tensor) -> Tensor:
    """K[:, index] of the outer set."""
    return double.columns(problem.cross, index)


def _row_products(left: Tensor, right: Tensor) -> Tensor:
    """⟨a_i, b_i⟩ for every row."""
    if left.is_cuda:
        return (left * right).sum(1)
    # one pass and no matrix of products
    return torch.from_numpy(np.einsum("nc,nc->n", left.numpy(), right.numpy()))


def _both(problem: Problem, index: Tensor) -> tuple[Tensor, Tensor]:
    columns = columns_of(problem, index)
    return columns, columns if problem.same else outer_columns_of(problem, index)

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

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.bilevel.posterior import exact_gain
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.factors import lower_factor
from bicore.bilevel.strategies import double
from bicore.numerics.tiles import row_by_row, summed_over_rows
from bicore.picking import TIE
from bicore.runtime import checkpoint

#: Numbers of one block of the matrix of all exchanges.
BLOCK = 1 << 22
#: Removals go on while (K_SS + ρI) α = Y_S holds to this share of Y_S …
DRIFT = 1e-9
#: … or to so many times the share it held to when the set was fitted.
WORSE = 100


@dataclass(frozen=True, eq=False)
class Fixed:
    """What no exchange changes: Kᵀ D Y and Σ_o D_o K_ok² of the outer set, one pass over K each."""

    pulled: Tensor
    norms: Tensor

    @classmethod
    def of(cls, problem: Problem) -> Fixed:
        weights = problem.outer_weights.double()
        pulled = double.transposed_matmul(
            problem.cross, weights[:, None] * problem.outer_targets.double()
        )
        return cls(pulled, double.weighted_column_norms(problem.cross, weights))


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
        self.columns, self.outer_columns = _columns(problem, index) if columns is None else columns
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
        self.products: Tensor | None = None  # Kᵀ D K[:, S], kept from the first exchange on
        self.fixed: Fixed | None = None
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

    def exchanged(self, place: int, joining: int) -> Chosen:
        """The set with another point in this place; of what was computed only its column is made
        anew."""
        index = torch.tensor([joining], device=self.weights.device)
        fresh = _columns(self.problem, index)
        same = self.outer_columns is self.columns
        columns = _replaced(self.columns, place, fresh[0])
        outer = columns if same else _replaced(self.outer_columns, place, fresh[1])
        points = [*self.points[:place], joining, *self.points[place + 1 :]]
        found = Chosen(self.problem, points, (columns, outer))
        found.fixed = self.fixed
        if self.products is not None:
            found.products = _replaced(
                self.products, place, _product(self.problem, self.weights, fresh[1])
            )
        return found

    def rises(self) -> Tensor:
        """By how much the objective rises when a point leaves, for each of them."""
        own = self.inverse.diagonal()
        return (
            2 * (self.pulled * self.alpha).sum(1) / own
            + self.sandwich.diagonal() * self.alpha.square().sum(1) / own.square()
        )

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

    def best_exchange(
        self,
        open_points: Tensor,
        ranks: Tensor,
        fixed: int = 0,
        barred: Collection[tuple[int, int]] = (),
    ) -> tuple[int, int, float]:
        """(the place that leaves, the point that joins, by how much the objective falls); the first
        ``fixed`` places stay, and pairs of a place and a point that are ``barred`` are none.

        Of equal exchanges the one whose joining point has the lowest rank is taken, then whose
        leaving point has the highest.
        """
        step = _Exchanges(self)
        rises = self.rises()
        found: list[tuple[int, int, float]] = []
        own = ranks[torch.tensor(self.points, device=ranks.device)]
        height = max(1, BLOCK // len(open_points))
        for top in range(fixed, len(self.points), height):
            checkpoint()
            places = torch.arange(top, min(top + height, len(self.points)), device=rises.device)
            net = (step.gains(places) - rises[places, None]).masked_fill(
                ~open_points[None], -torch.inf
            )
            for place, joining in barred:
                if top <= place < top + height:
                    net[place - top, joining] = -torch.inf
            tied = net >= net.max() - TIE * self.objective
            order = ranks[None] * len(ranks) + (len(ranks) - own[places, None])
            flat = int(order.masked_fill(~tied, len(ranks) ** 2 * 2).argmin())
            place, joining = divmod(flat, net.shape[1])
            found.append((int(places[place]), joining, float(net[place, joining])))
        most = max((value for _, _, value in found), default=-float("inf"))
        equal = [one for one in found if one[2] >= most - TIE * self.objective]
        return min(
            equal,
            key=lambda one: (int(ranks[one[1]]), -int(own[one[0]])),
            default=(0, 0, -float("inf")),
        )

    def cheapest(self, ranks: Tensor, fixed: int = 0) -> int:
        """The place whose point costs least to lose; of equal ones that of the highest rank. The
        first ``fixed`` stay."""
        rises = self.rises()
        rises[:fixed] = torch.inf
        own = ranks[torch.tensor(self.points, device=ranks.device)]
        return int(own.masked_fill(rises > rises.min() + TIE * self.objective, -1).argmax())


def _columns(problem: Problem, index: Tensor) -> tuple[Tensor, Tensor]:
    columns = double.columns(problem.train, index)
    return columns, columns if problem.same else double.columns(problem.cross, index)


def _product(problem: Problem, weights: Tensor, columns: Tensor) -> Tensor:
    """Kᵀ D columns."""
    return double.transposed_matmul(problem.cross, weights[:, None] * columns)


def _replaced(matrix: Tensor, place: int, column: Tensor) -> Tensor:
    matrix = matrix.clone()
    matrix[:, place] = column[:, 0]
    return matrix


class _Exchanges:
    """Gains of all points after one of the set has left."""

    def __init__(self, chosen: Chosen) -> None:
        problem = chosen.problem
        weights = chosen.weights
        if chosen.fixed is None:
            chosen.fixed = Fixed.of(problem)
        if chosen.products is None:
            chosen.products = _product(problem, weights, chosen.outer_columns)
        root = chosen.inverse.diagonal().sqrt()
        half = row_by_row(chosen.columns, chosen.inverse)
        outer = chosen.outer_columns
        # K'ᵀD O, columns of the outer set at the points chosen
        moved = chosen.products - row_by_row(half, summed_over_rows(outer, outer, weights))
        self.rho = chosen.rho
        plain = chosen.fixed.pulled - chosen.products @ chosen.alpha  # Kᵀ D r
        self.pull = plain - half @ (chosen.outer_columns.T @ (weights[:, None] * chosen.residual))
        self.residual = problem.inner_targets.double() - chosen.columns @ chosen.alpha
        self.variance = (double.diagonal(problem.train) - (half * chosen.columns).sum(1)).clamp_min(
            0
        )
        self.energy = (chosen.fixed.norms - (half * (chosen.products + moved)).sum(1)).clamp_min(0)
        self.back = half / root
        self.image = row_by_row(moved, chosen.inverse) / root
        self.factor = chosen.alpha / root[:, None]
        self.spread = chosen.sandwich.diagonal() / root.square()
        self.shift = chosen.pulled / root[:, None] + self.spread[:, None] * self.factor

    def gains(self, places: Tensor) -> Tensor:
        """(places, points): the exact decrease by each point once the place's own is gone."""
        u = self.back[:, places].T
        image = self.image[:, places].T
        a = self.factor[places]
        b = self.shift[places]
        along = a @ self.residual.T
        size = a.square().sum(1)[:, None]
        pulled = (
            (self.pull * self.residual).sum(1)
            + u * (a @ self.pull.T)
            + image * (along + u * size)
            + u * (b @ self.residual.T)
            + u.square() * (a * b).sum(1)[:, None]
        )
        norm = self.residual.square().sum(1) + 2 * u * along + u.square() * size
        energy = self.energy + 2 * u * image + u.square() * self.spread[places, None]
        divisor = self.rho + self.variance + u.square()
        gains: Tensor = exact_gain(pulled, energy, norm, divisor)
        return gains

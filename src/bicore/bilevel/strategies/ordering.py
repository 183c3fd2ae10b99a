"""The greedy order of points that are chosen already, for the squared error.

Among m points every exact gain follows from K_SS, OᵀDO and OᵀDY, with O the columns of the outer
set: m rank-one steps of m × m matrices, and no pass over the outer set. What the objective is after
each of them does not come from there, but from the residuals of one Cholesky factor in that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bicore.bilevel.posterior import exact_gain
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.factors import lower_factor
from bicore.bilevel.strategies.gains import plain, where
from bicore.bilevel.strategies.swaps import columns_of, outer_columns_of
from bicore.numerics.tiles import height, summed_over_rows
from bicore.picking import TIE
from bicore.runtime import checkpoint

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

"""Exchanges with a few points, each by rank-one terms.

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
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bicore.bilevel.strategies.double import columns
from bicore.bilevel.strategies.gains import Leaving, Standing, plain, where
from bicore.bilevel.strategies.swaps import Chosen, outer_columns_of
from bicore.kernels.operators import SomeRows
from bicore.numerics.tiles import height
from bicore.picking import TIE
from bicore.runtime import checkpoint, wide


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
    beside = columns(SomeRows.of(chosen.problem.train, index), shortlist)
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

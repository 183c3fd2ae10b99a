"""Exact steps among a few points, for the squared error: one joins, one leaves, two are exchanged.

The first ``size`` rows of a pool are the chosen points S, the others may join. With
Q = (K_SS + ρI)⁻¹, U = K[:, S] Q, the residuals r and the posterior kernel K', the tables are

                         back           image        residual      pull
    of the others        K[k, S] Q      (K'D U)_k       r_k      (K'Dr)_k
    of the chosen          −Q_i         (UᵀD U)_i       α_i      (UᵀDr)_i

and for the others also the diagonals of K' (``variance``) and of K'DK' (``energy``). One and the
same rank-one step changes both kinds of rows when a point joins, and another when one leaves: no
fit, and no pass over the kernel matrix. They are the sweeps of K + ρI, carried to everything that
follows from K'.

Arrays and tensors share the operators used here. On a CPU the tables are arrays, whose calls cost
a fifth; on a GPU they are tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bicore.numerics.linear_algebra import exact_gain, row_products
from bicore.picking import TIE
from bicore.runtime.clock import checkpoint

#: Pairs computed together: what fits into a core's cache …
PAIRS = 1 << 14
#: … and what keeps a GPU busy.
DEVICE_PAIRS = 1 << 22


def copy_rows(table: Tensor) -> Any:
    """Return a copy, row after row in memory, as an array on a CPU."""
    return plain(table.clone(memory_format=torch.contiguous_format))


def plain(values: Tensor) -> Any:
    """Return an array that shares the memory of a CPU tensor; a GPU tensor stays as it is."""
    return values if values.is_cuda else values.numpy()


def where(mask: Any) -> Any:
    """Return the places of a mask, an array or tensor for each dimension."""
    if isinstance(mask, Tensor):
        return torch.nonzero(mask, as_tuple=True)
    # of a matrix, np.nonzero takes many times as long
    return np.unravel_index(np.flatnonzero(mask), mask.shape)


def add_outer(table: Any, left: Any, right: Any) -> None:
    """Add left rightᵀ in place; a matrix of the products would take four times as long."""
    if isinstance(table, Tensor):
        table.addr_(left, right)
        return
    from scipy.linalg import blas  # not before it is needed: importing it takes time

    blas.dger(1.0, right, left, a=table.T, overwrite_a=True)


class Others(NamedTuple):
    """Rows of the tables for points that are not chosen."""

    residual: Any
    pull: Any
    variance: Any
    energy: Any
    back: Any
    image: Any


class Removals:
    """The effect of removing each chosen point, from the diagonals of Q and UᵀDU, α and UᵀDr.

    When point i leaves, K' grows by u uᵀ/q with u the column of U and q = Q_ii, and r by u α_iᵀ/q.
    The gain of every other point after that is :func:`bicore.numerics.linear_algebra.exact_gain`.
    """

    def __init__(self, own: Any, spread: Any, alpha: Any, pulled: Any, rho: float) -> None:
        self.rho = rho
        self.inverse = 1 / own
        self.spread = spread
        step = alpha * self.inverse[:, None]
        turn = (pulled + spread[:, None] * step) * self.inverse[:, None]
        self.size = row_products(step, step)
        self.skew = row_products(step, turn)
        #: Increase of the objective when a point leaves.
        slopes, squares = 2 * row_products(pulled, alpha), row_products(alpha, alpha)
        self.costs = -exact_gain(slopes, spread, squares, -own)
        self.step = step.T
        self.turn = turn.T

    def swap_gains(self, others: Others) -> Any:
        """Compute how far G falls for every pair of another point (row) and a chosen one."""
        on_device = isinstance(others.back, Tensor)
        result = torch.empty_like(others.back) if on_device else np.empty_like(others.back)
        pairs = DEVICE_PAIRS if on_device else PAIRS
        height = max(1, pairs // max(1, result.shape[1]))
        for top in range(0, len(result), height):
            checkpoint()
            rows = slice(top, top + height)
            result[rows] = self._block(Others(*(part[rows] for part in others)))
        return result

    def _block(self, some: Others) -> Any:
        """Compute a block of pairs, in as few passes over it as there are terms."""
        back, image = some.back, some.image
        along = some.residual @ self.step
        # ⟨K'Dr, r⟩ once the point is gone
        agreement = back * self.skew
        agreement += some.pull @ self.step
        agreement += some.residual @ self.turn
        agreement *= back
        agreement += row_products(some.pull, some.residual)[:, None]
        moved = back * self.size
        moved += along
        # ‖r‖²
        along += moved
        along *= back
        along += row_products(some.residual, some.residual)[:, None]
        moved *= image
        agreement += moved
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
        agreement -= self.costs
        return agreement


class PoolState:
    """The tables of a pool; ``kernel`` and ``moment`` are K and KᵀDK among its points.

    A pool that only shrinks needs no ``moment``.
    """

    def __init__(
        self, points: list[int], kernel: Any, moment: Any, rho: float, others: Others, size: int = 0
    ) -> None:
        self.points = points
        self.kernel = kernel
        self.moment = moment
        self.rho = rho
        self.residual, self.pull, self.variance, self.energy, self.back, self.image = others
        self.size = size

    @classmethod
    def empty(
        cls,
        points: list[int],
        kernel: Tensor,
        moment: Tensor,
        residual: Tensor,
        pull: Tensor,
        rho: float,
        capacity: int,
    ) -> PoolState:
        """Return a pool without chosen points, of which there will be at most ``capacity``."""
        back = kernel.new_zeros(len(kernel), capacity)
        tables = (residual, pull, kernel.diagonal(), moment.diagonal(), back, back)
        others = Others(*map(copy_rows, tables))
        return cls(points, plain(kernel), plain(moment), rho, others)

    def best(self, ranks: list[int], exact: bool = True) -> int:
        """Return the row of the largest gain, or gradient; ties go to the lowest rank."""
        some = slice(self.size, None)
        residual = self.residual[some]
        worth = row_products(self.pull[some], residual)
        if exact:
            norm = row_products(residual, residual)
            worth = exact_gain(2 * worth, self.energy[some], norm, self.rho + self.variance[some])
        best = float(worth.max())
        (tied,) = where(worth >= best - TIE * abs(best))
        rows = (self.size + tied).tolist()
        return min(rows, key=lambda row: ranks[self.points[row]], default=self.size)

    def removals(self) -> Removals:
        """Return the effect of removing each chosen point."""
        chosen = slice(0, self.size)
        own = -self.back[chosen, chosen].diagonal()
        spread = self.image[chosen, chosen].diagonal()
        return Removals(own, spread, self.residual[chosen], self.pull[chosen], self.rho)

    def others(self) -> Others:
        """Return the rows that are not chosen."""
        parts = (self.residual, self.pull, self.variance, self.energy, self.back, self.image)
        return Others(*(part[self.size :] for part in parts))

    def add(self, row: int) -> None:
        """Let the point of this row join; rows are exchanged so that it is the last chosen."""
        self._join(self.size, row)
        self._exchange(self.size, row, (self.kernel, self.moment, self.moment.T))
        self.size += 1

    def remove(self, place: int) -> None:
        """Let the point at this place leave; the last chosen one takes its place."""
        last = self.size - 1
        self._leave(place)
        self._exchange(place, last, (self.kernel, self.back.T, self.image.T))
        self.size = last

    def swap(self, place: int, row: int) -> None:
        """Exchange a chosen point and another one; doing it again undoes it."""
        self._leave(place)
        self._join(place, row)
        self._exchange(place, row, (self.kernel, self.moment, self.moment.T))

    def _exchange(self, one: int, other: int, more: tuple[Any, ...]) -> None:
        tables = (self.back, self.image, self.residual, self.pull, self.variance, self.energy)
        for table in (*tables, self.kernel.T, *more):
            kept = 1 * table[one]
            table[one] = table[other]
            table[other] = kept
        self.points[one], self.points[other] = self.points[other], self.points[one]

    def _leave(self, place: int) -> None:
        """Make the point at this place one of the others."""
        line, spread = 1 * self.back[place], 1 * self.image[place]
        alpha = 1 * self.residual[place]
        own = -float(line[place])
        size = float(spread[place]) / own
        pulled = self.pull[place] + alpha * size
        spread += line * size
        column = self.back[:, place] / own
        image = self.image[:, place] / own
        self.energy += column * (2 * own * image + own * size * column)
        self.variance += own * column * column
        self._sweep(place, own, (column, image), line, spread, alpha, pulled)
        self.variance[place] = 1 / own - self.rho
        self.energy[place] = size / own
        self.back[:, place] = 0
        self.image[:, place] = 0

    def _join(self, place: int, row: int) -> None:
        """Let the point of this row join at the empty place."""
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
        self._sweep(row, own, (column, image), line, spread, residual, pulled)

    def _column(self, place: int, row: int) -> tuple[Any, Any]:
        """Compute K' and K'DK' between the point that joins and the others.

        The rows of the chosen get what their own steps need.
        """
        chosen = slice(0, self.size)
        column = 1 * self.kernel[row]
        image = 1 * self.moment[row]
        own, moment = 1 * column[chosen], 1 * image[chosen]
        column[chosen] = image[chosen] = 0
        if place < self.size:  # the point there has just left
            column[place], image[place] = own[place], moment[place]
        back = self.back[:, chosen]
        column -= back @ own
        image -= back @ moment
        image -= self.image[:, chosen] @ own
        return column, image

    def _sweep(
        self,
        row: int,
        own: float,
        columns: tuple[Any, Any],
        line: Any,
        spread: Any,
        residual: Any,
        pulled: Any,
    ) -> None:
        """Add the rank-one terms of all tables but the diagonals.

        The row of the point itself, which changes sides, is written anew.
        """
        column, image = columns
        add_outer(self.residual, column, residual)
        add_outer(self.pull, column, pulled)
        add_outer(self.pull, image, residual)
        add_outer(self.back, column, line)
        add_outer(self.image, column, spread)
        add_outer(self.image, image, line)
        self.back[row] = line / own
        self.image[row] = spread / own
        self.residual[row] = residual / own
        self.pull[row] = pulled / own

"""The effect of every exchange of a chosen and another point, for the squared error.

With Q = (K_SS + ρI)⁻¹ of the chosen points S, U = K[:, S] Q, the residuals r and the posterior
kernel K', the tables of the other points k are

    back   K[k, S] Q      image   (K'D U)_k      residual   r_k      pull   (K'Dr)_k

and the diagonals of K' (``variance``) and of K'DK' (``energy``). A removal needs the diagonals of Q
and UᵀDU, α and UᵀDr. The steps themselves are those of :mod:`bicore.moments.ridge`, where
T = K'/ρ, V = K'DK'/ρ², h = 2/ρ·K'Dr, and a chosen point has r_i = ρα_i and 1 − T_ii = ρQ_ii.

Arrays and tensors share the operators used here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bicore.moments.ridge import RidgeRows
from bicore.numerics.linear_algebra import exact_gain, row_products
from bicore.runtime.clock import checkpoint

#: Number of pairs computed together: fits the cache of a core …
PAIRS = 1 << 14
#: … and keeps a GPU busy.
DEVICE_PAIRS = 1 << 22


def as_host_array(values: Tensor) -> Any:
    """Return an array that shares the memory of a CPU tensor; a GPU tensor stays as it is."""
    return values if values.is_cuda else values.numpy()


def nonzero_places(mask: Any) -> Any:
    """Return the places of a mask, an array or tensor for each dimension."""
    if isinstance(mask, Tensor):
        return torch.nonzero(mask, as_tuple=True)
    # np.nonzero is many times slower on a matrix
    return np.unravel_index(np.flatnonzero(mask), mask.shape)


class Others(NamedTuple):
    """Rows of the tables for points outside the coreset."""

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
        """Return the decrease of G for every pair of another point (row) and a chosen one."""
        on_device = isinstance(others.back, Tensor)
        pairs = DEVICE_PAIRS if on_device else PAIRS
        height = max(1, pairs // max(1, others.back.shape[1]))
        if len(others.back) <= height:
            return self._block(others)
        result = torch.empty_like(others.back) if on_device else np.empty_like(others.back)
        for top in range(0, len(result), height):
            checkpoint()
            rows = slice(top, top + height)
            result[rows] = self._block(Others(*(part[rows] for part in others)))
        return result

    def _block(self, some: Others) -> Any:
        """Compute a block of pairs with as few passes over it as possible."""
        back, image = some.back, some.image
        along = some.residual @ self.step
        # ⟨K'Dr, r⟩ after the removal
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


def others_of(rows: RidgeRows, index: Any, own: Any, rho: float) -> Others:
    """Return the tables of some rows; ``own`` names the chosen ones."""
    outputs, both = rows.targets.shape[1], rows.both[index]
    back, turned = rows.pairs(index, own)
    variance, energy = rho * (rows.divisor[index] - 1.0), rho * rho * rows.q[index]
    pull = (0.5 * rho) * both[:, outputs:]
    return Others(both[:, :outputs], pull, variance, energy, back, rho * turned)


def removals_of(rows: RidgeRows, index: Any, rho: float) -> Removals:
    """Return the effect of removing each of some chosen rows."""
    outputs, both = rows.targets.shape[1], rows.both[index]
    own, spread = rows.divisor[index] / rho, rows.q[index]
    return Removals(own, spread, both[:, :outputs] / rho, 0.5 * both[:, outputs:], rho)

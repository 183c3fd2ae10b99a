"""The effect of every exchange of a chosen and another point, for the squared error.

The symbols are those of :mod:`bicore.moments.ridge`: t and q of a row, its residuals r and slopes
h, and T and V between two rows. If a chosen row i leaves, with d = 1 − t_i, every row k outside has

    t' = t + T²/d      q' = q + 2TV/d + q_i T²/d²      r' = r + T r_i/d
    h' = h + T (h_i + 2 q_i r_i/d)/d + 2V r_i/d

and the gain of adding it then is :func:`bicore.numerics.linear_algebra.exact_gain`. With a kernel,
T = K'/ρ and V = K'DK'/ρ² for the posterior kernel K', so with Q = (K_SS + ρI)⁻¹ of the chosen
points S and U = K[:, S] Q, a chosen row has d = ρQ_ii, q = (UᵀDU)_ii, r = ρα_i and h = 2(UᵀDr)_i,
and T = U, V = K'DU/ρ.

The code uses only operators that arrays and tensors share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.moments.ridge import RidgeRows
from bicore.numerics.linear_algebra import exact_gain, row_products
from bicore.runtime.clock import checkpoint

#: Number of pairs computed together, so that they fit the cache of a core …
PAIRS = 1 << 14
#: … and on a GPU, so that it is busy.
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
        pairs = DEVICE_PAIRS if on_device else PAIRS
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

"""What every exchange of a chosen point for another is worth, exactly, for the squared error.

Beside the chosen points S every other point k has

    r_k   its residual                   (K'Dr)_k    its pull           K'_kk   its variance
    (K'DK')_kk   its energy              U_k = K[k, S] Q                W_k = (K'D U)_k

with Q = (K_SS + ρI)⁻¹. When point i leaves, K' grows by u uᵀ/q with u the column of U and q = Q_ii,
and r by u α_iᵀ/q: the gain of every k after that is :func:`bicore.bilevel.posterior.exact_gain`
with these put in. All m·n exchanges take a few products of the set's width and two dozen operations
a pair.

What is written here and in :mod:`bicore.bilevel.strategies.pool` are operators that arrays and
tensors share. On a CPU they are given arrays, whose calls cost a fifth; on a device tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.runtime import checkpoint

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

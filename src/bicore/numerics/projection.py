"""The nearest point of a simplex with bounded coordinates."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Weights below this many units of rounding in the total are none.
DUST = 16
#: Halvings of the interval in which the shift lies.
BISECTIONS = 60


def capped(weights: Tensor, total: float, largest: float = 1.0) -> Tensor:
    """The nearest point of {0 ≤ w ≤ largest, Σw = total}: one number is taken off all, found by
    halving."""
    low = float(weights.max()) - total if math.isinf(largest) else float(weights.min()) - largest
    high = float(weights.max())
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if float((weights - middle).clamp(0, largest).sum()) > total
            else (low, middle)
        )
    found = (weights - high).clamp(0, largest)
    # what rounding alone has left
    return torch.where(found > DUST * torch.finfo(found.dtype).eps * total, found, 0)

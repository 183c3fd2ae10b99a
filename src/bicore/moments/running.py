"""Moments with rows that wait: many rows are added to p² sums at the cost of one copy of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bicore.data import Array
from bicore.errors import NumericalError
from bicore.moments.moments import Moments

#: Features from which the sum of squares of many rows could overflow.
TOO_LARGE = 1e140


@dataclass(frozen=True, eq=False)
class RunningMoments:
    """Moments of a stream; rows wait until there are ``block`` of them."""

    moments: Moments
    block: int = 1
    waiting: tuple[tuple[Any, Any, Array], ...] = ()
    #: The factor that the moments lack, for they fade with every row.
    factor: float = 1.0

    def add(self, rows: Any, y: Any, faded: float, weights: Array) -> RunningMoments:
        """Add finite rows, and multiply everything before them by a factor."""
        if self.block > 1 and len(rows) and float(abs(rows).max()) > TOO_LARGE:
            raise NumericalError("features are too large to be summed; scale the rows.")
        earlier = tuple((one, goals, faded * counted) for one, goals, counted in self.waiting)
        found = replace(
            self,
            waiting=(*earlier, (rows, y, weights)) if len(rows) else earlier,
            factor=faded * self.factor,
        )
        full = sum(len(one) for one, _, _ in found.waiting) >= self.block
        return found.fold() if full else found

    def fold(self) -> RunningMoments:
        """Add the rows that wait."""
        if not self.waiting:
            whole = self.moments if self.factor == 1 else self.moments.scaled(self.factor)
        else:
            rows, y, weights = zip(*self.waiting, strict=True)
            joined = torch.cat(rows) if torch.is_tensor(rows[0]) else np.concatenate(rows)
            goals = None if y[0] is None else np.concatenate(y)
            counted = np.concatenate(weights)
            whole = self.moments.with_weighted(joined, goals, self.factor, counted)
        return RunningMoments(whole, self.block)

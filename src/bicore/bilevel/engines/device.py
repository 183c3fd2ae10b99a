"""Choosing where the numbers are: a GPU scores, takes a point and goes on, and is asked rarely."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.contract import Turn
from bicore.data import Array
from bicore.picking import TIE, ranks_of, unusable_score

#: Points chosen before their numbers are read back: time limits and interrupts are heard that
#: often.
UNASKED = 16


class DeviceChooser:
    """The open points of an engine as a mask on its device, and the choice of the best of them."""

    def __init__(self, turn: Turn, device: torch.device) -> None:
        self.open = turn.open.copy()
        self.closed = torch.from_numpy(~turn.open).to(device)
        self.ranks = torch.from_numpy(ranks_of(turn.ids)).to(device)
        self.fine = torch.ones((), dtype=torch.bool, device=device)

    def serves(self, turn: Turn) -> bool:
        """Whether it still agrees with what may be taken."""
        return bool(np.array_equal(self.open, turn.open))

    def took(self, points: Array | list[int]) -> None:
        """Note on the host what the device took."""
        self.open[points] = False

    def step(self, scores: Tensor, take: Callable[[Tensor], None]) -> None:
        """Take the open point of the lowest score; nothing is read back."""
        scores = scores.double().masked_fill(self.closed, torch.inf)
        best = scores.min()
        self.fine.logical_and_(torch.isfinite(best))
        tied = scores <= best + TIE * best.abs()
        k = torch.where(tied, self.ranks, len(self.ranks)).argmin().view(1)
        take(k)
        self.closed.index_fill_(0, k, True)

    def check(self) -> None:
        """Raise what the steps since the last look have shown."""
        if not self.fine:
            raise unusable_score()


def unasked(turn: Turn, taken: int) -> int:
    """How many points may be chosen before the next look; the first one is looked at alone."""
    return 1 if taken == 0 else min(UNASKED, turn.steps)


def one_by_one(turn: Turn) -> bool:
    """Whether the engine may go on by itself: the best of all open points, one by one."""
    return turn.shortlist == 1 and turn.count == 1 and not turn.sampled

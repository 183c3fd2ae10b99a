"""Columns of K and of KᵀDK for the points that are likely to be chosen next, many at a time.

Where a kernel is evaluated again for every product, a pass over all pairs costs almost the same for
one column as for dozens. Each point that joins needs the product of K with its own column, and
which points will join soon is no secret: those with the best scores now. Of points looked ahead in
this way most are taken within the next steps, so that a pass serves several of them. What is
computed does not depend on the coreset, and nothing of it is approximate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.kernels.operators import KernelOperator

#: Columns of one pass: a tile's products with them then cost about as much as the tile itself.
TOGETHER = 64
#: Passes that a point then takes: points looked ahead are mostly taken soon (41 passes for 400 of
#: 4000 images, and more a point for the first ones).
PASSES_A_POINT = 0.2
#: Columns that are held, as a multiple of that; those with the worst scores are forgotten first.
HELD = 4


@dataclass(frozen=True, eq=False)
class Seen:
    """K[:, k] at the training points and at the outer set, and KᵀD times the latter."""

    train: Tensor
    outer: Tensor
    product: Tensor


class Foresight:
    """Columns of one problem's operators; ``likely`` names the best points by their scores now."""

    def __init__(
        self,
        train: KernelOperator,
        cross: KernelOperator,
        weights: Tensor,
        likely: Callable[[int], list[int]],
        room: int,
    ) -> None:
        self.train = train
        self.cross = cross
        self.weights = weights
        self.likely = likely
        self.together = max(1, min(TOGETHER, room // HELD))
        self.seen: dict[int, Seen] = {}

    @staticmethod
    def width(train: KernelOperator, cross: KernelOperator, capacity: int) -> int:
        """How many columns the spare memory of the operators holds, beside the products of so many
        points chosen."""
        itemsize = train.like.element_size()
        spare = train.spare - capacity * train.shape[0] * itemsize
        column = train.shape[0] * 2 + (0 if cross is train else cross.shape[0])
        # one more set of columns is alive while a pass is made
        return max(0, min(HELD * TOGETHER, spare // (2 * column * itemsize)))

    def column(self, k: int) -> Seen:
        """What belongs to a point; a pass where it was not looked ahead."""
        if k not in self.seen:
            self._look(k)
        return self.seen[k]

    def _look(self, k: int) -> None:
        best = self.likely(HELD * self.together)
        self.seen = {point: self.seen[point] for point in best if point in self.seen}
        fresh = [k, *(point for point in best if point not in self.seen and point != k)]
        fresh = fresh[: self.together]
        index = torch.tensor(fresh, device=self.train.like.device)
        train = self.train.columns(index)
        outer = train if self.cross is self.train else self.cross.columns(index)
        product = self.cross.transposed_matmul(self.weights[:, None] * outer)
        # a row a point: columns of a matrix are slow to read
        train, outer, product = (one.T.contiguous() for one in (train, outer, product))
        for place, point in enumerate(fresh):
            self.seen[point] = Seen(train[place], outer[place], product[place])

"""The chosen points with the rows of the kernel matrix that belong to them, in buffers that grow in
place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bicore.bilevel.problem import Problem
from bicore.kernels.operators import parts

#: Points whose columns are asked for together: many more would be one long copy.
AT_ONCE = 256


class Support:
    """Indices S with K_SS, K[S, train] and K[S, outer]; memory (n + outer)·capacity."""

    def __init__(self, problem: Problem, capacity: int) -> None:
        self.problem = problem
        self.indices: list[int] = []
        like = problem.train.like
        self._square = like.new_empty(capacity, capacity)
        self._train = like.new_empty(capacity, problem.train.shape[0])
        self._index = torch.empty(capacity, dtype=torch.long, device=like.device)
        separate = problem.cross is not problem.train
        self._outer = like.new_empty(capacity, problem.cross.shape[0]) if separate else self._train

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def gram(self) -> Tensor:
        """K_SS."""
        return self._square[: len(self), : len(self)]

    @property
    def train(self) -> Tensor:
        """K[S, :], a row for each chosen point."""
        return self._train[: len(self)]

    @property
    def outer(self) -> Tensor:
        """K[S, outer]."""
        return self._outer[: len(self)]

    @property
    def index(self) -> Tensor:
        """The indices where the arithmetic is."""
        return self._index[: len(self)]

    def extend(self, points: Sequence[int]) -> None:
        """Take points in, with their rows of the kernel matrix."""
        first = len(self)
        last = len(self) + len(points)
        index = torch.tensor(list(points), dtype=torch.long, device=self._square.device)
        self._index[first:last] = index
        for part in parts(torch.arange(len(points)), AT_ONCE):
            rows = slice(first + int(part[0]), first + int(part[-1]) + 1)
            some = index[part.to(index.device)]
            self._train[rows] = self.problem.train.columns(some).T
            if self._outer is not self._train:
                self._outer[rows] = self.problem.cross.columns(some).T
        self.indices += [int(k) for k in points]
        fresh = self._train[first:last][:, self.index]
        self._square[first:last, :last] = fresh
        self._square[:last, first:last] = fresh.T

    def keep(self, positions: list[int]) -> None:
        """Drop every point whose place in the order is not listed."""
        chosen = torch.tensor(positions, dtype=torch.long, device=self._square.device)
        count = len(positions)
        square = self.gram[chosen][:, chosen].clone()
        train = self.train[chosen].clone()
        if self._outer is not self._train:
            self._outer[:count] = self.outer[chosen].clone()
        self._square[:count, :count] = square
        self._train[:count] = train
        self._index[:count] = self.index[chosen].clone()
        self.indices = [self.indices[place] for place in positions]

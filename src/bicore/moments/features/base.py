"""What every feature map is: rows in, a matrix of a fixed width out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from torch import Tensor

from bicore.data import Array


class FeatureMap(ABC):
    """A function of rows, the same for ever once it is settled.

    A map is a frozen configuration. What it takes from data (the shape of a row, a scaling,
    landmarks) it takes once, from the first rows, by :meth:`settled`; from then on it is fixed and
    part of the state of whoever uses it.
    """

    def settled(self, x: Array) -> FeatureMap:
        """The map for rows such as these first ones; a map that is settled gives itself."""
        return self

    @property
    @abstractmethod
    def width(self) -> int:
        """How many features a row has; known once the map is settled."""

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """The (n, width) features of rows, on their device."""

    def unit(self) -> FeatureMap:
        """The same with every row brought to length 1."""
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        return self.features(x)

    def like(self, other: Self) -> bool:
        """Whether moments under both may be added."""
        raise NotImplementedError

"""The kernel of given points in float64, and the same with other last digits.

The numbers of a kernel are rounded, and more where it takes differences of nearly equal points.
What that may do to anything made from them is seen by changing the last digits of the points and
evaluating it again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.prepare import Prepared
from bicore.bilevel.problem import Problem
from bicore.data import Array, as_tensor
from bicore.kernels.base import Kernel
from bicore.kernels.operators import BLOCK_BYTES, KernelOperator, parts
from bicore.sparse import is_sparse

#: By how many roundings of the kernel's precision the numbers it is made from are taken to be off.
ROUNDINGS = 4
#: How often something is computed with other last digits, and how many times the root of the mean
#: square of what changes is taken for what rounding may do.
DRAWS = 3
SAFETY = 3


def rounding_of(operator: KernelOperator) -> float:
    """The share of themselves by which the numbers of a kernel matrix may be off."""
    return ROUNDINGS * torch.finfo(operator.like.dtype).eps


def spread_of(values: Sequence[float], expected: float) -> float:
    """How far a value that depends on last digits may be from the one expected."""
    squares = sum((value - expected) ** 2 for value in values)
    return SAFETY * math.sqrt(squares / len(values))


class Draws:
    """Other last digits: numbers off, by chance, by a share of themselves."""

    def __init__(self, relative: float, like: Tensor) -> None:
        self.relative = relative
        self._generator = torch.Generator(like.device).manual_seed(0)

    def normal(self, like: Tensor) -> Tensor:
        """Normal numbers in the shape of others."""
        return torch.randn(
            like.shape, generator=self._generator, dtype=like.dtype, device=like.device
        )

    def rows(self, rows: Tensor) -> Tensor:
        """The same rows, each number off by itself."""
        return rows * (1 + self.relative * self.normal(rows))

    def square(self, square: Tensor) -> Tensor:
        """The same symmetric matrix; entries are rounded beside √(k_ii k_jj), being sums of terms
        of both signs."""
        root = square.diagonal().clamp_min(0).sqrt()
        noise = self.normal(square)
        return square + self.relative / math.sqrt(2) * (noise + noise.T) * root[:, None] * root


def kernel_of(prepared: Prepared, chosen: Array, index: Tensor) -> PointKernel:
    """The numbers of the points chosen, in the form in which they are held."""
    problem = prepared.problem
    own = problem.train.feature_rows
    other = problem.cross.feature_rows
    if own is not None and other is not None:
        return _Features(Same.themselves(problem, index), other[0], own[1][index].double())
    if prepared.kernel.precomputed or is_sparse(prepared.data.x):
        return _Columns.of(Same.themselves(problem, index), problem, index, None, None)
    rows = prepared.data.x[chosen]
    every = prepared.data.x if prepared.outer is None else prepared.outer.x
    same = Same.equal(every, rows).on(index.device)
    return _Columns.of(same, problem, index, prepared.kernel, as_tensor(rows))


@dataclass(frozen=True, eq=False)
class Same:
    """Rows of the outer set that are points chosen, or equal to one: no kernel tells them apart,
    but for rounding."""

    outer: Tensor
    points: Tensor
    #: Points that are equal to each other.
    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def themselves(cls, problem: Problem, index: Tensor) -> Same:
        """The points where the outer set has them too."""
        outer = index if problem.same else index[:0]
        return cls(outer, torch.arange(len(outer), device=index.device))

    @classmethod
    def equal(cls, every: Array, rows: Array) -> Same:
        """All that are equal, number by number."""
        places: dict[bytes, list[int]] = {}
        for place, row in enumerate(rows):
            places.setdefault(row.tobytes(), []).append(place)
        # Rows that are equal have equal sums, which are quicker to compare than all their numbers.
        likely = np.flatnonzero(np.isin(_sums(every), _sums(rows)))
        pairs = [
            (int(number), place)
            for number in likely
            for place in places.get(every[number].tobytes(), ())
        ]
        found = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
        twins = [pair for alike in places.values() for pair in combinations(alike, 2)]
        return cls(found[:, 0], found[:, 1], tuple(twins))

    def on(self, device: torch.device) -> Same:
        """The same on a device."""
        return replace(self, outer=self.outer.to(device), points=self.points.to(device))


@dataclass(frozen=True, eq=False)
class Redrawn:
    """A kernel with other last digits, and by which share of √(k_ii k_jj) its numbers moved."""

    kernel: PointKernel
    #: At most, and as a root of the mean of squares.
    worst: float
    usual: float


@dataclass(frozen=True, eq=False)
class PointKernel(ABC):
    """K_SS and K[outer, S] of the points, in float64."""

    same: Same

    @property
    @abstractmethod
    def gram(self) -> Tensor:
        """K_SS."""

    @abstractmethod
    def largest(self) -> float:
        """The largest number between the outer set and the points."""

    @abstractmethod
    def predictions(self, alpha: Tensor) -> Tensor:
        """K[outer, S] α."""

    @abstractmethod
    def spread(self, alpha: Tensor) -> Tensor:
        """How far K[outer, S] α moves when each of the numbers moves, by chance, by its size."""

    @abstractmethod
    def redrawn(self, draws: Draws) -> Redrawn:
        """The same with other last digits of what the points are made from."""


@dataclass(frozen=True, eq=False)
class _Columns(PointKernel):
    """Columns as the operator gives them, a few at a time where they are many."""

    operator: KernelOperator
    index: Tensor
    square: Tensor
    #: All of them, where they are few.
    whole: Tensor | None
    #: What makes the numbers, from which rows; None where they were given.
    kernel: Kernel | None
    rows: Tensor | None

    @classmethod
    def of(
        cls,
        same: Same,
        problem: Problem,
        index: Tensor,
        kernel: Kernel | None,
        rows: Tensor | None,
    ) -> _Columns:
        few = problem.cross.shape[0] * len(index) * 8 <= BLOCK_BYTES
        whole = problem.cross.columns(index).double() if few else None
        held = problem.train.matrix_or_none
        if problem.same and whole is not None:
            square = whole[index]
        elif held is not None:
            square = held[index][:, index].double()
        else:
            pieces = _pieces(problem.train, index)
            square = torch.cat([columns[index] for columns, _ in pieces], 1)
        return cls(same, problem.cross, index, square, whole, kernel, rows)

    @property
    def gram(self) -> Tensor:
        return self.square

    def _blocks(self) -> Iterator[tuple[Tensor, slice]]:
        if self.whole is None:
            yield from _pieces(self.operator, self.index)
        else:
            yield self.whole, slice(None)

    def largest(self) -> float:
        return max(float(columns.abs().max()) for columns, _ in self._blocks())

    def predictions(self, alpha: Tensor) -> Tensor:
        return _added(columns @ alpha[part] for columns, part in self._blocks())

    def spread(self, alpha: Tensor) -> Tensor:
        squares = alpha.square()
        return _added(columns.square() @ squares[part] for columns, part in self._blocks()).sqrt()

    def redrawn(self, draws: Draws) -> Redrawn:
        if self.kernel is None or self.rows is None:
            moved = draws.square(self.square)
            return Redrawn(replace(self, square=moved), draws.relative, draws.relative)
        # In double and then rounded: digits that the precision does not hold are lost once more.
        rows = draws.rows(self.rows.to(self.square)).to(self.operator.like)
        moved = self.kernel.gram(rows).double()
        for i, j in self.same.pairs:
            moved[i, j] = moved[j, i] = (moved[i, i] * moved[j, j]).sqrt()
        root = self.square.diagonal().clamp_min(torch.finfo(moved.dtype).tiny).sqrt()
        shares = (moved - self.square).div_(root[:, None]).div_(root)
        usual = float(torch.linalg.vector_norm(shares)) / len(root)
        worst = max(draws.relative, float(shares.abs().max()), self._of_equal())
        return Redrawn(replace(self, square=moved), worst, max(draws.relative, usual))

    def _of_equal(self) -> float:
        """By which share the kernel has rows that are equal apart from each other."""
        own = self.square.diagonal()
        worst = 0.0
        if len(self.same.outer) <= len(self.index) and not self.same.pairs:
            return worst  # most often: none but the points themselves
        for columns, part in self._blocks():
            here = torch.arange(len(self.index), device=own.device)[part]
            inside = torch.isin(self.same.points, here)
            outer = self.same.outer[inside]
            points = self.same.points[inside]
            if len(points):
                entries = columns[outer, points - here[0]]
                worst = max(worst, float(((entries - own[points]).abs() / own[points]).max()))
        return worst


@dataclass(frozen=True, eq=False)
class _Features(PointKernel):
    """Rows of features: n·p numbers in the place of n·m, and no rounding by multiplying them."""

    outer: Tensor
    rows: Tensor

    @property
    def gram(self) -> Tensor:
        return self.rows @ self.rows.T

    def _blocks(self) -> Iterator[Tensor]:
        return blocks_of(self.outer)

    def largest(self) -> float:
        return max(float(block.square().sum(1).max()) for block in self._blocks())

    def predictions(self, alpha: Tensor) -> Tensor:
        coefficients = self.rows.T @ alpha
        return torch.cat([block @ coefficients for block in self._blocks()])

    def spread(self, alpha: Tensor) -> Tensor:
        squares = (self.rows.T @ alpha).square()
        return torch.cat([block.square() @ squares for block in self._blocks()]).sqrt()

    def redrawn(self, draws: Draws) -> Redrawn:
        moved = replace(self, rows=draws.rows(self.rows))
        return Redrawn(moved, draws.relative, draws.relative)


def _sums(rows: Array) -> Array:
    """Of every row, added up in the same order whatever the layout."""
    height = max(1, BLOCK_BYTES // (8 * max(rows[0].size, 1)))
    parts = (rows[top : top + height] for top in range(0, len(rows), height))
    return np.concatenate([np.ascontiguousarray(one).reshape(len(one), -1).sum(1) for one in parts])


def blocks_of(rows: Tensor) -> Iterator[Tensor]:
    """A matrix in float64, some rows at a time."""
    height = max(1, BLOCK_BYTES // (8 * max(rows.shape[1], 1)))
    return (block.double() for block in torch.split(rows, height))


def _pieces(operator: KernelOperator, index: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """Columns in float64 with their places among the points."""
    first = 0
    for part in parts(index, BLOCK_BYTES // (8 * operator.shape[0])):
        yield operator.columns(part).double(), slice(first, first + len(part))
        first += len(part)


def _added(terms: Iterator[Tensor]) -> Tensor:
    total = next(terms)
    for term in terms:
        total += term
    return total

"""Kernel matrices as operators: products, columns and a diagonal.

``Gram`` stores the matrix, ``Features`` stores Φ with K = Φ_rows Φ_colsᵀ, ``Blocked`` recomputes
the kernel block by block. Rows belong to the outer set, columns to the training points; for one set
of data the matrix is square. Which of them fits the memory: :mod:`bicore.kernels.building`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from bicore.kernels.base import Kernel
from bicore.numerics.linear_algebra import tall_product, transposed_product
from bicore.runtime.clock import checkpoint
from bicore.runtime.threads import all_threads

#: Bytes of one block of a blocked product.
BLOCK_BYTES = 64_000_000
#: Numbers squared at a time, which fit the cache of a core.
SQUARES = 1 << 18

CPU = torch.device("cpu")


def slices(count: int, size: int) -> Iterator[slice]:
    """Yield slices of ``size`` rows, at least one each, that cover ``count`` rows."""
    for start in range(0, count, max(size, 1)):
        checkpoint(start / count)
        yield slice(start, min(start + max(size, 1), count))


def parts(index: Tensor, size: int) -> Iterator[Tensor]:
    """Split ``index`` into pieces of at least one entry."""
    return (index[part] for part in slices(len(index), size))


class KernelOperator(ABC):
    """The matrix K of rows × columns."""

    #: Whether columns and products are read from memory instead of computed again.
    stored: ClassVar[bool] = False
    #: Spare bytes within the memory limit, for data that saves passes over the matrix.
    spare: int = 0
    #: The matrix, if it is stored.
    matrix: Tensor | None = None

    @property
    def feature_rows(self) -> tuple[Tensor, Tensor] | None:
        """Φ_rows and Φ_cols with K = Φ_rows Φ_colsᵀ, if they are stored."""
        return None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """An empty tensor of the operator's dtype and device."""

    @abstractmethod
    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        """Return Kᵀ @ right, or only its rows for ``columns``."""

    @abstractmethod
    def columns(self, index: Tensor) -> Tensor:
        """Return K[:, index]."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Return the diagonal of a square operator."""

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        """Return Σ_j weights_j K_jk² for every column k."""
        rows, columns = self.shape
        total = weights.new_zeros(columns, dtype=torch.float64)
        every = torch.arange(columns, device=weights.device)
        for part in parts(every, BLOCK_BYTES // (16 * rows)):
            squares = weights[:, None] * self.columns(part).square()
            total[part] = squares.sum(0, dtype=torch.float64)
        return total


@dataclass(frozen=True, eq=False)
class Gram(KernelOperator):
    """A stored matrix; a symmetric one is read by rows, which is faster than by columns."""

    matrix: Tensor
    symmetric: bool = False
    spare: int = 0
    stored = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def like(self) -> Tensor:
        return self.matrix.new_empty(0)

    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        if not self.symmetric:
            kept = self.matrix if columns is None else self.matrix[:, columns]
            return transposed_product(kept, right)
        if columns is None and right.dim() == 1 and not right.is_cuda:
            return self._half_product(right)
        return tall_product(self.matrix if columns is None else self.matrix[columns], right)

    def _half_product(self, right: Tensor) -> Tensor:
        """Multiply a vector by K reading half of K, because memory bandwidth limits the speed."""
        from scipy.linalg import blas  # imported late: it takes time

        checkpoint()
        multiply = blas.dsymv if right.dtype == torch.float64 else blas.ssymv
        with all_threads(self.matrix.numel()):
            return torch.from_numpy(multiply(1.0, self.matrix.numpy().T, right.numpy()))

    def columns(self, index: Tensor) -> Tensor:
        return self.matrix[index].T if self.symmetric else self.matrix[:, index]

    def diagonal(self) -> Tensor:
        return self.matrix.diagonal()

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        total = self.matrix.new_zeros(self.shape[1], dtype=torch.float64)
        for rows in slices(self.shape[0], SQUARES // self.shape[1]):
            squares = self.matrix[rows].square().mul_(weights[rows, None])
            total += squares.sum(0, dtype=torch.float64)
        return total


@dataclass(frozen=True, eq=False)
class Features(KernelOperator):
    """K = Φ_rows Φ_colsᵀ: memory n·p instead of n²."""

    rows: Tensor
    cols: Tensor
    stored = True

    @property
    def feature_rows(self) -> tuple[Tensor, Tensor]:
        return self.rows, self.cols

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.cols)

    @property
    def like(self) -> Tensor:
        return self.rows.new_empty(0)

    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        cols = self.cols if columns is None else self.cols[columns]
        return tall_product(cols, transposed_product(self.rows, right))

    def columns(self, index: Tensor) -> Tensor:
        return tall_product(self.rows, self.cols[index].T)

    def diagonal(self) -> Tensor:
        return (self.rows * self.cols).sum(1)

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        moment = transposed_product(self.rows, self.rows, weights)
        found = [self.cols.new_empty(0, dtype=torch.float64)]
        for part in slices(len(self.cols), BLOCK_BYTES // (8 * max(len(moment), 1))):
            some = self.cols[part]
            found.append((tall_product(some, moment) * some).sum(1, dtype=torch.float64))
        return torch.cat(found)


@dataclass(frozen=True, eq=False)
class OuterProducts(KernelOperator):
    """K_ij = ⟨a_i, a_j⟩⟨b_i, b_j⟩, the Gram matrix of outer products a_i b_iᵀ, which are never
    formed."""

    left: Tensor
    right: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), len(self.left)

    @property
    def like(self) -> Tensor:
        return self.left.new_empty(0)

    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        found = [
            (self.left @ (self.left.T @ (column[:, None] * self.right)) * self.right).sum(1)
            for column in right.reshape(len(right), -1).T
        ]
        result = torch.stack(found, 1).reshape(right.shape)
        return result if columns is None else result[columns]

    def columns(self, index: Tensor) -> Tensor:
        return (self.left @ self.left[index].T) * (self.right @ self.right[index].T)

    def diagonal(self) -> Tensor:
        return self.left.square().sum(1) * self.right.square().sum(1)


@dataclass(frozen=True, eq=False)
class Blocked(KernelOperator):
    """A kernel evaluated again for every product, which needs less memory and more time.

    Points may lie elsewhere than the arithmetic: those of a block are brought to ``device`` when it
    is their turn.
    """

    kernel: Kernel
    row_points: Tensor
    col_points: Tensor
    block: int
    device: torch.device = CPU
    spare: int = 0

    @property
    def square(self) -> bool:
        """Whether rows and columns are the same points, so that half of the tiles suffices."""
        return self.row_points is self.col_points

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.row_points), len(self.col_points)

    @property
    def like(self) -> Tensor:
        return self.row_points.new_empty(0, device=self.device)

    def _tiles(self, columns: Tensor, half: bool = False) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield the tiles; ``half``: those on and above the diagonal of a square matrix."""
        height = len(self.row_points)
        done = 0
        total = height * len(columns) / (2 if half else 1)
        with all_threads(self.row_points.numel() * len(columns)):
            for top in range(0, height, self.block):
                rows = slice(top, top + self.block)
                above = self.row_points[rows].to(self.device)
                for left in range(top if half else 0, len(columns), self.block):
                    cols = slice(left, left + self.block)
                    checkpoint(done / total)
                    done += self.block**2
                    yield rows, cols, self.kernel.evaluate(above, columns[cols].to(self.device))

    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        half = self.square and columns is None
        points = self.col_points
        if columns is not None:
            points = points[columns.to(points.device)]
        result = right.new_zeros(len(points), *right.shape[1:])
        for rows, cols, part in self._tiles(points, half):
            result[cols] += part.T @ right[rows]
            if half and rows.start != cols.start:
                result[rows] += part @ right[cols]
        return result

    def evaluate(self, points: Tensor) -> Tensor:
        """Return the whole matrix with these points as columns."""
        result = self.like.new_empty(self.shape[0], len(points))
        for rows, cols, part in self._tiles(points):
            result[rows, cols] = part
        return result

    def columns(self, index: Tensor) -> Tensor:
        points = self.col_points[index.to(self.col_points.device)].to(self.device)
        result = self.evaluate(points)
        if self.square:
            # The kernel's diagonal is exact, unlike evaluated pairs of equal points.
            result[index, torch.arange(len(index), device=index.device)] = self.kernel.diag(points)
        return result

    def diagonal(self) -> Tensor:
        rows = (self.row_points[part] for part in slices(self.shape[0], self.block))
        return torch.cat([self.kernel.diag(points.to(self.device)) for points in rows])

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        total = weights.new_zeros(self.shape[1], dtype=torch.float64)
        for rows, cols, part in self._tiles(self.col_points, self.square):
            squares = part.square()
            total[cols] += (weights[rows] @ squares).double()
            if self.square and rows.start != cols.start:
                total[rows] += (squares @ weights[cols]).double()
        return total


@dataclass(frozen=True, eq=False)
class RowSubset(KernelOperator):
    """Some rows of another operator."""

    whole: KernelOperator
    rows: Tensor

    @staticmethod
    def of(operator: KernelOperator, rows: Tensor) -> KernelOperator:
        """Return the cheapest form, without points and features of other rows."""
        if isinstance(operator, Features):
            return Features(operator.rows[rows], operator.cols)
        if isinstance(operator, Blocked):
            points = operator.row_points[rows.to(operator.row_points.device)]
            return replace(operator, row_points=points)
        return RowSubset(operator, rows)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.whole.shape[1]

    @property
    def like(self) -> Tensor:
        return self.whole.like

    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        spread = right.new_zeros(self.whole.shape[0], *right.shape[1:])
        spread[self.rows] = right
        return self.whole.transposed_matmul(spread, columns)

    def columns(self, index: Tensor) -> Tensor:
        return self.whole.columns(index)[self.rows]

    def diagonal(self) -> Tensor:
        return self.whole.diagonal()[self.rows]


def split_rows(rows: Tensor) -> Iterator[Tensor]:
    """Yield a matrix in float64, a block of rows at a time."""
    height = BLOCK_BYTES // (8 * max(rows.shape[1], 1))
    return (rows[part].double() for part in slices(len(rows), height))


def multiply_columns(operator: KernelOperator, index: Tensor, right: Tensor) -> Tensor:
    """Compute K[:, index] @ right in float64, some columns at a time."""
    features = operator.feature_rows
    if features is not None:
        inside = features[1][index].double().T @ right
        return torch.cat([block @ inside for block in split_rows(features[0])])
    total = right.new_zeros(operator.shape[0], right.shape[1])
    for part in slices(len(index), BLOCK_BYTES // (8 * operator.shape[0])):
        total.addmm_(operator.columns(index[part]).double(), right[part])
    return total


def square_block(operator: KernelOperator, index: Tensor) -> Tensor:
    """Compute K[index, index] of a square operator in float64."""
    features = operator.feature_rows
    if features is not None:
        return features[0][index].double() @ features[1][index].double().T
    square = RowSubset.of(operator, index).columns(index).double()
    # The kernel's diagonal is exact, unlike evaluated pairs of equal points.
    square.diagonal().copy_(operator.diagonal()[index])
    return square

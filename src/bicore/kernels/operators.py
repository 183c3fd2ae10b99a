"""A kernel matrix as the engine sees it: products, columns and a diagonal, within the memory limit.

``Gram`` stores the matrix, ``Features`` stores Φ with K = Φ_rows Φ_colsᵀ, ``Blocked`` recomputes
the kernel block by block. Rows belong to the outer set, columns to the training points; for one set
of data the matrix is square.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, as_tensor
from bicore.errors import InputError, MemoryLimitError, NumericalError
from bicore.kernels.base import Kernel
from bicore.numerics.tiles import row_by_row, summed_over_rows
from bicore.runtime import Runtime, checkpoint, human_bytes, wide

#: Explicit features are preferred to a Gram matrix while they have at most this share of n columns.
FEATURE_SHARE = 0.5
#: What any machine has: requests far below it do not ask how much is free.
TRIVIAL_BYTES = 256_000_000
#: Data of more than this share of a GPU's memory limit are left with the host.
DATA_SHARE = 0.25
#: Memory for one block of a blocked product.
BLOCK_BYTES = 64_000_000
#: Copies of its features that a kernel makes on the way to them.
FEATURE_COPIES = 3
#: Rows and columns of the smallest block; below it a kernel's own overhead takes over.
SMALLEST_BLOCK = 32
#: And of the largest: a tile takes a fraction of a second, so that a time limit is heard in it.
LARGEST_BLOCK = 1024
#: The same on a GPU.
LARGEST_DEVICE_BLOCK = 8192
#: A Gram matrix may be asymmetric up to this share of its largest diagonal entry.
GRAM_TOLERANCE = 1e-6
#: Rows of a given Gram matrix compared with their columns at a time, so that no second one is made.
GRAM_ROWS = 1024
#: An eigenvalue may be negative by this much times the largest diagonal entry and n: what float32
#: rounding can do.
PSD_TOLERANCE = 2e-7
#: Up to this many rows a given Gram matrix is tested for positive semi-definiteness whole; beyond,
#: on a sample this large.
PSD_ROWS = 2000

CPU = torch.device("cpu")


def parts(index: Tensor, size: int) -> Iterator[Tensor]:
    """Pieces of ``index``, at least one entry each."""
    for start in range(0, len(index), max(size, 1)):
        checkpoint(start / len(index))
        yield index[start : start + max(size, 1)]


class KernelOperator(ABC):
    """The matrix K of rows × columns."""

    #: Columns and products come from memory: nothing is computed again, no word goes to the host.
    stored: ClassVar[bool] = False

    @property
    def spare(self) -> int:
        """Bytes within the memory limit that may hold what saves passes over the matrix."""
        return 0

    @property
    def matrix_or_none(self) -> Tensor | None:
        """The whole matrix where it is held."""
        return None

    @property
    def feature_rows(self) -> tuple[Tensor, Tensor] | None:
        """Φ_rows and Φ_cols with K = Φ_rows Φ_colsᵀ where they are held."""
        return None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """An empty tensor of the operator's dtype and device."""

    @abstractmethod
    def matmul(self, right: Tensor) -> Tensor:
        """K @ right."""

    @abstractmethod
    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        """Kᵀ @ right, or only the rows of it that belong to ``columns``."""

    @abstractmethod
    def columns(self, index: Tensor) -> Tensor:
        """K[:, index]."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """The diagonal of a square operator."""

    @abstractmethod
    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        """Σ_j weights_j K_jk² for every column k."""


@dataclass(frozen=True, eq=False)
class Gram(KernelOperator):
    """A stored matrix; a symmetric one is never read by columns, which is slower."""

    matrix: Tensor
    symmetric: bool = False
    stored = True

    @property
    def matrix_or_none(self) -> Tensor:
        return self.matrix

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def like(self) -> Tensor:
        return self.matrix.new_empty(0)

    def matmul(self, right: Tensor) -> Tensor:
        return row_by_row(self.matrix, right)

    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        if not self.symmetric:
            kept = self.matrix if columns is None else self.matrix[:, columns]
            return summed_over_rows(kept, right)
        if columns is None and right.dim() == 1 and not right.is_cuda:
            return self._half_product(right)
        return row_by_row(self.matrix if columns is None else self.matrix[columns], right)

    def _half_product(self, right: Tensor) -> Tensor:
        """K times a vector from one half of K: memory sets the time, and half of it is read."""
        from scipy.linalg import blas  # not before it is needed: importing it takes time

        checkpoint()
        multiply = blas.dsymv if right.dtype == torch.float64 else blas.ssymv
        with wide(self.matrix.numel()):
            return torch.from_numpy(multiply(1.0, self.matrix.numpy().T, right.numpy()))

    def columns(self, index: Tensor) -> Tensor:
        return self.matrix[index].T if self.symmetric else self.matrix[:, index]

    def diagonal(self) -> Tensor:
        return self.matrix.diagonal()

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        total = self.matrix.new_zeros(self.shape[1], dtype=torch.float64)
        rows = max(1, BLOCK_BYTES // (self.shape[1] * 16))
        for start in range(0, self.shape[0], rows):
            checkpoint(start / self.shape[0])
            part = self.matrix[start : start + rows]
            squares = weights[start : start + rows, None] * part.square()
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

    def matmul(self, right: Tensor) -> Tensor:
        return row_by_row(self.rows, summed_over_rows(self.cols, right))

    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        cols = self.cols if columns is None else self.cols[columns]
        return row_by_row(cols, summed_over_rows(self.rows, right))

    def columns(self, index: Tensor) -> Tensor:
        return row_by_row(self.rows, self.cols[index].T)

    def diagonal(self) -> Tensor:
        return (self.rows * self.cols).sum(1)

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        moment = summed_over_rows(self.rows, self.rows, weights)
        return (row_by_row(self.cols, moment) * self.cols).sum(1, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class OuterProducts(KernelOperator):
    """K_ij = ⟨a_i, a_j⟩⟨b_i, b_j⟩: the Gram matrix of outer products a_i b_iᵀ, never formed."""

    left: Tensor
    right: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), len(self.left)

    @property
    def like(self) -> Tensor:
        return self.left.new_empty(0)

    def matmul(self, right: Tensor) -> Tensor:
        columns = right.reshape(len(right), -1).T
        images = [
            ((self.left @ (self.left.T @ (column[:, None] * self.right))) * self.right).sum(1)
            for column in columns
        ]
        return torch.stack(images, 1).reshape(right.shape)

    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        result = self.matmul(right)
        return result if columns is None else result[columns]

    def columns(self, index: Tensor) -> Tensor:
        return (self.left @ self.left[index].T) * (self.right @ self.right[index].T)

    def diagonal(self) -> Tensor:
        return self.left.square().sum(1) * self.right.square().sum(1)

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        total = weights.new_zeros(len(self.left), dtype=torch.float64)
        everything = torch.arange(len(self.left), device=self.left.device)
        for part in parts(everything, BLOCK_BYTES // (16 * len(self.left))):
            squares = weights[:, None] * self.columns(part).square()
            total[part] = squares.sum(0, dtype=torch.float64)
        return total


@dataclass(frozen=True, eq=False)
class Blocked(KernelOperator):
    """A kernel that is evaluated again for every product: time instead of memory.

    Points may lie elsewhere than the arithmetic: those of a block are brought to ``device`` when it
    is their turn.
    """

    kernel: Kernel
    row_points: Tensor
    col_points: Tensor
    block: int
    device: torch.device = CPU
    #: Bytes that may hold what saves passes.
    room: int = 0

    @property
    def spare(self) -> int:
        return self.room

    @property
    def square(self) -> bool:
        """Whether rows and columns are the same points: one half of the tiles then gives all."""
        return self.row_points is self.col_points

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.row_points), len(self.col_points)

    @property
    def like(self) -> Tensor:
        return self.row_points.new_empty(0, device=self.device)

    def _tiles(self, columns: Tensor, half: bool = False) -> Iterator[tuple[slice, slice, Tensor]]:
        """Tiles in turn; ``half``: those on and above the diagonal of a square matrix."""
        height = len(self.row_points)
        done = 0
        total = height * len(columns) / (2 if half else 1)
        with wide(self.row_points.numel() * len(columns)):
            for top in range(0, height, self.block):
                rows = slice(top, top + self.block)
                above = self.row_points[rows].to(self.device)
                for left in range(top if half else 0, len(columns), self.block):
                    cols = slice(left, left + self.block)
                    checkpoint(done / total)
                    done += self.block**2
                    yield rows, cols, self.kernel.evaluate(above, columns[cols].to(self.device))

    def matmul(self, right: Tensor) -> Tensor:
        if self.square:
            return self.transposed_matmul(right)
        result = right.new_zeros(self.shape[0], *right.shape[1:])
        for rows, cols, part in self._tiles(self.col_points):
            result[rows] += part @ right[cols]
        return result

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

    def columns(self, index: Tensor) -> Tensor:
        points = self.col_points[index.to(self.col_points.device)].to(self.device)
        result = points.new_empty(self.shape[0], len(points))
        for rows, cols, part in self._tiles(points):
            result[rows, cols] = part
        if self.square:
            # The kernel's own diagonal is exact where evaluating a pair of equal points is not.
            result[index, torch.arange(len(index), device=index.device)] = self.kernel.diag(points)
        return result

    def diagonal(self) -> Tensor:
        parts = torch.split(self.row_points, self.block)
        return torch.cat([self.kernel.diag(part.to(self.device)) for part in parts])

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        total = weights.new_zeros(self.shape[1], dtype=torch.float64)
        for rows, cols, part in self._tiles(self.col_points, self.square):
            squares = part.square()
            total[cols] += (weights[rows] @ squares).double()
            if self.square and rows.start != cols.start:
                total[rows] += (squares @ weights[cols]).double()
        return total


@dataclass(frozen=True, eq=False)
class SomeRows(KernelOperator):
    """Some rows of another operator."""

    whole: KernelOperator
    rows: Tensor

    @staticmethod
    def of(operator: KernelOperator, rows: Tensor) -> KernelOperator:
        """The cheapest form: points and features that are not asked for are left out."""
        if isinstance(operator, Features):
            return Features(operator.rows[rows], operator.cols)
        if isinstance(operator, Blocked):
            points = operator.row_points[rows.to(operator.row_points.device)]
            return replace(operator, row_points=points)
        return SomeRows(operator, rows)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.whole.shape[1]

    @property
    def like(self) -> Tensor:
        return self.whole.like

    def matmul(self, right: Tensor) -> Tensor:
        return self.whole.matmul(right)[self.rows]

    def transposed_matmul(self, right: Tensor, columns: Tensor | None = None) -> Tensor:
        return self.whole.transposed_matmul(self._spread(right), columns)

    def columns(self, index: Tensor) -> Tensor:
        return self.whole.columns(index)[self.rows]

    def diagonal(self) -> Tensor:
        return self.whole.diagonal()[self.rows]

    def weighted_column_norms(self, weights: Tensor) -> Tensor:
        return self.whole.weighted_column_norms(self._spread(weights))

    def _spread(self, values: Tensor) -> Tensor:
        """Zero in the rows that are left out."""
        result = values.new_zeros(self.whole.shape[0], *values.shape[1:])
        result[self.rows] = values
        return result


@dataclass(frozen=True)
class Reserve:
    """Bytes the engine will allocate beside a matrix, stored or blocked, and beside features."""

    beside_matrix: int
    beside_features: int


class Held(StrEnum):
    """How a kernel matrix is held."""

    GRAM = "gram"
    FEATURES = "features"
    BLOCKED = "blocked"


@dataclass(frozen=True)
class OperatorPlan:
    """How the matrices of a call would be held, the side of a block, and bytes.

    ``needed`` is what that takes with what the engine needs beside it, ``stored`` what the matrices
    alone would take, ``limit`` what is allowed.
    """

    held: Held
    block: int
    needed: int
    stored: int
    limit: int
    #: Of explicit features.
    width: int = 0
    #: Data that would crowd a GPU stay with the host and come by blocks.
    crowded: bool = False


def plan_operators(
    kernel: Kernel, x: Array, rows: int, reserve: Reserve, runtime: Runtime
) -> OperatorPlan:
    """How :func:`build_operators` would hold the matrices of these points and of ``rows`` more.

    Features or stored matrices while they fit the limit beside what the engine itself needs,
    otherwise blocked products, otherwise an error that names the number.
    """
    n = len(x)
    shape = tuple(x.shape[1:])
    stored = n * (n + rows) * runtime.itemsize
    limit = _limit(stored + reserve.beside_matrix, runtime)
    data = (n + rows) * int(np.prod(shape)) * runtime.itemsize
    crowded = runtime.torch_device.type != "cpu" and data > DATA_SHARE * limit
    width = _width(kernel, x, runtime)
    if width is not None and width <= FEATURE_SHARE * n and not crowded:
        needed = (n + rows) * width * runtime.itemsize + reserve.beside_features
        if needed <= limit:
            return OperatorPlan(Held.FEATURES, n, needed, stored, limit, width)
    per_pair = kernel.bytes_per_pair(runtime.itemsize, shape)
    per_point = kernel.bytes_per_point(runtime.itemsize, shape)
    reserved = reserve.beside_matrix
    largest = LARGEST_BLOCK if runtime.torch_device.type == "cpu" else LARGEST_DEVICE_BLOCK
    block = _block(n, min(BLOCK_BYTES, (limit - reserved) // 4), per_pair, per_point)
    block = min(block, largest)
    pairs = block * block * per_pair
    whole = stored + pairs + (n + rows) * per_point + reserved
    if whole <= limit and not crowded:
        return OperatorPlan(Held.GRAM, block, whole, stored, limit)
    blocked = pairs + 2 * block * per_point + reserved
    if blocked <= limit:
        return OperatorPlan(Held.BLOCKED, block, blocked, stored, limit, crowded=crowded)
    raise MemoryLimitError(
        f"selecting from {n} points needs at least {human_bytes(blocked)} beside the "
        f"data, and the limit is {human_bytes(limit)} (a stored Gram matrix would take "
        f"{human_bytes(stored)}); raise Runtime(memory=…), ask for fewer points, or use float32."
    )


def build_operators(
    kernel: Kernel, x: Array, outer_x: Array | None, reserve: Reserve, runtime: Runtime
) -> tuple[KernelOperator, KernelOperator]:
    """The training operator and the outer one (the same object when there is no outer set).

    Bytes are predicted before anything is allocated: see :func:`plan_operators`.
    """
    if kernel.precomputed:
        return _precomputed(x, outer_x, reserve.beside_matrix, runtime)
    rows = 0 if outer_x is None else len(outer_x)
    plan = plan_operators(kernel, x, rows, reserve, runtime)
    device = runtime.torch_device
    train = as_tensor(x).to(CPU if plan.crowded else device, runtime.torch_dtype)
    outer = None if outer_x is None else as_tensor(outer_x).to(train)
    if plan.held is Held.FEATURES:
        return _features(kernel, train, outer)
    if plan.held is Held.GRAM:
        return _stored(kernel, train, outer, plan.block)
    square = Blocked(kernel, train, train, plan.block, device, plan.limit - plan.needed)
    if outer is None:
        return square, square
    return square, Blocked(kernel, outer, train, plan.block, device)


def _width(kernel: Kernel, x: Array, runtime: Runtime) -> int | None:
    """Of the features of a kernel that has them."""
    found = kernel.features(as_tensor(x[:1]).to(runtime.torch_device, runtime.torch_dtype))
    return None if found is None else found.shape[1]


def _block(n: int, room: int, per_pair: int, per_point: int) -> int:
    """The side of the largest block whose pairs and points fit the room.

    It solves side² · per_pair + 2 · side · per_point = room.
    """
    side = (math.sqrt(per_point**2 + per_pair * max(room, 0)) - per_point) / per_pair
    return min(n, max(SMALLEST_BLOCK, int(side)))


def _limit(needed: int, runtime: Runtime) -> int:
    """The memory limit.

    Where none was given and little is needed, the system is not asked: streams select often.
    """
    if runtime.memory is None and 8 * needed <= TRIVIAL_BYTES:
        return TRIVIAL_BYTES
    return runtime.memory_bytes()


def _stored(
    kernel: Kernel, train: Tensor, outer: Tensor | None, block: int
) -> tuple[KernelOperator, KernelOperator]:
    square = Gram(_finite(kernel.gram(train, block), kernel), symmetric=True)
    if outer is None:
        return square, square
    return square, Gram(_finite(_rectangle(kernel, outer, train, block), kernel))


def _rectangle(kernel: Kernel, rows: Tensor, columns: Tensor, block: int) -> Tensor:
    result = rows.new_empty(len(rows), len(columns))
    with wide(rows.numel() * len(columns)):
        for top in range(0, len(rows), block):
            for left in range(0, len(columns), block):
                checkpoint(top / len(rows))
                part = kernel.evaluate(rows[top : top + block], columns[left : left + block])
                result[top : top + block, left : left + block] = part
    return result


def _features(
    kernel: Kernel, train: Tensor, outer: Tensor | None
) -> tuple[KernelOperator, KernelOperator]:
    own = _feature_rows(kernel, train)
    square = Features(_finite(own, kernel), own)
    if outer is None:
        return square, square
    return square, Features(_finite(_feature_rows(kernel, outer), kernel), own)


def _feature_rows(kernel: Kernel, points: Tensor) -> Tensor:
    """Φ of all points, some at a time."""
    first = kernel.features(points[:1])
    assert first is not None
    height = max(1, BLOCK_BYTES // (FEATURE_COPIES * first.shape[1] * first.element_size()))
    if len(points) <= height or first.data_ptr() == points.data_ptr():
        found = kernel.features(points)  # few, or the points themselves, which costs nothing
        assert found is not None
        return found
    result = first.new_empty(len(points), first.shape[1])
    for part in parts(torch.arange(len(points)), height):
        rows = slice(int(part[0]), int(part[-1]) + 1)
        found = kernel.features(points[rows])
        assert found is not None
        result[rows] = found
    return result


def _finite(matrix: Tensor, kernel: Kernel) -> Tensor:
    if not torch.isfinite(matrix.sum()):
        raise NumericalError(
            f"kernel={kernel.name} returned values that are not finite; scale x, or use float64."
        )
    return matrix


def _precomputed(
    x: Array, outer_x: Array | None, reserved: int, runtime: Runtime
) -> tuple[KernelOperator, KernelOperator]:
    rows = len(x) + (0 if outer_x is None else len(outer_x))
    moved = runtime.torch_device.type != "cpu" or x.dtype != np.dtype(runtime.dtype)
    needed = reserved + (len(x) * rows * runtime.itemsize if moved else 0)
    if needed > (limit := _limit(needed, runtime)):
        raise MemoryLimitError(
            f"selecting from a stored {len(x)} × {len(x)} matrix needs {human_bytes(needed)} "
            f"beside it, and the limit is {human_bytes(limit)}; raise Runtime(memory=…), ask for "
            "fewer points, or use float32."
        )
    check_gram(x)
    square = Gram(as_tensor(x).to(runtime.torch_device, runtime.torch_dtype), symmetric=True)
    if outer_x is None:
        return square, square
    if outer_x.shape[1] != len(x):
        raise InputError(
            f"the outer set's precomputed kernel has {outer_x.shape[1]} columns; one for each of "
            f"the {len(x)} points is needed."
        )
    return square, Gram(as_tensor(outer_x).to(square.matrix))


def check_gram(matrix: Array) -> None:
    """Square, symmetric and positive semi-definite, or an error with the number that says not."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"kernel='precomputed' needs a square Gram matrix as x, and x has shape {matrix.shape}."
        )
    scale = max(float(np.abs(np.diagonal(matrix)).max()), np.finfo(np.float64).tiny)
    gap = max(
        float(np.abs(matrix[top : top + GRAM_ROWS] - matrix[:, top : top + GRAM_ROWS].T).max())
        for top in range(0, len(matrix), GRAM_ROWS)
    )
    if gap > GRAM_TOLERANCE * scale:
        raise InputError(
            f"the Gram matrix is not symmetric: K and Kᵀ differ by {gap:.3g}; pass (K + K.T) / 2 "
            "if that is rounding."
        )
    sample = matrix
    if len(matrix) > PSD_ROWS:
        rows = np.random.default_rng(0).choice(len(matrix), PSD_ROWS, replace=False)
        sample = matrix[np.ix_(rows, rows)]
    smallest = _smallest_eigenvalue(sample.astype(np.float64), PSD_TOLERANCE * scale * len(sample))
    if smallest < 0:
        raise InputError(
            "the Gram matrix is not positive semi-definite: its smallest eigenvalue is "
            f"{smallest:.6g}; use a kernel that is, or add that much to the diagonal."
        )


def _smallest_eigenvalue(matrix: Array, allowed: float) -> float:
    """Zero where a Cholesky factor proves that none is below −allowed, else the smallest."""
    try:
        np.linalg.cholesky(matrix + allowed * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return float(np.linalg.eigvalsh(matrix)[0])
    return 0.0

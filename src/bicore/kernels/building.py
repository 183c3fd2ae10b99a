"""Choose the form of a kernel matrix by the memory limit, and build its operator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, as_tensor
from bicore.errors import InputError, MemoryLimitError, NumericalError
from bicore.kernels.base import Kernel, check_gram
from bicore.kernels.operators import (
    BLOCK_BYTES,
    CPU,
    Blocked,
    Features,
    Gram,
    KernelOperator,
    slices,
)
from bicore.kernels.scaling import VALUE_RANGE, check_scale
from bicore.runtime.context import Runtime, free_bytes, human_bytes
from bicore.sparse import dense_needed, is_sparse

#: Explicit features are preferred to a Gram matrix if they have at most this share of n columns.
FEATURE_SHARE = 0.5
#: Memory that every machine has: smaller requests do not check how much is free.
TRIVIAL_BYTES = 256_000_000
#: Data larger than this share of a GPU's memory limit stay in main memory.
DATA_SHARE = 0.25
#: Copies of its features that a kernel makes while computing them.
FEATURE_COPIES = 3
#: Copies in float64 of features, or of blocks of a matrix, while norms of columns are computed:
#: the numbers, the weighted numbers, and their products or factor.
COPIES = 3
#: Side of the smallest block; for smaller ones the overhead of a kernel dominates.
SMALLEST_BLOCK = 32
#: Side of the largest block: it takes a fraction of a second, so that time limits are respected.
LARGEST_BLOCK = 1024
#: The same on a GPU.
LARGEST_DEVICE_BLOCK = 8192
#: Tolerances for asymmetry and for negative eigenvalues of a given Gram matrix: float32 rounding.
GRAM_TOLERANCE, PSD_TOLERANCE = 1e-6, 2e-7


@dataclass(frozen=True)
class Reserve:
    """Bytes that the engine allocates in addition to a matrix (stored or blocked) or features."""

    with_matrix: int
    with_features: int
    #: Whether the engine computes norms of columns.
    norms: bool = False
    #: Bytes with features, if these are fewer than ``points``.
    with_narrow_features: int = 0
    points: int = 0


class MatrixForm(StrEnum):
    """The form in which a kernel matrix is stored."""

    GRAM = "gram"
    FEATURES = "features"
    BLOCKED = "blocked"


@dataclass(frozen=True)
class OperatorPlan:
    """The form of the kernel matrices, the side of a block, and bytes.

    ``needed`` includes the memory of the engine, ``stored`` is that of the matrices alone, and
    ``limit`` is the memory allowed.
    """

    form: MatrixForm
    block: int
    needed: int
    stored: int
    limit: int
    #: Number of explicit features.
    width: int = 0
    #: Whether the data are too large for the GPU and are copied to it in blocks.
    crowded: bool = False


def plan_operators(
    kernel: Kernel, x: Array, rows: int, reserve: Reserve, runtime: Runtime
) -> OperatorPlan:
    """Choose the form of the matrices of these rows and ``rows`` outer rows.

    These are features or stored matrices if they fit the limit together with the engine, otherwise
    blocked products. If these do not fit either, the error names the required bytes.
    """
    if is_sparse(x) and not kernel.takes_sparse:
        raise dense_needed(f"kernel={kernel.name!r}")
    n = len(x)
    shape = tuple(x.shape[1:])
    stored = n * (n + rows) * runtime.itemsize
    limit = _limit(stored + reserve.with_matrix, runtime)
    data = (n + rows) * int(np.prod(shape)) * runtime.itemsize
    crowded = runtime.torch_device.type != "cpu" and data > DATA_SHARE * limit
    found = kernel.features(as_tensor(x[:1]).to(runtime.torch_device, runtime.torch_dtype))
    if found is not None and (width := found.shape[1]) <= FEATURE_SHARE * n and not crowded:
        # Exchanges and removals multiply in float64: one copy of single-precision features.
        doubled = 8 if reserve.norms and runtime.itemsize < 8 else 0
        numbers = (n + rows) * width
        norms = COPIES * min(8 * numbers, BLOCK_BYTES) if reserve.norms else 0
        narrow = width < reserve.points
        extra = reserve.with_narrow_features if narrow else reserve.with_features
        needed = numbers * (runtime.itemsize + doubled) + norms + extra
        if needed <= limit:
            return OperatorPlan(MatrixForm.FEATURES, n, needed, stored, limit, width)
    per_pair = kernel.bytes_per_pair(runtime.itemsize, shape)
    per_point = kernel.bytes_per_point(runtime.itemsize, shape)
    reserved = reserve.with_matrix
    largest = LARGEST_BLOCK if runtime.torch_device.type == "cpu" else LARGEST_DEVICE_BLOCK
    room = max(min(BLOCK_BYTES, (limit - reserved) // 4), 0)
    # side² · per_pair + 2 · side · per_point = room
    side = (math.sqrt(per_point**2 + per_pair * room) - per_point) / per_pair
    block = min(n, largest, max(SMALLEST_BLOCK, int(side)))
    pairs = block * block * per_pair
    norms = COPIES * min(8 * n * (n + rows), BLOCK_BYTES // 2) if reserve.norms else 0
    whole = stored + max(pairs + (n + rows) * per_point, norms) + reserved
    if whole <= limit and not crowded:
        return OperatorPlan(MatrixForm.GRAM, block, whole, stored, limit)
    blocked = pairs + 2 * block * per_point + reserved
    if blocked <= limit:
        return OperatorPlan(MatrixForm.BLOCKED, block, blocked, stored, limit, crowded=crowded)
    raise MemoryLimitError(
        f"selecting from {n} rows needs at least {human_bytes(blocked)} in addition to the "
        f"data, and the limit is {human_bytes(limit)} (a stored kernel matrix would add "
        f"{human_bytes(stored)}); raise Runtime(memory=…), {_other_ways(runtime)}."
    )


def _other_ways(runtime: Runtime) -> str:
    """Say how to need less memory, at the end of a list in an error."""
    double = runtime.torch_dtype == torch.float64
    return "give fewer rows, or use float32" if double else "or give fewer rows"


def build_operators(
    kernel: Kernel, x: Array, outer_x: Array | None, reserve: Reserve, runtime: Runtime
) -> tuple[KernelOperator, KernelOperator]:
    """Return the training operator and the outer one (the same object without an outer set).

    Bytes are predicted before anything is allocated: see :func:`plan_operators`.
    """
    if kernel.precomputed:
        return _precomputed(x, outer_x, kernel.offset_of_gram, reserve.with_matrix, runtime)
    if outer_x is not None and is_sparse(x) != is_sparse(outer_x):
        one, other = ("sparse", "dense") if is_sparse(x) else ("dense", "sparse")
        raise InputError(f"x is {one} and the outer set {other}; give both in one form.")
    rows = 0 if outer_x is None else len(outer_x)
    if runtime.torch_dtype != torch.float64 and not is_sparse(x):
        largest = torch.linalg.vector_norm(as_tensor(x), math.inf)
        check_scale(float(largest.double().square()), x, VALUE_RANGE)
    plan = plan_operators(kernel, x, rows, reserve, runtime)
    device = runtime.torch_device
    if plan.needed > TRIVIAL_BYTES and plan.needed > (free := free_bytes(device)):
        raise MemoryLimitError(
            f"this selection needs {human_bytes(plan.needed)}, and {human_bytes(free)} are free; "
            f"free some memory, give Runtime(memory=…), {_other_ways(runtime)}."
        )
    train = as_tensor(x).to(CPU if plan.crowded else device, runtime.torch_dtype)
    outer = None if outer_x is None else as_tensor(outer_x).to(train)
    square: KernelOperator
    if plan.form is MatrixForm.FEATURES:
        own = _features(kernel, train)
        square = Features(own, own)
        return square, square if outer is None else Features(_features(kernel, outer), own)
    if plan.form is MatrixForm.GRAM:
        gram = _finite(kernel.gram(train, plan.block), kernel)
        square = Gram(gram, symmetric=True, spare=plan.limit - plan.needed)
        if outer is None:
            return square, square
        matrix = Blocked(kernel, outer, train, plan.block, device).evaluate(train)
        return square, Gram(_finite(matrix, kernel))
    square = Blocked(kernel, train, train, plan.block, device, plan.limit - plan.needed)
    return square, square if outer is None else Blocked(kernel, outer, train, plan.block, device)


def _limit(needed: int, runtime: Runtime) -> int:
    """Return the memory limit.

    Without a given limit, small requests do not read the free memory: streams select often.
    """
    if runtime.memory is None and 8 * needed <= TRIVIAL_BYTES:
        return TRIVIAL_BYTES
    return runtime.memory_bytes()


def _features(kernel: Kernel, points: Tensor) -> Tensor:
    """Return Φ of all points, computed in parts."""

    def compute(some: Tensor) -> Tensor:
        found = kernel.features(some)
        assert found is not None
        return found

    first = compute(points[:1])
    height = max(1, BLOCK_BYTES // (FEATURE_COPIES * first.shape[1] * first.element_size()))
    if len(points) <= height or first.data_ptr() == points.data_ptr():
        # few, or the points themselves without a copy
        return _finite(compute(points), kernel)
    result = first.new_empty(len(points), first.shape[1])
    for rows in slices(len(points), height):
        result[rows] = compute(points[rows])
    return _finite(result, kernel)


def _finite(matrix: Tensor, kernel: Kernel) -> Tensor:
    if not torch.isfinite(matrix.sum()):
        raise NumericalError(
            f"kernel={kernel.name} returned values that are not finite; scale x, or use float64."
        )
    return matrix


def _precomputed(
    x: Array, outer_x: Array | None, offset: float, reserved: int, runtime: Runtime
) -> tuple[KernelOperator, KernelOperator]:
    rows = len(x) + (0 if outer_x is None else len(outer_x))
    moved = runtime.torch_device.type != "cpu" or x.dtype != np.dtype(runtime.dtype) or offset != 0
    needed = reserved + (len(x) * rows * runtime.itemsize if moved else 0)
    if needed > (limit := _limit(needed, runtime)):
        raise MemoryLimitError(
            f"selecting from a stored {len(x)} × {len(x)} matrix needs {human_bytes(needed)} "
            f"in addition to it, and the limit is {human_bytes(limit)}; raise Runtime(memory=…), "
            f"{_other_ways(runtime)}."
        )
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise InputError(
            f"x must be a square kernel matrix with kernel='precomputed'; got shape {x.shape}."
        )
    check_gram(x, "the Gram matrix", GRAM_TOLERANCE, PSD_TOLERANCE)
    own = as_tensor(x).to(runtime.torch_device, runtime.torch_dtype)
    square = Gram(own + offset if offset else own, symmetric=True, spare=limit - needed)
    if outer_x is None:
        return square, square
    if outer_x.shape[1] != len(x):
        raise InputError(
            f"outer must have {len(x)} columns with kernel='precomputed', one for each row of x; "
            f"got {outer_x.shape[1]}."
        )
    return square, Gram(as_tensor(outer_x).to(square.matrix) + offset)

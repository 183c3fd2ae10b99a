"""Sparse rows (counts of words, TF-IDF) in SciPy's CSR format.

They are sliced like any array, and kernels that need inner products and lengths alone use them as
they are. Code that needs dense rows raises an error: nothing makes them dense on the way. Products
are computed in float64.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bicore.errors import InputError

#: NumPy's letters of accepted dtypes: booleans, integers and floats.
_KINDS = "biuf"


class DenseNeeded(InputError, AttributeError):
    """Sparse rows were given to code that needs dense ones."""


def dense_needed(what: str = "this kernel or method") -> DenseNeeded:
    """Return the error for code that needs dense rows."""
    return DenseNeeded(
        f"x is sparse, and {what} needs dense rows; use kernel='linear' or 'rbf' (also summed, "
        "scaled or normalised), or pass x.toarray() if it fits into memory."
    )


def is_sparse(x: Any) -> bool:
    """Whether these are sparse rows, as data or as points of a kernel."""
    return type(x) in (SparseRows, SparsePoints)


def sparse_rows(given: Any, name: str) -> SparseRows:
    """Check a sparse matrix of SciPy: real, finite, at least one row and column."""
    if given.ndim != 2 or not all(given.shape):
        raise InputError(f"{name} has shape {given.shape}; give at least one row and one column.")
    if given.dtype.kind not in _KINDS:
        raise InputError(f"{name} has dtype {given.dtype}; give real numbers.")
    matrix = given.tocsr()
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize not in (4, 8):
        matrix = matrix.astype(np.float64)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # the caller's matrix is never changed
        matrix.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if len(bad):
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        column = matrix.indices[bad[0]]
        wrong = f"{name} holds {matrix.data[bad[0]]} at row {row}, column {column}"
        raise InputError(f"{wrong}; impute the value or drop the row.")
    return SparseRows(matrix)


class _Sparse:
    """Rows of a CSR matrix that cannot be read as dense numbers by accident."""

    matrix: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        rows, columns = self.matrix.shape
        return int(rows), int(columns)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Self:
        index = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        return replace(self, matrix=self.matrix[index])  # type: ignore[type-var]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        raise dense_needed()

    def __getattr__(self, name: str) -> Any:
        raise dense_needed()  # also an AttributeError, as hasattr and pickle expect


@dataclass(frozen=True, eq=False)
class SparseRows(_Sparse):
    """The rows of a data set with mostly zero entries."""

    matrix: Any
    ndim = 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the numbers."""
        found: np.dtype[Any] = self.matrix.dtype
        return found

    def join(self, other: SparseRows) -> SparseRows:
        """Return the rows of both."""
        from scipy.sparse import vstack

        return SparseRows(vstack([self.matrix, other.matrix], format="csr"))

    def digest_into(self, digest: hashlib._Hash) -> None:
        """Add the content of these rows to a digest."""
        matrix = self.matrix
        digest.update(f"csr{matrix.dtype.str}{self.shape}".encode())
        for part in (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data):
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)

    def points(self) -> SparsePoints:
        """Return the rows as points of a kernel."""
        single = self.dtype == np.float32
        return SparsePoints(self.matrix, torch.float32 if single else torch.float64)


@dataclass(frozen=True, eq=False)
class SparsePoints(_Sparse):
    """Sparse rows used by kernels in place of dense tensors."""

    matrix: Any
    dtype: torch.dtype
    device: torch.device = torch.device("cpu")  # noqa: RUF009  # a constant
    #: Blocks are chosen as on the CPU, where products are computed even if the results go to a GPU.
    is_cuda = False

    def numel(self) -> int:
        """Number of stored numbers."""
        return int(self.matrix.nnz)

    def to(self, *targets: Any) -> SparsePoints:
        """Return the points for another device or precision."""
        changed = self
        for one in targets:
            kind, where = getattr(one, "dtype", one), getattr(one, "device", one)
            if isinstance(kind, torch.dtype):
                changed = replace(changed, dtype=kind)
            if not isinstance(where, torch.dtype):
                changed = replace(changed, device=torch.device(where))
        return changed

    def new_empty(self, *shape: int, device: torch.device | None = None) -> Tensor:
        """Return an empty tensor for results."""
        return torch.empty(*shape, dtype=self.dtype, device=device or self.device)

    def new_ones(self, *shape: int) -> Tensor:
        """Return a tensor of ones."""
        return torch.ones(*shape, dtype=self.dtype, device=self.device)

    def _doubles(self) -> Any:
        return self.matrix.astype(np.float64, copy=False)

    def products(self, other: SparsePoints) -> Tensor:
        """Return all inner products with other points, in float64 on the CPU."""
        return torch.from_numpy(np.asarray((self._doubles() @ other._doubles().T).toarray()))

    def squared_lengths(self) -> Tensor:
        """Return the squared length of each point, in float64 on the CPU."""
        return torch.from_numpy(np.asarray(self._doubles().power(2).sum(axis=1)).reshape(-1))

    def squared_pair_distances(self, other: SparsePoints, rows: Tensor, columns: Tensor) -> Tensor:
        """Return squared distances of some pairs by their differences, without cancellation."""
        gaps = self[rows]._doubles() - other[columns]._doubles()
        return torch.from_numpy(np.asarray(gaps.power(2).sum(axis=1)).reshape(-1))

"""Kernels: k(a, b) of two sets of rows and its diagonal; sums, products, multiples, intercepts."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from bicore._deprecated import renamed_methods
from bicore.data import Array, as_features, as_tensor
from bicore.errors import InputError, NumericalError, check_number
from bicore.runtime.clock import checkpoint
from bicore.runtime.threads import run_in_threads
from bicore.sparse import SparsePoints, is_sparse

T = TypeVar("T")

#: Number of rows on which a callable is checked for symmetry before it is used.
_PROBE_ROWS = 16
#: Largest relative deviation of a callable from a symmetric, positive semi-definite matrix
#: (float32).
_PROBE_TOLERANCE = 1e-5
#: Rows of a matrix compared with its columns at a time, to avoid a copy.
GRAM_ROWS = 1024
#: Maximum number of rows (a sample of more) for the test of positive semi-definiteness.
PSD_ROWS = 2000
#: Blocks per side of a symmetric matrix …
GRAM_PARTS = 8
#: … and minimum number of rows of a block; smaller blocks cost more calls than they save.
GRAM_BLOCK = 128
#: Rows of the small matrices from which the diagonal is read by default.
DIAGONAL_ROWS = 64
#: Evenly spaced rows for the mean of k(x, x) of an intercept.
INTERCEPT_ROWS = 1000


@renamed_methods(fitted="fit")
class Kernel(ABC):
    """A positive semi-definite kernel.

    ``kernel(a)`` is the Gram matrix of the rows of ``a`` (one half computed, exact on the
    diagonal), ``kernel(a, b)`` the rectangular matrix. NumPy in, NumPy out; tensors in, tensors
    out. Kernels can be added, multiplied by each other and by positive numbers. Your own kernel
    needs :meth:`evaluate` and :attr:`name`; define :meth:`diag` if there is a faster way to it.

    Examples
    --------
    >>> from bicore.kernels import Linear, RBF
    >>> kernel = 0.5 * Linear() + RBF(gamma=1.0)
    >>> kernel([[0.0], [2.0]]).round(4).tolist()
    [[1.0, 0.0183], [0.0183, 3.0]]
    >>> kernel.name
    '(0.5 * linear + rbf(gamma=1))'
    """

    @property
    def precomputed(self) -> bool:
        """Whether x is the Gram matrix itself."""
        return False

    @property
    def offset_of_gram(self) -> float:
        """A constant to add to a precomputed Gram matrix."""
        return 0.0

    @property
    def takes_sparse(self) -> bool:
        """Whether x may be sparse: the kernel needs only inner products and lengths."""
        return False

    def __call__(self, a: Any, b: Any = None) -> Any:
        checked = as_features(a, "a")
        rows = _points(a, checked)
        with torch.no_grad():
            if b is None:
                result = self.fit(checked).gram(rows)
            else:
                columns = _points(b, as_features(b, "b")).to(rows)
                if columns.shape[1:] != rows.shape[1:]:
                    shapes = f"{tuple(rows.shape[1:])} and b of {tuple(columns.shape[1:])}"
                    raise InputError(f"a has rows of shape {shapes}; they must match.")
                result = self.evaluate(rows, columns)
        return result if isinstance(a, Tensor) else result.numpy()

    @abstractmethod
    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the matrix k(a_i, b_j) for tensors of one dtype and device.

        Parameters
        ----------
        a, b : Tensor
            Points, rows first.

        Returns
        -------
        Tensor
            Of shape (len(a), len(b)).
        """

    def diag(self, a: Tensor) -> Tensor:
        """Return the values k(a_i, a_i), by default from small matrices.

        Parameters
        ----------
        a : Tensor
            Points, rows first.

        Returns
        -------
        Tensor
            One value a row.
        """
        parts = []
        for part in torch.split(a, DIAGONAL_ROWS):
            checkpoint()
            parts.append(self.evaluate(part, part).diagonal())
        return torch.cat(parts)

    @property
    @abstractmethod
    def name(self) -> str:
        """A short description with the main parameters."""

    def fit(self, x: Array) -> Kernel:
        """Return the kernel with every unset parameter, such as a bandwidth, chosen from the data.

        Parameters
        ----------
        x : array
            Rows to choose from.

        Returns
        -------
        Kernel
            The kernel itself if nothing is unset.

        Examples
        --------
        >>> from bicore.kernels import RBF
        >>> RBF().fit([[0.0], [1.0], [2.0]]).gamma
        0.5
        """
        return self

    def _fitted(self, value: T | None) -> T:
        """Return a parameter chosen by :meth:`fit`; raise an error if it is not chosen yet."""
        if value is None:
            name = type(self).__name__
            raise InputError(
                f"{name} has a parameter that depends on the data; call .fit(x) first."
            )
        return value

    def features(self, a: Tensor) -> Tensor | None:
        """Return Φ(a) with k(a, b) = Φ(a)Φ(b)ᵀ if the kernel has cheap finite features, else None.

        Parameters
        ----------
        a : Tensor
            Points, rows first.

        Returns
        -------
        Tensor or None
            One row per point; None if there is no such map.
        """
        return None

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of temporaries per evaluated pair, which limit the size of a block.

        Parameters
        ----------
        itemsize : int
            Bytes of one number.
        shape : tuple of int
            Of one point.

        Returns
        -------
        int
            Bytes.
        """
        return 3 * itemsize

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        """Return the bytes that a kernel keeps per point during evaluation.

        Parameters
        ----------
        itemsize : int
            Bytes of one number.
        shape : tuple of int
            Of one point.

        Returns
        -------
        int
            Bytes.
        """
        return 0

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        """Return the symmetric matrix k(a, a); only one half is computed.

        Parameters
        ----------
        a : Tensor
            Points, rows first.
        block : int, optional
            Rows and columns evaluated together (default: all; on a CPU at most n/8, or 128).

        Returns
        -------
        Tensor
            Of shape (len(a), len(a)).
        """
        n = len(a)
        block = block or n
        if not a.is_cuda:
            # Blocks below the diagonal are not computed: with more blocks nearly half is saved.
            block = min(block, max(GRAM_BLOCK, -(-n // GRAM_PARTS)))
        result = torch.empty(n, n, dtype=a.dtype, device=a.device)

        def corners() -> Iterator[tuple[int, int]]:
            for top in range(0, n, block):
                for left in range(top, n, block):
                    checkpoint(top * (2 * n - top) / n**2)  # of one half of the pairs
                    yield top, left

        def tile(corner: tuple[int, int]) -> None:
            rows, columns = (slice(start, start + block) for start in corner)
            result[rows, columns] = found = self.evaluate(a[rows], a[columns])
            if rows == columns:
                mirror(result[rows, columns])
            else:  # while it is in the cache
                result[columns, rows] = found.T

        run_in_threads(tile, corners(), 0 if a.is_cuda else n * a.numel() / 2)
        result.diagonal().copy_(self.diag(a))
        return result

    def __add__(self, other: Kernel) -> Kernel:
        if not isinstance(other, Kernel):
            raise InputError(f"a kernel and {other!r} cannot be added; add another kernel.")
        return Sum(self, other)

    def __mul__(self, other: Kernel | float) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, Real):
            return Scaled(self, float(other))
        raise InputError(f"a kernel cannot be multiplied by {other!r}; use a kernel or a number.")

    __rmul__ = __mul__


def _points(value: Any, checked: Any) -> Tensor:
    """Convert rows to a floating-point tensor; tensors keep their device and dtype."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else value.double()
    return as_tensor(checked) if is_sparse(checked) else torch.from_numpy(np.array(checked))


def mirror(matrix: Tensor, block: int = 512) -> None:
    """Copy the upper triangle onto the lower one in place, a block at a time."""
    n = len(matrix)
    for top in range(0, n, block):
        checkpoint()
        square = matrix[top : top + block, top : top + block]
        square.copy_(square.triu() + square.triu(1).T)
        for left in range(top + block, n, block):
            matrix[left : left + block, top : top + block] = matrix[
                top : top + block, left : left + block
            ].T


def flatten_points(rows: Tensor) -> Tensor:
    """Flatten each row to a vector."""
    return rows.reshape(len(rows), -1)


def inner_products(a: Tensor, b: Tensor) -> Tensor:
    """Compute all inner products of two sets of rows."""
    if is_sparse(a):
        return cast(SparsePoints, a).products(cast(SparsePoints, b)).to(a.device, a.dtype)
    return flatten_points(a) @ flatten_points(b).T


def squared_lengths(a: Tensor) -> Tensor:
    """Compute the inner product of each row with itself."""
    if is_sparse(a):
        return cast(SparsePoints, a).squared_lengths().to(a.device, a.dtype)
    return flatten_points(a).square().sum(1)


def sample_points(x: Any, most: int) -> Tensor:
    """Return at most ``most`` evenly spaced rows in float64."""
    rows = x if hasattr(x, "shape") else np.asarray(x)
    return as_doubles(rows[:: -(-len(rows) // most)])


def as_doubles(rows: Any) -> Tensor:
    """Copy rows in float64."""
    if is_sparse(rows):
        return as_tensor(rows).to(torch.float64)
    return torch.from_numpy(np.array(rows, dtype=np.float64))


@dataclass(frozen=True)
class _Pair(Kernel):
    """An elementwise combination of two kernels."""

    first: Kernel
    second: Kernel

    #: The operation on the two values.
    _combine = staticmethod(operator.add)

    @property
    def takes_sparse(self) -> bool:
        return self.first.takes_sparse and self.second.takes_sparse

    def fit(self, x: Array) -> Kernel:
        return replace(self, first=self.first.fit(x), second=self.second.fit(x))

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return cast(Tensor, self._combine(self.first.evaluate(a, b), self.second.evaluate(a, b)))

    def diag(self, a: Tensor) -> Tensor:
        return cast(Tensor, self._combine(self.first.diag(a), self.second.diag(a)))

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        # The first matrix is kept while the second is computed.
        parts = (part.bytes_per_pair(itemsize, shape) for part in (self.first, self.second))
        return max(parts) + itemsize

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return max(part.bytes_per_point(itemsize, shape) for part in (self.first, self.second))


@dataclass(frozen=True)
class Sum(_Pair):
    """k₁ + k₂."""

    @property
    def name(self) -> str:
        return f"({self.first.name} + {self.second.name})"

    def features(self, a: Tensor) -> Tensor | None:
        first = self.first.features(a)
        second = self.second.features(a)
        return None if first is None or second is None else torch.cat([first, second], 1)


@dataclass(frozen=True)
class Product(_Pair):
    """k₁ · k₂, elementwise."""

    _combine = staticmethod(operator.mul)

    @property
    def name(self) -> str:
        return f"{self.first.name} * {self.second.name}"


@dataclass(frozen=True)
class Wrapper(Kernel):
    """A kernel computed from another one."""

    kernel: Kernel

    @property
    def takes_sparse(self) -> bool:
        return self.kernel.takes_sparse

    def fit(self, x: Array) -> Kernel:
        return replace(self, kernel=self.kernel.fit(x))

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_pair(itemsize, shape)

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_point(itemsize, shape)


@dataclass(frozen=True)
class Scaled(Wrapper):
    """factor · k, factor > 0."""

    factor: float

    def __post_init__(self) -> None:
        check_number("the factor of a kernel", self.factor, above=0)

    @property
    def name(self) -> str:
        return f"{self.factor:g} * {self.kernel.name}"

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel.evaluate(a, b) * self.factor

    def diag(self, a: Tensor) -> Tensor:
        return self.kernel.diag(a) * self.factor

    def features(self, a: Tensor) -> Tensor | None:
        features = self.kernel.features(a)
        return None if features is None else features * self.factor**0.5


@dataclass(frozen=True)
class Intercept(Wrapper):
    """A kernel with a constant feature: k(a, b) + share · mean of k(x, x).

    Labels are centred for the squared error. Without an intercept a linear model then treats
    (x, t) and (−x, −t) alike, and greedy selection can take all its points from one class.
    """

    share: float = 0.3
    constant: float | None = None

    def __post_init__(self) -> None:
        check_number("intercept", self.share, above=0)

    @property
    def precomputed(self) -> bool:
        return self.kernel.precomputed

    @property
    def offset_of_gram(self) -> float:
        return self._fitted(self.constant)

    @property
    def name(self) -> str:
        return f"{self.kernel.name} with intercept"

    def fit(self, x: Array) -> Kernel:
        kernel, constant = self.kernel.fit(x), self.constant
        if constant is None:
            rows = as_tensor(x) if kernel.precomputed else sample_points(x, INTERCEPT_ROWS)
            constant = self.share * float(kernel.diag(rows).mean())
        return replace(self, kernel=kernel, constant=constant)

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel.evaluate(a, b) + self.offset_of_gram

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        return self.kernel.gram(a, block).add_(self.offset_of_gram)

    def diag(self, a: Tensor) -> Tensor:
        return self.kernel.diag(a) + self.offset_of_gram

    def features(self, a: Tensor) -> Tensor | None:
        features = self.kernel.features(a)
        if features is None:
            return None
        constant = features.new_full((len(features), 1), self.offset_of_gram**0.5)
        return torch.cat([features, constant], 1)


@dataclass(frozen=True)
class CallableKernel(Kernel):
    """A function k(a, b) of two sets of rows that returns the matrix (tensor or array).

    Before it is used on data, it is tried on a few rows: shape, finiteness, symmetry and sign are
    checked before anything relies on them.
    """

    function: Callable[[Any, Any], Any]

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def fit(self, x: Array) -> Kernel:
        probe = torch.from_numpy(np.array(x[:_PROBE_ROWS]))
        values = self.evaluate(probe, probe)
        here = f"on the first {len(probe)} rows"
        if not torch.isfinite(values).all():
            raise NumericalError(f"kernel={self.name} returned a value that is not finite {here}.")
        name = f"the matrix of kernel={self.name} {here}"
        check_gram(values.numpy(), name, _PROBE_TOLERANCE, _PROBE_TOLERANCE)
        return self

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        values = self.function(a, b)
        matrix = values if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values))
        if matrix.shape != (len(a), len(b)):
            found, needed = tuple(matrix.shape), (len(a), len(b))
            raise InputError(f"kernel={self.name} returned shape {found}; {needed} is needed.")
        return matrix.to(a)


def check_gram(matrix: Array, name: str, asymmetry: float, negative: float) -> None:
    """Raise an error if a matrix is not symmetric or not positive semi-definite.

    Both tolerances are relative to the largest diagonal entry, that of eigenvalues also to n.
    """
    scale = max(float(np.abs(np.diagonal(matrix)).max()), np.finfo(np.float64).tiny)
    gap = max(
        float(np.abs(matrix[top : top + GRAM_ROWS] - matrix[:, top : top + GRAM_ROWS].T).max())
        for top in range(0, len(matrix), GRAM_ROWS)
    )
    if gap > asymmetry * scale:
        raise InputError(
            f"{name} is not symmetric: K and Kᵀ differ by {gap:.3g}; use (K + K.T) / 2 if that is "
            "rounding."
        )
    sample = matrix
    if len(matrix) > PSD_ROWS:
        rows = np.random.default_rng(0).choice(len(matrix), PSD_ROWS, replace=False)
        sample = matrix[np.ix_(rows, rows)]
    double = sample.astype(np.float64)
    try:  # a Cholesky factor is the fastest test
        np.linalg.cholesky(double + negative * scale * len(sample) * np.eye(len(sample)))
    except np.linalg.LinAlgError:
        smallest = float(np.linalg.eigvalsh(double)[0])
        raise InputError(
            f"{name} is not positive semi-definite: its smallest eigenvalue is {smallest:.6g}; use "
            "a kernel that is, or add that much to the diagonal."
        ) from None


@dataclass(frozen=True)
class Precomputed(Kernel):
    """The rows of x are rows of a Gram matrix (scikit-learn's ``kernel="precomputed"``).

    Examples
    --------
    >>> from bicore.kernels import Precomputed
    >>> Precomputed().name
    'precomputed'
    """

    precomputed = True
    name = "precomputed"

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        raise InputError("kernel='precomputed' cannot be evaluated; pass the kernel matrix as x.")

    def diag(self, a: Tensor) -> Tensor:
        return a.diagonal()

"""What a kernel is: k(a, b) for two sets of rows, its diagonal, and sums, products and scalings of
kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import as_features
from bicore.errors import InputError, NumericalError

#: Rows on which a user's callable is checked for symmetry before it is trusted.
_PROBE_ROWS = 16
_PROBE_TOLERANCE = 1e-5


class Kernel(ABC):
    """A positive semi-definite kernel.

    ``kernel(a)`` is the Gram matrix of the rows of ``a`` (one half computed, exact on the
    diagonal), ``kernel(a, b)`` the rectangular matrix. NumPy in, NumPy out; tensors in, tensors
    out.
    """

    def __call__(self, a: Any, b: Any = None) -> Any:
        kernel = self.fitted(as_features(a, "a")) if b is None else self._ready()
        rows = _as_tensor(a, "a")
        with torch.no_grad():
            if b is None:
                result = kernel.gram(rows)
            else:
                columns = _as_tensor(b, "b").to(rows)
                if columns.shape[1:] != rows.shape[1:]:
                    raise InputError(
                        f"a has rows of shape {tuple(rows.shape[1:])} and b of "
                        f"{tuple(columns.shape[1:])}; they must match."
                    )
                result = kernel.evaluate(rows, columns)
        return result if isinstance(a, Tensor) else result.numpy()

    @abstractmethod
    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        """The matrix k(a_i, b_j); pure arithmetic on tensors of one dtype and device."""

    @abstractmethod
    def diag(self, a: Tensor) -> Tensor:
        """k(a_i, a_i), exact."""

    @property
    @abstractmethod
    def name(self) -> str:
        """A short description with the parameters that matter."""

    def fitted(self, x: Any) -> Kernel:
        """The kernel with every parameter that is chosen from the data (a bandwidth) filled in."""
        return self

    def features(self, a: Tensor) -> Tensor | None:
        """Φ(a) with k(a, b) = Φ(a)Φ(b)ᵀ where the kernel has a finite, cheap feature map; otherwise
        None."""
        return None

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        """Temporaries that evaluating one pair needs, in bytes; decides the size of a block."""
        return 3 * itemsize

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        """What a kernel keeps for each point while it works, in bytes."""
        return 0

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        """The symmetric matrix k(a, a): each half computed once, the diagonal taken from
        :meth:`diag`."""
        n = len(a)
        block = n if block is None else block
        result = torch.empty(n, n, dtype=a.dtype, device=a.device)
        for top in range(0, n, block):
            rows = a[top : top + block]
            for left in range(top, n, block):
                part = self.evaluate(rows, a[left : left + block])
                result[top : top + block, left : left + block] = part
        mirror(result)
        result.diagonal().copy_(self.diag(a))
        return result

    def _ready(self) -> Kernel:
        """Itself, or an error where a parameter still waits for data."""
        return self

    def __add__(self, other: Kernel) -> Kernel:
        if not isinstance(other, Kernel):
            raise InputError(
                f"a kernel and {other!r} cannot be added; add another kernel (Linear(bias=…) adds "
                "a constant)."
            )
        return Sum(self, other)

    def __mul__(self, other: Kernel | float) -> Kernel:
        if not isinstance(other, (Kernel, Real)):
            raise InputError(
                f"a kernel cannot be multiplied by {other!r}; give a kernel or a positive number."
            )
        return Product(self, other) if isinstance(other, Kernel) else Scaled(self, float(other))

    __rmul__ = __mul__


def _as_tensor(value: Any, name: str) -> Tensor:
    checked = as_features(value, name)
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else value.double()
    tensor = torch.from_numpy(np.array(checked))
    return tensor if tensor.is_floating_point() else tensor.double()


def mirror(matrix: Tensor, block: int = 512) -> None:
    """Copy the upper triangle onto the lower one in place, a block at a time."""
    n = len(matrix)
    for top in range(0, n, block):
        square = matrix[top : top + block, top : top + block]
        square.copy_(square.triu() + square.triu(1).T)
        for left in range(top + block, n, block):
            matrix[left : left + block, top : top + block] = matrix[
                top : top + block, left : left + block
            ].T


def flat(rows: Tensor) -> Tensor:
    """Each point as one vector."""
    return rows.reshape(len(rows), -1)


@dataclass(frozen=True)
class Sum(Kernel):
    """k₁ + k₂."""

    first: Kernel
    second: Kernel

    @property
    def name(self) -> str:
        return f"({self.first.name} + {self.second.name})"

    def fitted(self, x: Any) -> Kernel:
        return Sum(self.first.fitted(x), self.second.fitted(x))

    def _ready(self) -> Kernel:
        return Sum(self.first._ready(), self.second._ready())

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.first.evaluate(a, b) + self.second.evaluate(a, b)

    def diag(self, a: Tensor) -> Tensor:
        return self.first.diag(a) + self.second.diag(a)

    def features(self, a: Tensor) -> Tensor | None:
        first = self.first.features(a)
        second = self.second.features(a)
        return None if first is None or second is None else torch.cat([first, second], 1)

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return (
            max(
                self.first.bytes_per_pair(itemsize, shape),
                self.second.bytes_per_pair(itemsize, shape),
            )
            + itemsize
        )

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return max(
            self.first.bytes_per_point(itemsize, shape),
            self.second.bytes_per_point(itemsize, shape),
        )


@dataclass(frozen=True)
class Product(Kernel):
    """k₁ · k₂, entry by entry."""

    first: Kernel
    second: Kernel

    @property
    def name(self) -> str:
        return f"{self.first.name} * {self.second.name}"

    def fitted(self, x: Any) -> Kernel:
        return Product(self.first.fitted(x), self.second.fitted(x))

    def _ready(self) -> Kernel:
        return Product(self.first._ready(), self.second._ready())

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.first.evaluate(a, b) * self.second.evaluate(a, b)

    def diag(self, a: Tensor) -> Tensor:
        return self.first.diag(a) * self.second.diag(a)

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return (
            max(
                self.first.bytes_per_pair(itemsize, shape),
                self.second.bytes_per_pair(itemsize, shape),
            )
            + itemsize
        )

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return max(
            self.first.bytes_per_point(itemsize, shape),
            self.second.bytes_per_point(itemsize, shape),
        )


@dataclass(frozen=True)
class Scaled(Kernel):
    """factor · k, factor > 0."""

    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        if not (self.factor > 0 and np.isfinite(self.factor)):
            raise InputError(
                f"a kernel was multiplied by {self.factor}; the factor must be positive and finite."
            )

    @property
    def name(self) -> str:
        return f"{self.factor:g} * {self.kernel.name}"

    def fitted(self, x: Any) -> Kernel:
        return Scaled(self.kernel.fitted(x), self.factor)

    def _ready(self) -> Kernel:
        return Scaled(self.kernel._ready(), self.factor)

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel.evaluate(a, b) * self.factor

    def diag(self, a: Tensor) -> Tensor:
        return self.kernel.diag(a) * self.factor

    def features(self, a: Tensor) -> Tensor | None:
        features = self.kernel.features(a)
        return None if features is None else features * self.factor**0.5

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_pair(itemsize, shape)

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_point(itemsize, shape)


@dataclass(frozen=True)
class Normalised(Kernel):
    """k(a, b) / √(k(a, a) k(b, b)): unit diagonal. A point of norm zero stays at zero."""

    kernel: Kernel

    @property
    def name(self) -> str:
        return f"normalised {self.kernel.name}"

    def fitted(self, x: Any) -> Kernel:
        return Normalised(self.kernel.fitted(x))

    def _ready(self) -> Kernel:
        return Normalised(self.kernel._ready())

    def _inverse_norm(self, a: Tensor) -> Tensor:
        diagonal = self.kernel.diag(a)
        return torch.where(
            diagonal > 0,
            diagonal.clamp_min(torch.finfo(a.dtype).tiny).rsqrt(),
            torch.zeros_like(diagonal),
        )

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel.evaluate(a, b) * self._inverse_norm(a)[:, None] * self._inverse_norm(b)

    def diag(self, a: Tensor) -> Tensor:
        return (self.kernel.diag(a) > 0).to(a)

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_pair(itemsize, shape) + itemsize

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_point(itemsize, shape)


@dataclass(frozen=True)
class CallableKernel(Kernel):
    """Any function k(a, b) of two sets of rows that returns the matrix (tensor or array)."""

    function: Callable[[Any, Any], Any]

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def fitted(self, x: Any) -> Kernel:
        """Try the function on a few rows: shape, finiteness, symmetry and sign are checked before
        anything relies on them."""
        probe = torch.from_numpy(np.array(x[:_PROBE_ROWS]))
        values = self.evaluate(probe, probe)
        if not torch.isfinite(values).all():
            raise NumericalError(
                f"kernel={self.name} returned a value that is not finite on the first {len(probe)} "
                "rows."
            )
        gap = (values - values.T).abs().max() / values.abs().max().clamp_min(
            torch.finfo(values.dtype).tiny
        )
        if gap > _PROBE_TOLERANCE:
            raise InputError(
                f"kernel={self.name} is not symmetric: k(a, b) and k(b, a) differ by {gap:.2g} "
                "relative."
            )
        smallest = float(torch.linalg.eigvalsh((values + values.T).double() / 2)[0])
        if smallest < -_PROBE_TOLERANCE * float(values.abs().max()) * len(probe):
            raise InputError(
                f"kernel={self.name} is not positive semi-definite: its smallest eigenvalue is "
                f"{smallest:.6g} "
                f"on the first {len(probe)} rows."
            )
        return self

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        values = self.function(a, b)
        matrix = values if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values))
        if matrix.shape != (len(a), len(b)):
            raise InputError(
                f"kernel={self.name} returned shape {tuple(matrix.shape)}; ({len(a)}, {len(b)}) is "
                "needed for these rows."
            )
        return matrix.to(a)

    def diag(self, a: Tensor) -> Tensor:
        rows = [
            self.evaluate(a[start : start + 64], a[start : start + 64]).diagonal()
            for start in range(0, len(a), 64)
        ]
        return torch.cat(rows)


@dataclass(frozen=True)
class Precomputed(Kernel):
    """The rows of x are already rows of a Gram matrix (scikit-learn's ``kernel="precomputed"``)."""

    @property
    def name(self) -> str:
        return "precomputed"

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        raise InputError(
            "kernel='precomputed' has no function to evaluate; pass the Gram matrix as x."
        )

    def diag(self, a: Tensor) -> Tensor:
        return a.diagonal()

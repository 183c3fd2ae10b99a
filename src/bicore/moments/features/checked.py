"""What maps of rows of one shape share: precision, shape and finiteness checked in one place."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, as_features
from bicore.errors import InputError, NumericalError
from bicore.moments.features.base import FeatureMap, not_settled
from bicore.picking import step_rng, whole_number
from bicore.runtime import checkpoint, wide

#: Numbers of the temporaries of one part of the rows: 128 MiB in float64.
AT_ONCE = 1 << 24
#: Rows that an error names.
NAMED_ROWS = 5
#: An activation that is kept by one half only halves the mean of squares; the other half of He's
#: scaling.
RELU_GAIN = math.sqrt(2)


@dataclass(frozen=True, eq=False)
class SettledMap(FeatureMap):
    """A map that knows the shape of a row once it is settled, and checks what goes in and out.

    Parameters
    ----------
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row; filled in by :meth:`settled`.
    """

    shape: tuple[int, ...] | None = field(default=None, kw_only=True)

    @abstractmethod
    def _mapped(self, rows: Tensor) -> Tensor:
        """The features of rows of the right shape, in float32 or float64."""

    def _settled_on(self, rows: Array) -> FeatureMap:
        """The map for these first rows, whose shape is filled in already."""
        return self

    def settled(self, x: Array) -> FeatureMap:
        """The map for rows such as these first ones; a map that is settled gives itself.

        Parameters
        ----------
        x : array
            The first rows.

        Returns
        -------
        FeatureMap
            With nothing left open.

        Raises
        ------
        InputError
            Where the map takes no such rows, or was settled on others.
        """
        rows = as_features(x, "x")
        shape = tuple(map(int, rows.shape[1:]))
        if self.shape is not None:
            self._agree(shape)
            return self
        return replace(self, shape=shape)._settled_on(rows)

    def features(self, x: Tensor) -> Tensor:
        """The features of rows, on their device.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was settled on.

        Returns
        -------
        Tensor
            Of shape (n, width).

        Raises
        ------
        InputError
            Where the map is not settled, or rows have another shape.
        NumericalError
            Where features are not finite; it names the rows.
        """
        rows = as_rows(x)
        self._agree(tuple(rows.shape[1:]))
        if len(rows) == 0:
            return rows.new_zeros(0, self.width)
        step = max(1, self._rows_at_once())
        work = len(rows) * math.prod(rows.shape[1:]) * self.width
        with torch.no_grad(), in_full_precision(rows), wide(0 if rows.is_cuda else work):
            parts = []
            for top in range(0, len(rows), step):
                checkpoint()
                parts.append(self._mapped(rows[top : top + step]).to(rows.dtype))
            found = parts[0] if len(parts) == 1 else torch.cat(parts)
        return finite(found, self)

    def _rows_at_once(self) -> int:
        return AT_ONCE // max(self.width, 1)

    @property
    def _shape(self) -> tuple[int, ...]:
        if self.shape is None:
            raise not_settled(self)
        return self.shape

    @property
    def _columns(self) -> int:
        """Numbers of one row."""
        return math.prod(self._shape)

    def _agree(self, shape: tuple[int, ...]) -> None:
        if shape != self._shape:
            raise InputError(
                f"x has rows of shape {shape}, and {type(self).__name__} was settled on rows of "
                f"shape {self._shape}; give rows of that shape, or settle a new map on these."
            )


def as_rows(x: Tensor) -> Tensor:
    """Rows in the precision that features are computed in."""
    if not torch.is_tensor(x):
        raise InputError(f"x is a {type(x).__name__}; give a tensor: torch.as_tensor(x).")
    if x.is_complex():
        raise InputError(f"x has dtype {x.dtype}; give real numbers.")
    if x.dim() == 0:
        raise InputError("x is a single value; give a tensor with one row a point.")
    narrow = x.is_floating_point() and x.dtype != torch.float64
    rows = x.detach().to(torch.float32 if narrow else torch.float64)
    return rows[:, None] if rows.dim() == 1 else rows


@contextmanager
def in_full_precision(rows: Tensor) -> Iterator[None]:
    """Products of float32 with all their digits: a training script may have asked for fewer, and
    features must not depend on that."""
    before = torch.get_float32_matmul_precision()
    if not rows.is_cuda or before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def finite(found: Tensor, features: FeatureMap) -> Tensor:
    """The features, or an error that names the rows which are not finite."""
    # A finite sum has finite terms; where it overflows the terms are looked at.
    if math.isfinite(float(found.sum())):
        return found
    bad = torch.isfinite(found).all(1).logical_not_().nonzero()[:, 0].tolist()
    if bad:
        named = ", ".join(map(str, bad[:NAMED_ROWS])) + (", …" if len(bad) > NAMED_ROWS else "")
        raise NumericalError(
            f"{type(features).__name__} gives features that are not finite for {len(bad)} of "
            f"{len(found)} rows ({named}); look for NaN, infinity or very large numbers there."
        )
    return found


def on(matrix: Array, like: Tensor) -> Tensor:
    """An array as a tensor beside another, in its precision."""
    return torch.from_numpy(np.ascontiguousarray(matrix)).to(like)


def root_mean_square(rows: Array) -> float:
    """The typical size of an entry; 1 where all are zero. Neither overflows nor vanishes."""
    largest = float(np.abs(rows).max())
    if largest == 0:
        return 1.0
    return largest * float(np.sqrt(np.mean(np.square(rows / largest, dtype=np.float64))))


def normal_draws(seed: int, step: int, *shape: int) -> Array:
    """Standard normal numbers in float64: the same on every device, and not torch's."""
    return step_rng(seed, step).standard_normal(shape)


def count_of(value: object, name: str, least: int = 1) -> int:
    """A whole number from ``least`` on."""
    words = f"{name}={value!r} is not a whole number >= {least}; give one."
    return whole_number(value, least, words)


def size_of(value: float, name: str) -> float:
    """A finite number from zero on."""
    if not 0 <= value < math.inf:
        raise InputError(f"{name}={value!r} is not a finite number >= 0; give one.")
    return float(value)

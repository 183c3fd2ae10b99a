"""Feature maps: the base classes, and two maps that wrap other maps."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bicore._deprecated import OLD_FIELDS
from bicore.data import Array, as_features, as_tensor
from bicore.errors import InputError, NumericalError, check_integer, check_number
from bicore.files import fingerprint
from bicore.kernels.scaling import check_scale, unit_rows
from bicore.runtime.clock import checkpoint
from bicore.runtime.threads import all_threads

T = TypeVar("T")

#: Numbers in the temporary arrays of one part of the rows: 128 MiB in float64.
AT_ONCE = 1 << 24
#: The number of rows that an error lists.
LISTED_ROWS = 5
#: Name of the cache of an instance, for values computed from its fields (matrices, identity).
_CACHE = "_cached_values"


@dataclass(frozen=True, eq=False)
class FeatureMap(ABC):
    """A function of rows that stays the same once it is fitted.

    A map is a frozen configuration. :meth:`fit` takes from the first rows what the map needs (the
    shape of a row, a scaling, landmarks) and returns a fitted map. A custom map needs
    :attr:`width` and :meth:`features`, and is a frozen dataclass whose fields determine its
    features.

    Parameters
    ----------
    reason : str, optional
        Why this map was chosen, if it was chosen automatically.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import RandomReLU
    >>> x = torch.eye(3)
    >>> features = RandomReLU(width=8).fit(x.numpy())
    >>> features(x).shape, features.width
    (torch.Size([3, 8]), 8)
    """

    reason: str | None = field(default=None, kw_only=True, compare=False)
    #: Fields that must be integers, and numbers >= 0.
    _integers: ClassVar[tuple[str, ...]] = ()
    _sizes: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self._integers:
            least = 0 if name == "random_state" else 1
            object.__setattr__(self, name, check_integer(name, getattr(self, name), least))
        for name in self._sizes:
            object.__setattr__(self, name, check_number(name, getattr(self, name), least=0))

    def fit(self, x: Array) -> FeatureMap:
        """Fit the map to the first rows.

        Parameters
        ----------
        x : array
            The first rows.

        Returns
        -------
        FeatureMap
            A fitted map; the map itself if it is fitted already.

        Raises
        ------
        InputError
            If the map cannot take such rows, or was fitted to rows of another shape.
        """
        return self

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of features of a row; known once the map is fitted."""

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Compute the features of rows, on their device.

        Rows of float64 and of integers give float64, all others float32.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was fitted to.

        Returns
        -------
        Tensor
            Of shape (n, width).

        Raises
        ------
        InputError
            If the map is not fitted, or rows have another shape.
        NumericalError
            If features are not finite; the error lists the rows.
        """

    def __call__(self, x: Tensor) -> Tensor:
        return self.features(x)

    def unit(self) -> FeatureMap:
        """Return the same map with every row of features scaled to length 1.

        Returns
        -------
        FeatureMap
            The map itself if its rows have length 1 already.
        """
        return UnitRows(self, reason=self.reason)

    def unchecked(self, x: Tensor) -> Tensor:
        """Compute read-only features without checking that they are finite.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was fitted to.

        Returns
        -------
        Tensor
            Of shape (n, width); it may share memory with the rows.
        """
        return self.features(x)

    def exact(self, x: Tensor) -> Tensor:
        """Compute features in float64; lengths are computed in that precision.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was fitted to.

        Returns
        -------
        Tensor
            Of shape (n, width), on the device of the rows.
        """
        return self.features(x).double()

    @property
    def unscaled(self) -> FeatureMap:
        """The map before its rows are scaled to length 1; the map itself if they are not."""
        return self

    @property
    def intercept(self) -> float | None:
        """The constant feature, which is the last; None if there is none."""
        return None

    @property
    def identity(self) -> str:
        """A short text that is equal for maps with the same features."""
        return self._cache("identity", self._identity)

    def network(self) -> nn.Module | None:
        """Return the module whose embedding is part of the map; state files do not hold it.

        Returns
        -------
        torch.nn.Module or None
            None for maps without a module.
        """
        inner = getattr(self, "map", None)
        return None if inner is None else inner.network()

    def _fitted(self, name: str) -> Any:
        """Return a field that :meth:`fit` sets."""
        value = getattr(self, name)
        if value is None:
            raise self._not_fitted_error()
        return value

    def _not_fitted_error(self) -> InputError:
        return InputError(f"{type(self).__name__} is not fitted; use features.fit(x) first.")

    def __eq__(self, other: object) -> bool:
        return self.identity == getattr(other, "identity", None)

    def __hash__(self) -> int:
        return hash(self.identity)

    def _identity(self) -> str:
        # Uses the names of version 0.2, so that the identity of a map in a file does not change.
        inner = {}
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            # A new field with its default value does not change the identity.
            if one.compare and not (one.metadata.get("added") and value == one.default):
                inner[OLD_FIELDS.get(one.name, one.name)] = getattr(value, "identity", value)
        return f"{type(self).__name__}:{fingerprint(inner)}"

    def _cache(self, key: Hashable, make: Callable[[], T]) -> T:
        """Compute what follows from the fields once per instance."""
        cache: dict[Hashable, Any] = self.__dict__.setdefault(_CACHE, {})
        if key not in cache:
            cache[key] = make()
        found: T = cache[key]
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Leave the cache out of copies and pickles."""
        return {name: value for name, value in self.__dict__.items() if name != _CACHE}


@dataclass(frozen=True, eq=False)
class UnitRows(FeatureMap):
    """Features scaled to length 1.

    A rule that follows the gradient rewards long rows; under this map all are equally long. A row
    of zeros stays one.
    """

    map: FeatureMap

    def fit(self, x: Array) -> FeatureMap:
        inner = self.map.fit(x)
        return self if inner is self.map else inner.unit()

    @property
    def unscaled(self) -> FeatureMap:
        return self.map

    @property
    def width(self) -> int:
        return self.map.width

    def features(self, x: Tensor) -> Tensor:
        found = self.map.features(x)
        return unit_rows(found) if len(found) else found

    def exact(self, x: Tensor) -> Tensor:
        found = self.map.exact(x)
        return unit_rows(found) if len(found) else found

    def unit(self) -> FeatureMap:
        return self


@dataclass(frozen=True, eq=False)
class WithConstant(FeatureMap):
    """Features followed by a constant column, which is the intercept of a linear model.

    The squared error has centred labels. Without an intercept a linear model then treats (φ, t) and
    (−φ, −t) alike, and greedy selection can take all its points from one class.
    """

    map: FeatureMap
    share: float = 1.0
    value: float | None = None

    def __post_init__(self) -> None:
        check_number("intercept", self.share, above=0)

    def fit(self, x: Array) -> FeatureMap:
        inner = self.map.fit(x)
        if self.value is not None:
            return self if inner is self.map else replace(self, map=inner)
        mean = 1.0
        if inner.unscaled is inner:  # rows of length 1 have a mean of 1
            rows = inner.exact(as_tensor(x))
            mean = float(rows.square().sum(1).mean())
            check_scale(mean, rows.numpy())
        return replace(self, map=inner, value=math.sqrt(self.share * (mean or 1.0)))

    @property
    def width(self) -> int:
        return self.map.width + 1

    @property
    def intercept(self) -> float | None:
        return self.value

    def features(self, x: Tensor) -> Tensor:
        return self._append(self.map.features(x))

    def exact(self, x: Tensor) -> Tensor:
        return self._append(self.map.exact(x))

    def unchecked(self, x: Tensor) -> Tensor:
        return self._append(self.map.unchecked(x))

    def unit(self) -> FeatureMap:
        return replace(self, map=self.map.unit(), value=math.sqrt(self.share))

    def _append(self, found: Tensor) -> Tensor:
        return torch.cat([found, found.new_full((len(found), 1), self._fitted("value"))], 1)


@dataclass(frozen=True, eq=False)
class ShapedMap(FeatureMap):
    """A map that learns the shape of a row when it is fitted, and checks rows and features."""

    shape: tuple[int, ...] | None = field(default=None, kw_only=True)

    @abstractmethod
    def _map(self, rows: Tensor) -> Tensor:
        """Compute the features of rows of the right shape, in float32 or float64."""

    def _fit(self, rows: Array) -> FeatureMap:
        """Fit the map, whose shape is filled in already, to the first rows."""
        return self

    def _constants(self) -> list[Array]:
        """Return the arrays that features are computed from, such as drawn weights."""
        return []

    def _tensors(self, like: Tensor) -> list[Tensor]:
        """Return the constants with the device and precision of a tensor; cached."""
        key = (like.device, like.dtype)
        return self._cache(key, lambda: [to_tensor(one, like) for one in self._constants()])

    def fit(self, x: Array) -> FeatureMap:
        rows = as_features(x, "x")
        shape = tuple(map(int, rows.shape[1:]))
        if self.shape is not None:
            self._check_shape(shape)
            return self
        return replace(self, shape=shape)._fit(rows)

    def features(self, x: Tensor) -> Tensor:
        rows = as_rows(x)
        self._check_shape(tuple(rows.shape[1:]))
        if len(rows) == 0:
            return rows.new_zeros(0, self.width)
        step = max(1, self._rows_at_once())
        work = len(rows) * math.prod(rows.shape[1:]) * self.width
        with torch.no_grad(), in_full_precision(rows), all_threads(0 if rows.is_cuda else work):
            parts = []
            for top in range(0, len(rows), step):
                checkpoint()
                parts.append(self._map(rows[top : top + step]).to(rows.dtype))
            found = parts[0] if len(parts) == 1 else torch.cat(parts)
        return _check_finite(found, type(self).__name__)

    def _rows_at_once(self) -> int:
        return AT_ONCE // max(self.width, 1)

    @property
    def _columns(self) -> int:
        """The number of entries of a row."""
        return math.prod(self._fitted("shape"))

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if shape != self._fitted("shape"):
            raise InputError(
                f"x has rows of shape {shape}, but the feature map {type(self).__name__} was "
                f"fitted to rows of shape {self.shape}; give rows of that shape, or fit a new map."
            )


def as_rows(x: Tensor) -> Tensor:
    """Convert rows to the dtype in which features are computed."""
    if not torch.is_tensor(x) or x.is_complex() or x.dim() == 0:
        got = f"{x.dtype} of shape {tuple(x.shape)}" if torch.is_tensor(x) else type(x).__name__
        raise InputError(f"x must be a tensor of real numbers, one row per example; got {got}.")
    single = x.is_floating_point() and x.dtype != torch.float64
    rows = x.detach().to(torch.float32 if single else torch.float64)
    return rows[:, None] if rows.dim() == 1 else rows


@contextmanager
def in_full_precision(rows: Tensor) -> Iterator[None]:
    """Multiply float32 with all digits, also if a training script allows fewer."""
    before = torch.get_float32_matmul_precision()
    if not rows.is_cuda or before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _check_finite(found: Tensor, name: str) -> Tensor:
    """Return the features, or raise an error that lists the rows which are not finite."""
    # The terms of a finite sum are finite, so they are inspected only if the sum is not.
    if math.isfinite(float(found.sum())):
        return found
    bad = torch.isfinite(found).all(1).logical_not_().nonzero()[:, 0].tolist()
    if bad:
        listed = ", ".join(map(str, bad[:LISTED_ROWS])) + (", …" if len(bad) > LISTED_ROWS else "")
        raise NumericalError(
            f"{name} gives features that are not finite for {len(bad)} of {len(found)} rows "
            f"({listed}); look for NaN, infinity or very large numbers there."
        )
    return found


def to_tensor(matrix: Array, like: Tensor) -> Tensor:
    """Convert an array to a tensor with the device and precision of another."""
    return torch.from_numpy(np.ascontiguousarray(matrix)).to(like)

"""What every feature map is: rows in, a matrix of a fixed width out; and unit rows of any."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bicore.data import Array, as_tensor
from bicore.errors import InputError
from bicore.kernels.scaling import check_scale, unit_rows
from bicore.state import fingerprint

T = TypeVar("T")

#: Where an instance keeps what it derived from its fields (matrices, its identity).
_KEPT = "_kept_values"


@dataclass(frozen=True, eq=False)
class FeatureMap(ABC):
    """A function of rows, the same for ever once it is settled.

    A map is a frozen configuration. What it takes from data (the shape of a row, a scaling,
    landmarks) it takes once, from the first rows, by :meth:`settled`; from then on it is fixed and
    part of the state of whoever uses it. A map of one's own needs :attr:`width` and
    :meth:`features`, and is a frozen dataclass whose fields say all that its features depend on.

    Parameters
    ----------
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import RandomReLU
    >>> x = torch.eye(3)
    >>> features = RandomReLU(width=8).settled(x.numpy())
    >>> features(x).shape, features.width
    (torch.Size([3, 8]), 8)
    """

    reason: str | None = field(default=None, kw_only=True, compare=False)

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
        """
        return self

    @property
    @abstractmethod
    def width(self) -> int:
        """How many features a row has; known once the map is settled."""

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """The features of rows, on their device.

        Computed in float64 for rows of float64 and of integers, in float32 for all others.

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

    def __call__(self, x: Tensor) -> Tensor:
        return self.features(x)

    def unit(self) -> FeatureMap:
        """The same with every row of features brought to length 1.

        Returns
        -------
        FeatureMap
            Itself where its rows have that length already.
        """
        return UnitRows(self, reason=self.reason)

    def glanced(self, x: Tensor) -> Tensor:
        """The features of rows for who only reads them, not checked to be finite.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was settled on.

        Returns
        -------
        Tensor
            Of shape (n, width); it may be the rows themselves.
        """
        return self.features(x)

    def exact(self, x: Tensor) -> Tensor:
        """The features of rows in float64; lengths are computed in that precision.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was settled on.

        Returns
        -------
        Tensor
            Of shape (n, width), on the device of the rows.
        """
        return self.features(x).double()

    @property
    def plain(self) -> FeatureMap:
        """The map whose features these are but for their lengths; itself where they are not."""
        return self

    @property
    def identity(self) -> str:
        """A short text that maps share where all that their features depend on is the same."""
        return self._kept("identity", self._identity)

    def like(self, other: FeatureMap) -> bool:
        """Whether sums over features of both may be added.

        Parameters
        ----------
        other : FeatureMap
            Another map.

        Returns
        -------
        bool
            True for the same features of every row.
        """
        return self.identity == other.identity

    def network(self) -> nn.Module | None:
        """The module whose embedding is part of the map: no state file holds it.

        Returns
        -------
        torch.nn.Module or None
            None for all other maps.
        """
        return None

    def __eq__(self, other: object) -> bool:
        return self.identity == getattr(other, "identity", None)

    def __hash__(self) -> int:
        return hash(self.identity)

    def _identity(self) -> str:
        told = {
            one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.compare
        }
        values = {
            name: getattr(value, "identity", value)  # of a map within
            for name, value in told.items()
        }
        return f"{type(self).__name__}:{fingerprint(values)}"

    def _kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What follows from the fields, made once an instance; in no comparison."""
        kept: dict[Hashable, Any] = self.__dict__.setdefault(_KEPT, {})
        if key not in kept:
            kept[key] = make()
        found: T = kept[key]
        return found

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes its matrices itself."""
        return {name: value for name, value in self.__dict__.items() if name != _KEPT}


def not_settled(features: FeatureMap) -> InputError:
    """The error for a map that was used before it saw rows."""
    return InputError(
        f"{type(features).__name__} takes what is open from the first rows: use "
        "features=features.settled(x) first."
    )


@dataclass(frozen=True, eq=False)
class UnitRows(FeatureMap):
    """Features of length 1: only their direction is left.

    A rule that follows the gradient rewards long rows; under this map all are equally long. A row
    of zeros stays one.

    Parameters
    ----------
    map : FeatureMap
        Whose features are brought to length 1.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import Rows
    >>> x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> Rows().settled(x.numpy()).unit()(x).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """

    map: FeatureMap

    def settled(self, x: Array) -> FeatureMap:
        """The map for rows such as these first ones.

        Parameters
        ----------
        x : array
            The first rows.

        Returns
        -------
        FeatureMap
            With nothing left open.
        """
        inner = self.map.settled(x)
        return self if inner is self.map else inner.unit()

    def network(self) -> nn.Module | None:
        """The module of the map within.

        Returns
        -------
        torch.nn.Module or None
            None where there is none.
        """
        return self.map.network()

    @property
    def plain(self) -> FeatureMap:
        """The map whose features are brought to length 1."""
        return self.map

    @property
    def width(self) -> int:
        """How many features a row has."""
        return self.map.width

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
        """
        found = self.map.features(x)
        return unit_rows(found) if len(found) else found

    def exact(self, x: Tensor) -> Tensor:
        """The features of rows in float64; lengths are computed in that precision.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was settled on.

        Returns
        -------
        Tensor
            Of shape (n, width), on the device of the rows.
        """
        found = self.map.exact(x)
        return unit_rows(found) if len(found) else found

    def unit(self) -> FeatureMap:
        """The map itself.

        Returns
        -------
        FeatureMap
            Whose rows have length 1 already.
        """
        return self


@dataclass(frozen=True, eq=False)
class WithConstant(FeatureMap):
    """Features with a constant column behind them, which is the intercept of a linear model.

    The squared error has centred labels. Without an intercept a linear model then treats (φ, t) and
    (−φ, −t) alike, and greedy selection can take all its points from one class.

    Parameters
    ----------
    map : FeatureMap
        The features before the constant. They are normalised first, if at all.
    share : float
        The square of the constant, as a share of the mean of ‖φ‖² over the first rows.
    value : float, optional
        The constant itself; by default it is computed from the first rows.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.

    Raises
    ------
    InputError
        If ``share`` is not positive and finite.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import Rows, WithConstant
    >>> x = torch.tensor([[3.0, 4.0], [0.0, 5.0]])
    >>> WithConstant(Rows()).settled(x.numpy())(x).tolist()
    [[3.0, 4.0, 5.0], [0.0, 5.0, 5.0]]
    >>> WithConstant(Rows()).unit().settled(x.numpy()).value
    1.0
    """

    map: FeatureMap
    share: float = 1.0
    value: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share < math.inf:
            raise InputError(
                f"intercept={self.share!r} must be a positive, finite share of the mean of ‖φ‖²."
            )

    def settled(self, x: Array) -> FeatureMap:
        """The map for rows such as these first ones.

        Parameters
        ----------
        x : array
            The first rows.

        Returns
        -------
        FeatureMap
            With its constant.
        """
        inner = self.map.settled(x)
        if self.value is not None:
            return self if inner is self.map else replace(self, map=inner)
        mean = 1.0
        if inner.plain is inner:  # rows of length 1 have a mean of 1
            rows = inner.exact(as_tensor(x))
            mean = float(rows.square().sum(1).mean())
            check_scale(mean, rows.numpy())
        return replace(self, map=inner, value=math.sqrt(self.share * (mean or 1.0)))

    def network(self) -> nn.Module | None:
        """The module of the map within.

        Returns
        -------
        torch.nn.Module or None
            None where there is none.
        """
        return self.map.network()

    @property
    def width(self) -> int:
        """How many features a row has."""
        return self.map.width + 1

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
        """
        return self._append(self.map.features(x))

    def exact(self, x: Tensor) -> Tensor:
        """The features of rows in float64; lengths are computed in that precision.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was settled on.

        Returns
        -------
        Tensor
            Of shape (n, width), on the device of the rows.
        """
        return self._append(self.map.exact(x))

    def glanced(self, x: Tensor) -> Tensor:
        """The features of rows for who only reads them, not checked to be finite.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was settled on.

        Returns
        -------
        Tensor
            Of shape (n, width).
        """
        return self._append(self.map.glanced(x))

    def unit(self) -> FeatureMap:
        """The same with every row brought to length 1 before the constant is appended.

        Returns
        -------
        FeatureMap
            With a constant of its own.
        """
        return replace(self, map=self.map.unit(), value=math.sqrt(self.share))

    def _append(self, found: Tensor) -> Tensor:
        if self.value is None:
            raise not_settled(self)
        return torch.cat([found, found.new_full((len(found), 1), self.value)], 1)

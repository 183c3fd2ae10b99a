"""Random ReLU features: a network of random weights whose last layer is read off."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor

from bicore.data import Array
from bicore.moments.features.base import FeatureMap
from bicore.moments.features.checked import (
    RELU_GAIN,
    SettledMap,
    count_of,
    normal_draws,
    on,
    root_mean_square,
    size_of,
)


@dataclass(frozen=True, eq=False)
class RandomReLU(SettledMap):
    """Random directions, rectified: φ(x) = relu(Wx + b)·√(2/width), with W and b drawn once.

    W has variance 1/columns, and b the size of a typical entry of the first rows: features have the
    scale of the rows, and ‖φ‖² does not grow with either width. As the width grows, φ(x)ᵀφ(x′)
    tends to the arc-cosine kernel of (x/√columns, size of b).

    Parameters
    ----------
    width : int
        How many features a row has.
    layers : int
        How many such layers follow one another, all of that width.
    bias : float
        The standard deviation of b, in units of a typical entry of the first rows.
    seed : int
        Of W and b.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row; filled in by ``settled``.
    scale : float, optional
        A typical entry of the rows; by default the root mean square of the first ones.

    Raises
    ------
    InputError
        Where a number is out of its bounds.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import RandomReLU
    >>> x = torch.ones(1, 100)
    >>> narrow, broad = (RandomReLU(width).settled(x.numpy())(x) for width in (64, 4096))
    >>> round(float(narrow.square().sum())), round(float(broad.square().sum()))
    (2, 2)
    """

    width: int = 1024
    layers: int = 1
    bias: float = 1.0
    seed: int = 0
    scale: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checked = {
            "width": count_of(self.width, "width"),
            "layers": count_of(self.layers, "layers"),
            "bias": size_of(self.bias, "bias"),
            "seed": count_of(self.seed, "seed", 0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _settled_on(self, rows: Array) -> FeatureMap:
        return self if self.scale is not None else replace(self, scale=root_mean_square(rows))

    def _mapped(self, rows: Tensor) -> Tensor:
        hidden = rows.reshape(len(rows), self._columns)
        for layer in range(self.layers):
            key = (layer, rows.device, rows.dtype)
            weights, shifts = self._kept(key, partial(self._drawn, layer, rows))
            hidden = (hidden @ weights).add_(shifts).relu_()
        return hidden.mul_(self.width**-0.5)

    def _drawn(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Wᵀ and b of a layer; the gain is in them, for relu(gz) = g·relu(z)."""
        assert self.scale is not None
        columns = self._columns if layer == 0 else self.width
        drawn = normal_draws(self.seed, layer, columns + 1, self.width)
        weights = drawn[:-1] * (RELU_GAIN * columns**-0.5)
        shifts = drawn[-1] * (RELU_GAIN * self.bias * self.scale)
        return on(weights, like), on(shifts, like)

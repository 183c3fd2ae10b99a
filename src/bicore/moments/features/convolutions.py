"""Random convolutions: what random filters see, averaged over parts of an image."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor
from torch.nn import functional

from bicore.data import Array
from bicore.errors import InputError
from bicore.moments.features.base import FeatureMap
from bicore.moments.features.checked import (
    AT_ONCE,
    RELU_GAIN,
    SettledMap,
    count_of,
    normal_draws,
    on,
    root_mean_square,
    size_of,
)


@dataclass(frozen=True, eq=False)
class RandomConvolutions(SettledMap):
    """Random filters slid over an image, relu, and averages over pool × pool parts of it.

    Filters stay within the image. They have variance 1/(their numbers), and the shifts the size of
    a typical entry of the first rows, as in :class:`RandomReLU`.

    Parameters
    ----------
    width : int
        How many features a row has; a multiple of pool², and width/pool² is the number of filters.
    kernel : int
        The side of a filter.
    pool : int
        The parts of an image along a side.
    bias : float
        The standard deviation of the shifts, in units of a typical entry of the first rows.
    seed : int
        Of filters and shifts.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row, (channels, height, width) or (height, width); filled in by ``settled``.
    scale : float, optional
        A typical entry of the rows; by default the root mean square of the first ones.

    Raises
    ------
    InputError
        Where a number is out of its bounds, or rows are no images or too small.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import RandomConvolutions
    >>> x = torch.ones(2, 3, 8, 8)
    >>> RandomConvolutions(width=64, pool=2).settled(x.numpy())(x).shape
    torch.Size([2, 64])
    """

    width: int = 1024
    kernel: int = 5
    pool: int = 4
    bias: float = 1.0
    seed: int = 0
    scale: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checked = {
            "width": count_of(self.width, "width"),
            "kernel": count_of(self.kernel, "kernel"),
            "pool": count_of(self.pool, "pool"),
            "bias": size_of(self.bias, "bias"),
            "seed": count_of(self.seed, "seed", 0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        parts = self.pool**2
        if self.width % parts:
            near = max(1, round(self.width / parts)) * parts
            raise InputError(
                f"width={self.width} is no multiple of pool² = {parts}; give width={near}."
            )

    def _settled_on(self, rows: Array) -> FeatureMap:
        if rows.ndim not in (3, 4):
            raise InputError(
                f"x has rows of shape {rows.shape[1:]}, and RandomConvolutions is for images; give "
                "(channels, height, width), or take RandomReLU."
            )
        least = self.kernel + self.pool - 1
        if min(rows.shape[-2:]) < least:
            raise InputError(
                f"x has images of {rows.shape[-2]} × {rows.shape[-1]} pixels (channels come "
                f"first), and kernel={self.kernel} with pool={self.pool} needs {least} along each "
                "side; give smaller ones, or take RandomReLU."
            )
        return self if self.scale is not None else replace(self, scale=root_mean_square(rows))

    @property
    def _image(self) -> tuple[int, int, int]:
        channels, height, width = (1, *self._shape)[-3:]
        return channels, height, width

    @property
    def _answers(self) -> tuple[int, int]:
        """Places that a filter has in an image."""
        return self._image[1] - self.kernel + 1, self._image[2] - self.kernel + 1

    @property
    def _filters(self) -> int:
        return self.width // self.pool**2

    def _rows_at_once(self) -> int:
        high, broad = self._answers
        return AT_ONCE // (high * broad * (self._image[0] * self.kernel**2 + self._filters))

    def _mapped(self, rows: Tensor) -> Tensor:
        weights, shifts = self._kept((rows.device, rows.dtype), lambda: self._drawn(rows))
        # By a product: a library for convolutions may round to fewer digits on a GPU.
        patches = functional.unfold(rows.reshape(len(rows), *self._image), self.kernel)
        answers = (weights @ patches).add_(shifts).relu_()
        maps = answers.reshape(len(rows), self._filters, *self._answers)
        pooled = functional.adaptive_avg_pool2d(maps, self.pool)
        return pooled.reshape(len(rows), self.width).mul_(self.width**-0.5)

    def _drawn(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Filters, one a row, and their shifts; the gain is in them."""
        assert self.scale is not None
        numbers = self._image[0] * self.kernel**2
        drawn = normal_draws(self.seed, 0, numbers + 1, self._filters)
        weights = drawn[:-1].T * (RELU_GAIN * numbers**-0.5)
        shifts = drawn[-1][:, None] * (RELU_GAIN * self.bias * self.scale)
        return on(weights, like), on(shifts, like)

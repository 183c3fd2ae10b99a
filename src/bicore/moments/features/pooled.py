"""Random features of the pooled convolutional kernel: a deep random network, averaged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor
from torch.nn import functional

from bicore.data import Array, as_tensor
from bicore.errors import InputError
from bicore.moments.features.base import FeatureMap
from bicore.moments.features.checked import (
    AT_ONCE,
    RELU_GAIN,
    SettledMap,
    as_rows,
    count_of,
    normal_draws,
    on,
)

#: The side of a filter.
SIDE = 3
#: Rows over which the mean is taken: a first batch may be large, and a map is settled on the host.
FIRST = 128


@dataclass(frozen=True, eq=False)
class RandomPooled(SettledMap):
    """Random 3×3 convolutions with a relu each, one upon the other, averaged over the image.

    The wider its layers, the closer are products of features to the pooled kernel at initialisation
    (:func:`bicore.kernels.pooled_cntk` with ``kind="nngp"``). Most of such a feature is the same in
    all images: what the first 128 have in common is taken off, unless ``centred`` is False.

    Parameters
    ----------
    width : int
        How many features a row has: filters of the last layer.
    layers : int
        Convolutions.
    hidden : int
        Filters of each of the others.
    centred : bool
        Whether the mean over the first rows is taken off.
    seed : int
        Of the filters.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row, (channels, height, width) or (height, width); filled in by ``settled``.
    mean : array, optional
        What is taken off; filled in by ``settled``.

    Raises
    ------
    InputError
        Where a number is out of its bounds, or rows are no images.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import RandomPooled
    >>> x = torch.ones(2, 3, 8, 8)
    >>> RandomPooled(width=16, hidden=8).settled(x.numpy())(x).shape
    torch.Size([2, 16])
    """

    width: int = 1024
    layers: int = 5
    hidden: int = 128
    centred: bool = True
    seed: int = 0
    mean: Array | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        for name in ("width", "layers", "hidden"):
            object.__setattr__(self, name, count_of(getattr(self, name), name))
        object.__setattr__(self, "seed", count_of(self.seed, "seed", 0))
        if self.centred not in (True, False):
            raise InputError(f"centred={self.centred!r} is neither True nor False; give one.")

    def _settled_on(self, rows: Array) -> FeatureMap:
        if rows.ndim not in (3, 4):
            raise InputError(
                f"x has rows of shape {rows.shape[1:]}, and RandomPooled is for images; give "
                "(channels, height, width), or take RandomReLU."
            )
        if not self.centred or self.mean is not None:
            return self
        bare = replace(self, centred=False).features(as_rows(as_tensor(rows[:FIRST])))
        return replace(self, mean=bare.mean(0).double().numpy())

    @property
    def _image(self) -> tuple[int, int, int]:
        channels, height, width = (1, *self._shape)[-3:]
        return channels, height, width

    def _rows_at_once(self) -> int:
        channels, height, width = self._image
        widest = SIDE**2 * max(channels, self.hidden if self.layers > 1 else channels)
        return AT_ONCE // (height * width * (widest + max(self.hidden, self.width)))

    def _mapped(self, rows: Tensor) -> Tensor:
        channels, height, width = self._image
        maps = rows.reshape(len(rows), channels, height, width)
        for filters in self._kept((rows.device, rows.dtype), lambda: self._drawn(rows)):
            # By a product: a library for convolutions may round to fewer digits on a GPU.
            patches = functional.unfold(maps, SIDE, padding=SIDE // 2)
            maps = (filters @ patches).relu_().reshape(len(rows), -1, height, width)
        found = maps.mean((2, 3)).mul_(RELU_GAIN * self.width**-0.5)
        return found if self.mean is None else found.sub_(on(self.mean, found))

    def _drawn(self, like: Tensor) -> list[Tensor]:
        """The filters of each layer, one a row; the gain makes up for the relu before it."""
        found = []
        inputs = self._image[0]
        for layer in range(self.layers):
            outputs = self.width if layer == self.layers - 1 else self.hidden
            gain = 1.0 if layer == 0 else RELU_GAIN
            numbers = SIDE**2 * inputs
            drawn = normal_draws(self.seed, layer, outputs, numbers)
            found.append(on(drawn * (gain * numbers**-0.5), like))
            inputs = outputs
        return found

"""A kernel that sees each point through transformations of it: augmentation without more data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bicore.errors import InputError
from bicore.kernels.base import Kernel, diagonal_by_blocks

Transformation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Averaged(Kernel):
    """The mean of k(s(a), t(b)) over all pairs of transformations s, t.

    It is the kernel of the mean of a point's images. With features Φ it costs one evaluation a
    transformation, Φ̄(a) = mean Φ(t(a)); otherwise one for every pair.

    Parameters
    ----------
    kernel : Kernel
        The kernel of one image.
    transformations : sequence of callable
        Each takes a tensor of rows and returns one of the same shape; see :func:`shifts`.

    Raises
    ------
    InputError
        Where there is no transformation.

    Examples
    --------
    >>> from bicore.kernels import Averaged, Linear
    >>> mirrored = Averaged(Linear(), [lambda rows: rows, lambda rows: rows.flip(1)])
    >>> mirrored([[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    kernel: Kernel
    transformations: Sequence[Transformation]

    def __post_init__(self) -> None:
        if not self.transformations:
            raise InputError(
                "transformations is empty; give functions of a tensor of rows, such as "
                "bicore.kernels.shifts(1)."
            )

    @property
    def name(self) -> str:
        return f"{self.kernel.name} averaged over {len(self.transformations)} transformations"

    def fitted(self, x: Any) -> Kernel:
        return Averaged(self.kernel.fitted(x), self.transformations)

    def _ready(self) -> Kernel:
        return Averaged(self.kernel._ready(), self.transformations)

    def _images(self, a: Tensor) -> list[Tensor]:
        images = [transform(a) for transform in self.transformations]
        for image in images:
            if image.shape != a.shape:
                raise InputError(
                    f"a transformation made {tuple(image.shape)} of rows of shape "
                    f"{tuple(a.shape)}; keep the shape."
                )
        return images

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        features = self.features(a)
        if features is not None:
            other = self.features(b)
            assert other is not None
            return features @ other.T
        left = self._images(a)
        right = self._images(b)
        found = [self.kernel.evaluate(one, two) for one in left for two in right]
        return torch.stack(found).mean(0)

    def diag(self, a: Tensor) -> Tensor:
        features = self.features(a)
        if features is not None:
            return features.square().sum(1)
        return diagonal_by_blocks(self, a)

    def features(self, a: Tensor) -> Tensor | None:
        found = [self.kernel.features(image) for image in self._images(a)]
        known = [features for features in found if features is not None]
        return torch.stack(known).mean(0) if len(known) == len(found) else None

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        kept = itemsize * len(self.transformations) ** 2
        return self.kernel.bytes_per_pair(itemsize, shape) + kept

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_point(itemsize, shape)


def shifts(pixels: int = 1, shape: tuple[int, int] | None = None) -> list[Transformation]:
    """The identity and moves of an image to each of four sides, for :class:`Averaged`.

    What moves in is the image's own border.

    Parameters
    ----------
    pixels : int
        How far images move.
    shape : tuple of int, optional
        Height and width, for images that come as flat rows.

    Returns
    -------
    list of callable
        Five functions of a tensor of rows.

    Raises
    ------
    InputError
        Where ``pixels`` is below 1; the functions themselves raise it for rows that are no images.

    Examples
    --------
    >>> import torch
    >>> from bicore.kernels import shifts
    >>> row = torch.tensor([[1.0, 2.0, 3.0]])
    >>> [move(row).tolist() for move in shifts(1, shape=(1, 3))[3:]]
    [[[1.0, 1.0, 2.0]], [[2.0, 3.0, 3.0]]]
    """

    def moved(down: int, right: int) -> Transformation:
        def transform(rows: Tensor) -> Tensor:
            if shape is not None and rows[0].numel() % (shape[0] * shape[1]):
                raise InputError(
                    f"rows of {rows[0].numel()} numbers are no images of shape={shape}; give their "
                    "height and width."
                )
            images = rows if shape is None else rows.reshape(len(rows), -1, *shape)
            if images.dim() < 3:
                raise InputError(
                    "shifts move images; give rows of shape (…, height, width), or shape=(height, "
                    "width)."
                )
            height, width = images.shape[-2:]
            vertical = (torch.arange(height, device=rows.device) - down).clamp(0, height - 1)
            horizontal = (torch.arange(width, device=rows.device) - right).clamp(0, width - 1)
            return images[..., vertical, :][..., horizontal].reshape(rows.shape)

        return transform

    if pixels < 1:
        raise InputError(f"pixels={pixels} is below 1; give how far images move.")
    steps = ((0, 0), (pixels, 0), (-pixels, 0), (0, pixels), (0, -pixels))
    return [moved(down, right) for down, right in steps]

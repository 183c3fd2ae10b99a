"""Kernels of transformed points: unit diagonal, standardised columns, unit rows, augmented
images."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bicore._deprecated import renamed_keywords
from bicore.data import Array
from bicore.errors import InputError, check_integer
from bicore.kernels.base import Kernel, Wrapper, as_doubles, flatten_points, mirror
from bicore.kernels.operators import KernelOperator
from bicore.runtime.clock import checkpoint
from bicore.sparse import is_sparse

#: Numbers converted to float64 at a time to measure columns.
AT_ONCE = 4_000_000
#: A column whose standard deviation is below this share of its mean counts as constant, because
#: float32 may have rounded it.
CONSTANT = 1e-7
#: Ranges of mean squared lengths whose products are accurate in float32, and in float64 also the
#: squares of these. Kernel matrices in float32, which are squared, have a shorter range.
SINGLE_RANGE, DOUBLE_RANGE, MATRIX_RANGE = (1e-30, 1e30), (1e-100, 1e100), (1e-18, 1e18)
#: Range of the square of the largest number in which float32 keeps its digits.
VALUE_RANGE = (1e-72, 1e76)

Transformation = Callable[[Tensor], Tensor]


def check_scale(mean: float, rows: Any, allowed: tuple[float, float] = DOUBLE_RANGE) -> None:
    """Refuse rows whose squares vanish or overflow; rows of zeros are allowed."""
    if allowed[0] <= mean <= allowed[1]:
        return
    values = rows.matrix.data if is_sparse(rows) else rows
    if mean == 0 and not (values if isinstance(values, Tensor) else np.asarray(values)).any():
        return
    raise InputError(
        f"x has squared lengths of about {mean:.3g}, which products cannot hold; scale x, for "
        "example to a standard deviation of 1, or use float64 if this is float32."
    )


def check_diagonal(matrix: KernelOperator, rows: Any) -> None:
    """Refuse rows if squares of their kernel matrix vanish or overflow."""
    allowed = DOUBLE_RANGE if matrix.like.dtype == torch.float64 else MATRIX_RANGE
    check_scale(float(matrix.diagonal().double().mean()), rows, allowed)


@dataclass(frozen=True)
class Normalised(Wrapper):
    """A kernel with unit diagonal: k(a, b) / √(k(a, a) k(b, b)).

    A point of norm zero stays at zero.

    Parameters
    ----------
    kernel : Kernel
        The kernel to normalise.

    Examples
    --------
    >>> from bicore.kernels import Linear, Normalised
    >>> Normalised(Linear())([[3.0, 0.0], [1.0, 1.0], [0.0, 0.0]]).round(3).tolist()
    [[1.0, 0.707, 0.0], [0.707, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """

    @property
    def name(self) -> str:
        return f"normalised {self.kernel.name}"

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        rows = _inverse_root(self.kernel.diag(a), a)
        columns = _inverse_root(self.kernel.diag(b), b)
        # A callable may return a matrix of its own; the first factor makes a copy.
        return (self.kernel.evaluate(a, b) * rows[:, None]).mul_(columns)

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        # A kernel's own Gram matrix is faster, and its diagonal is exact.
        result = self.kernel.gram(a, block)
        diagonal = result.diagonal().clone()
        inverse = _inverse_root(diagonal, a)
        result.mul_(inverse[:, None]).mul_(inverse)
        mirror(result)  # the two factors round differently on the two sides
        result.diagonal().copy_((diagonal > 0).to(result))
        return result

    def diag(self, a: Tensor) -> Tensor:
        diagonal = self.kernel.diag(a)
        return (diagonal > 0).to(diagonal)

    def features(self, a: Tensor) -> Tensor | None:
        return None if (features := self.kernel.features(a)) is None else unit_rows(features)

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_pair(itemsize, shape) + itemsize


def _inverse_root(diagonal: Tensor, a: Tensor) -> Tensor:
    """Return 1/√k(a, a); 0 for points of norm zero."""
    if diagonal.dtype != torch.float64:
        check_scale(float(diagonal.double().mean()), a, SINGLE_RANGE)
    inverse = diagonal.clamp_min(torch.finfo(diagonal.dtype).tiny).rsqrt()
    return torch.where(diagonal > 0, inverse, torch.zeros_like(diagonal))


def unit_rows(rows: Tensor) -> Tensor:
    """Divide points by their Euclidean length; those of length zero stay zero."""
    vectors = flatten_points(rows)
    # After division by the largest entry, squares neither overflow nor underflow.
    largest = vectors.abs().amax(1, keepdim=True)
    scaled = vectors / torch.where(largest > 0, largest, torch.ones_like(largest))
    lengths = scaled.square().sum(1, keepdim=True).sqrt_()
    scaled /= lengths.clamp_min_(torch.finfo(rows.dtype).tiny)
    return scaled.reshape(rows.shape)


@dataclass(frozen=True)
class _OfTransformed(Wrapper):
    """A kernel of transformed points."""

    takes_sparse = False

    @abstractmethod
    def _transform(self, a: Tensor) -> Tensor:
        """Return the points that the inner kernel sees, in the same shape."""

    def fit(self, x: Array) -> Kernel:
        return replace(self, kernel=self.kernel.fit(cast(Array, _TransformedRows(x, self))))

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel.evaluate(self._transform(a), self._transform(b))

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        return self.kernel.gram(self._transform(a), block)

    def diag(self, a: Tensor) -> Tensor:
        return self.kernel.diag(self._transform(a))

    def features(self, a: Tensor) -> Tensor | None:
        return self.kernel.features(self._transform(a))

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        return self.kernel.bytes_per_point(itemsize, shape) + itemsize * int(np.prod(shape))


class _TransformedRows:
    """Rows that are transformed when read, because fitting a kernel reads only some of them."""

    def __init__(self, x: Any, kernel: _OfTransformed) -> None:
        self.x = x if hasattr(x, "shape") else np.asarray(x)
        self.shape = self.x.shape
        self.kernel = kernel

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> Array:
        return np.asarray(self.kernel._transform(as_doubles(self.x[rows])))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self[:].astype(dtype or np.float64, copy=False)


@dataclass(frozen=True)
class UnitRows(_OfTransformed):
    """A kernel of points divided by their Euclidean length.

    A point of length zero stays zero. For the linear kernel this is :class:`Normalised`; an RBF
    kernel becomes one of angles.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the points of unit length; a bandwidth is chosen from these.

    Examples
    --------
    >>> from bicore.kernels import RBF, UnitRows
    >>> UnitRows(RBF(gamma=0.5))([[3.0, 0.0], [0.1, 0.0], [0.0, 2.0]]).round(3).tolist()
    [[1.0, 1.0, 0.368], [1.0, 1.0, 0.368], [0.368, 0.368, 1.0]]
    """

    @property
    def name(self) -> str:
        return f"{self.kernel.name} on unit rows"

    def _transform(self, a: Tensor) -> Tensor:
        return unit_rows(a)


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """Mean and standard deviation of every column; the deviation of a constant one is 1."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, x: Any) -> Columns:
        """Measure the columns of these rows, a part at a time."""
        rows = x if hasattr(x, "shape") else np.asarray(x)
        step = max(1, AT_ONCE // max(1, int(np.prod(rows.shape[1:]))))
        mean, squares = np.zeros((2, *rows.shape[1:]))
        for top in range(0, len(rows), step):
            checkpoint(top / len(rows))
            part = np.array(rows[top : top + step], dtype=np.float64)
            own = part.mean(0)
            part -= own
            # Two sets of rows: sums of squares about each mean, and the difference of the means.
            done = top + len(part)
            with np.errstate(over="ignore", invalid="ignore"):  # which is checked below
                squares += np.square(part, out=part).sum(0)
                squares += (own - mean) ** 2 * (top * len(part) / done)
            mean += (own - mean) * (len(part) / done)
        deviation = np.sqrt(squares / len(rows))
        if not np.isfinite(deviation).all():
            raise InputError("x has a column whose squares are not finite; scale x.")
        return cls(mean, np.where(deviation > CONSTANT * np.abs(mean), deviation, 1.0))

    def standardise(self, a: Tensor) -> Tensor:
        """Subtract the mean and divide by the deviation."""
        if tuple(a.shape[1:]) != self.mean.shape:
            shapes = f"{tuple(a.shape[1:])} and the columns were measured on {self.mean.shape}"
            raise InputError(f"x has rows of shape {shapes}; they must match.")
        mean = torch.from_numpy(self.mean)
        near = mean.to(a.dtype)
        # A mean far from zero has digits that float32 lacks; they are subtracted second.
        rest = (mean - near.double()).to(a)
        deviation = torch.from_numpy(self.deviation).to(a).clamp_min(torch.finfo(a.dtype).tiny)
        return (a - near.to(a.device)).sub_(rest).div_(deviation)

    @property
    def digest(self) -> str:
        """A digest of all numbers."""
        both = np.concatenate([self.mean.ravel(), self.deviation.ravel()])
        return hashlib.sha256(both.tobytes()).hexdigest()[:12]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{self.mean.size} columns {self.digest}>"


@dataclass(frozen=True)
class Standardised(_OfTransformed):
    """A kernel of columns with mean 0 and standard deviation 1.

    Columns are measured on the data that the kernel is fitted to. One whose deviation is below 1e-7
    of its mean counts as constant: it loses its mean and keeps its units. A pixel of an image is a
    column.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the standardised points; a bandwidth is chosen from these.
    columns : Columns, optional
        Mean and deviation of each; by default those of the data.

    Raises
    ------
    InputError
        If the columns were not measured, or points have another shape.

    Examples
    --------
    >>> from bicore.kernels import Linear, Standardised
    >>> Standardised(Linear())([[0.0, 1000.0], [2.0, 3000.0]]).tolist()
    [[2.0, -2.0], [-2.0, 2.0]]
    """

    columns: Columns | None = None

    @property
    def name(self) -> str:
        return f"{self.kernel.name} on standardised columns"

    def fit(self, x: Array) -> Kernel:
        known = self if self.columns is not None else replace(self, columns=Columns.of(x))
        return _OfTransformed.fit(known, x)

    def _transform(self, a: Tensor) -> Tensor:
        return self._fitted(self.columns).standardise(a)


@dataclass(frozen=True)
class Averaged(Wrapper):
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
        If there is no transformation.

    Examples
    --------
    >>> from bicore.kernels import Averaged, Linear
    >>> mirrored = Averaged(Linear(), [lambda rows: rows, lambda rows: rows.flip(1)])
    >>> mirrored([[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    transformations: Sequence[Transformation]

    takes_sparse = False

    def __post_init__(self) -> None:
        if not self.transformations:
            raise InputError("transformations is empty; use for example bicore.kernels.shifts(1).")

    @property
    def name(self) -> str:
        return f"{self.kernel.name} averaged over {len(self.transformations)} transformations"

    def _transform_all(self, a: Tensor) -> list[Tensor]:
        images = [transform(a) for transform in self.transformations]
        wrong = [tuple(image.shape) for image in images if image.shape != a.shape]
        if wrong:
            made = f"{wrong[0]} of rows of shape {tuple(a.shape)}"
            raise InputError(f"a transformation made {made}; keep the shape.")
        return images

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        features = self.features(a)
        if features is not None:
            other = self.features(b)
            assert other is not None
            return features @ other.T
        right = self._transform_all(b)
        found = [self.kernel.evaluate(one, two) for one in self._transform_all(a) for two in right]
        return torch.stack(found).mean(0)

    def diag(self, a: Tensor) -> Tensor:
        features = self.features(a)
        return super().diag(a) if features is None else features.square().sum(1)

    def features(self, a: Tensor) -> Tensor | None:
        found = [self.kernel.features(image) for image in self._transform_all(a)]
        known = [features for features in found if features is not None]
        return torch.stack(known).mean(0) if len(known) == len(found) else None

    def bytes_per_pair(self, itemsize: int, shape: tuple[int, ...]) -> int:
        kept = itemsize * len(self.transformations) ** 2
        return self.kernel.bytes_per_pair(itemsize, shape) + kept


@renamed_keywords()
def shifts(pixels: int = 1, shape: tuple[int, int] | None = None) -> list[Transformation]:
    """The identity and moves of an image to each of four sides, for :class:`Averaged`.

    Pixels that move in repeat the border of the image.

    Parameters
    ----------
    pixels : int
        Number of pixels that images are moved.
    shape : tuple of int, optional
        Height and width, for images that come as flat rows.

    Returns
    -------
    list of callable
        Five functions of a tensor of rows.

    Raises
    ------
    InputError
        If ``pixels`` is below 1; the functions also raise it for rows that are not images.

    Examples
    --------
    >>> import torch
    >>> from bicore.kernels import shifts
    >>> row = torch.tensor([[1.0, 2.0, 3.0]])
    >>> [move(row).tolist() for move in shifts(1, shape=(1, 3))[3:]]
    [[[1.0, 1.0, 2.0]], [[2.0, 3.0, 3.0]]]
    """

    check_integer("pixels", pixels)

    def shift(down: int, right: int) -> Transformation:
        def transform(rows: Tensor) -> Tensor:
            if shape is not None and rows[0].numel() % (shape[0] * shape[1]):
                raise InputError(f"rows of {rows[0].numel()} numbers are not images of {shape=}.")
            images = rows if shape is None else rows.reshape(len(rows), -1, *shape)
            if images.dim() < 3:
                raise InputError("shifts move images; give rows (…, height, width) or shape=….")
            height, width = images.shape[-2:]
            vertical = (torch.arange(height, device=rows.device) - down).clamp(0, height - 1)
            horizontal = (torch.arange(width, device=rows.device) - right).clamp(0, width - 1)
            return images[..., vertical, :][..., horizontal].reshape(rows.shape)

        return transform

    steps = ((0, 0), (pixels, 0), (-pixels, 0), (0, pixels), (0, -pixels))
    return [shift(down, right) for down, right in steps]

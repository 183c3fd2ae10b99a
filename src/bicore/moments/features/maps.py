"""The feature maps: rows, standardised columns, a network, and maps with random parameters.

Random parameters are drawn by NumPy in float64, so that they are the same on every device.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bicore._deprecated import renamed_fields
from bicore.arguments import step_rng
from bicore.data import Array, as_tensor
from bicore.errors import InputError, check_integer, check_name, check_number, check_type
from bicore.files import fingerprint
from bicore.kernels import RBF, Kernel, Laplace
from bicore.kernels.scaling import Columns
from bicore.moments.features.base import AT_ONCE, FeatureMap, ShapedMap, as_rows, to_tensor
from bicore.networks.observe import apply_module

#: A relu halves the mean square of its input; this factor compensates (He's initialisation).
RELU_GAIN = math.sqrt(2)
#: The side of a filter of RandomPooled.
SIDE = 3
#: Maximum number of rows whose mean RandomPooled uses.
MEAN_ROWS = 128
#: Images and patches from which WhitenedPatches takes its filters.
PATCH_IMAGES = 512
PATCHES = 20_000
#: The contrast regarded as noise, and the number added to the eigenvalues of patches, as shares of
#: their means. Chosen on held-out training rows of CIFAR-10.
NOISE = 0.4
SHRINKAGE = 0.01
#: Nyström directions below this share of the largest eigenvalue are dropped: dividing by their
#: root would amplify rounding errors ten thousand times.
CUTOFF = 1e-8
_FOURIER_KERNELS: dict[str, type[RBF] | type[Laplace]] = {"rbf": RBF, "laplace": Laplace}


@dataclass(frozen=True, eq=False)
class Rows(ShapedMap):
    """The rows themselves as vectors, for embeddings and other finished features."""

    constant: bool = False

    @property
    def width(self) -> int:
        return self._columns + int(self.constant)

    def unchecked(self, x: Tensor) -> Tensor:
        if self.constant:
            return self.features(x)
        rows = as_rows(x)
        self._check_shape(tuple(rows.shape[1:]))
        return rows.reshape(len(rows), self._columns)

    def _map(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(len(rows), self._columns)
        if not self.constant:
            return flat.clone()  # callers may write into features, but not into rows
        return torch.cat([flat, flat.new_ones(len(flat), 1)], 1)


@dataclass(frozen=True, eq=False)
class Standardised(ShapedMap):
    """A map of columns with mean 0 and standard deviation 1 over the first rows.

    A column that is constant there loses its mean and keeps its units. The first rows may be few
    and all of one kind: a later value can be hundreds of deviations away, and its row can outweigh
    all others in a sum of squares; ``beyond`` softens that.
    """

    map: FeatureMap
    columns: Columns | None = None
    beyond: float | None = None

    def __post_init__(self) -> None:
        if self.beyond is not None:
            object.__setattr__(self, "beyond", check_number("beyond", self.beyond, above=0))

    @property
    def width(self) -> int:
        return self.map.width

    def _fit(self, rows: Array) -> FeatureMap:
        columns = Columns.of(rows) if self.columns is None else self.columns
        known = replace(self, columns=columns)
        inner = self.map.fit(known._scale(as_rows(as_tensor(rows))).numpy())
        return replace(known, map=inner)

    def _rows_at_once(self) -> int:
        return 1 << 62  # the inner map splits the rows and reports row numbers

    def _map(self, rows: Tensor) -> Tensor:
        return self.map.features(self._scale(rows))

    def _scale(self, rows: Tensor) -> Tensor:
        scores: Tensor = self._fitted("columns").standardise(rows)
        if self.beyond is None:
            return scores
        # ±b(1 + log(|s|/b)) for scores beyond ±b: a smooth, rising curve
        excess = (scores.abs() / self.beyond).clamp_min_(1)
        return scores.clamp(-self.beyond, self.beyond).mul_(excess.log_().add_(1))


@dataclass(frozen=True, eq=False)
class Embedded(ShapedMap):
    """The output of a frozen network, one vector per row.

    The map holds a copy of the module, in evaluation mode: features stay the same when the module
    is trained further. Rows are converted to the precision of the weights (half precision is
    widened to float32); a GPU's convolutions round as the caller's settings say.
    """

    module: nn.Module = field(compare=False, repr=False)
    batch: int = field(default=256, compare=False)
    digest: str | None = field(default=None, kw_only=True)
    outputs: int | None = field(default=None, kw_only=True)

    _integers = ("batch",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.digest is None:
            object.__setattr__(self, "module", _frozen_copy(self.module))
            object.__setattr__(self, "digest", fingerprint(self.module))

    def network(self) -> nn.Module:
        return self.module

    @property
    def width(self) -> int:
        return int(self._fitted("outputs"))

    def _fit(self, rows: Array) -> FeatureMap:
        with torch.no_grad():
            found = self._map(as_rows(as_tensor(rows[:1])))
        return replace(self, outputs=found.shape[1])

    def _rows_at_once(self) -> int:
        return self.batch

    def _map(self, rows: Tensor) -> Tensor:
        module = self._cache(rows.device, lambda: _on_device(self.module, rows.device))
        floating = (value.dtype for value in module.parameters() if value.is_floating_point())
        found = apply_module(module, rows.to(next(floating, rows.dtype)))
        if not torch.is_tensor(found) or found.is_complex() or found.shape[:1] != rows.shape[:1]:
            got = f"shape {tuple(found.shape)}" if torch.is_tensor(found) else type(found).__name__
            raise InputError(
                f"the module must return a real tensor with one row per row of x; it returned {got}"
                f" for {len(rows)} rows."
            )
        vectors: Tensor = found.reshape(len(rows), math.prod(found.shape[1:]))
        return vectors


def _frozen_copy(module: Any) -> nn.Module:
    check_type("module", module, nn.Module, "a torch.nn.Module")
    try:
        own: nn.Module = copy.deepcopy(module)
    except Exception as error:  # a module's own parts may raise anything
        raise InputError(f"module cannot be copied by copy.deepcopy ({error}).") from error
    halves = (torch.float16, torch.bfloat16)
    if any(value.dtype in halves for value in (*own.parameters(), *own.buffers())):
        own = own.float()
    return own.eval().requires_grad_(False)


def _on_device(module: nn.Module, device: torch.device) -> nn.Module:
    """Return the module, or a copy of it if it is on another device."""
    places = {value.device for value in (*module.parameters(), *module.buffers())}
    return module if places <= {device} else copy.deepcopy(module).to(device)


@renamed_fields(layers="depth", scale="entry")
@dataclass(frozen=True, eq=False)
class RandomReLU(ShapedMap):
    """Random directions, rectified: φ(x) = relu(Wx + b)·√(2/width), with W and b drawn once.

    W has variance 1/columns, and b the size of a typical entry of the first rows: features have the
    scale of the rows, and ‖φ‖² does not grow with either width. As the width grows, φ(x)ᵀφ(x′)
    tends to the arc-cosine kernel of (x/√columns, size of b).

    Parameters
    ----------
    width : int
        The number of features of a row.
    depth : int
        The number of such layers, all of that width.
    bias : float
        The standard deviation of b, in units of a typical entry of the first rows.
    random_state : int
        Seed for W and b.
    reason : str, optional
        Why this map was chosen, if it was chosen automatically.
    shape : tuple of int, optional
        The shape of a row; set by ``fit``.
    entry : float, optional
        Typical size of the entries; by default the root mean square of the first rows.

    Raises
    ------
    InputError
        If a number is out of its bounds.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import RandomReLU
    >>> x = torch.ones(1, 100)
    >>> narrow, broad = (RandomReLU(width).fit(x.numpy())(x) for width in (64, 4096))
    >>> round(float(narrow.square().sum())), round(float(broad.square().sum()))
    (2, 2)
    """

    width: int = 1024
    depth: int = 1
    bias: float = 1.0
    random_state: int = 0
    entry: float | None = field(default=None, kw_only=True)

    _integers = ("width", "depth", "random_state")
    _sizes = ("bias",)

    def _fit(self, rows: Array) -> FeatureMap:
        return self if self.entry is not None else replace(self, entry=_root_mean_square(rows))

    def _map(self, rows: Tensor) -> Tensor:
        hidden = rows.reshape(len(rows), self._columns)
        tensors = self._tensors(rows)
        for weights, shifts in zip(tensors[::2], tensors[1::2], strict=True):
            hidden = (hidden @ weights).add_(shifts).relu_()
        return hidden.mul_(self.width**-0.5)

    def _constants(self) -> list[Array]:
        """Return Wᵀ and b of each layer."""
        return _draw_layers(self, [self._columns, *[self.width] * self.depth])


@dataclass(frozen=True, eq=False)
class _ImageMap(ShapedMap):
    """A map of images, (channels, height, width) or (height, width)."""

    @property
    def _image(self) -> tuple[int, int, int]:
        channels, height, width = (1, *self._fitted("shape"))[-3:]
        return channels, height, width

    def _check_images(self, rows: Array, kernel: int = 1, pool: int = 1, depth: int = 1) -> None:
        """Refuse rows that are no images, or too small for layers of filters and pooling."""
        if rows.ndim not in (3, 4):
            raise InputError(
                f"x has rows of shape {rows.shape[1:]}, but {type(self).__name__} needs images "
                "(channels, height, width); use feature_map='relu' for other rows."
            )
        least = kernel + pool - 1
        for _ in range(depth - 1):
            least = 2 * least + kernel - 1
        if min(rows.shape[-2:]) < least:
            raise InputError(
                f"x has images of {rows.shape[-2]} × {rows.shape[-1]} pixels (channels come "
                f"first), but kernel={kernel} with pool={pool} needs {least} along each "
                "side; use smaller ones, or RandomReLU."
            )


@renamed_fields(layers="depth", scale="entry")
@dataclass(frozen=True, eq=False)
class RandomConvolutions(_ImageMap):
    """Random filters slid over an image, relu, and averages over pool × pool parts of it.

    Filters stay within the image. They have variance 1/(their numbers), and the shifts the size of
    a typical entry of the first rows, as in :class:`RandomReLU`. With two layers the filters slide
    over the answers of ``hidden`` other filters, averaged over 2 × 2 places.
    """

    width: int = 1024
    kernel: int = 5
    pool: int = 4
    bias: float = 1.0
    random_state: int = 0
    depth: int = field(default=1, metadata={"added": True})
    hidden: int = field(default=32, metadata={"added": True})
    entry: float | None = field(default=None, kw_only=True)

    _integers = ("width", "kernel", "pool", "random_state", "depth", "hidden")
    _sizes = ("bias",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_multiple(self.width, self.pool)
        check_integer("depth", self.depth, 1, 2)

    def _fit(self, rows: Array) -> FeatureMap:
        self._check_images(rows, self.kernel, self.pool, self.depth)
        return self if self.entry is not None else replace(self, entry=_root_mean_square(rows))

    @property
    def _filters(self) -> int:
        return self.width // self.pool**2

    def _rows_at_once(self) -> int:
        channels, height, width = self._image
        answers = self._filters if self.depth == 1 else self.hidden + self._filters // 4
        entries = max(channels, self.hidden // 4 * (self.depth - 1)) * self.kernel**2
        return AT_ONCE // (height * width * (entries + answers))

    def _map(self, rows: Tensor) -> Tensor:
        maps = rows.reshape(len(rows), *self._image)
        tensors = self._tensors(rows)
        for weights, shifts in zip(tensors[::2], tensors[1::2], strict=True):
            if weights is not tensors[0]:
                maps = functional.avg_pool2d(maps, 2)
            # A matrix product, because GPU libraries for convolutions may use fewer digits.
            patches = functional.unfold(maps, self.kernel)
            places = (side - self.kernel + 1 for side in maps.shape[2:])
            maps = (weights @ patches).add_(shifts).relu_().reshape(len(maps), -1, *places)
        pooled = functional.adaptive_avg_pool2d(maps, self.pool)
        return pooled.reshape(len(rows), self.width).mul_(self.width**-0.5)

    def _constants(self) -> list[Array]:
        """Return the filters of each layer, one per row, and their shifts."""
        widths = [self._image[0], *[self.hidden] * (self.depth - 1), self._filters]
        return [np.atleast_2d(one).T for one in _draw_layers(self, widths, self.kernel**2)]


@dataclass(frozen=True, eq=False)
class WhitenedPatches(_ImageMap):
    """Whitened patches of the first images as filters, relu, and averages over parts of an image.

    A patch is centred, divided by its contrast, and whitened; a filter is such a patch of the first
    images. Filters are as good if these images are all of one class, as at the begin of a stream
    that is sorted by class.
    """

    width: int = 1024
    kernel: int = 6
    pool: int = 2
    random_state: int = 0
    filters: Array | None = field(default=None, kw_only=True, repr=False)

    _integers = ("width", "kernel", "pool", "random_state")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_multiple(self.width, self.pool)

    def _fit(self, rows: Array) -> FeatureMap:
        self._check_images(rows, self.kernel, self.pool)
        patches = self._draw_patches(rows)
        patches -= patches.mean(1, keepdims=True)
        contrasts = patches.var(1, keepdims=True)
        noise = NOISE * float(contrasts.mean()) or 1.0
        patches /= np.sqrt(contrasts + noise)
        mean = patches.mean(0)
        values, vectors = np.linalg.eigh(np.cov(patches.T))
        least = SHRINKAGE * max(float(values.mean()), np.finfo(float).tiny)
        values = np.maximum(values, 0.0) + least
        whitening = (vectors / np.sqrt(values)) @ vectors.T
        chosen = (patches[: self.width // self.pool**2] - mean) @ whitening
        chosen /= np.linalg.norm(chosen, axis=1, keepdims=True) + np.finfo(float).tiny
        weights = chosen @ whitening
        columns = [weights, -weights @ mean[:, None], np.full((len(weights), 1), noise)]
        return replace(self, filters=np.hstack(columns).astype(np.float32))

    def _draw_patches(self, rows: Array) -> Array:
        """Draw patches of the first images, each as one vector."""
        images = rows[:PATCH_IMAGES].reshape(-1, *self._image)
        shape = (len(images), *(side - self.kernel + 1 for side in self._image[1:]))
        count = max(PATCHES, self.width // self.pool**2)
        places = step_rng(self.random_state, 0).integers(0, shape, (count, 3))
        size = self.kernel
        found = [
            images[image, :, top : top + size, left : left + size].ravel()
            for image, top, left in places.tolist()
        ]
        return np.array(found, dtype=np.float64)

    def _rows_at_once(self) -> int:
        _, height, width = self._image
        return AT_ONCE // (height * width * (self.width // self.pool**2))

    def _constants(self) -> list[Array]:
        return [self._fitted("filters")]

    def _map(self, rows: Tensor) -> Tensor:
        (held,) = self._tensors(rows)
        weights, shifts, noise = held[:, :-2], held[:, -2], held[0, -1]
        images = rows.reshape(len(rows), *self._image)
        weights = weights.reshape(len(held), self._image[0], self.kernel, self.kernel)
        # Without TensorFloat-32, which has three digits.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            answers = functional.conv2d(images, weights)
        # Filters have sum 0: only the contrast of a patch is left to divide by.
        centred = images - images.mean((1, 2, 3), keepdim=True)
        first, square = (
            functional.avg_pool2d(one.mean(1, keepdim=True), self.kernel, 1)
            for one in (centred, centred.square())
        )
        contrasts = (square - first.square()).clamp_min_(0).add_(noise)
        answers = answers.mul_(contrasts.rsqrt_()).add_(shifts[:, None, None]).relu_()
        pooled = functional.adaptive_avg_pool2d(answers, self.pool)
        return pooled.reshape(len(rows), self.width).mul_(self.width**-0.5)


@renamed_fields(layers="depth")
@dataclass(frozen=True, eq=False)
class RandomPooled(_ImageMap):
    """A deep random network of 3×3 convolutions with relu, averaged over the image.

    The wider its layers, the closer are products of features to the pooled kernel at initialisation
    (:func:`bicore.kernels.pooled_cntk` with ``kind="nngp"``). Most of such a feature is the same in
    all images: the mean over the first 128 is subtracted, unless ``centred`` is False.
    """

    width: int = 1024
    depth: int = 5
    hidden: int = 128
    centred: bool = True
    random_state: int = 0
    mean: Array | None = field(default=None, kw_only=True, repr=False)

    _integers = ("width", "depth", "hidden", "random_state")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_type("centred", self.centred, bool, "True or False")

    def _fit(self, rows: Array) -> FeatureMap:
        self._check_images(rows)
        if not self.centred or self.mean is not None:
            return self
        bare = replace(self, centred=False).features(as_rows(as_tensor(rows[:MEAN_ROWS])))
        return replace(self, mean=bare.mean(0).double().numpy())

    def _rows_at_once(self) -> int:
        channels, height, width = self._image
        widest = SIDE**2 * max(channels, self.hidden if self.depth > 1 else channels)
        return AT_ONCE // (height * width * (widest + max(self.hidden, self.width)))

    def _map(self, rows: Tensor) -> Tensor:
        channels, height, width = self._image
        maps = rows.reshape(len(rows), channels, height, width)
        for filters in self._tensors(rows):
            # A matrix product, because GPU libraries for convolutions may use fewer digits.
            patches = functional.unfold(maps, SIDE, padding=SIDE // 2)
            maps = (filters @ patches).relu_().reshape(len(rows), -1, height, width)
        found = maps.mean((2, 3)).mul_(RELU_GAIN * self.width**-0.5)
        return found if self.mean is None else found.sub_(to_tensor(self.mean, found))

    def _constants(self) -> list[Array]:
        """Return the filters of each layer, one per row; the gain makes up for the relu before."""
        found = []
        widths = [self._image[0], *[self.hidden] * (self.depth - 1), self.width]
        for layer, (inputs, outputs) in enumerate(pairwise(widths)):
            gain = 1.0 if layer == 0 else RELU_GAIN
            entries = SIDE**2 * inputs
            drawn = step_rng(self.random_state, layer).standard_normal((outputs, entries))
            found.append(drawn * (gain * entries**-0.5))
        return found


@dataclass(frozen=True, eq=False)
class RandomFourier(ShapedMap):
    """Cosines and sines of random frequencies, whose inner products approximate a kernel.

    Every row has length 1, as k(x, x) = 1. Frequencies are drawn from the kernel's spectrum:
    normal with variance 2γ for :class:`bicore.kernels.RBF`, Cauchy with scale γ in each coordinate
    for :class:`bicore.kernels.Laplace` (which is of ‖a − b‖₁). The error of an inner product is
    about 1/√width. Phases are computed in float64 whatever the rows: a phase of thousands of turns
    has no digits left in float32.

    Parameters
    ----------
    width : int
        The number of features of a row; even, for they come in pairs.
    kind : "rbf" or "laplace"
        The kernel.
    gamma : float, optional
        The kernel's γ; by default its median heuristic on the first rows.
    random_state : int
        Seed for the frequencies.
    reason : str, optional
        Why this map was chosen, if it was chosen automatically.
    shape : tuple of int, optional
        The shape of a row; set by ``fit``.

    Raises
    ------
    InputError
        If a value is out of its bounds.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import RandomFourier
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> first, second = RandomFourier(4096, gamma=0.5).fit(x.numpy())(x)
    >>> round(float(first @ first), 3), abs(float(first @ second) - 0.607) < 0.03
    (1.0, True)
    """

    width: int = 1024
    kind: str = "rbf"
    gamma: float | None = None
    random_state: int = 0

    _integers = ("width", "random_state")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("kind", self.kind, _FOURIER_KERNELS)
        gamma = _FOURIER_KERNELS[self.kind](self.gamma).gamma  # checks that it is positive
        object.__setattr__(self, "gamma", None if gamma is None else float(gamma))
        if self.width % 2:
            raise InputError(
                f"width={self.width} must be even, for a cosine and a sine per frequency; give "
                f"width={self.width + 1}."
            )

    def _fit(self, rows: Array) -> FeatureMap:
        fitted: Any = _FOURIER_KERNELS[self.kind](self.gamma).fit(rows)
        return replace(self, gamma=fitted.gamma)

    def _map(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(len(rows), self._columns).double()
        (frequencies,) = self._tensors(flat)
        phases = flat @ frequencies
        waves = torch.cat([phases.cos(), phases.sin()], 1)
        return waves.mul_(math.sqrt(2 / self.width))

    def _constants(self) -> list[Array]:
        """Return the frequencies, one per column."""
        rng, gamma = step_rng(self.random_state, 0), self._fitted("gamma")
        shape = (self._columns, self.width // 2)
        if self.kind == "laplace":
            return [rng.standard_cauchy(shape) * gamma]
        return [rng.standard_normal(shape) * math.sqrt(2 * gamma)]


@dataclass(frozen=True, eq=False)
class Nystrom(ShapedMap):
    """A kernel approximated by landmarks Z: φ(x) = k(x, Z) K_ZZ^{−½}, exact between landmarks.

    Landmarks are drawn from the rows that the map is fitted to; rows unlike all of them have short
    features. The kernel is evaluated in float64 whatever the rows.

    Parameters
    ----------
    kernel : Kernel
        The kernel; it is fitted to the first rows.
    landmarks : int
        Maximum number of rows drawn.
    random_state : int
        Seed for that draw.
    reason : str, optional
        Why this map was chosen, if it was chosen automatically.
    shape : tuple of int, optional
        The shape of a row; set by ``fit``.
    anchors, root : array, optional
        The landmarks Z and K_ZZ^{−½}, set by ``fit``.

    Raises
    ------
    InputError
        If a value is out of its bounds, or the kernel is zero on the first rows.

    Examples
    --------
    >>> import torch
    >>> from bicore.kernels import RBF
    >>> from bicore.moments.features import Nystrom
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> phi = Nystrom(RBF(1.0)).fit(x.numpy())(x)
    >>> [[round(value, 3) for value in row] for row in (phi @ phi.T).tolist()]
    [[1.0, 0.368], [0.368, 1.0]]
    """

    kernel: Kernel = field(default_factory=Laplace)
    landmarks: int = 512
    random_state: int = 0
    anchors: Array | None = field(default=None, kw_only=True, repr=False)
    root: Array | None = field(default=None, kw_only=True, repr=False)

    _integers = ("landmarks", "random_state")

    def __post_init__(self) -> None:
        super().__post_init__()
        if getattr(self.kernel, "precomputed", True):
            raise InputError(
                f"kernel={self.kernel!r} cannot be evaluated at new rows; give a kernel such as "
                "RBF() or Laplace()."
            )

    @property
    def width(self) -> int:
        return int(self._fitted("root").shape[1])  # at most one per landmark

    def _fit(self, rows: Array) -> FeatureMap:
        kernel = self.kernel.fit(rows)
        count = min(self.landmarks, len(rows))
        picked = np.sort(step_rng(self.random_state, 0).choice(len(rows), count, replace=False))
        landmarks = np.array(rows[picked], dtype=np.float64)
        with torch.no_grad():
            values, vectors = torch.linalg.eigh(kernel.gram(torch.from_numpy(landmarks)))
        large = values > CUTOFF * values.max()
        if not bool(large.any()):
            raise InputError(f"kernel={kernel.name} is zero on the first rows; fit to other rows.")
        root = (vectors[:, large] * values[large].rsqrt()).numpy()
        return replace(self, kernel=kernel, anchors=landmarks, root=np.ascontiguousarray(root))

    def _rows_at_once(self) -> int:
        pair = self.kernel.bytes_per_pair(8, self._fitted("shape")) // 8 + 1
        return AT_ONCE // (pair * len(self._fitted("root")))

    def _map(self, rows: Tensor) -> Tensor:
        points = rows.double()
        landmarks, root = self._tensors(points)
        return self.kernel.evaluate(points, landmarks) @ root

    def _constants(self) -> list[Array]:
        return [self._fitted("anchors"), self._fitted("root")]


def _check_multiple(width: int, pool: int) -> None:
    parts = pool**2
    if width % parts:
        near = max(1, round(width / parts)) * parts
        raise InputError(f"width={width} must be a multiple of pool² = {parts}; give width={near}.")


def _draw_layers(
    one: RandomReLU | RandomConvolutions, widths: list[int], places: int = 1
) -> list[Array]:
    """Draw weights, a column per output, and shifts of each layer; relu(gz) = g·relu(z)."""
    shift = RELU_GAIN * one.bias * one._fitted("entry")
    found = []
    for layer, (width, outputs) in enumerate(pairwise(widths)):
        inputs = width * places
        drawn = step_rng(one.random_state, layer).standard_normal((inputs + 1, outputs))
        found += [drawn[:-1] * (RELU_GAIN * inputs**-0.5), drawn[-1] * shift]
    return found


def _root_mean_square(rows: Array) -> float:
    """Return the root mean square without overflow; 1 if all numbers are zero."""
    largest = float(np.abs(rows).max())
    if largest == 0:
        return 1.0
    return largest * float(np.sqrt(np.mean(np.square(rows / largest, dtype=np.float64))))

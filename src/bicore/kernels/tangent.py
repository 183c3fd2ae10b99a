"""Infinite-width kernels of networks: the NTK and the NNGP, and the architectures of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import numpy as np
import torch
from torch import Tensor

from bicore._deprecated import renamed_fields, renamed_keywords
from bicore.errors import InputError, check_integer, check_name, check_number
from bicore.kernels.architecture import (
    Conv,
    Dense,
    Flatten,
    GlobalAverage,
    Layer,
    ReLU,
    Residual,
    State,
    overlap,
    stride_of,
)
from bicore.kernels.base import Kernel, mirror
from bicore.runtime.clock import checkpoint
from bicore.runtime.threads import run_in_threads

#: Pairs × positions of a tile on a CPU, so that it and its temporary arrays fit the cache.
_CACHED_ELEMENTS = 800_000
#: Pairs of vectors in a tile: small tiles compute less below the diagonal.
_CACHED_PAIRS = 1 << 16
#: Cosines closer to ±1 than this need float64; float32 would err by 1e-5.
_NEAR = 1e-3
#: In float64 rounding leaves angles of 1e-8: cosines of equal points are within this of 1.
_EQUAL = 1e-12
#: Cost of a single pair, in pairs of a tile: if more than 1/``_APART`` of the pairs are too close,
#: the tile is recomputed.
_APART = 16
#: Cost of an angle and its maps at a pair of positions, in multiplications.
_LAYER_WORK = 32
#: σ_w and σ_b of the paper's kernels.
SIGMA_W = 1.0
SIGMA_B = 0.05


@renamed_fields(scale="multiplier")
@dataclass(frozen=True)
class TangentKernel(Kernel):
    """The kernel of an infinitely wide network.

    Images are (n, channels, height, width) or (n, height, width); a network without convolutions
    takes vectors.

    Parameters
    ----------
    layers : sequence of Layer
        Layers of :mod:`bicore.kernels.architecture`; weights have variance σ_w²/fan-in and biases
        σ_b².
    kind : "ntk" or "nngp"
        The tangent kernel (training with gradient descent), or the covariance at initialisation.
    multiplier : float
        A constant factor on the matrix (the paper divides its ResNet kernel by 100).
    label : str
        Name of the network in reports.

    Raises
    ------
    InputError
        If the layers are not a network with one read-out, or another argument is unknown.

    Examples
    --------
    >>> from bicore.kernels.architecture import Dense
    >>> from bicore.kernels.architecture import ReLU
    >>> from bicore.kernels import TangentKernel
    >>> kernel = TangentKernel([Dense(), ReLU(), Dense()])
    >>> kernel([[1.0, 0.0], [0.0, 1.0]]).round(4).tolist()
    [[0.5, 0.0796], [0.0796, 0.5]]
    """

    layers: Sequence[Layer]
    kind: str = "ntk"
    multiplier: float = 1.0
    label: str = "network"

    def __post_init__(self) -> None:
        check_name("kind", self.kind, ("ntk", "nngp"))
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "multiplier", check_number("multiplier", self.multiplier, above=0))
        _check_readout(self.layers)

    @property
    def name(self) -> str:
        return f"{self.label} {self.kind}"

    @property
    def spatial(self) -> bool:
        """Whether it takes images."""
        return any(layer.spatial for layer in self.layers)

    @property
    def pooled(self) -> bool:
        """Whether the read-out averages over positions, which needs all pairs."""
        return any(isinstance(layer, GlobalAverage) for layer in self.layers)

    @property
    def _average(self) -> int:
        """Index of the layer that averages over positions."""
        return [isinstance(layer, GlobalAverage) for layer in self.layers].index(True)

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        fused = self._evaluate_fused(a, b)
        return self._fill(self._trace(a), self._trace(b)) if fused is None else fused

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        fused = self._evaluate_fused(a, None)
        if fused is not None:
            return fused
        traced = self._trace(a)
        result = self._fill(traced, traced)
        mirror(result)
        result.diagonal().copy_(self._diagonal(traced))
        return result

    def diag(self, a: Tensor) -> Tensor:
        fused = self._evaluate_fused(a, None, diagonal=True) if self.pooled else None
        return self._diagonal(self._trace(a)) if fused is None else fused

    def _evaluate_fused(self, a: Tensor, b: Tensor | None, diagonal: bool = False) -> Tensor | None:
        """Evaluate the whole network on the GPU; None on a CPU or if it is not supported."""
        if not (a.is_cuda and self.spatial):
            return None
        # Imported only if there is a GPU.
        from bicore.kernels.gpu.fused import evaluate_fused

        self._check_images(a)
        if a.dtype in (torch.float32, torch.float64):
            return evaluate_fused(self, a, b, diagonal)
        # Half precision is for storage only.
        found = evaluate_fused(self, a.float(), None if b is None else b.float(), diagonal)
        return None if found is None else found.to(a.dtype)

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        # √v at every position and activation, and the image itself.
        positions = shape[-1] * shape[-2] if self.spatial and len(shape) > 1 else 1
        # A fused kernel stores two factors, those of the second image twice, and computes them.
        copies = 8 if self.pooled else 1
        activations = sum(layer.activations for layer in self.layers)
        return itemsize * (copies * positions * activations + int(np.prod(shape)))

    def _fill(self, left: _Traced, right: _Traced) -> Tensor:
        """Compute the matrix tile by tile; for a symmetric one only tiles on or above the
        diagonal."""
        symmetric = left is right
        large = left.inputs.is_cuda
        positions = left.inputs.shape[:-2].numel()
        result = left.inputs.new_empty(len(left), len(right))

        def fill(tile: tuple[slice, slice]) -> None:
            rows, columns = tile
            own = rows.start - columns.start if symmetric else None
            result[rows, columns] = self._tile(left.part(rows), right.part(columns), own)

        tiles = _tiles(len(left), len(right), positions, large)
        if symmetric:
            tiles = (tile for tile in tiles if tile[1].stop > tile[0].start)
        each = _LAYER_WORK * len(self.layers) * positions + left.inputs[..., 0, :].numel()
        work = 0.0 if large else float(result.numel()) * each / (2 if symmetric else 1)
        run_in_threads(fill, tiles, work)
        return result

    def _trace(self, a: Tensor) -> _Traced:
        """Record the norms of every image."""
        if not self.spatial:
            return self._trace_inputs(a.reshape(len(a), -1))
        self._check_images(a)
        images = a[:, None] if a.dim() == 3 else a
        return self._trace_inputs(images.permute(2, 3, 0, 1).contiguous())

    @staticmethod
    def _check_images(a: Tensor) -> None:
        if a.dim() not in (3, 4):
            raise InputError(
                f"x has shape {tuple(a.shape)}; the kernel of a convolutional network needs "
                "images (n, channels, height, width) or (n, height, width). Use kernel='ntk'."
            )

    def _trace_inputs(self, inputs: Tensor) -> _Traced:
        """Record the norms of vectors (n, d), or images (height, width, n, channels)."""
        state = State(inputs.square().mean(-1))
        norms = list[Tensor]()
        for layer in self.layers:
            if isinstance(layer, GlobalAverage):
                return _Traced(inputs, norms, None, self._pooled_positions(inputs, state.nngp))
            state = layer.variance(state, norms)
        if state.nngp.dim() != 1:
            kept = tuple(state.nngp.shape[:-1])
            raise InputError(f"the output keeps positions {kept}; add Flatten() before the end.")
        return _Traced(inputs, norms, self.kernel_values(state), (1, 1))

    def _pooled_positions(self, inputs: Tensor, maps: Tensor) -> tuple[int, int]:
        """Return height and width of the averaged maps.

        Every displacement between them must exist between pixels.
        """
        stride = stride_of(self.layers[: self._average])
        height, width = maps.shape[:2]
        if (height - 1) * stride >= inputs.shape[0] or (width - 1) * stride >= inputs.shape[1]:
            raise InputError(
                f"padding makes maps of {height}×{width} from images of "
                f"{inputs.shape[0]}×{inputs.shape[1]} (stride {stride}); a pooled kernel takes "
                "maps no larger than the image: use padding 'same' or less."
            )
        return height, width

    def norms(self, a: Tensor) -> list[Tensor]:
        """Return √v at every activation, in order.

        Parameters
        ----------
        a : Tensor
            Images or vectors, rows first.

        Returns
        -------
        list of Tensor
            Positions first and images last.
        """
        return self._trace(a).norms

    def _diagonal(self, traced: _Traced) -> Tensor:
        if traced.diagonal is not None:
            return traced.diagonal
        exact = self._trace_inputs(traced.inputs.double())
        return self._pairs(exact, exact).to(traced.inputs.dtype)

    def _tile(self, left: _Traced, right: _Traced, own: int | None) -> Tensor:
        """Return the kernel of all pairs; nearly equal or opposite pairs in float64.

        An angle that is nearly zero comes from a cosine that is nearly one, and rounding leaves the
        angle half its digits: in float32 an error of 3e-4 for equal points. In float64 it is 1e-8,
        which a regulariser near that would show; so equal points get the value of the diagonal.
        ``own`` is the diagonal of pairs of an image with itself, which is computed elsewhere.
        """
        double = left.inputs.dtype == torch.float64
        near: list[Tensor] = []

        def note_near_pairs(cosine: Tensor) -> None:
            # Usually there are none, which two reductions show.
            if double:
                if float(cosine.amax()) > 1 - _EQUAL:
                    near.append(cosine > 1 - _EQUAL)
            elif max(float(cosine.amax()), -float(cosine.amin())) > 1 - _NEAR:
                near.append(cosine.abs() > 1 - _NEAR)

        if self.spatial:
            note_near_pairs(left.directions() @ right.directions().T)
        result = self._block(left, right, None if self.spatial else note_near_pairs)
        if near:
            found = torch.stack(near).any(0)
            if own is not None and -len(found) < own < found.shape[1]:
                found.diagonal(own).fill_(False)
            if len(pairs := found.nonzero()):
                (self._set_equal if double else self._recompute_near)(result, pairs, left, right)
        return result

    def _set_equal(self, result: Tensor, pairs: Tensor, left: _Traced, right: _Traced) -> None:
        """Set the pairs among these that are equal to the diagonal of the kernel."""
        numbers = left.inputs[..., :1, :].numel()
        for some in torch.split(pairs, max(1, _CACHED_ELEMENTS // numbers)):
            first, second = some.unbind(1)
            differ = left.inputs[..., first, :] != right.inputs[..., second, :]
            first, second = some[~differ.movedim(-2, 0).flatten(1).any(1)].unbind(1)
            alone, places = torch.unique(first, return_inverse=True)
            values = self._diagonal(self._trace_inputs(left.inputs[..., alone, :]))
            result[first, second] = values[places]

    def _recompute_near(self, result: Tensor, pairs: Tensor, left: _Traced, right: _Traced) -> None:
        """Overwrite these pairs by values in float64, or all if they are many."""
        if len(pairs) * _APART > result.numel():
            rows, columns = (self._trace_inputs(one.inputs.double()) for one in (left, right))
            result.copy_(self._block(rows, columns))
            return
        numbers = left.inputs[..., :1, :].numel()
        for some in torch.split(pairs, max(1, _CACHED_ELEMENTS // numbers)):
            first, second = some.unbind(1)
            values = self._pairs(
                self._trace_inputs(left.inputs[..., first, :].double()),
                self._trace_inputs(right.inputs[..., second, :].double()),
            )
            result[first, second] = values.to(result.dtype)

    def _pairs(self, left: _Traced, right: _Traced) -> Tensor:
        """Return k(a_i, b_i)."""

        def multiply(first: Tensor, second: Tensor) -> Tensor:
            return (first * second).mean(-1).unsqueeze(-1)

        return self._propagate(left, right, multiply, -1)[:, 0]

    def _block(
        self, left: _Traced, right: _Traced, watch: Callable[[Tensor], None] | None = None
    ) -> Tensor:
        """Return k(a_i, b_j) of all pairs."""
        channels = left.inputs.shape[-1]

        def multiply(first: Tensor, second: Tensor) -> Tensor:
            second = second.transpose(-1, -2)
            return first * second if channels == 1 else first @ second / channels

        return self._propagate(left, right, multiply, -2, watch)

    def _propagate(
        self,
        left: _Traced,
        right: _Traced,
        multiply: Callable[[Tensor, Tensor], Tensor],
        axis: int,
        watch: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """Map covariances of inputs to the kernel; ``axis`` is that of the first images.

        A pooled kernel is the mean of the last map over all pairs of positions; pairs of one
        displacement are summed together, displacement by displacement.
        """
        norms = [
            (one.unsqueeze(-1), two.unsqueeze(axis))
            for one, two in zip(left.norms, right.norms, strict=True)
        ]

        def propagate(layers: Sequence[Layer], shift: tuple[int, int]) -> State:
            pairs = iter(norms)
            state = State(multiply(*overlap(left.inputs, right.inputs, shift)), None, shift, watch)
            for layer in layers:
                state = layer.covariance(state, pairs)
            return state

        if not self.pooled:
            return self.kernel_values(propagate(self.layers, (0, 0)))
        place = self._average
        stride = stride_of(self.layers[:place])
        height, width = left.positions
        down, across = (range((1 - n) * stride, n * stride, stride) for n in left.positions)
        states = (propagate(self.layers[: place + 1], shift) for shift in product(down, across))
        total = replace(reduce(_add, states), shift=(0, 0))
        mean = total.map(lambda values: values / (height * width) ** 2)
        for layer in self.layers[place + 1 :]:
            mean = layer.covariance(mean, iter(()))
        return self.kernel_values(mean)

    def kernel_values(self, state: State) -> Tensor:
        """Return the values of the kernel for a state.

        Parameters
        ----------
        state : State
            The output of the last layer.

        Returns
        -------
        Tensor
            Σ or Θ, scaled; zeros for Θ if no layer has weights.
        """
        if self.kind == "nngp":
            return state.nngp * self.multiplier
        return (
            state.ntk * self.multiplier if state.ntk is not None else torch.zeros_like(state.nngp)
        )


def _add(total: State, state: State) -> State:
    """Add a state to another one in place."""
    if total.ntk is not None and state.ntk is not None:
        total.ntk.add_(state.ntk)
    total.nngp.add_(state.nngp)
    return total


def _check_readout(layers: Sequence[Layer]) -> None:
    """Raise an error unless there is one read-out, after the convolutions."""
    places = [k for k, layer in enumerate(layers) if isinstance(layer, (Flatten, GlobalAverage))]
    if any(layer.spatial for layer in layers) and not places:
        raise InputError("layers has no Flatten or GlobalAverage; add one before the output layer.")
    for place in places:
        name = type(layers[place]).__name__
        pooled = name == "GlobalAverage"
        for layer in layers[place + 1 :]:
            # Layers after an average must not need variances of single images, which it does not
            # give.
            if layer.spatial or (pooled and not isinstance(layer, Dense)):
                raise InputError(
                    f"{type(layer).__name__} follows {name}; use {name} once, after the last Conv "
                    "(an average over positions inside a network has no kernel)."
                )
        uneven = [
            layer
            for layer in layers[:place]
            if isinstance(layer, Residual) and stride_of(layer.body) != stride_of(layer.shortcut)
        ]
        if pooled and uneven:
            raise InputError("the branches of a Residual have different strides; they must agree.")


@dataclass(frozen=True)
class _Traced:
    """Images with the norms at their activations.

    Images come last in every norm, so that a slice of them is a slice of the norm. ``diagonal`` is
    None if it does not follow from single positions; ``positions`` are height and width before the
    read-out.
    """

    inputs: Tensor
    norms: list[Tensor]
    diagonal: Tensor | None
    positions: tuple[int, int]

    def __len__(self) -> int:
        return self.inputs.shape[-2]

    def directions(self) -> Tensor:
        """Every image as a vector of length 1; a black one stays zero."""
        rows = self.inputs.movedim(-2, 0).flatten(1)
        lengths = rows.square().sum(1, keepdim=True).sqrt()
        return rows / lengths.clamp_min(torch.finfo(rows.dtype).tiny)

    def part(self, rows: slice) -> _Traced:
        norms = [norm[..., rows] for norm in self.norms]
        return _Traced(self.inputs[..., rows, :], norms, None, self.positions)


def _tiles(rows: int, columns: int, positions: int, large: bool) -> Iterator[tuple[slice, slice]]:
    """Yield tiles of pairs that fit the cache, with a long last axis.

    ``large`` if calls cost more than a cache saves.
    """
    flat = _CACHED_ELEMENTS if large else _CACHED_PAIRS
    pairs = max(1, _CACHED_ELEMENTS // positions if positions > 1 else flat)
    width = min(columns, max(64, int(pairs**0.5)))
    height = max(1, min(rows, pairs // width))
    for top in range(0, rows, height):
        for start in range(0, columns, width):
            checkpoint()
            stop = min(start + width, columns)
            yield slice(top, min(top + height, rows)), slice(start, stop)


@renamed_keywords()
def fully_connected(
    hidden: int = 2, kind: str = "ntk", sigma_w: float = SIGMA_W, sigma_b: float = SIGMA_B
) -> TangentKernel:
    """Dense – ReLU – … – Dense; two hidden layers in the paper (784-100-100-10).

    Parameters
    ----------
    hidden : int
        Number of hidden layers.
    kind : "ntk" or "nngp"
        The tangent kernel, or the covariance at initialisation.
    sigma_w, sigma_b : float
        Weights have variance σ_w²/fan-in, biases σ_b².

    Returns
    -------
    TangentKernel
        For vectors; images are flattened.

    Examples
    --------
    >>> from bicore.kernels import fully_connected
    >>> fully_connected(hidden=1).name
    'fully connected (1 hidden) ntk'
    """
    dense = Dense(sigma_w, sigma_b)
    layers = [dense, ReLU()] * hidden + [dense]
    return TangentKernel(layers, kind, label=f"fully connected ({hidden} hidden)")


@renamed_keywords()
def cnn(kind: str = "ntk", sigma_w: float = SIGMA_W, sigma_b: float = SIGMA_B) -> TangentKernel:
    """Conv5×5 – ReLU – Conv5×5 – ReLU – Flatten – Dense – ReLU – Dense, without pooling.

    Parameters
    ----------
    kind : "ntk" or "nngp"
        The tangent kernel, or the covariance at initialisation.
    sigma_w, sigma_b : float
        Weights have variance σ_w²/fan-in, biases σ_b².

    Returns
    -------
    TangentKernel
        For images of any size; convolutions keep it (padding "same").

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.kernels import cnn
    >>> cnn()(np.ones((2, 8, 8))).shape
    (2, 2)
    """
    conv = Conv(5, 1, "same", sigma_w, sigma_b)
    dense = Dense(sigma_w, sigma_b)
    layers = [conv, ReLU(), conv, ReLU(), Flatten(), dense, ReLU(), dense]
    return TangentKernel(layers, kind, label="cnn")


@renamed_keywords(scale="multiplier")
def resnet18(kind: str = "ntk", multiplier: float = 0.01) -> TangentKernel:
    """The paper's ResNet-18: pre-activation blocks without bias.

    The first shortcut of every group is a 3×3 convolution, the others are identities.

    Parameters
    ----------
    kind : "ntk" or "nngp"
        The tangent kernel, or the covariance at initialisation.
    multiplier : float
        A constant factor on the matrix; the paper's.

    Returns
    -------
    TangentKernel
        For images.

    Examples
    --------
    >>> from bicore.kernels import resnet18
    >>> sum(layer.activations for layer in resnet18().layers)
    16
    """
    layers: list[Layer] = [Conv(3)]
    for stride in (1, 2, 2, 2):
        for step, shortcut in ((stride, (Conv(3, stride),)), (1, ())):
            layers.append(Residual((ReLU(), Conv(3, step), ReLU(), Conv(3)), shortcut))
    return TangentKernel(
        [*layers, Flatten(), Dense(1.0, 0.05)], kind, multiplier, label="resnet-18"
    )


@renamed_keywords()
def pooled_cntk(depth: int = 6, kind: str = "ntk", fixed: bool = False) -> TangentKernel:
    """The convolutional kernel with global average pooling of Arora et al. (2019).

    The paper's regression experiment uses it.

    Parameters
    ----------
    depth : int
        Number of layers: depth − 1 convolutions of 3×3 with a ReLU each, and the read-out.
    kind : "ntk" or "nngp"
        The tangent kernel, or the covariance at initialisation.
    fixed : bool
        Whether the first and the last layer are untrained, as in the authors' code.

    Returns
    -------
    TangentKernel
        For images of any size.

    Raises
    ------
    InputError
        If ``depth`` is below 2.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.kernels import pooled_cntk
    >>> pooled_cntk(depth=2)(np.ones((1, 4, 4))).shape
    (1, 1)
    """
    check_integer("depth", depth, 2)
    layers: list[Layer] = []
    for place in range(depth - 1):
        # A ReLU halves the variance; the gain of the next layer compensates.
        gain = 1.0 if place == 0 else 2**0.5
        layers += [Conv(3, sigma_w=gain, trained=not (fixed and place == 0)), ReLU()]
    layers += [GlobalAverage(), Dense(2**0.5, trained=not fixed)]
    return TangentKernel(layers, kind, label=f"pooled cntk (depth {depth})")

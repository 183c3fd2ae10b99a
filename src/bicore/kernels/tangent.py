"""Infinite-width kernels of networks: the NTK and the NNGP of an architecture, read out by
flattening or by averaging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.errors import InputError, unknown_name
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
)
from bicore.kernels.base import Kernel, mirror

#: Pairs × positions handled at once on a CPU: a block and its few temporaries then stay in the
#: cache.
_CACHED_ELEMENTS = 800_000


@dataclass(frozen=True)
class TangentKernel(Kernel):
    """The kernel of an infinitely wide network.

    Parameters
    ----------
    layers : sequence of layers
        See :mod:`bicore.kernels.architecture`; weights have variance σ_w²/fan-in and biases σ_b².
    kind : "ntk" or "nngp"
        The tangent kernel (training with gradient descent), or the covariance at initialisation.
    scale : float
        A constant factor on the matrix (the paper divides its ResNet kernel by 100).

    Images are (n, channels, height, width) or (n, height, width); a network without convolutions
    takes vectors.
    """

    layers: tuple[Layer, ...]
    kind: str = "ntk"
    scale: float = 1.0
    label: str = "network"

    def __init__(
        self, layers: Sequence[Layer], kind: str = "ntk", scale: float = 1.0, label: str = "network"
    ) -> None:
        if kind not in ("ntk", "nngp"):
            raise unknown_name("kind", kind, ["ntk", "nngp"])
        if not scale > 0:
            raise InputError(f"scale={scale} is not positive; a kernel's scale is > 0.")
        layers = tuple(layers)
        _check_readout(layers)
        for name, value in (
            ("layers", layers),
            ("kind", kind),
            ("scale", float(scale)),
            ("label", label),
        ):
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        return f"{self.label} {self.kind}"

    @property
    def spatial(self) -> bool:
        return any(layer.spatial for layer in self.layers)

    @property
    def pooled(self) -> bool:
        """Whether the read-out averages over positions, so that all pairs of positions count."""
        return any(isinstance(layer, GlobalAverage) for layer in self.layers)

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        fused = self._fused(a, b)
        if fused is not None:
            return fused
        left = self._traced(a)
        right = self._traced(b)
        result = a.new_empty(len(a), len(b))
        for top, bottom, start, stop in _tiles(len(a), len(b), self._positions(a)):
            result[top:bottom, start:stop] = self._block(
                left.part(top, bottom), right.part(start, stop)
            )
        return result

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        """Images are traced once and only tiles on or above the diagonal are computed."""
        fused = self._fused(a, None)
        if fused is not None:
            return fused
        traced = self._traced(a)
        result = a.new_empty(len(a), len(a))
        for top, bottom, start, stop in _tiles(len(a), len(a), self._positions(a)):
            if stop > top:
                part = self._block(traced.part(top, bottom), traced.part(start, stop))
                result[top:bottom, start:stop] = part
        mirror(result)
        result.diagonal().copy_(self._diagonal(traced))
        return result

    def diag(self, a: Tensor) -> Tensor:
        if a.is_cuda and self.pooled:
            from bicore.kernels.gpu.fused import fused_diagonal

            self._check_images(a)
            fused = fused_diagonal(self, a)
            if fused is not None:
                return fused
        return self._diagonal(self._traced(a))

    def _fused(self, a: Tensor, b: Tensor | None) -> Tensor | None:
        """The whole network in one pass on the GPU; None on a CPU, and where no such kernel covers
        it."""
        if not (a.is_cuda and self.spatial):
            return None
        # nothing of it is imported where there is no GPU
        from bicore.kernels.gpu.fused import fused

        self._check_images(a)
        if a.dtype in (torch.float32, torch.float64):
            return fused(self, a, b)
        # half precision is for storing
        found = fused(self, a.float(), None if b is None else b.float())
        return None if found is None else found.to(a.dtype)

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        # √v at every position and ReLU, and the image itself.
        positions = shape[-1] * shape[-2] if self.spatial and len(shape) > 1 else 1
        # a fused kernel keeps two factors, those of the second image twice, and makes them
        copies = 8 if self.pooled else 1
        return itemsize * (copies * positions * _relus(self.layers) + int(np.prod(shape)))

    def _positions(self, a: Tensor) -> int:
        return int(a.shape[-1] * a.shape[-2]) if self.spatial else 1

    def _traced(self, a: Tensor) -> _Traced:
        """Follow every image alone: √v at each ReLU, and the diagonal where it follows from single
        positions."""
        inputs = self._inputs(a)
        state = State(inputs.square().mean(-1), None)
        notes = list[Tensor]()
        for layer in self.layers:
            if isinstance(layer, GlobalAverage):
                return _Traced(inputs, notes, None, self._pooled_positions(inputs, state.nngp))
            state = layer.variance(state, notes)
        if state.nngp.dim() != 1:
            raise InputError(
                f"the network's output keeps positions {tuple(state.nngp.shape[:-1])}; add "
                "Flatten() before the read-out."
            )
        return _Traced(inputs, notes, self.answer(state), (1, 1))

    def _pooled_positions(self, inputs: Tensor, maps: Tensor) -> tuple[int, int]:
        """Height and width of the maps that are averaged; displacements between them must exist
        between pixels."""
        place = next(k for k, layer in enumerate(self.layers) if isinstance(layer, GlobalAverage))
        stride = _stride(self.layers[:place])
        found = (int(maps.shape[0]), int(maps.shape[1]))
        if any(
            (side - 1) * stride >= pixels
            for side, pixels in zip(found, inputs.shape[:2], strict=True)
        ):
            raise InputError(
                f"padding makes maps of {found[0]}×{found[1]} from images of "
                f"{inputs.shape[0]}×{inputs.shape[1]} "
                f"(stride {stride}); a pooled kernel takes maps no larger than the image: use "
                "padding 'same' or less."
            )
        return found

    def notes(self, a: Tensor) -> list[Tensor]:
        """√v at every ReLU in order, positions first and images last."""
        return self._traced(a).notes

    def _diagonal(self, traced: _Traced) -> Tensor:
        if traced.diagonal is not None:
            return traced.diagonal
        inputs = traced.inputs

        def start(shift: tuple[int, int]) -> Tensor:
            left, right = overlap(inputs, inputs, shift)
            return (left * right).mean(-1).unsqueeze(-1)

        pairs = [(note.unsqueeze(-1), note.unsqueeze(-1)) for note in traced.notes]
        return self._summed(start, pairs, traced.positions)[:, 0]

    def _inputs(self, a: Tensor) -> Tensor:
        """Vectors as (n, d); images as (height, width, n, channels)."""
        if not self.spatial:
            return a.reshape(len(a), -1)
        self._check_images(a)
        return (a[:, None] if a.dim() == 3 else a).permute(2, 3, 0, 1).contiguous()

    @staticmethod
    def _check_images(a: Tensor) -> None:
        if a.dim() not in (3, 4):
            raise InputError(
                f"x has shape {tuple(a.shape)}; this network takes images (n, channels, height, "
                "width) or (n, height, width)."
            )

    def _block(self, left: _Traced, right: _Traced) -> Tensor:
        channels = left.inputs.shape[-1]

        def start(shift: tuple[int, int]) -> Tensor:
            first, second = overlap(left.inputs, right.inputs, shift)
            if channels == 1:
                return first * second.transpose(-1, -2)
            return first @ second.transpose(-1, -2) / channels

        pairs = [
            (one.unsqueeze(-1), two.unsqueeze(-2))
            for one, two in zip(left.notes, right.notes, strict=True)
        ]
        if self.pooled:
            return self._summed(start, pairs, left.positions)
        return self.answer(self._through(State(start((0, 0)), None), pairs, self.layers))

    @staticmethod
    def _through(
        state: State, pairs: list[tuple[Tensor, Tensor]], layers: Sequence[Layer]
    ) -> State:
        notes = iter(pairs)
        for layer in layers:
            state = layer.covariance(state, notes)
        return state

    def _summed(
        self,
        start: Callable[[tuple[int, int]], Tensor],
        pairs: list[tuple[Tensor, Tensor]],
        positions: tuple[int, int],
    ) -> Tensor:
        """The mean over all pairs of positions of the last map, displacement by displacement, then
        the read-out."""
        place = next(k for k, layer in enumerate(self.layers) if isinstance(layer, GlobalAverage))
        stride, (height, width) = _stride(self.layers[:place]), positions
        total: State | None = None
        for down in range(1 - height, height):
            for right in range(1 - width, width):
                shift = (down * stride, right * stride)
                state = self._through(
                    State(start(shift), None, shift), pairs, self.layers[: place + 1]
                )
                total = (
                    state
                    if total is None
                    else State(total.nngp.add_(state.nngp), _plus(total.ntk, state.ntk))
                )
        assert total is not None
        count = (height * width) ** 2
        mean = State(total.nngp / count, None if total.ntk is None else total.ntk / count)
        return self.answer(self._through(mean, [], self.layers[place + 1 :]))

    def answer(self, state: State) -> Tensor:
        """The kernel's values from the last state."""
        if self.kind == "nngp":
            return state.nngp * self.scale
        return state.ntk * self.scale if state.ntk is not None else torch.zeros_like(state.nngp)


def _check_readout(layers: tuple[Layer, ...]) -> None:
    """One read-out after the convolutions; after an average only dense layers, whose maps need no
    variances."""
    places = [k for k, layer in enumerate(layers) if isinstance(layer, (Flatten, GlobalAverage))]
    if any(layer.spatial for layer in layers) and not places:
        raise InputError(
            "layers has convolutions but no Flatten or GlobalAverage; add one before the read-out."
        )
    for k in places:
        if isinstance(layers[k], Flatten) and any(
            layer.spatial or isinstance(layer, Flatten) for layer in layers[k + 1 :]
        ):
            wrong = next(
                type(layer).__name__
                for layer in layers[k + 1 :]
                if layer.spatial or isinstance(layer, Flatten)
            )
            raise InputError(
                f"{wrong} follows Flatten, after which there are no positions; put Flatten once, "
                "after the last Conv."
            )
        if not isinstance(layers[k], GlobalAverage):
            continue
        rest = layers[k + 1 :]
        if any(not isinstance(layer, Dense) for layer in rest):
            wrong = next(type(layer).__name__ for layer in rest if not isinstance(layer, Dense))
            raise InputError(
                f"{wrong} follows GlobalAverage; an average over positions inside a network mixes "
                "displacements and has no kernel "
                "here: only Dense may follow it."
            )
        if any(isinstance(layer, Residual) and _strides_differ(layer) for layer in layers[:k]):
            raise InputError(
                "the two branches of a Residual have different strides; they must agree."
            )
        if len(places) > 1:
            raise InputError(
                "layers has a Flatten and a GlobalAverage; a network has one read-out: remove the "
                "other."
            )


def _strides_differ(layer: Residual) -> bool:
    return _stride(layer.body) != _stride(layer.shortcut)


def _stride(layers: Sequence[Layer]) -> int:
    """By how much the layers together thin positions out."""
    stride = 1
    for layer in layers:
        stride *= (
            layer.stride
            if isinstance(layer, Conv)
            else _stride(layer.body)
            if isinstance(layer, Residual)
            else 1
        )
    return stride


def _plus(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return first if second is None or first is None else first.add_(second)


def _relus(layers: Sequence[Layer]) -> int:
    inside = sum(
        _relus(layer.body) + _relus(layer.shortcut)
        for layer in layers
        if isinstance(layer, Residual)
    )
    return inside + sum(isinstance(layer, ReLU) for layer in layers)


@dataclass(frozen=True)
class _Traced:
    """Images with the norms that their ReLUs need; pairs last, so that a slice of images is a slice
    of every note."""

    inputs: Tensor
    notes: list[Tensor]
    diagonal: Tensor | None  # where it follows from single positions
    positions: tuple[int, int]  # height and width before the read-out

    def part(self, start: int, stop: int) -> _Traced:
        inputs = self.inputs[..., start:stop, :]
        diagonal = None if self.diagonal is None else self.diagonal[start:stop]
        return _Traced(
            inputs, [note[..., start:stop] for note in self.notes], diagonal, self.positions
        )


def _tiles(rows: int, columns: int, positions: int) -> list[tuple[int, int, int, int]]:
    """Tiles of pairs whose positions fit the cache: wide rather than high, so that the last axis
    stays long."""
    pairs = max(1, _CACHED_ELEMENTS // positions) if positions > 1 else max(_CACHED_ELEMENTS, 1)
    width = min(columns, max(64, int(pairs**0.5)))
    height = max(1, min(rows, pairs // width))
    return [
        (top, min(top + height, rows), start, min(start + width, columns))
        for top in range(0, rows, height)
        for start in range(0, columns, width)
    ]

"""Infinite-width kernels of networks: the NTK and the NNGP of an architecture with a flatten read-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.errors import InputError, unknown_name
from bicore.kernels.architecture import Flatten, Layer, ReLU, Residual, State
from bicore.kernels.base import Kernel, mirror

#: Pairs × positions handled at once on a CPU: a block and its few temporaries then stay in the cache.
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

    Images are (n, channels, height, width) or (n, height, width); a network without convolutions takes vectors.
    """

    layers: tuple[Layer, ...]
    kind: str = "ntk"
    scale: float = 1.0
    label: str = "network"

    def __init__(self, layers: Sequence[Layer], kind: str = "ntk", scale: float = 1.0, label: str = "network") -> None:
        if kind not in ("ntk", "nngp"):
            raise unknown_name("kind", kind, ["ntk", "nngp"])
        if not scale > 0:
            raise InputError(f"scale={scale} is not positive; a kernel's scale is > 0.")
        layers = tuple(layers)
        if any(layer.spatial for layer in layers) and not any(isinstance(layer, Flatten) for layer in layers):
            raise InputError("layers has convolutions but no Flatten; add Flatten() before the read-out.")
        for name, value in (("layers", layers), ("kind", kind), ("scale", float(scale)), ("label", label)):
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        return f"{self.label} {self.kind}"

    @property
    def spatial(self) -> bool:
        return any(layer.spatial for layer in self.layers)

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = self._traced(a), self._traced(b)
        result = a.new_empty(len(a), len(b))
        for top, bottom, start, stop in _tiles(len(a), len(b), self._positions(a)):
            result[top:bottom, start:stop] = self._block(left.part(top, bottom), right.part(start, stop))
        return result

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        """Images are traced once and only tiles on or above the diagonal are computed."""
        traced = self._traced(a)
        result = a.new_empty(len(a), len(a))
        for top, bottom, start, stop in _tiles(len(a), len(a), self._positions(a)):
            if stop > top:
                part = self._block(traced.part(top, bottom), traced.part(start, stop))
                result[top:bottom, start:stop] = part
        mirror(result)
        result.diagonal().copy_(traced.diagonal)
        return result

    def diag(self, a: Tensor) -> Tensor:
        return self._traced(a).diagonal

    def bytes_per_point(self, itemsize: int, shape: tuple[int, ...]) -> int:
        # √v at every position and ReLU, and the image itself.
        positions = shape[-1] * shape[-2] if self.spatial and len(shape) > 1 else 1
        return itemsize * (positions * _relus(self.layers) + int(np.prod(shape)))

    def _positions(self, a: Tensor) -> int:
        return int(a.shape[-1] * a.shape[-2]) if self.spatial else 1

    def _traced(self, a: Tensor) -> _Traced:
        """Follow every image alone: √v at each ReLU, and the diagonal."""
        inputs = self._inputs(a)
        state, notes = State(inputs.square().mean(-1), None), list[Tensor]()
        for layer in self.layers:
            state = layer.variance(state, notes)
        if state.nngp.dim() != 1:
            raise InputError(
                f"the network's output keeps positions {tuple(state.nngp.shape[:-1])}; add Flatten() before the read-out."
            )
        return _Traced(inputs, notes, self._answer(state))

    def _inputs(self, a: Tensor) -> Tensor:
        """Vectors as (n, d); images as (height, width, n, channels)."""
        if not self.spatial:
            return a.reshape(len(a), -1)
        if a.dim() == 3:
            a = a[:, None]
        if a.dim() != 4:
            raise InputError(
                f"x has shape {tuple(a.shape)}; this network takes images (n, channels, height, width) or (n, height, width)."
            )
        return a.permute(2, 3, 0, 1).contiguous()

    def _block(self, left: _Traced, right: _Traced) -> Tensor:
        channels = left.inputs.shape[-1]
        if channels == 1:
            start = left.inputs * right.inputs.transpose(-1, -2)
        else:
            start = left.inputs @ right.inputs.transpose(-1, -2) / channels
        state = State(start, None)
        notes = zip([note.unsqueeze(-1) for note in left.notes], [note.unsqueeze(-2) for note in right.notes], strict=True)
        for layer in self.layers:
            state = layer.covariance(state, notes)
        return self._answer(state)

    def _answer(self, state: State) -> Tensor:
        if self.kind == "nngp":
            return state.nngp * self.scale
        return state.ntk * self.scale if state.ntk is not None else torch.zeros_like(state.nngp)


def _relus(layers: Sequence[Layer]) -> int:
    inside = sum(_relus(layer.body) + _relus(layer.shortcut) for layer in layers if isinstance(layer, Residual))
    return inside + sum(isinstance(layer, ReLU) for layer in layers)


@dataclass(frozen=True)
class _Traced:
    """Images with the norms that their ReLUs need; pairs last, so that a slice of images is a slice of every note."""

    inputs: Tensor
    notes: list[Tensor]
    diagonal: Tensor

    def part(self, start: int, stop: int) -> _Traced:
        inputs = self.inputs[..., start:stop, :]
        return _Traced(inputs, [note[..., start:stop] for note in self.notes], self.diagonal[start:stop])


def _tiles(rows: int, columns: int, positions: int) -> list[tuple[int, int, int, int]]:
    """Tiles of pairs whose positions fit the cache: wide rather than high, so that the last axis stays long."""
    pairs = max(1, _CACHED_ELEMENTS // positions) if positions > 1 else max(_CACHED_ELEMENTS, 1)
    width = min(columns, max(64, int(pairs**0.5)))
    height = max(1, min(rows, pairs // width))
    return [
        (top, min(top + height, rows), start, min(start + width, columns))
        for top in range(0, rows, height)
        for start in range(0, columns, width)
    ]

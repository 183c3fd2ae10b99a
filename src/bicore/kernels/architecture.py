"""A small description of a network, and how each layer maps covariances.

Two passes use the same layers. The *variance* pass follows one image: v, the variance of every
position, and θ, the tangent kernel's diagonal there; it notes v at every ReLU. The *covariance*
pass follows pairs of images and reads those notes. Spatial tensors put positions first and pairs
last, (height, width, rows, columns), so that a window is a sum of whole contiguous planes.

A convolution of window q×q maps position p to σ_w²/q² · Σ_δ (value at stride·p + δ) + σ_b²;
positions outside the image count zero and the divisor stays q². A dense layer is a convolution of
one position. For ReLU, with c the correlation:

    κ0 = (π − arccos c)/π        κ1 = (√(1−c²) + (π − arccos c) c)/π
    Σ ← √(v v') κ1/2             Θ ← Θ κ0/2

A read-out by flattening needs equal positions of the two images only. One by global average pooling
needs all pairs of positions; those a fixed displacement apart go through the layers together, on
the part where both images have a position. A convolution of stride s takes displacement s·δ to δ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.errors import InputError

Notes = list[Tensor]
Pairs = Iterator[tuple[Tensor, Tensor]]


@dataclass
class State:
    """A covariance Σ and the tangent kernel Θ so far; Θ is None before the first layer with
    weights.

    ``shift`` is the displacement p − p' of the positions (p in the first image, p' in the second),
    rows then columns: the tensors hold the pairs where both lie inside their images.
    """

    nngp: Tensor
    ntk: Tensor | None
    shift: tuple[int, int] = (0, 0)

    def copy(self) -> State:
        return State(self.nngp.clone(), None if self.ntk is None else self.ntk.clone(), self.shift)


class Layer(ABC):
    """One step of a network."""

    @abstractmethod
    def variance(self, state: State, notes: Notes) -> State:
        """Map (v, θ) of single images; a ReLU appends √v to ``notes``."""

    @abstractmethod
    def covariance(self, state: State, notes: Pairs) -> State:
        """Map (Σ, Θ) of pairs; may overwrite ``state``. A ReLU takes the two √v of its place from
        ``notes``."""

    @property
    def spatial(self) -> bool:
        """Whether it needs images rather than vectors."""
        return False


class _Affine(Layer):
    """A layer whose map on covariances is linear plus a bias: the same for single images and for
    pairs.

    One that is not ``trained`` passes the tangent kernel on and adds nothing to it.
    """

    sigma_w: float
    sigma_b: float
    trained: bool

    @abstractmethod
    def _gather(self, values: Tensor, shift: tuple[int, int]) -> Tensor:
        """The mean over the window (an identity for a dense layer), without the weight's variance."""

    def _shifted(self, shift: tuple[int, int]) -> tuple[int, int]:
        return shift

    def _map(self, state: State) -> State:
        nngp = self._gather(state.nngp, state.shift)
        ntk = None if state.ntk is None else self._gather(state.ntk, state.shift)
        if self.trained:
            ntk = nngp.clone() if ntk is None else ntk.add_(nngp)
        elif ntk is None:
            ntk = torch.zeros_like(nngp)
        ntk.mul_(self.sigma_w**2).add_(self.sigma_b**2 if self.trained else 0.0)
        return State(
            nngp.mul_(self.sigma_w**2).add_(self.sigma_b**2), ntk, self._shifted(state.shift)
        )

    def variance(self, state: State, notes: Notes) -> State:
        return self._map(state)

    def covariance(self, state: State, notes: Pairs) -> State:
        return self._map(state)


@dataclass(frozen=True)
class Dense(_Affine):
    """A fully connected layer: Σ ← σ_w² Σ + σ_b², Θ ← Σ_new + σ_w² Θ."""

    sigma_w: float = 1.0
    sigma_b: float = 0.0
    trained: bool = True

    def _gather(self, values: Tensor, shift: tuple[int, int]) -> Tensor:
        return values


@dataclass(frozen=True)
class Conv(_Affine):
    """A convolution with a square window.

    ``padding``: "same" as XLA pads (at stride 2 unevenly), "valid", or a number of zeros on both
    sides as in torch.
    """

    window: int = 3
    stride: int = 1
    padding: str | int = "same"
    sigma_w: float = 1.0
    sigma_b: float = 0.0
    trained: bool = True

    def __post_init__(self) -> None:
        if self.window < 1 or self.stride < 1:
            raise InputError(
                f"window={self.window}, stride={self.stride}; both must be at least 1."
            )
        if not (
            self.padding in ("same", "valid")
            or (isinstance(self.padding, int) and self.padding >= 0)
        ):
            raise InputError(
                f"padding={self.padding!r} is not known; it is 'same', 'valid' or a number of "
                "zeros >= 0."
            )

    @property
    def spatial(self) -> bool:
        return True

    def _gather(self, values: Tensor, shift: tuple[int, int]) -> Tensor:
        rows = self._window_sum(values, 0, abs(shift[0]))
        return self._window_sum(rows, 1, abs(shift[1])).mul_(1 / self.window**2)

    def _shifted(self, shift: tuple[int, int]) -> tuple[int, int]:
        assert shift[0] % self.stride == 0, "other displacements reach no output"
        assert shift[1] % self.stride == 0, "other displacements reach no output"
        return int(shift[0] / self.stride), int(shift[1] / self.stride)

    def extent(self, size: int) -> tuple[int, int]:
        """Length of the output and the zeros before the first position."""
        if self.padding == "same":
            length = -(-size // self.stride)
            total = max((length - 1) * self.stride + self.window - size, 0)
            return length, total // 2
        low = 0 if self.padding == "valid" else int(self.padding)
        length = (size + 2 * low - self.window) // self.stride + 1
        if length < 1:
            raise InputError(
                f"an image side of {size} is smaller than the window {self.window} with "
                f"padding={self.padding!r}."
            )
        return length, low

    def _window_sum(self, values: Tensor, axis: int, shift: int) -> Tensor:
        # The overlap of two images that are ``shift`` apart begins where one of them does and ends
        # that much before its end.
        size = values.shape[axis]
        length, low = self.extent(size + shift)
        length -= shift // self.stride
        shape = list(values.shape)
        shape[axis] = length
        result = values.new_zeros(shape)
        for offset in range(-low, self.window - low):
            # Output o reads input stride·o + offset; keep the outputs whose input lies inside the
            # image.
            first = max(0, -(offset // self.stride))
            last = min(length - 1, (size - 1 - offset) // self.stride)
            if last >= first:
                count = last - first + 1
                source = slice(
                    first * self.stride + offset, last * self.stride + offset + 1, self.stride
                )
                result.narrow(axis, first, count).add_(
                    values[source] if axis == 0 else values[:, source]
                )
        return result


@dataclass(frozen=True)
class ReLU(Layer):
    """The rectifier."""

    def variance(self, state: State, notes: Notes) -> State:
        notes.append(state.nngp.sqrt())
        return State(state.nngp.div(2), None if state.ntk is None else state.ntk.div(2))

    def covariance(self, state: State, notes: Pairs) -> State:
        left, right = overlap(*next(notes), state.shift)
        cosine = state.nngp.mul_(_inverse(left)).mul_(_inverse(right)).clamp_(-1, 1)
        turned = torch.acos(cosine).neg_().add_(math.pi)
        nngp = (
            torch.addcmul(_ones(cosine), cosine, cosine, value=-1).sqrt_().addcmul_(turned, cosine)
        )
        nngp.mul_(left).mul_(right / (2 * math.pi))
        ntk = None if state.ntk is None else state.ntk.mul_(turned.mul_(1 / (2 * math.pi)))
        return State(nngp, ntk, state.shift)


def overlap(left: Tensor, right: Tensor, shift: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The norms of the two images where p and p' = p − shift both lie inside."""
    for axis, step in enumerate(shift):
        if step:
            count = left.shape[axis] - abs(step)
            left = left.narrow(axis, max(step, 0), count)
            right = right.narrow(axis, max(-step, 0), count)
    return left, right


def _inverse(norm: Tensor) -> Tensor:
    """1/norm, and 0 where the norm is 0 (an all-black patch without bias)."""
    return torch.where(norm > 0, 1 / norm, torch.zeros_like(norm))


def _ones(like: Tensor) -> Tensor:
    return like.new_ones((1,) * like.dim())


@dataclass(frozen=True)
class Flatten(Layer):
    """The read-out that keeps every position apart: the mean over positions of the covariance at
    equal positions."""

    @property
    def spatial(self) -> bool:
        return True

    def _map(self, state: State) -> State:
        return State(state.nngp.mean((0, 1)), None if state.ntk is None else state.ntk.mean((0, 1)))

    def variance(self, state: State, notes: Notes) -> State:
        return self._map(state)

    def covariance(self, state: State, notes: Pairs) -> State:
        return self._map(state)


@dataclass(frozen=True)
class GlobalAverage(Layer):
    """The read-out that averages over positions: the mean over all pairs of positions of the
    covariance.

    A covariance pass sees one displacement and gives its sum; :class:`TangentKernel` adds the
    displacements up.
    """

    @property
    def spatial(self) -> bool:
        return True

    def variance(self, state: State, notes: Notes) -> State:
        raise InputError(
            "the variance of an average over positions depends on pairs of positions; it has no "
            "pass of its own."
        )

    def covariance(self, state: State, notes: Pairs) -> State:
        return State(state.nngp.sum((0, 1)), None if state.ntk is None else state.ntk.sum((0, 1)))


@dataclass(frozen=True)
class Residual(Layer):
    """The sum of two branches with independent weights; an empty branch is the identity."""

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    @property
    def spatial(self) -> bool:
        return any(layer.spatial for layer in self.body + self.shortcut)

    def variance(self, state: State, notes: Notes) -> State:
        main = state.copy()
        side = state
        for layer in self.body:
            main = layer.variance(main, notes)
        for layer in self.shortcut:
            side = layer.variance(side, notes)
        return _sum(main, side)

    def covariance(self, state: State, notes: Pairs) -> State:
        main = state.copy()
        side = state
        for layer in self.body:
            main = layer.covariance(main, notes)
        for layer in self.shortcut:
            side = layer.covariance(side, notes)
        return _sum(main, side)


def _sum(first: State, second: State) -> State:
    tangents = [state.ntk for state in (first, second) if state.ntk is not None]
    return State(
        first.nngp + second.nngp, sum(tangents[1:], tangents[0]) if tangents else None, first.shift
    )

"""Layers of a network of infinite width, and how each maps covariances.

Two passes use the same layers. The *variance* pass follows one image: v, the variance of every
position, and θ, the tangent kernel's diagonal there; it records √v at every activation. The
*covariance* pass follows pairs of images and reads those norms. Spatial tensors put positions first
and pairs last, (height, width, rows, columns), so that a window is a sum of contiguous planes.

A convolution of window q×q maps position p to σ_w²/q² · Σ_δ (value at stride·p + δ) + σ_b²;
positions outside the image count zero and the divisor stays q². A dense layer is a convolution of
one position.

A read-out by flattening needs equal positions of the two images only. One by global average pooling
needs all pairs of positions; those a fixed displacement apart go through the layers together, on
the part where both images have a position. A convolution of stride s takes displacement s·δ to δ.

Activations have closed forms, with (u, u') of variances a, b and covariance c, and N(·), Φ(·) the
standard normal density and distribution. The second map is the derivative of the first in c
(Price's theorem).

ReLU:  E φφ'  = √(ab) κ1/2,   κ1 = (√(1−r²) + (π − arccos r) r)/π,   r = c/√(ab)
       E φ̇φ̇' = κ0/2,         κ0 = (π − arccos r)/π

erf:   E φφ'  = 2/π · arcsin(2c / √((1+2a)(1+2b)))
       E φ̇φ̇' = 4/π / √((1+2a)(1+2b) − 4c²)

GELU, φ(u) = uΦ(u): by parts twice, E φφ' = a E N(u)u'Φ(u') + c E Φ(u)Φ(u') + c E Φ(u)u'N(u'), where

       E Φ(u)Φ(u')  = 1/4 + arcsin(c / √((1+a)(1+b))) / 2π
       the others    = (ab − c² + c²/(1+a) + c²/(1+b)) / (2π√D),    D = (1+a)(1+b) − c²

For tanh, the sigmoid and the tanh form of GELU no closed form is known.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bicore.errors import InputError, check_integer

#: √v of the first and of the second image at every activation, in order.
NormPairs = Iterator[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class State:
    """A covariance Σ and the tangent kernel Θ; Θ is None before the first weights.

    ``shift`` is the displacement p − p' of the positions (p in the first image, p' in the second),
    rows then columns: the tensors hold the pairs where both lie inside their images. ``watch`` is
    called with the cosines at every ReLU; they are overwritten afterwards.
    """

    nngp: Tensor
    ntk: Tensor | None = None
    shift: tuple[int, int] = (0, 0)
    watch: Callable[[Tensor], None] | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> State:
        """Apply a function to both tensors."""
        ntk = None if self.ntk is None else function(self.ntk)
        return replace(self, nngp=function(self.nngp), ntk=ntk)


class Layer(ABC):
    """A layer of a network, as a map of covariances at infinite width."""

    @property
    def spatial(self) -> bool:
        """Whether the layer needs images."""
        return False

    @property
    def stride(self) -> int:
        """The factor by which the layer reduces the side of an image."""
        return 1

    @property
    def activations(self) -> int:
        """The number of activations in the layer, which is the number of recorded norms."""
        return 0

    @abstractmethod
    def variance(self, state: State, norms: list[Tensor]) -> State:
        """Map (v, θ) of single images."""

    @abstractmethod
    def covariance(self, state: State, norms: NormPairs) -> State:
        """Map (Σ, Θ) of pairs of images."""


class _LinearMap(Layer):
    """A layer that maps single images and pairs in the same way."""

    @abstractmethod
    def _map(self, state: State) -> State:
        """Map variances or covariances."""

    def variance(self, state: State, norms: list[Tensor]) -> State:
        return self._map(state)

    def covariance(self, state: State, norms: NormPairs) -> State:
        return self._map(state)


class Weighted(_LinearMap):
    """A linear map on covariances plus a bias.

    A layer that is not ``trained`` only multiplies the tangent kernel and adds no term to it.
    """

    sigma_w: float
    sigma_b: float
    trained: bool

    def _gather(self, values: Tensor, shift: tuple[int, int]) -> Tensor:
        """Return the mean over the window, without the weight's variance; a dense layer has no
        window."""
        return values

    def _map(self, state: State) -> State:
        nngp = self._gather(state.nngp, state.shift)
        ntk = None if state.ntk is None else self._gather(state.ntk, state.shift)
        if self.trained:
            ntk = nngp.clone() if ntk is None else ntk.add_(nngp)
        elif ntk is None:
            ntk = torch.zeros_like(nngp)
        ntk.mul_(self.sigma_w**2).add_(self.sigma_b**2 if self.trained else 0.0)
        nngp.mul_(self.sigma_w**2).add_(self.sigma_b**2)
        # Only displacements that are multiples of the stride reach an output.
        down, right = state.shift
        return replace(
            state, nngp=nngp, ntk=ntk, shift=(int(down / self.stride), int(right / self.stride))
        )


@dataclass(frozen=True)
class Dense(Weighted):
    """A fully connected layer: Σ ← σ_w² Σ + σ_b², Θ ← Σ_new + σ_w² Θ."""

    sigma_w: float = 1.0
    sigma_b: float = 0.0
    trained: bool = True


@dataclass(frozen=True)
class Conv(Weighted):
    """A convolution with a square window."""

    window: int = 3
    stride: int = 1
    padding: str | int = "same"
    sigma_w: float = 1.0
    sigma_b: float = 0.0
    trained: bool = True

    spatial = True

    def __post_init__(self) -> None:
        check_integer("window", self.window)
        check_integer("stride", self.stride)
        if self.padding not in ("same", "valid"):
            check_integer("padding", self.padding, 0, fix="or use 'same' or 'valid'")

    def _gather(self, values: Tensor, shift: tuple[int, int]) -> Tensor:
        rows = self._window_sum(values, 0, abs(shift[0]))
        return self._window_sum(rows, 1, abs(shift[1])).mul_(1 / self.window**2)

    def extent(self, size: int) -> tuple[int, int]:
        """Return the side of the output for a side of an image."""
        if self.padding == "same":
            length = -(-size // self.stride)
            total = max((length - 1) * self.stride + self.window - size, 0)
            return length, total // 2
        low = 0 if self.padding == "valid" else int(self.padding)
        length = (size + 2 * low - self.window) // self.stride + 1
        if length < 1:
            raise InputError(
                f"an image side of {size} is smaller than the window {self.window} with "
                f"padding={self.padding!r}; use larger images, a smaller window or padding='same'."
            )
        return length, low

    def _window_sum(self, values: Tensor, axis: int, shift: int) -> Tensor:
        """Return the sums over windows along one axis, for images ``shift`` apart."""
        # The overlap of the images begins where one of them begins and ends ``shift`` before its
        # end.
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
                begin = first * self.stride + offset
                source = slice(begin, last * self.stride + offset + 1, self.stride)
                part = values[source] if axis == 0 else values[:, source]
                result.narrow(axis, first, last - first + 1).add_(part)
        return result


@dataclass(frozen=True)
class Flatten(_LinearMap):
    """The read-out that keeps positions: the mean of the covariances at equal positions."""

    spatial = True

    def _map(self, state: State) -> State:
        return state.map(lambda values: values.mean((0, 1)))


@dataclass(frozen=True)
class GlobalAverage(_LinearMap):
    """The read-out that averages positions: the mean covariance of all pairs of positions.

    A covariance pass sees one displacement and gives its sum; :class:`TangentKernel` adds the
    displacements up.
    """

    spatial = True

    def variance(self, state: State, norms: list[Tensor]) -> State:
        raise InputError("GlobalAverage depends on pairs of positions; it has no variance pass.")

    def _map(self, state: State) -> State:
        return state.map(lambda values: values.sum((0, 1)))


@dataclass(frozen=True)
class Residual(Layer):
    """The sum of two branches with independent weights; an empty branch is the identity."""

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    @property
    def spatial(self) -> bool:
        return any(layer.spatial for layer in self.body + self.shortcut)

    @property
    def stride(self) -> int:
        return stride_of(self.body)

    @property
    def activations(self) -> int:
        return sum(layer.activations for layer in self.body + self.shortcut)

    def variance(self, state: State, norms: list[Tensor]) -> State:
        return self._sum(state, lambda layer, before: layer.variance(before, norms))

    def covariance(self, state: State, norms: NormPairs) -> State:
        return self._sum(state, lambda layer, before: layer.covariance(before, norms))

    def _sum(self, state: State, apply: Callable[[Layer, State], State]) -> State:
        main = state.map(Tensor.clone)
        for layer in self.body:
            main = apply(layer, main)
        side = state
        for layer in self.shortcut:
            side = apply(layer, side)
        tangents = [one.ntk for one in (main, side) if one.ntk is not None]
        ntk = sum(tangents[1:], tangents[0]) if tangents else None
        return replace(main, nngp=main.nngp + side.nngp, ntk=ntk)


def stride_of(layers: Sequence[Layer]) -> int:
    """Return the combined stride of the layers."""
    return math.prod(layer.stride for layer in layers)


class Activation(Layer):
    """An elementwise function; its output is not Gaussian."""

    activations = 1


@dataclass(frozen=True)
class ReLU(Activation):
    """The rectifier: Σ ← √(v v') κ1/2, Θ ← Θ κ0/2."""

    def variance(self, state: State, norms: list[Tensor]) -> State:
        norms.append(state.nngp.sqrt())
        return state.map(lambda values: values.div(2))

    def covariance(self, state: State, norms: NormPairs) -> State:
        # In place, because a tensor is as large as a tile, and the cache holds few of them.
        left, right = overlap(*next(norms), state.shift)
        cosine = state.nngp.mul_(_inverse(left)).mul_(_inverse(right)).clamp_(-1, 1)
        if state.watch is not None:
            state.watch(cosine)
        turned = torch.acos(cosine).neg_().add_(math.pi)
        one = cosine.new_ones((1,) * cosine.dim())
        sine = torch.addcmul(one, cosine, cosine, value=-1).sqrt_()
        nngp = sine.addcmul_(turned, cosine)
        nngp.mul_(left).mul_(right / (2 * math.pi))
        ntk = None if state.ntk is None else state.ntk.mul_(turned.mul_(1 / (2 * math.pi)))
        return replace(state, nngp=nngp, ntk=ntk)


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """The rectifier with a slope s for negative values.

    It is a ReLU scaled by 1 − s, plus s times its input, so that E φφ' = (1 − s)² κ + s c and
    E φ'φ' = (1 − s)² κ' + s, with κ and κ' of the ReLU and c the covariance of the input.
    """

    slope: float = 0.01

    def variance(self, state: State, norms: list[Tensor]) -> State:
        norms.append(state.nngp.sqrt())
        return state.map(lambda values: values.mul((1 + self.slope**2) / 2))

    def covariance(self, state: State, norms: NormPairs) -> State:
        nngp = state.nngp.clone()
        ntk = None if state.ntk is None else state.ntk.clone()
        rectified = ReLU().covariance(state, norms)
        share = (1 - self.slope) ** 2
        nngp = rectified.nngp.mul_(share).add_(nngp, alpha=self.slope)
        if ntk is not None and rectified.ntk is not None:
            ntk = rectified.ntk.mul_(share).add_(ntk, alpha=self.slope)
        return replace(rectified, nngp=nngp, ntk=ntk)


def overlap(left: Tensor, right: Tensor, shift: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the parts of two images where both p and p' = p − shift lie inside."""
    for axis, step in enumerate(shift):
        if step:
            count = left.shape[axis] - abs(step)
            left = left.narrow(axis, max(step, 0), count)
            right = right.narrow(axis, max(-step, 0), count)
    return left, right


def _inverse(norm: Tensor) -> Tensor:
    """Return 1/norm, and 0 if the norm is 0 (a black patch without bias)."""
    return torch.where(norm > 0, 1 / norm, torch.zeros_like(norm))


class _Smooth(Activation):
    """An activation given by its two maps of (a, b, c)."""

    @abstractmethod
    def _maps(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return E φφ' and E φ̇φ̇'."""

    def variance(self, state: State, norms: list[Tensor]) -> State:
        norms.append(state.nngp.sqrt())
        return self._apply(state, state.nngp, state.nngp, state.nngp)

    def covariance(self, state: State, norms: NormPairs) -> State:
        left, right = overlap(*next(norms), state.shift)
        # Rounding may raise a covariance slightly above the bound of its variances.
        most = left * right
        within = torch.minimum(torch.maximum(state.nngp, -most), most)
        return self._apply(state, left.square(), right.square(), within)

    def _apply(self, state: State, a: Tensor, b: Tensor, c: Tensor) -> State:
        value, slope = self._maps(a, b, c)
        return replace(state, nngp=value, ntk=None if state.ntk is None else state.ntk * slope)


@dataclass(frozen=True)
class Erf(_Smooth):
    """Error function: Σ ← 2/π · arcsin(2Σ/√((1+2v)(1+2v'))), Θ ← Θ times its derivative in Σ."""

    def _maps(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        room = (1 + 2 * a) * (1 + 2 * b)
        value = torch.asin(2 * c / room.sqrt()) * (2 / math.pi)
        slope = (4 / math.pi) / (room - 4 * c * c).sqrt()
        return value, slope


@dataclass(frozen=True)
class GELU(_Smooth):
    """The Gaussian error linear unit, uΦ(u), in its exact form."""

    def _maps(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        both = (1 + a) * (1 + b)
        square = c * c
        room = both - square
        share = 0.25 + torch.asin(c / both.sqrt()) / (2 * math.pi)
        scale = 1 / (2 * math.pi * room.sqrt())
        # 1/(1+a) + 1/(1+b) − 1, the factor of c² in the last term.
        factor = 1 / (1 + a) + 1 / (1 + b) - 1
        rest = a * b + square * factor
        value = c * share + rest * scale
        slope = share + c * (1 + 2 * factor + rest / room) * scale
        return value, slope

"""Activations whose covariance maps have a closed form.

With (u, u') of variances a, b and covariance c, and N(·), Φ(·) the standard normal density and
distribution. The second map is the derivative of the first in c (Price's theorem).

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
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bicore.kernels.architecture import Layer, NormPairs, State


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

"""Smooth activations whose covariance maps have a closed form.

With (u, u') of variances a, b and covariance c, and N(·), Φ(·) the standard normal density and
distribution. The second map is the derivative of the first in c (Price's theorem).

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
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.kernels.architecture import Layer, Notes, Pairs, State, overlap


class _Smooth(Layer):
    """An activation given by its two maps of (a, b, c)."""

    activates = True

    @abstractmethod
    def _maps(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """E φφ' and E φ̇φ̇'."""

    @property
    def rectifiers(self) -> int:
        return 1

    def variance(self, state: State, notes: Notes) -> State:
        notes.append(state.nngp.sqrt())
        value, slope = self._maps(state.nngp, state.nngp, state.nngp)
        return State(value, None if state.ntk is None else state.ntk * slope)

    def covariance(self, state: State, notes: Pairs) -> State:
        left, right = overlap(*next(notes), state.shift)
        # Rounding may leave a covariance just above what its variances allow.
        most = left * right
        within = torch.minimum(torch.maximum(state.nngp, -most), most)
        value, slope = self._maps(left.square(), right.square(), within)
        return State(value, None if state.ntk is None else state.ntk * slope, state.shift)


@dataclass(frozen=True)
class Erf(_Smooth):
    """The error function: Σ ← 2/π · arcsin(2Σ/√((1+2v)(1+2v'))), Θ ← Θ times its derivative in Σ.

    Examples
    --------
    >>> from bicore.kernels import Dense, Erf, TangentKernel
    >>> kernel = TangentKernel([Dense(), Erf(), Dense()], kind="nngp")
    >>> kernel([[1.0], [-1.0]]).round(4).tolist()
    [[0.4646, -0.4646], [-0.4646, 0.4646]]
    """

    def _maps(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        room = (1 + 2 * a) * (1 + 2 * b)
        value = torch.asin(2 * c / room.sqrt()) * (2 / math.pi)
        slope = (4 / math.pi) / (room - 4 * c * c).sqrt()
        return value, slope


@dataclass(frozen=True)
class GELU(_Smooth):
    """The Gaussian error linear unit, uΦ(u), in its exact form.

    Examples
    --------
    >>> from bicore.kernels import GELU, Dense, TangentKernel
    >>> kernel = TangentKernel([Dense(), GELU(), Dense()], kind="nngp")
    >>> kernel([[1.0], [0.0]]).round(4).tolist()
    [[0.4252, 0.0], [0.0, 0.0]]
    """

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

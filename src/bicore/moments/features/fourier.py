"""Random Fourier features: waves whose products are, in the mean, a stationary kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError, unknown_name
from bicore.kernels import RBF, Laplace
from bicore.moments.features.base import FeatureMap
from bicore.moments.features.checked import SettledMap, count_of, on
from bicore.picking import step_rng

_KINDS: dict[str, type[RBF] | type[Laplace]] = {"rbf": RBF, "laplace": Laplace}


@dataclass(frozen=True, eq=False)
class RandomFourier(SettledMap):
    """Cosines and sines of random frequencies, whose inner products approximate a kernel.

    Every row has length 1, as k(x, x) = 1. Frequencies are drawn from the kernel's spectrum:
    normal with variance 2γ for :class:`bicore.RBF`, Cauchy with scale γ in each coordinate for
    :class:`bicore.Laplace` (which is of ‖a − b‖₁). The error of an inner product is about
    1/√width. Phases are computed in float64 whatever the rows, for a phase of thousands of turns
    has no digits left in float32.

    Parameters
    ----------
    width : int
        How many features a row has; even, for they come in pairs.
    kind : "rbf" or "laplace"
        Which kernel.
    gamma : float, optional
        Of the kernel; by default its median heuristic on the first rows.
    seed : int
        Of the frequencies.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row; filled in by ``settled``.

    Raises
    ------
    InputError
        Where a value is out of its bounds.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import RandomFourier
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> first, second = RandomFourier(4096, gamma=0.5).settled(x.numpy())(x)
    >>> round(float(first @ first), 3), abs(float(first @ second) - 0.607) < 0.03
    (1.0, True)
    """

    width: int = 1024
    kind: str = "rbf"
    gamma: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise unknown_name("kind", self.kind, _KINDS)
        gamma = _KINDS[self.kind](self.gamma).gamma  # which refuses those that are not positive
        checked = {
            "width": count_of(self.width, "width"),
            "gamma": None if gamma is None else float(gamma),
            "seed": count_of(self.seed, "seed", 0),
        }
        if self.width % 2:
            raise InputError(
                f"width={self.width} is odd, and a frequency has a cosine and a sine; give "
                f"width={self.width + 1}."
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _settled_on(self, rows: Array) -> FeatureMap:
        fitted: Any = _KINDS[self.kind](self.gamma).fitted(rows)
        return replace(self, gamma=fitted.gamma)

    def _mapped(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(len(rows), self._columns).double()
        phases = flat @ self._kept(rows.device, lambda: self._drawn(flat))
        waves = torch.cat([phases.cos(), phases.sin()], 1)
        return waves.mul_(math.sqrt(2 / self.width))

    def _drawn(self, like: Tensor) -> Tensor:
        """One frequency a column."""
        assert self.gamma is not None
        rng = step_rng(self.seed, 0)
        shape = (self._columns, self.width // 2)
        if self.kind == "laplace":
            return on(rng.standard_cauchy(shape) * self.gamma, like)
        return on(rng.standard_normal(shape) * math.sqrt(2 * self.gamma), like)

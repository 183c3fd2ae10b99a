"""Kernels of vectors: linear, polynomial, RBF and Laplace; bandwidths by the median heuristic;
Nyström features."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.errors import InputError
from bicore.kernels.base import Kernel, flat

#: Rows the median heuristic looks at: all pairs among at most this many, evenly spaced.
MEDIAN_ROWS = 1000
#: Eigenvalues of a landmark matrix below this share of the largest are left out of the Nyström
#: features.
NYSTROM_CUTOFF = 1e-10


@dataclass(frozen=True)
class Linear(Kernel):
    """aᵀb + bias²."""

    bias: float = 0.0

    @property
    def name(self) -> str:
        return "linear" if self.bias == 0 else f"linear(bias={self.bias:g})"

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return flat(a) @ flat(b).T + self.bias**2

    def diag(self, a: Tensor) -> Tensor:
        return flat(a).square().sum(1) + self.bias**2

    def features(self, a: Tensor) -> Tensor:
        rows = flat(a)
        return (
            rows
            if self.bias == 0
            else torch.cat([rows, rows.new_full((len(rows), 1), self.bias)], 1)
        )


@dataclass(frozen=True)
class Polynomial(Kernel):
    """(γ aᵀb + offset)^degree; γ = 1/number of features when not given."""

    degree: int = 3
    gamma: float | None = None
    offset: float = 1.0

    def __post_init__(self) -> None:
        if self.degree < 1 or self.offset < 0:
            raise InputError(
                f"degree={self.degree}, offset={self.offset}: degree >= 1 and offset >= 0 make it "
                "positive semi-definite."
            )

    @property
    def name(self) -> str:
        gamma = "" if self.gamma is None else f", gamma={self.gamma:g}"
        return f"polynomial(degree={self.degree}{gamma}, offset={self.offset:g})"

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return (flat(a) @ flat(b).T * self._gamma(a) + self.offset) ** self.degree

    def diag(self, a: Tensor) -> Tensor:
        return (flat(a).square().sum(1) * self._gamma(a) + self.offset) ** self.degree

    def _gamma(self, a: Tensor) -> float:
        return 1.0 / a[0].numel() if self.gamma is None else self.gamma


@dataclass(frozen=True)
class _Stationary(Kernel):
    """exp(−γ · distance): the bandwidth comes from the data when it is not given."""

    gamma: float | None = None

    def __post_init__(self) -> None:
        if self.gamma is not None and not self.gamma > 0:
            raise InputError(
                f"gamma={self.gamma} is not positive; give gamma > 0, or None for the median "
                "heuristic."
            )

    @abstractmethod
    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        """The distance in the exponent, for rows that are vectors."""

    @abstractmethod
    def _gamma_of_median(self, median: float) -> float:
        """The median heuristic's γ."""

    def fitted(self, x: Any) -> Kernel:
        if self.gamma is not None:
            return self
        rows = np.asarray(x)
        step = max(1, -(-len(rows) // MEDIAN_ROWS))
        sample = flat(torch.from_numpy(np.array(rows[::step], dtype=np.float64)))
        distances = self._distance(sample, sample)
        pairs = distances[torch.triu_indices(len(sample), len(sample), 1).unbind()]
        pairs = pairs[pairs > 0]
        # All rows equal (or a single row): every bandwidth gives the same matrix.
        return replace(
            self, gamma=self._gamma_of_median(pairs.median().item()) if len(pairs) else 1.0
        )

    def _ready(self) -> Kernel:
        if self.gamma is None:
            raise InputError(
                f"{type(self).__name__}(gamma=None) takes its bandwidth from data: use .fitted(x), "
                "or give gamma."
            )
        return self

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        self._ready()
        assert self.gamma is not None
        return self._distance(flat(a), flat(b)).mul_(-self.gamma).exp_()

    def diag(self, a: Tensor) -> Tensor:
        return a.new_ones(len(a))


@dataclass(frozen=True)
class RBF(_Stationary):
    """exp(−γ‖a − b‖²). Median heuristic: γ = 1/(2 · median of the squared distances)."""

    @property
    def name(self) -> str:
        return "rbf" if self.gamma is None else f"rbf(gamma={self.gamma:.6g})"

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        # The distance does not change when both move; near the origin the three terms do not
        # cancel.
        centre = b.mean(0)
        a = a - centre
        b = b - centre
        norms = a.square().sum(1)[:, None] + b.square().sum(1)
        return torch.addmm(norms, a, b.T, alpha=-2).clamp_min_(0)

    def _gamma_of_median(self, median: float) -> float:
        return 1 / (2 * median)


@dataclass(frozen=True)
class Laplace(_Stationary):
    """exp(−γ‖a − b‖₁). Median heuristic: γ = 1/median of the distances."""

    @property
    def name(self) -> str:
        return "laplace" if self.gamma is None else f"laplace(gamma={self.gamma:.6g})"

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cdist(a, b, p=1)

    def _gamma_of_median(self, median: float) -> float:
        return 1 / median


@dataclass(frozen=True, eq=False)
class Nystrom(Kernel):
    """The kernel seen through landmarks Z: Φ(a) = k(a, Z) K_ZZ^{−½}, so that n·p numbers stand for
    n².

    ``landmarks`` rows are drawn from the data with ``seed``. Memory and time grow with n, not with
    n².
    """

    kernel: Kernel
    landmarks: int = 500
    seed: int = 0
    _rows: Tensor | None = field(default=None, repr=False)
    _root: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.landmarks < 1:
            raise InputError(f"landmarks={self.landmarks} is below 1; give at least one.")

    @property
    def name(self) -> str:
        return f"nystrom({self.kernel.name}, landmarks={self.landmarks})"

    def fitted(self, x: Any) -> Kernel:
        if self._rows is not None:
            return self
        base = self.kernel.fitted(x)
        count = min(self.landmarks, len(x))
        picked = np.sort(np.random.default_rng(self.seed).choice(len(x), count, replace=False))
        rows = torch.from_numpy(np.array(x[picked], dtype=np.float64))
        values, vectors = torch.linalg.eigh(base.gram(rows))
        kept = values > NYSTROM_CUTOFF * values.max()
        return replace(self, kernel=base, _rows=rows, _root=vectors[:, kept] * values[kept].rsqrt())

    def _ready(self) -> Kernel:
        if self._rows is None:
            raise InputError("Nystrom takes its landmarks from data: use .fitted(x) first.")
        return self

    def features(self, a: Tensor) -> Tensor:
        self._ready()
        assert self._rows is not None
        assert self._root is not None
        return self.kernel.evaluate(a, self._rows.to(a)) @ self._root.to(a)

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.features(a) @ self.features(b).T

    def diag(self, a: Tensor) -> Tensor:
        return self.features(a).square().sum(1)

"""Kernels of vectors: linear, polynomial, RBF, Laplace, and Nyström features of any kernel."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from bicore.errors import InputError
from bicore.kernels.base import Kernel, flat, products, some_points, squared_lengths
from bicore.kernels.distances import sparse_squared_distances, squared_distances
from bicore.sparse import SparsePoints, is_sparse

#: Rows the median heuristic looks at: all pairs among at most this many, evenly spaced.
MEDIAN_ROWS = 1000
#: Eigenvalues of a landmark matrix below this share of the largest are left out of the Nyström
#: features.
NYSTROM_CUTOFF = 1e-10
#: By which share of itself, or of 1/γ, a distance d may be wrong in float64 and in less precision:
#: exp(−γd) then errs by 1e-9 and 1e-5 at most for near points, and t·exp(−t) < 0.37 for others.
DISTANCE_SHARE = 1e-9
DISTANCE_SHARE_SINGLE = 1e-5


@dataclass(frozen=True)
class Linear(Kernel):
    """The inner product, aᵀb + bias².

    Parameters
    ----------
    bias : float
        The weight of a constant feature.

    Examples
    --------
    >>> from bicore import Linear
    >>> Linear(bias=1.0)([[1.0, 2.0], [3.0, 0.0]]).tolist()
    [[6.0, 4.0], [4.0, 10.0]]
    """

    bias: float = 0.0

    @property
    def takes_sparse(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return "linear" if self.bias == 0 else f"linear(bias={self.bias:g})"

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return products(a, b) + self.bias**2

    def diag(self, a: Tensor) -> Tensor:
        return squared_lengths(a) + self.bias**2

    def features(self, a: Tensor) -> Tensor | None:
        if is_sparse(a):
            return None  # they are as wide as the rows, and dense
        rows = flat(a)
        if self.bias == 0:
            return rows
        return torch.cat([rows, rows.new_full((len(rows), 1), self.bias)], 1)


@dataclass(frozen=True)
class Polynomial(Kernel):
    """The polynomial kernel, (γ aᵀb + offset)^degree.

    Parameters
    ----------
    degree : int
        At least 1.
    gamma : float, optional
        Default: 1 / number of features.
    offset : float
        At least 0; above it, lower degrees count too.

    Raises
    ------
    InputError
        Where degree or offset do not make it positive semi-definite.

    Examples
    --------
    >>> from bicore import Polynomial
    >>> Polynomial(degree=2)([[1.0], [2.0]]).tolist()
    [[4.0, 9.0], [9.0, 25.0]]
    """

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

    #: Rows whose distances the median heuristic looks at.
    _median_rows: ClassVar[int] = MEDIAN_ROWS

    def __post_init__(self) -> None:
        if self.gamma is not None and not self.gamma > 0:
            raise InputError(
                f"gamma={self.gamma} is not positive; give gamma > 0, or None for the median "
                "heuristic."
            )

    @abstractmethod
    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        """The distance in the exponent."""

    @abstractmethod
    def _gamma_of_median(self, median: float) -> float:
        """The median heuristic's γ."""

    def fitted(self, x: Any) -> Kernel:
        if self.gamma is not None:
            return self
        rows = x if hasattr(x, "shape") else np.asarray(x)
        step = max(1, -(-len(rows) // self._median_rows))
        sample = some_points(rows[::step])
        distances = self._distance(sample, sample)
        pairs = distances[torch.triu_indices(len(sample), len(sample), 1).unbind()]
        pairs = pairs[pairs > 0]
        # All rows equal (or a single row): every bandwidth gives the same matrix.
        gamma = self._gamma_of_median(pairs.median().item()) if len(pairs) else 1.0
        return replace(self, gamma=gamma)

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
        return self._distance(a, b).mul_(-self.gamma).exp_()

    def diag(self, a: Tensor) -> Tensor:
        return a.new_ones(len(a))


@dataclass(frozen=True)
class RBF(_Stationary):
    """The Gaussian kernel, exp(−γ‖a − b‖²).

    Parameters
    ----------
    gamma : float, optional
        Default: the median heuristic, γ = 1/(2 · median of the squared distances).

    Raises
    ------
    InputError
        Where gamma is not positive, or is missing where there are no data to take it from.

    Examples
    --------
    >>> from bicore import RBF
    >>> RBF(gamma=0.5)([[0.0], [2.0]]).round(4).tolist()
    [[1.0, 0.1353], [0.1353, 1.0]]
    """

    @property
    def takes_sparse(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return "rbf" if self.gamma is None else f"rbf(gamma={self.gamma:.6g})"

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        share = DISTANCE_SHARE if a.dtype == torch.float64 else DISTANCE_SHARE_SINGLE
        negligible = 0.0 if self.gamma is None else self._negligible(share / self.gamma)
        if is_sparse(a):
            return sparse_squared_distances(
                cast(SparsePoints, a), cast(SparsePoints, b), share, negligible
            )
        return squared_distances(flat(a), flat(b), share, negligible)

    def _negligible(self, error: float) -> float:
        """Return the error of a squared distance that changes the exponent by this much."""
        return error

    def _gamma_of_median(self, median: float) -> float:
        return 1 / (2 * median)


@dataclass(frozen=True)
class Laplace(_Stationary):
    """The Laplace kernel, exp(−γ‖a − b‖₁).

    Parameters
    ----------
    gamma : float, optional
        Default: the median heuristic, γ = 1/median of the distances.

    Raises
    ------
    InputError
        Where gamma is not positive, or is missing where there are no data to take it from.

    Examples
    --------
    >>> from bicore import Laplace
    >>> Laplace(gamma=0.5)([[0.0], [2.0]]).round(4).tolist()
    [[1.0, 0.3679], [0.3679, 1.0]]
    """

    @property
    def name(self) -> str:
        return "laplace" if self.gamma is None else f"laplace(gamma={self.gamma:.6g})"

    # No product of matrices gives these distances; the median of fewer is as good.
    _median_rows = MEDIAN_ROWS // 4

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cdist(flat(a), flat(b), p=1)

    def _gamma_of_median(self, median: float) -> float:
        return 1 / median


@dataclass(frozen=True)
class Exponential(RBF):
    """The exponential kernel, exp(−γ‖a − b‖): the Matérn kernel with ν = ½.

    Parameters
    ----------
    gamma : float, optional
        Default: the median heuristic, γ = 1/median of the distances.

    Raises
    ------
    InputError
        If gamma is not positive, or is missing and there are no data to compute it from.

    Examples
    --------
    >>> from bicore.kernels import Exponential
    >>> Exponential(gamma=0.5)([[0.0], [2.0]]).round(4).tolist()
    [[1.0, 0.3679], [0.3679, 1.0]]
    """

    @property
    def name(self) -> str:
        return "exponential" if self.gamma is None else f"exponential(gamma={self.gamma:.6g})"

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        return super()._distance(a, b).sqrt_()

    def _negligible(self, error: float) -> float:
        return error**2

    def _gamma_of_median(self, median: float) -> float:
        return 1 / median


@dataclass(frozen=True, eq=False)
class Nystrom(Kernel):
    """A kernel seen through landmarks Z: Φ(a) = k(a, Z) K_ZZ^{−½}.

    n·p numbers stand for n²: memory and time grow with n, not with n².

    Parameters
    ----------
    kernel : Kernel
        The kernel that is approximated.
    landmarks : int
        How many rows are drawn from the data.
    seed : int
        Of that draw.
    _rows, _root : Tensor
        Z and K_ZZ^{−½} once the kernel is fitted; not for callers.

    Raises
    ------
    InputError
        Where ``landmarks`` is below 1, or there are no data to draw them from.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore import Nystrom, RBF
    >>> x = np.linspace(0, 1, 50)[:, None]
    >>> bool(np.abs(Nystrom(RBF(1.0), landmarks=10)(x) - RBF(1.0)(x)).max() < 1e-4)
    True
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
    def takes_sparse(self) -> bool:
        return self.kernel.takes_sparse

    @property
    def name(self) -> str:
        return f"nystrom({self.kernel.name}, landmarks={self.landmarks})"

    def fitted(self, x: Any) -> Kernel:
        if self._rows is not None:
            return self
        base = self.kernel.fitted(x)
        count = min(self.landmarks, len(x))
        picked = np.sort(np.random.default_rng(self.seed).choice(len(x), count, replace=False))
        rows = some_points(x[picked])
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
        landmarks, root = (part.to(a.device, a.dtype) for part in (self._rows, self._root))
        return self.kernel.evaluate(a, landmarks) @ root

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.features(a) @ self.features(b).T

    def diag(self, a: Tensor) -> Tensor:
        return self.features(a).square().sum(1)

"""Kernels of vectors: linear, polynomial, RBF, Laplace, and Nyström features of any kernel.

Squared distances come from one product of matrices, ‖a‖² + ‖b‖² − 2aᵀb. Its rounding error is that
of the lengths: far from the origin, near points lose their distance to it. Pairs for which that
matters are few, and are computed again from differences.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError, check_integer, check_number, check_settings, check_type
from bicore.kernels.base import (
    Kernel,
    Wrapper,
    as_doubles,
    flatten_points,
    inner_products,
    sample_points,
    squared_lengths,
)
from bicore.kernels.scaling import SINGLE_RANGE
from bicore.sparse import SparsePoints, is_sparse

#: Maximum number of evenly spaced rows for the median heuristic, which uses all pairs.
MEDIAN_ROWS = 1000
#: Eigenvalues of a landmark matrix below this share of the largest are dropped from the Nyström
#: features.
NYSTROM_CUTOFF = 1e-10
#: Allowed error of a distance d in float64 and in float32, as a share of d or of 1/γ: exp(−γd) then
#: errs by at most 1e-9 and 1e-5 for near points, and t·exp(−t) < 0.37 for others.
DISTANCE_SHARE = 1e-9
DISTANCE_SHARE_SINGLE = 1e-5
#: Error of a distance by the product, in units in the last place of ‖a‖² + ‖b‖², times one plus the
#: square root of the columns. Twice the largest error measured with 1 to 5000 columns.
ROUNDING = 2.0
#: Cost of a single pair, in pairs of a product: if more than 1/``APART`` of the pairs are
#: inaccurate, all are recomputed.
APART = 32
#: With fewer rows or columns than this, float64 copies cost as much as the differences.
NARROW = 32
#: Numbers in one temporary array during recomputation, to bound its memory.
AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Linear(Kernel):
    """The inner product, aᵀb + bias².

    Parameters
    ----------
    bias : float
        The weight of a constant feature.

    Examples
    --------
    >>> from bicore.kernels import Linear
    >>> Linear(bias=1.0)([[1.0, 2.0], [3.0, 0.0]]).tolist()
    [[6.0, 4.0], [4.0, 10.0]]
    """

    bias: float = 0.0

    def __post_init__(self) -> None:
        check_number("bias", self.bias)

    takes_sparse = True

    @property
    def name(self) -> str:
        return "linear" if self.bias == 0 else f"linear(bias={self.bias:g})"

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return inner_products(a, b) + self.bias**2

    def diag(self, a: Tensor) -> Tensor:
        return squared_lengths(a) + self.bias**2

    def features(self, a: Tensor) -> Tensor | None:
        if is_sparse(a):
            return None  # features would be dense and as wide as the rows
        rows = flatten_points(a)
        if self.bias == 0:
            return rows
        return torch.cat([rows, rows.new_full((len(rows), 1), self.bias)], 1)


@dataclass(frozen=True)
class Polynomial(Kernel):
    """The polynomial kernel, (γ aᵀb + offset)^degree.

    Parameters
    ----------
    degree : int
        Degree, at least 1.
    gamma : float, optional
        Default: 1 / number of features.
    offset : float
        Constant added to products, at least 0; above 0, lower degrees count too.

    Raises
    ------
    InputError
        If degree or offset do not make it positive semi-definite.

    Examples
    --------
    >>> from bicore.kernels import Polynomial
    >>> Polynomial(degree=2)([[1.0], [2.0]]).tolist()
    [[4.0, 9.0], [9.0, 25.0]]
    """

    degree: int = 3
    gamma: float | None = None
    offset: float = 1.0

    def __post_init__(self) -> None:
        check_number("degree", self.degree, least=1)
        check_number("offset", self.offset, least=0)
        check_settings(self, positive="gamma")

    @property
    def name(self) -> str:
        gamma = "" if self.gamma is None else f", gamma={self.gamma:g}"
        return f"polynomial(degree={self.degree}{gamma}, offset={self.offset:g})"

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self._power(flatten_points(a) @ flatten_points(b).T, a[0].numel())

    def diag(self, a: Tensor) -> Tensor:
        return self._power(flatten_points(a).square().sum(1), a[0].numel())

    def _power(self, inner_products: Tensor, features: int) -> Tensor:
        gamma = 1.0 / features if self.gamma is None else self.gamma
        return (inner_products * gamma + self.offset) ** self.degree


def squared_distances(a: Tensor, b: Tensor, share: float, negligible: float = 0.0) -> Tensor:
    """Return ‖a_i − b_j‖² of all pairs, with an error of at most ``share`` of it or
    ``negligible``."""
    # Moving both points does not change the distance, and less cancels near the origin.
    centre = b.mean(0)
    left = a - centre
    right = b - centre
    lengths = left.square().sum(1)
    others = right.square().sum(1)
    found = torch.addmm(lengths[:, None] + others, left, right.T, alpha=-2).clamp_min_(0)
    return correct_distances(found, lengths, others, a, b, share, negligible)


def correct_distances(
    found: Tensor,
    lengths: Tensor,
    others: Tensor,
    a: Tensor,
    b: Tensor,
    share: float,
    negligible: float = 0.0,
) -> Tensor:
    """Recompute, in place, the inaccurate ones among distances from a product.

    ``lengths`` and ``others`` are the squared lengths of the rows that were multiplied, ``a`` and
    ``b`` the rows, or any that are as far apart.
    """
    # The error of a distance, as a share of the two squared lengths.
    unit = ROUNDING * (1 + math.sqrt(a.shape[1])) * torch.finfo(found.dtype).eps
    worst = unit * float(lengths.max() + others.max())
    if worst <= negligible or worst <= share * float(found.min()):
        return found
    step = max(1, AT_ONCE // len(b))
    for top in range(0, len(a), step):
        rows = slice(top, top + step)
        allowed = found[rows].mul(share).clamp_min_(negligible)
        # Not <=, to include pairs whose lengths overflow.
        doubtful = ((lengths[rows, None] + others).mul_(unit) <= allowed).logical_not_()
        _recompute(found[rows], doubtful.nonzero(), a[rows], b, share, negligible)
    return found


def _recompute(
    found: Tensor, pairs: Tensor, a: Tensor, b: Tensor, share: float, negligible: float
) -> None:
    """Overwrite the distances of these pairs, or all if they are many."""
    sparse = is_sparse(a)
    if sparse or len(pairs) * APART <= found.numel():
        width = max(1, a.numel() // len(a))
        for some in torch.split(pairs, max(1, AT_ONCE // width)):
            first, second = some.unbind(1)
            if sparse:
                own, other = cast(SparsePoints, a), cast(SparsePoints, b)
                found[first, second] = own.squared_pair_distances(other, first, second)
            else:
                found[first, second] = (a[first] - b[second]).square().sum(1)
    elif found.dtype != torch.float64 and min(found.shape) >= NARROW:
        found.copy_(squared_distances(a.double(), b.double(), share, negligible))
    else:
        found.copy_(torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square_())


@dataclass(frozen=True)
class _Stationary(Kernel):
    """exp(−γ · distance), with a bandwidth from the data by default."""

    gamma: float | None = None

    #: Number of rows for the median heuristic.
    _median_rows: ClassVar[int] = MEDIAN_ROWS

    def __post_init__(self) -> None:
        if self.gamma is not None:
            check_number("gamma", self.gamma, above=0, fix="or None for the median heuristic")

    @property
    def name(self) -> str:
        kind = type(self).__name__.lower()
        return kind if self.gamma is None else f"{kind}(gamma={self.gamma:.6g})"

    @abstractmethod
    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distance in the exponent."""

    def _square(self, distance: float) -> float:
        """Return the square of which a distance is computed, or the distance."""
        return distance

    def _gamma_of_median(self, median: float) -> float:
        """Return γ by the median heuristic."""
        return 1 / median

    def fit(self, x: Array) -> Kernel:
        if self.gamma is not None:
            return self
        sample = sample_points(x, self._median_rows)
        pairs = np.triu(self._distance(sample, sample).numpy(), 1)
        pairs = pairs[pairs > 0]
        middle = (len(pairs) - 1) // 2
        # All rows are equal (or there is one): every bandwidth gives the same matrix.
        gamma = self._gamma_of_median(np.partition(pairs, middle)[middle]) if len(pairs) else 1.0
        return replace(self, gamma=float(gamma))

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        gamma, (least, most) = self._fitted(self.gamma), SINGLE_RANGE
        if a.dtype != torch.float64 and not least <= self._square(1 / gamma) <= most:
            raise InputError(
                f"kernel={self.name} has distances beyond float32; scale x, or use float64."
            )
        return self._distance(a, b).mul_(-gamma).exp_()

    def diag(self, a: Tensor) -> Tensor:
        return a.new_ones(len(a))


@dataclass(frozen=True)
class RBF(_Stationary):
    """The Gaussian kernel, exp(−γ‖a − b‖²).

    Parameters
    ----------
    gamma : float, optional
        Width of the kernel (default: the median heuristic, γ = 1/(2 · median of the squared
        distances)).

    Raises
    ------
    InputError
        If gamma is not positive, or is missing and there are no data to choose it from.

    Examples
    --------
    >>> from bicore.kernels import RBF
    >>> RBF(gamma=0.5)([[0.0], [2.0]]).round(4).tolist()
    [[1.0, 0.1353], [0.1353, 1.0]]
    """

    takes_sparse = True

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        share = DISTANCE_SHARE if a.dtype == torch.float64 else DISTANCE_SHARE_SINGLE
        negligible = 0.0 if self.gamma is None else self._square(share / self.gamma)
        if not is_sparse(a):
            return squared_distances(flatten_points(a), flatten_points(b), share, negligible)
        # Sparse points are not moved towards the origin, which would make them dense.
        own, other = cast(SparsePoints, a), cast(SparsePoints, b)
        lengths, others = own.squared_lengths(), other.squared_lengths()
        found = (lengths[:, None] + others).sub_(own.products(other), alpha=2).clamp_min_(0)
        correct_distances(found, lengths, others, a, b, share, negligible)
        return found.to(a.device, a.dtype)

    def _gamma_of_median(self, median: float) -> float:
        return 1 / (2 * median)


@dataclass(frozen=True)
class Laplace(_Stationary):
    """The Laplace kernel, exp(−γ‖a − b‖₁).

    Parameters
    ----------
    gamma : float, optional
        Width of the kernel (default: the median heuristic, γ = 1/median of the distances).

    Raises
    ------
    InputError
        If gamma is not positive, or is missing and there are no data to choose it from.

    Examples
    --------
    >>> from bicore.kernels import Laplace
    >>> Laplace(gamma=0.5)([[0.0], [2.0]]).round(4).tolist()
    [[1.0, 0.3679], [0.3679, 1.0]]
    """

    # These distances do not follow from a product of matrices; the median of fewer is as good.
    _median_rows = MEDIAN_ROWS // 4

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cdist(flatten_points(a), flatten_points(b), p=1)


@dataclass(frozen=True)
class Exponential(RBF):
    """The exponential kernel, exp(−γ‖a − b‖): the Matérn kernel with ν = ½."""

    sharpness: float = field(default=1.0, repr=False)

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        return super()._distance(a, b).sqrt_()

    def _square(self, distance: float) -> float:
        return distance * distance

    def _gamma_of_median(self, median: float) -> float:
        return self.sharpness / median


@dataclass(frozen=True, eq=False)
class Nystrom(Wrapper):
    """A kernel approximated by landmarks Z: Φ(a) = k(a, Z) K_ZZ^{−½}.

    n·p numbers stand for n²: memory and time grow with n, not with n².

    Parameters
    ----------
    kernel : Kernel
        The kernel that is approximated.
    landmarks : int
        Number of rows drawn from the data.
    random_state : int
        Of that draw.
    _rows, _root : Tensor
        Z and K_ZZ^{−½} once the kernel is fitted; not for callers.

    Raises
    ------
    InputError
        If ``landmarks`` is below 1, or there are no data to draw them from.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.kernels import Nystrom, RBF
    >>> x = np.linspace(0, 1, 50)[:, None]
    >>> bool(np.abs(Nystrom(RBF(1.0), landmarks=10)(x) - RBF(1.0)(x)).max() < 1e-4)
    True
    """

    landmarks: int = 500
    random_state: int = 0
    _rows: Tensor | None = field(default=None, repr=False)
    _root: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_type("kernel", self.kernel, Kernel, "a Kernel, such as RBF()")
        check_integer("landmarks", self.landmarks)

    @property
    def name(self) -> str:
        return f"nystrom({self.kernel.name}, landmarks={self.landmarks})"

    def fit(self, x: Array) -> Kernel:
        if self._rows is not None:
            return self
        base = self.kernel.fit(x)
        count = min(self.landmarks, len(x))
        picked = np.sort(
            np.random.default_rng(self.random_state).choice(len(x), count, replace=False)
        )
        rows = as_doubles(x[picked])
        values, vectors = torch.linalg.eigh(base.gram(rows))
        kept = values > NYSTROM_CUTOFF * values.max()
        return replace(self, kernel=base, _rows=rows, _root=vectors[:, kept] * values[kept].rsqrt())

    def features(self, a: Tensor) -> Tensor:
        known = (self._fitted(self._rows), self._fitted(self._root))
        landmarks, root = (part.to(a.device, a.dtype) for part in known)
        return self.kernel.evaluate(a, landmarks) @ root

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.features(a) @ self.features(b).T

    def diag(self, a: Tensor) -> Tensor:
        return self.features(a).square().sum(1)

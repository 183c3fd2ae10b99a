"""Columns of K and of KᵀDK for the points that are likely to be chosen next, many at a time.

Where a kernel is evaluated again for every product, a pass over all pairs costs almost the same for
one column as for dozens. Each point that joins needs the product of K with its own column, and
which points will join soon is no secret: those with the best scores now. Of points looked ahead in
this way most are taken within the next steps, so that a pass serves several of them. What is
computed does not depend on the coreset, and nothing of it is approximate.

The posterior kernel of the squared error, and what a point that joins does to it.

With K' = K − K[:, S](K_SS + ρ W⁻¹)⁻¹K[S, :], adding point k of weight w, c = K'[:, k] and
d = ρ/w + K'_kk is a rank-one step, of K' and of everything that follows from it (D holds the
weights of the outer set, r the residuals, the K' to the left of D is the rectangular one):

    K' ← K' − c cᵀ/d                              r ← r − c r_kᵀ/d
    K'Dr ← K'Dr − (K'Dc) r_kᵀ/d − c ((K'Dr)_k − (cᵀDc/d) r_k)ᵀ/d
    (K'DK')_jj ← (K'DK')_jj − 2 c_j (K'Dc)_j/d + c_j² (cᵀDc)/d²
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import NumericalError
from bicore.kernels.operators import KernelOperator
from bicore.numerics.linear_algebra import height, summed_over_rows
from bicore.runtime import checkpoint, wide

#: Columns of one pass: a tile's products with them then cost about as much as the tile itself.
TOGETHER = 64
#: Passes that a point then takes: points looked ahead are mostly taken soon (41 passes for 400 of
#: 4000 images, and more a point for the first ones).
PASSES_A_POINT = 0.2
#: Columns that are held, as a multiple of that; those with the worst scores are forgotten first.
HELD = 4


@dataclass(frozen=True, eq=False)
class Seen:
    """K[:, k] at the training points and at the outer set, and KᵀD times the latter."""

    train: Tensor
    outer: Tensor
    product: Tensor


class Foresight:
    """Columns of one problem's operators; ``likely`` names the best points by their scores now."""

    def __init__(
        self,
        train: KernelOperator,
        cross: KernelOperator,
        weights: Tensor,
        likely: Callable[[int], list[int]],
        room: int,
    ) -> None:
        self.train = train
        self.cross = cross
        self.weights = weights
        self.likely = likely
        self.together = max(1, min(TOGETHER, room // HELD))
        self.seen: dict[int, Seen] = {}

    @staticmethod
    def width(train: KernelOperator, cross: KernelOperator, capacity: int) -> int:
        """How many columns the spare memory of the operators holds, beside the products of so many
        points chosen."""
        itemsize = train.like.element_size()
        spare = train.spare - capacity * train.shape[0] * itemsize
        column = train.shape[0] * 2 + (0 if cross is train else cross.shape[0])
        # one more set of columns is alive while a pass is made
        return max(0, min(HELD * TOGETHER, spare // (2 * column * itemsize)))

    def column(self, k: int) -> Seen:
        """What belongs to a point; a pass where it was not looked ahead."""
        if k not in self.seen:
            self._look(k)
        return self.seen[k]

    def _look(self, k: int) -> None:
        best = self.likely(HELD * self.together)
        self.seen = {point: self.seen[point] for point in best if point in self.seen}
        fresh = [k, *(point for point in best if point not in self.seen and point != k)]
        fresh = fresh[: self.together]
        index = torch.tensor(fresh, device=self.train.like.device)
        train = self.train.columns(index)
        outer = train if self.cross is self.train else self.cross.columns(index)
        product = self.cross.transposed_matmul(self.weights[:, None] * outer)
        # a row a point: columns of a matrix are slow to read
        train, outer, product = (one.T.contiguous() for one in (train, outer, product))
        for place, point in enumerate(fresh):
            self.seen[point] = Seen(train[place], outer[place], product[place])


#: How many roundings of the largest variance, magnified by its ratio to ρ, count as rounding …
ROUNDING = 1e4
#: … and the share of the largest variance beyond which nothing does: scores and divisors are sums
#: with such variances, and say nothing where one is wrong by more.
MOST_ROUNDING = 1e-3


@dataclass(frozen=True, eq=False)
class Column:
    """Column k of the posterior kernel at the training points and at the outer set, and K'ᵀDc."""

    train: Tensor
    outer: Tensor
    image: Tensor


class Downdate:
    """One point's rank-one step, in float64, from c, K'Dc, d and cᵀDc."""

    # A plain class: thousands of these are made where every microsecond of the host counts.
    __slots__ = ("column", "divisor", "image", "scaled", "spread")

    def __init__(self, column: Tensor, image: Tensor, divisor: Tensor, squares: Tensor) -> None:
        self.column = column
        self.image = image
        self.divisor = divisor
        self.scaled = column / divisor
        self.spread = squares / divisor

    def residual(self, residual: Tensor, own: Tensor) -> None:
        """r, with ``own`` = r_k/d."""
        residual.addr_(self.column, own, alpha=-1)

    def pull(self, pull: Tensor, own: Tensor, pulled: Tensor) -> None:
        """K'Dr, with ``pulled`` = (K'Dr)_k/d: the four terms of (K' − ccᵀ/d) D (r − c r_kᵀ/d)."""
        if pull.is_cuda:  # where the number of calls counts
            pull.addr_(self.image, own, alpha=-1)
            pull.addr_(self.column, pulled - own * self.spread, alpha=-1)
            return
        # both terms in one pass over the n × C numbers
        left = torch.stack([self.image, self.column])
        pull.addmm_(left.T, torch.stack([own, pulled - own * self.spread]), alpha=-1)

    def energy(self, energy: Tensor) -> None:
        """The diagonal of K'DK', which only rounding could take below zero."""
        energy.addcmul_(self.scaled, self.image, value=-2)
        energy.addcmul_(self.column * (self.spread / self.divisor), self.column)
        energy.clamp_min_(0)

    def variance(self, variance: Tensor) -> None:
        """The diagonal of K'; whether it fell further than rounding can take it is for the caller
        to see, who may not want to wait for a device."""
        variance.addcmul_(self.scaled, self.column, value=-1)

    def kernel(self, kernel: Tensor) -> None:
        """K' itself."""
        kernel.sub_(torch.outer(self.column, self.column) / self.divisor)

    def moment(self, moment: Tensor) -> None:
        """K'DK' itself."""
        crossed = torch.outer(self.column, self.image)
        moment.sub_((crossed + crossed.T) / self.divisor)
        moment.add_(torch.outer(self.column, self.column) * (self.spread / self.divisor))


def exact_gain(agreement: Any, energy: Any, norm: Any, divisor: Any) -> Any:
    """2⟨(K'Dr)_k, r_k⟩/d_k − (K'DK')_kk ‖r_k‖²/d_k²: by how much G falls when a point joins with
    weight 1. For tensors and arrays alike."""
    return 2 * agreement / divisor - energy * norm / divisor**2


def downdate_arrays(kernel: Array, left: Array, scaled: Array) -> None:
    """K' ← K' − left scaledᵀ in plain arrays, scaled = c/d: for a few points, fewest calls."""
    kernel -= left[:, None] * scaled


class Posterior(ABC):
    """K' in a form that gives a column and its image, and takes a rank-one downdate."""

    @abstractmethod
    def column(self, k: Tensor) -> Column:
        """c and K'Dc of the point whose number the tensor (of one entry) holds."""

    @abstractmethod
    def downdate(self, column: Column, divisor: Tensor) -> None:
        """K' ← K' − c cᵀ/d for the column asked for last."""

    @abstractmethod
    def rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """K'[index, :] at the training points and at the outer set, a row a point."""

    @abstractmethod
    def images(self, outer: Tensor) -> Tensor:
        """(K'ᵀD f) of every row f over the outer set."""

    @abstractmethod
    def downdate_all(self, index: Tensor, lower: Tensor, train: Tensor, outer: Tensor) -> None:
        """K' ← K' − LᵀL with the rows of L given: lower⁻¹ K'[index, :]."""


class FactorPosterior(Posterior):
    """K' = K − L Lᵀ with a row of Lᵀ for each chosen point: works with any operator."""

    def __init__(
        self,
        train: KernelOperator,
        cross: KernelOperator,
        weights: Tensor,
        capacity: int,
        foresight: Foresight | None = None,
    ) -> None:
        self.train = train
        self.cross = cross
        self.weights = weights
        self.size = 0
        self._train = train.like.new_empty(capacity, train.shape[0])
        self._outer = self._train
        if cross is not train:
            self._outer = train.like.new_empty(capacity, cross.shape[0])
        self.foresight = foresight
        # KᵀD times every row of the factor, from which those of other columns follow.
        self._products = None if foresight is None else torch.empty_like(self._train)
        self._product = self.weights  # of the column asked for last, or of the last rows

    def column(self, k: Tensor) -> Column:
        factor_train = self._train[: self.size]
        factor_outer = self._outer[: self.size]
        own = factor_train[:, k][:, 0]
        seen = None if self.foresight is None else self.foresight.column(int(k))
        train = (self.train.columns(k)[:, 0] if seen is None else seen.train) - own @ factor_train
        outer = train
        if self._outer is not self._train:
            outer = self.cross.columns(k)[:, 0] if seen is None else seen.outer
            outer = outer - own @ factor_outer
        weighted = self.weights * outer
        if seen is None or self._products is None:
            self._product = self.cross.transposed_matmul(weighted)
        else:
            self._product = seen.product - own @ self._products[: self.size]
        image = self._product - (factor_outer @ weighted) @ factor_train
        return Column(train, outer, image)

    def downdate(self, column: Column, divisor: Tensor) -> None:
        root = divisor.sqrt().to(column.train)
        self._train[self.size] = column.train / root
        if self._outer is not self._train:
            self._outer[self.size] = column.outer / root
        if self._products is not None:
            self._products[self.size] = self._product / root
        self.size += 1

    def rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        own = self._train[: self.size, index].T
        train = self.train.columns(index).T - own @ self._train[: self.size]
        if self._outer is self._train:
            return train, train
        return train, self.cross.columns(index).T - own @ self._outer[: self.size]

    def images(self, outer: Tensor) -> Tensor:
        weighted = self.weights * outer
        self._product = product = self.cross.transposed_matmul(weighted.T.contiguous()).T
        return product - (weighted @ self._outer[: self.size].T) @ self._train[: self.size]

    def downdate_all(self, index: Tensor, lower: Tensor, train: Tensor, outer: Tensor) -> None:
        added = slice(self.size, self.size + len(index))
        self._train[added] = train
        if self._outer is not self._train:
            self._outer[added] = outer
        if self._products is not None:
            self._products[added] = self._product  # of these very rows, by ``images``
        self.size = added.stop


class FeaturePosterior(Posterior):
    """K' = Φ Σ Φᵀ with Σ (p×p) downdated: no factor of n·m numbers, one pass over Φ a step."""

    def __init__(self, train: Tensor, outer: Tensor, weights: Tensor) -> None:
        self.train = train
        self.outer = outer
        self.weights = weights
        width = train.shape[1]
        self.covariance = torch.eye(width, dtype=torch.float64, device=train.device)
        self.moment = _moment(outer, weights)
        self._direction = self.covariance[0]

    def column(self, k: Tensor) -> Column:
        self._direction = self.covariance @ self.train[k][0].double()
        second = self.covariance @ (self.moment @ self._direction)
        train, image = _both(self.train, self._direction, second)
        outer = train
        if self.outer is not self.train:
            outer = self.outer @ self._direction.to(self.outer)
        return Column(train, outer, image)

    def downdate(self, column: Column, divisor: Tensor) -> None:
        self.covariance.addr_(self._direction, self._direction / divisor, alpha=-1)

    def rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        directions = (self.train[index].double() @ self.covariance).to(self.train)
        train = directions @ self.train.T
        return train, train if self.outer is self.train else directions @ self.outer.T

    def images(self, outer: Tensor) -> Tensor:
        inner = (outer * self.weights) @ self.outer
        return (inner.double() @ self.covariance).to(self.train) @ self.train.T

    def downdate_all(self, index: Tensor, lower: Tensor, train: Tensor, outer: Tensor) -> None:
        rows = self.train[index].double() @ self.covariance
        half = torch.linalg.solve_triangular(lower, rows, upper=False)
        self.covariance -= half.T @ half


def _both(rows: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The products of the rows with two vectors; on a CPU one with a matrix of two columns takes
    longer than two with a vector."""
    first = first.to(rows)
    second = second.to(rows)
    if rows.is_cuda:
        both = rows @ torch.stack([first, second], 1)
        return both[:, 0], both[:, 1]
    checkpoint()
    with wide(2 * rows.numel()):
        return rows @ first, rows @ second


def _moment(rows: Tensor, weights: Tensor) -> Tensor:
    """Σ_o D_o φ_o φ_oᵀ."""
    if rows.is_cuda:
        return summed_over_rows(rows, rows, weights).double()
    from scipy.linalg import blas  # not before it is needed: importing it takes time

    update = blas.dsyrk if rows.dtype == torch.float64 else blas.ssyrk
    width = rows.shape[1]
    total = torch.zeros(width, width, dtype=torch.float64)
    with wide(rows.numel() * width / 2):
        step = height(width * width // 2)
        for top in range(0, len(rows), step):
            checkpoint()
            part = weights[top : top + step].sqrt()[:, None] * rows[top : top + step]
            total += torch.from_numpy(np.ascontiguousarray(update(1.0, part.numpy().T)))
    return total.triu() + total.triu(1).T


def posterior_of(
    train: KernelOperator,
    cross: KernelOperator,
    weights: Tensor,
    capacity: int,
    foresight: Foresight | None = None,
) -> Posterior:
    """K' before any point is chosen; ``cross`` has the rows of the outer set, whose weights these
    are."""
    own = train.feature_rows
    other = cross.feature_rows
    if own is not None and other is not None:
        return FeaturePosterior(own[1], other[0], weights)
    return FactorPosterior(train, cross, weights, capacity, foresight)


def rounding_allowed(dtype: torch.dtype, variance: float, rho: float) -> float:
    """How far below zero rounding may take a posterior variance, where the largest prior one is
    ``variance``.

    m steps are a Cholesky factor of K + ρ with entries off by m roundings e of the largest
    variance v, and so is the variance left by e (1 + ‖g‖₁)², g the coefficients that predict the
    point from the m others, ‖g‖₂ ≤ ½ √(v/ρ): about e m v/ρ where that is large. A bound for the
    worst case, so that it ends where it would excuse everything.
    """
    worst = ROUNDING * torch.finfo(dtype).eps * max(1.0, variance / rho)
    return variance * min(worst, MOST_ROUNDING)


def check_variance(lowest: float, allowed: float) -> None:
    """A variance cannot fall below zero but by rounding; further means that K is no kernel."""
    if lowest < -allowed:
        raise NumericalError(
            f"the posterior variance of a point fell to {lowest:.3g}: the kernel matrix is not "
            "positive semi-definite at this precision; use float64, a larger inner_reg, or another "
            "kernel."
        )

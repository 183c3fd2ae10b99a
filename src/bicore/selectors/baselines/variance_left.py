"""The variance that given points leave, computed from nothing: what a design reports is checked by
it.

With Φ_S the features of the points, L Lᵀ = I + Φ_SᵀΦ_S/σ² and D the weights of the outer set,

    G(S) = ½ Σ_o D_o ‖L⁻¹φ_o‖²                             where features are fewer than points
    G(S) = ½ Σ_o D_o (k_oo − ‖C⁻¹k_So‖²),  C Cᵀ = K_SS + σ²I                       otherwise

both in float64, from the numbers of the kernel alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bicore.bilevel.certificate import TOLERANCE, factor, mend, precision
from bicore.bilevel.last_digits import DRAWS, Draws, blocks_of, rounding_of, spread_of
from bicore.errors import NumericalError
from bicore.kernels.operators import KernelOperator


def certified_variance(left: Left, train: KernelOperator, reported: float) -> None:
    """An error where a reported variance is not what the points leave.

    It is right to the share of itself that the bilevel objectives have
    (:data:`bicore.bilevel.certificate.TOLERANCE`), however little is left: a gap is a ratio.
    """
    share = TOLERANCE[train.like.dtype]
    value = left.value()
    difference = abs(reported - value)
    allowed = share * value
    uncertain = 0.0
    if difference <= allowed:  # otherwise there is nothing left to see
        uncertain = left.uncertainty(rounding_of(train), allowed - difference)
    if not difference + uncertain <= allowed:
        raise NumericalError(
            f"the variance that {left.size} points leave came out as {reported:.9g}; computed "
            f"again in float64 it is {value:.9g}, give or take {uncertain:.2g} by the rounding of "
            f"a {precision(train)} kernel whose k(x, x)/noise is up to {left.ratio:.2g}. They "
            f"must agree to {allowed:.2g}; {mend(train, 'noise')}."
        )


def left_by(
    train: KernelOperator,
    outer: KernelOperator,
    prior: Tensor,
    weights: Tensor,
    noise: float,
    points: Sequence[int],
) -> Left:
    """What these points leave at the outer set, whose prior variances and weights are given."""
    index = torch.tensor(list(points), dtype=torch.long, device=train.like.device)
    shares = weights.double()
    own = train.feature_rows
    other = outer.feature_rows
    if own is not None and other is not None:
        return FeaturesLeft(noise, shares, other[0], own[1][index].double())
    columns = outer.columns(index)
    square = (columns if outer is train else train.columns(index))[index].double()
    same = index if outer is train else None
    return ColumnsLeft(noise, shares, prior.double(), columns, square, same)


@dataclass(frozen=True, eq=False)
class Left(ABC):
    """The variance left at an outer set."""

    noise: float
    weights: Tensor

    @property
    @abstractmethod
    def size(self) -> int:
        """How many points were observed."""

    @property
    @abstractmethod
    def ratio(self) -> float:
        """The largest prior variance of a point beside the noise."""

    @abstractmethod
    def value(self) -> float:
        """G."""

    @abstractmethod
    def redrawn(self, draws: Draws) -> Left:
        """The same with other last digits of the kernel's numbers."""

    @abstractmethod
    def bound(self, relative: float) -> float:
        """More than a rounding by this share can do, to first order."""

    def uncertainty(self, relative: float, enough: float) -> float:
        """What the rounding of the kernel's numbers may do: a bound where that is low enough."""
        bound = self.bound(relative)
        if bound <= enough:
            return bound
        draws = Draws(relative, self.weights)
        others = [self.redrawn(draws).value() for _ in range(DRAWS)]
        return spread_of(others, self.value())


@dataclass(frozen=True, eq=False)
class FeaturesLeft(Left):
    """By the features of the outer set, and of the points."""

    outer: Tensor
    rows: Tensor

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def ratio(self) -> float:
        return float(self.rows.square().sum(1).max()) / self.noise if self.size else 0.0

    def _few(self) -> bool:
        """Whether there are fewer features than points: no differences are needed then."""
        return self.rows.shape[1] <= self.size

    def value(self) -> float:
        small = self.rows.T @ self.rows / self.noise if self._few() else self.rows @ self.rows.T
        small.diagonal().add_(1.0 if self._few() else self.noise)
        lower = factor(small, "noise")
        variances = torch.cat([self._of(block, lower) for block in blocks_of(self.outer)])
        return 0.5 * float(self.weights @ variances)

    def _of(self, block: Tensor, lower: Tensor) -> Tensor:
        if self._few():
            return _norms(lower, block.T)
        return block.square().sum(1) - _norms(lower, self.rows @ block.T)

    def redrawn(self, draws: Draws) -> FeaturesLeft:
        return replace(self, rows=draws.rows(self.rows))

    def bound(self, relative: float) -> float:
        if not self._few():
            prior = 0.5 * sum(float(part) for part in self._priors())
            return _by_differences(relative, self.size, self.ratio, prior)
        # ‖L⁻¹ δ(ΦᵀΦ) L⁻ᵀ‖ for numbers off by a share of themselves, and for rounded products
        total = self.size * self.ratio
        rounded = torch.finfo(torch.float64).eps * self.rows.shape[1] * total
        return self.value() * (2 * relative * math.sqrt(total) + rounded)

    def _priors(self) -> Iterator[Tensor]:
        first = 0
        for block in blocks_of(self.outer):
            yield self.weights[first : first + len(block)] @ block.square().sum(1)
            first += len(block)


@dataclass(frozen=True, eq=False)
class ColumnsLeft(Left):
    """By the columns of the kernel matrix that belong to the points."""

    prior: Tensor
    columns: Tensor
    square: Tensor
    #: Where the points are in the outer set, if they are.
    index: Tensor | None

    @property
    def size(self) -> int:
        return len(self.square)

    @property
    def ratio(self) -> float:
        return float(self.square.diagonal().max()) / self.noise if self.size else 0.0

    def value(self) -> float:
        matrix = self.square.clone()
        matrix.diagonal().add_(self.noise)
        lower = factor(matrix, "noise")
        known = [_norms(lower, block.T) for block in blocks_of(self.columns)]
        return 0.5 * float(self.weights @ (self.prior - torch.cat(known)))

    def redrawn(self, draws: Draws) -> ColumnsLeft:
        square = draws.square(self.square)
        columns = draws.rows(self.columns.double())
        prior = self.prior
        if self.index is not None:  # the same numbers
            columns[self.index] = square
            prior = prior.index_copy(0, self.index, square.diagonal())
        return replace(self, square=square, columns=columns, prior=prior)

    def bound(self, relative: float) -> float:
        prior = 0.5 * float(self.weights @ self.prior)
        return _by_differences(relative, self.size, self.ratio, prior)


def _norms(lower: Tensor, columns: Tensor) -> Tensor:
    """‖L⁻¹c‖² of every column c."""
    halves: Tensor = torch.linalg.solve_triangular(lower, columns, upper=False)
    return halves.square().sum(0)


def _by_differences(relative: float, size: int, ratio: float, prior: float) -> float:
    """What rounding can do to k_oo − k_oS(K_SS + σ²)⁻¹k_So: every number of the matrix of S and o
    is multiplied by (1, g), ‖g‖ ≤ ½ √(k/σ²)."""
    return relative * prior * (1 + 0.5 * math.sqrt(size * ratio)) ** 2

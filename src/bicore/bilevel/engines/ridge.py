"""Forward selection for the squared error: no inner iterations, everything by rank-one updates.

With the residual r = t − h and the posterior kernel K' = K − K[:, S](K_SS + ρ W⁻¹)⁻¹K[S, :], adding
point k of weight w, c = K'[:, k] and d = ρ/w + K'_kk:

    r ← r − c r_kᵀ/d            K' ← K' − c cᵀ/d
    ∂G/∂w_k at w_k = 0          −2⟨(K'D r)_k, r_k⟩/ρ                                  (the gradient rule)
    exact decrease of G          2⟨(K'D r)_k, r_k⟩/d_k − (K'D K')_kk ‖r_k‖²/d_k²      (the gain rule)

D holds the data weights of the outer set, scaled to sum 1. K'Dr, (K'DK')_kk and K'_kk are updated
from c and K'Dc, so both rules cost one product with K' a step. With a separate outer set the K' on
the left is the rectangular one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.bilevel.problem import Constant, Problem
from bicore.bilevel.solvers.factors import lower_factor
from bicore.errors import NumericalError
from bicore.kernels.operators import Features, KernelOperator
from bicore.picking import TIE

#: How many roundings of the largest variance, magnified by its ratio to ρ, count as rounding.
ROUNDING = 1e4


@dataclass(frozen=True, eq=False)
class Column:
    """Column k of the posterior kernel at the training points and at the outer set, and K'ᵀDc."""

    train: Tensor
    outer: Tensor
    image: Tensor


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
        self, train: KernelOperator, cross: KernelOperator, weights: Tensor, capacity: int
    ) -> None:
        self.train = train
        self.cross = cross
        self.weights = weights
        self.size = 0
        self._train = train.like.new_empty(capacity, train.shape[0])
        self._outer = (
            train.like.new_empty(capacity, cross.shape[0]) if cross is not train else self._train
        )

    def column(self, k: Tensor) -> Column:
        factor_train = self._train[: self.size]
        factor_outer = self._outer[: self.size]
        own = factor_train[:, k][:, 0]
        train = self.train.columns(k)[:, 0] - own @ factor_train
        outer = train
        if self._outer is not self._train:
            outer = self.cross.columns(k)[:, 0] - own @ factor_outer
        weighted = self.weights * outer
        image = self.cross.transposed_matmul(weighted) - (factor_outer @ weighted) @ factor_train
        return Column(train, outer, image)

    def downdate(self, column: Column, divisor: Tensor) -> None:
        root = divisor.sqrt().to(column.train)
        self._train[self.size] = column.train / root
        if self._outer is not self._train:
            self._outer[self.size] = column.outer / root
        self.size += 1

    def rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        own = self._train[: self.size, index].T
        train = self.train.columns(index).T - own @ self._train[: self.size]
        if self._outer is self._train:
            return train, train
        return train, self.cross.columns(index).T - own @ self._outer[: self.size]

    def images(self, outer: Tensor) -> Tensor:
        weighted = self.weights * outer
        product = self.cross.transposed_matmul(weighted.T.contiguous()).T
        return product - (weighted @ self._outer[: self.size].T) @ self._train[: self.size]

    def downdate_all(self, index: Tensor, lower: Tensor, train: Tensor, outer: Tensor) -> None:
        added = slice(self.size, self.size + len(index))
        self._train[added] = train
        if self._outer is not self._train:
            self._outer[added] = outer
        self.size = added.stop


class FeaturePosterior(Posterior):
    """K' = Φ Σ Φᵀ with Σ (p×p) downdated: no factor of n·m numbers, one pass over Φ a step."""

    def __init__(self, train: Features, outer: Features, weights: Tensor) -> None:
        self.train = train.cols
        self.outer = outer.rows
        self.weights = weights
        width = self.train.shape[1]
        self.covariance = torch.eye(width, dtype=torch.float64, device=self.train.device)
        self.moment = (self.outer.T @ (weights[:, None] * self.outer)).double()
        self._direction = self.covariance[0]

    def column(self, k: Tensor) -> Column:
        self._direction = self.covariance @ self.train[k][0].double()
        second = self.covariance @ (self.moment @ self._direction)
        both = self.train @ torch.stack([self._direction, second], 1).to(self.train)
        train = both[:, 0]
        image = both[:, 1]
        outer = train if self.outer is self.train else self.outer @ self._direction.to(self.outer)
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
        half = torch.linalg.solve_triangular(
            lower, self.train[index].double() @ self.covariance, upper=False
        )
        self.covariance -= half.T @ half


class RidgeForward:
    """The state of a growing coreset under the squared error. Running sums are kept in float64
    whatever the kernel's dtype."""

    def __init__(self, problem: Problem, capacity: int, exact_gain: bool = False) -> None:
        assert isinstance(problem.regulariser, Constant)
        self.problem = problem
        self.rho = problem.regulariser.value
        self.indices: list[int] = []
        self.objective = problem.outer_value(torch.zeros_like(problem.outer_targets))
        self.outer_residual = problem.outer_targets.double().clone()
        self.same = problem.cross is problem.train
        self.residual = self.outer_residual if self.same else problem.inner_targets.double().clone()
        self.outer_weights = problem.outer_weights.double()
        self.posterior = posterior_of(problem.train, problem.cross, problem.outer_weights, capacity)
        weighted = problem.outer_weights[:, None] * problem.outer_targets
        self.pull = problem.cross.transposed_matmul(weighted).double()
        self.variance = problem.train.diagonal().double().clone().clamp_min_(0)
        self.allowed = rounding_allowed(
            problem.train.like.dtype, float(self.variance.abs().max()), self.rho
        )
        self.lowest = self.variance.new_zeros(())
        self._taken: list[tuple[Tensor, Tensor]] = []
        # K D r, which only the first-order rule reads; kept from its first use on.
        self.plain_pull: Tensor | None = None
        # (K'DK')_kk, which only the gain rule reads.
        self.energy = (
            problem.cross.weighted_column_norms(problem.outer_weights) if exact_gain else None
        )

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.residual.device

    @property
    def on_device(self) -> bool:
        """Whether reading a number back costs a wait."""
        return self.residual.is_cuda

    def add(self, k: int, weight: float = 1.0) -> None:
        """Take point k into the coreset."""
        self.advance(torch.tensor([k], device=self.residual.device), weight)
        self.settle()

    def advance(self, k: Tensor, weight: float = 1.0) -> None:
        """Take the point whose number the tensor holds. Nothing is read back from the device: see
        :meth:`settle`."""
        column = self.posterior.column(k)
        divisor = self.variance[k] + self.rho / weight
        self.posterior.downdate(column, divisor)
        train = column.train.double()
        image = column.image.double()
        outer = train if self.same else column.outer.double()
        own = self.residual[k][0] / divisor
        pulled = self.pull[k][0] / divisor
        spread = torch.dot(outer * self.outer_weights, outer) / divisor
        # K'Dr of the new K' and r: the four terms of (K' − ccᵀ/d) D (r − c r_kᵀ/d).
        self.pull.addr_(image, own, alpha=-1)
        self.pull.addr_(train, pulled - own * spread, alpha=-1)
        if self.energy is not None:
            self.energy.addcmul_(train / divisor, image, value=-2).addcmul_(
                train * (spread / divisor), train
            )
            self.energy.clamp_min_(0)
        if self.plain_pull is not None:
            self.plain_pull.addr_(self._pulled(outer[:, None])[:, 0], own, alpha=-1)
        # K'_kk ← K'_kk − c_k²/d cannot fall below zero but by rounding; further means that K is no
        # kernel matrix.
        self.variance.addcmul_(train / divisor, train, value=-1)
        self.lowest = torch.minimum(self.lowest, self.variance.min())
        self.variance.clamp_min_(0)
        self.residual.addr_(train, own, alpha=-1)
        if not self.same:
            self.outer_residual.addr_(outer, own, alpha=-1)
        self._taken.append((k, self.outer_weights @ self.outer_residual.square().sum(1)))

    def settle(self) -> list[float]:
        """Read back what :meth:`advance` did since the last time: the points, the objective after
        each, and whether all is well."""
        if not self._taken:
            return []
        told = torch.stack(
            [torch.cat([k.double(), objective[None]]) for k, objective in self._taken]
        )
        numbers = torch.cat([told.flatten(), self.lowest[None]]).tolist()
        self.indices += [int(k) for k in numbers[:-1:2]]
        objectives = numbers[1:-1:2]
        self._taken = []
        if numbers[-1] < -self.allowed:
            raise negative_variance(numbers[-1])
        self.objective = objectives[-1]
        if self.objective != self.objective:
            raise turned_nan()
        return objectives

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        """Take several points at once: one Cholesky factor and block products instead of a pass
        over K for each."""
        self.settle()
        index = torch.tensor(list(points), device=self.residual.device)
        scale = self.rho / torch.tensor(
            list(weights), dtype=torch.float64, device=self.residual.device
        )
        rows, outer_rows = self.posterior.rows(index)
        own = rows[:, index].double()
        lower = lower_factor((own + own.T) / 2 + torch.diag(scale))
        train = torch.linalg.solve_triangular(lower, rows.double(), upper=False)
        outer = (
            train
            if self.same
            else torch.linalg.solve_triangular(lower, outer_rows.double(), upper=False)
        )
        head = torch.linalg.solve_triangular(lower, self.residual[index], upper=False)
        self._take(index, lower, train, outer, head)
        self.indices += [int(k) for k in points]
        self.objective = float(self.outer_weights @ self.outer_residual.square().sum(1))
        if self.objective != self.objective:
            raise turned_nan()

    def _take(
        self, index: Tensor, lower: Tensor, train: Tensor, outer: Tensor, head: Tensor
    ) -> None:
        """Downdate everything by the factors L = lower⁻¹ K'[S, :] of the training points and of the
        outer set."""
        like = self.problem.train.like
        image = self.posterior.images(outer.to(like)).double()
        self.residual -= train.T @ head
        if not self.same:
            self.outer_residual -= outer.T @ head
        spread = outer * self.outer_weights
        self.pull -= image.T @ head + train.T @ (spread @ self.outer_residual)
        if self.energy is not None:
            self.energy += ((spread @ outer.T) @ train * train).sum(0) - 2 * (train * image).sum(0)
            self.energy.clamp_min_(0)
        if self.plain_pull is not None:
            self.plain_pull -= self._pulled(outer.T @ head)
        self.variance.sub_(train.square().sum(0))
        lowest = float(self.variance.min())
        if lowest < -self.allowed:
            raise negative_variance(lowest)
        self.variance.clamp_min_(0)
        self.posterior.downdate_all(index, lower, train.to(like), outer.to(like))

    def within(self, pool: Tensor, count: int, exact: bool, ranks: Tensor) -> list[int]:
        """The ``count`` points that greedy selection takes when only those of ``pool`` may be
        taken; nothing is taken yet.

        (K'DK') between points of the pool needs their columns alone, so no pass over K is made.
        """
        rows, outer = self.posterior.rows(pool)
        kernel = rows[:, pool].double()
        moment = (outer.double() * self.outer_weights) @ outer.double().T
        residual = self.residual[pool].clone()
        pull = self.pull[pool].clone()
        closed = torch.zeros_like(pool, dtype=torch.bool)
        found: list[int] = []
        for _ in range(count):
            worth = (pull * residual).sum(1)
            if exact:
                divisor = self.rho + kernel.diagonal()
                worth = (
                    2 * worth / divisor
                    - moment.diagonal() * residual.square().sum(1) / divisor.square()
                )
            worth = worth.masked_fill(closed, -torch.inf)
            tied = worth >= worth.max() - TIE * worth.max().abs()
            place = int(ranks.masked_fill(~tied, len(self.variance)).argmin())
            found.append(place)
            closed[place] = True
            column = kernel[:, place].clone()
            image = moment[:, place].clone()
            divisor = self.rho + kernel[place, place]
            own = residual[place] / divisor
            pulled = pull[place] / divisor
            spread = image[place] / divisor
            pull -= torch.outer(image, own) + torch.outer(column, pulled - own * spread)
            residual -= torch.outer(column, own)
            moment -= (torch.outer(column, image) + torch.outer(image, column)) / divisor
            moment += torch.outer(column, column) * (spread / divisor)
            kernel -= torch.outer(column, column) / divisor
        return [int(k) for k in pool[found]]

    def scores(self, columns: Tensor | None = None) -> Tensor:
        """∂G/∂w of every training point (or of ``columns``)."""
        pull = _rows(self.pull, columns)
        residual = _rows(self.residual, columns)
        return (pull * residual).sum(1).mul_(-2 / self.rho)

    def first_order(self, columns: Tensor | None = None) -> Tensor:
        """−4⟨(K D r)_k, r_k⟩: the gradient with the identity in place of the inverse Hessian."""
        if self.plain_pull is None:
            self.plain_pull = self._pulled(self.outer_residual)
        return (_rows(self.plain_pull, columns) * _rows(self.residual, columns)).sum(1).mul_(-4)

    def _pulled(self, values: Tensor) -> Tensor:
        """Kᵀ D values."""
        weighted = self.problem.outer_weights.double()[:, None] * values
        return self.problem.cross.transposed_matmul(weighted.to(self.problem.train.like)).double()

    def losses(self) -> Tensor:
        """The squared error of every training point under the fit."""
        return self.residual.square().sum(1)

    def gains(self, columns: Tensor | None = None) -> Tensor:
        """By how much G falls when the point is added with weight 1, exactly."""
        assert self.energy is not None, "built without exact_gain"
        pull = _rows(self.pull, columns)
        residual = _rows(self.residual, columns)
        divisor = self.rho + _rows(self.variance, columns)
        norm = residual.square().sum(1)
        return (
            2 * (pull * residual).sum(1) / divisor
            - _rows(self.energy, columns) * norm / divisor.square()
        )


def rounding_allowed(dtype: torch.dtype, variance: float, rho: float) -> float:
    """How far below zero rounding may take a posterior variance, where the largest prior one is
    ``variance``."""
    return ROUNDING * torch.finfo(dtype).eps * variance * max(1.0, variance / rho)


def negative_variance(value: float) -> NumericalError:
    return NumericalError(
        f"the posterior variance of a point fell to {value:.3g}: the kernel matrix is not positive "
        "semi-definite at this precision; use float64, a larger inner_reg, or another kernel."
    )


def turned_nan() -> NumericalError:
    return NumericalError("the outer objective became NaN; use float64 or a larger inner_reg.")


def _rows(values: Tensor, columns: Tensor | None) -> Tensor:
    return values if columns is None else values[columns]


def posterior_of(
    train: KernelOperator, cross: KernelOperator, weights: Tensor, capacity: int
) -> Posterior:
    """K' before any point is chosen; ``cross`` has the rows of the outer set, ``weights`` are
    theirs."""
    if isinstance(train, Features) and isinstance(cross, Features):
        return FeaturePosterior(train, cross, weights)
    return FactorPosterior(train, cross, weights, capacity)

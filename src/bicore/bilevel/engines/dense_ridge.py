"""The engine of :mod:`bicore.bilevel.engines.ridge` with K' held as a matrix, for a few points.

With a few hundred of them a step is no arithmetic to speak of, and what counts is the number of
calls. Plain arrays and a dense K' need the fewest; a stream of small batches selects this way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.contract import Demand, ListedEngine, Quantity
from bicore.bilevel.posterior import (
    check_variance,
    downdate_arrays,
    exact_gain,
    rounding_allowed,
)
from bicore.bilevel.problem import Problem, finite_objective
from bicore.data import Array

#: Entries of the kernel matrices up to which the dense form is used.
LARGEST = 512 * 512


class DenseRidgeEngine(ListedEngine):
    """The state under the squared error, in float64."""

    offers = frozenset(Quantity)

    @classmethod
    def supports(cls, demand: Demand) -> bool:
        return demand.closed_form and not demand.reweighs

    @classmethod
    def fits(cls, problem: Problem) -> bool:
        """Whether the problem is small, on the CPU and stored."""
        train = problem.train
        cross = problem.cross
        if train.matrix_or_none is None or cross.matrix_or_none is None:
            return False
        entries = train.shape[1] * (train.shape[0] + cross.shape[0])
        return train.like.device.type == "cpu" and entries <= LARGEST

    @classmethod
    def build(cls, problem: Problem, demand: Demand) -> DenseRidgeEngine:
        return cls(problem)

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rho = problem.regulariser.rho(1)
        self.same = problem.same
        self.one_target = problem.one_target
        self._empty()

    def _empty(self) -> None:
        problem = self.problem
        self.chosen: list[int] = []
        self._weights: list[float] = []
        self.kernel = _array(problem.cross.matrix_or_none)
        self.train = np.array(_array(problem.train.matrix_or_none))
        self.outer = self.train if self.same else np.array(self.kernel)
        self.outer_residual = np.array(_array(problem.outer_targets))
        self.residual = self.outer_residual
        if not self.one_target:
            self.residual = np.array(_array(problem.inner_targets))
        self.outer_weights = _array(problem.outer_weights)
        self.weighted = self.outer_weights[:, None] * self.outer_residual
        self.objective = float(np.vdot(self.weighted, self.outer_residual))
        self.variance = self.train.diagonal()
        largest = float(np.abs(self.variance).max(initial=0.0))
        self.allowed = rounding_allowed(problem.train.like.dtype, largest, self.rho)

    @property
    def weights(self) -> Tensor:
        return torch.tensor(self._weights, dtype=torch.float64)

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        for k, weight in zip(points, weights, strict=True):
            self._add(k, weight)

    def _add(self, k: int, weight: float) -> None:
        column = self.train[k].copy()
        own = self.residual[k].copy()
        divisor = self.rho / weight + max(float(column[k]), 0.0)
        scaled = column / divisor
        if not self.one_target:
            outer = self.outer[:, k].copy()
            if not self.same:
                downdate_arrays(self.outer, outer, scaled)
            downdate_arrays(self.outer_residual, outer, own / divisor)
        downdate_arrays(self.residual, scaled, own)
        downdate_arrays(self.train, scaled, column)
        check_variance(float(self.variance.min()), self.allowed)
        self.chosen.append(k)
        self._weights.append(float(weight))
        self.weighted = self.outer_weights[:, None] * self.outer_residual
        self.objective = finite_objective(float(np.vdot(self.weighted, self.outer_residual)))

    def drop(self, places: Sequence[int]) -> None:
        kept = self.without(places)
        points = [self.chosen[place] for place in kept]
        weights = [self._weights[place] for place in kept]
        self._empty()
        self.extend(points, weights)

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        values = self._values(what)
        return torch.from_numpy(values if columns is None else values[columns.numpy()])

    def _values(self, what: Quantity) -> Array:
        if what is Quantity.LOSS:
            norms: Array = np.square(self.residual).sum(1)
            return norms
        if what is Quantity.FIRST_ORDER:
            return self._agreement(self.kernel) * -4
        agreement = self._agreement(self.outer)
        if what is Quantity.GRADIENT:
            return agreement * (-2 / self.rho)
        divisor = self.rho + np.maximum(self.variance, 0.0)
        energy = self.outer_weights @ np.square(self.outer)
        norm = np.square(self.residual).sum(1)
        gains: Array = exact_gain(agreement, energy, norm, divisor)
        return gains

    def _agreement(self, kernel: Array) -> Array:
        """⟨(KᵀD r)_k, r_k⟩ for every training point."""
        agreement: Array = np.einsum("kc,kc->k", kernel.T @ self.weighted, self.residual)
        return agreement


def _array(values: Tensor | None) -> Array:
    assert values is not None, "only problems whose matrices are held fit"
    array: Array = values.double().numpy()
    return array

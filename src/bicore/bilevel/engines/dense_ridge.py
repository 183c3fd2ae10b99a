"""The forward selection of :mod:`bicore.bilevel.engines.ridge` with the posterior kernel held as a
matrix: the equations as they stand.

For a few hundred points a step is no arithmetic to speak of, and what counts is the number of
calls. Plain arrays and a dense K' need the fewest; a stream of small batches selects this way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.engines.ridge import negative_variance, rounding_allowed, turned_nan
from bicore.bilevel.problem import Constant, Problem
from bicore.data import Array
from bicore.kernels.operators import Gram

#: Entries of the kernel matrices up to which the dense form is used.
LARGEST = 512 * 512


def fits(problem: Problem) -> bool:
    """Whether the problem is small, on the CPU and stored."""
    train = problem.train
    cross = problem.cross
    stored = isinstance(train, Gram) and isinstance(cross, Gram) and train.like.device.type == "cpu"
    return stored and train.shape[1] * (train.shape[0] + cross.shape[0]) <= LARGEST


class ExplicitRidge:
    """The state of a growing coreset under the squared error, in float64."""

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.regulariser, Constant)
        assert isinstance(problem.train, Gram)
        assert isinstance(problem.cross, Gram)
        self.problem = problem
        self.rho = problem.regulariser.value
        self.indices: list[int] = []
        self.same = problem.cross is problem.train
        self.kernel = _array(problem.cross.matrix)
        self.train = np.array(_array(problem.train.matrix))
        self.outer = self.train if self.same else np.array(self.kernel)
        self.outer_residual = np.array(_array(problem.outer_targets))
        self.residual = (
            self.outer_residual if self.same else np.array(_array(problem.inner_targets))
        )
        self.weights = _array(problem.outer_weights)
        self.weighted = self.weights[:, None] * self.outer_residual
        self.objective = float(np.vdot(self.weighted, self.outer_residual))
        self.variance = self.train.diagonal()
        self.allowed = rounding_allowed(
            problem.train.like.dtype, float(np.abs(self.variance).max(initial=0.0)), self.rho
        )

    def add(self, k: int, weight: float = 1.0) -> None:
        """Take point k into the coreset: K' ← K' − c cᵀ/d, r ← r − c r_kᵀ/d."""
        column = self.train[k].copy()
        own = self.residual[k].copy()
        divisor = self.rho / weight + max(float(column[k]), 0.0)
        scaled = column / divisor
        if not self.same:
            outer = self.outer[:, k].copy()
            self.outer -= outer[:, None] * scaled
            self.outer_residual -= outer[:, None] * (own / divisor)
        self.residual -= scaled[:, None] * own
        self.train -= scaled[:, None] * column
        lowest = float(self.variance.min())
        if lowest < -self.allowed:
            raise negative_variance(lowest)
        self.indices.append(k)
        self.weighted = self.weights[:, None] * self.outer_residual
        self.objective = float(np.vdot(self.weighted, self.outer_residual))
        if self.objective != self.objective:
            raise turned_nan()

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        """Take several points, one after the other."""
        for k, weight in zip(points, weights, strict=True):
            self.add(k, weight)

    def scores(self, columns: Tensor | None = None) -> Tensor:
        """∂G/∂w = −2⟨(K'D r)_k, r_k⟩/ρ."""
        return _chosen(self._agreement(self.outer) * (-2 / self.rho), columns)

    def first_order(self, columns: Tensor | None = None) -> Tensor:
        """−4⟨(K D r)_k, r_k⟩: the gradient with the identity in place of the inverse Hessian."""
        return _chosen(self._agreement(self.kernel) * -4, columns)

    def losses(self) -> Tensor:
        """The squared error of every training point under the fit."""
        return torch.from_numpy(np.square(self.residual).sum(1))

    def gains(self, columns: Tensor | None = None) -> Tensor:
        """2⟨(K'D r)_k, r_k⟩/d_k − (K'DK')_kk ‖r_k‖²/d_k²: the decrease of G by a point of weight 1."""
        divisor = self.rho + np.maximum(self.variance, 0.0)
        energy = self.weights @ np.square(self.outer)
        norm = np.square(self.residual).sum(1)
        return _chosen(
            2 * self._agreement(self.outer) / divisor - energy * norm / np.square(divisor), columns
        )

    def _agreement(self, kernel: Array) -> Array:
        """⟨(KᵀD r)_k, r_k⟩ for every training point."""
        agreement: Array = np.einsum("kc,kc->k", kernel.T @ self.weighted, self.residual)
        return agreement


def _array(values: Tensor) -> Array:
    array: Array = values.double().numpy()
    return array


def _chosen(values: Array, columns: Tensor | None) -> Tensor:
    return torch.from_numpy(values if columns is None else values[columns.numpy()])

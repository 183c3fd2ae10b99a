"""Any loss: fit the inner problem after each point, score every point by the implicit gradient.

With R the rows v_j ∇ℓ_j(h_j) of the outer set, V = Kᵀ R, A the Hessians w_i ∇²ℓ_i(h_i) of the
chosen points and g_k = ∇ℓ_k(h_k):

    z   solves (2ρ I + A K_SS) z = A V_S
    u   = (V − K[:, S] z) / 2ρ              the function H⁻¹∇G at every point
    ∂G/∂w_k = −⟨g_k, u_k⟩                   ∂G/∂ρ = −2⟨α, u_S⟩

One product Kᵀ R and one small solve give the exact score of all n points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.contract import ListedEngine, Quantity, Requirements
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.inner import InnerProblem, Solvers
from bicore.bilevel.solvers.softmax import Preconditioner
from bicore.data import Array
from bicore.kernels.operators import slices

#: Number of columns of the matrix read together, to bound the memory of a copy.
AT_ONCE = 256
#: Relative residual of the linear system; its error enters the scores linearly.
GRADIENT_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}


class Support:
    """Indices S with K_SS, K[S, train] and K[S, outer]; memory (n + outer)·capacity.

    The padded tensors have room for further points; values there are undefined.
    """

    def __init__(self, problem: Problem, capacity: int) -> None:
        self.problem = problem
        self.indices: list[int] = []
        like = problem.train.like
        self.padded_gram = like.new_empty(capacity, capacity)
        self.padded_train = like.new_empty(capacity, problem.train.shape[0])
        self.padded_index = torch.empty(capacity, dtype=torch.long, device=like.device)
        self.padded_outer = self.padded_train
        if not problem.same:
            self.padded_outer = like.new_empty(capacity, problem.cross.shape[0])

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def gram(self) -> Tensor:
        """K_SS."""
        return self.padded_gram[: len(self), : len(self)]

    @property
    def train(self) -> Tensor:
        """K[S, :], a row for each chosen point."""
        return self.padded_train[: len(self)]

    @property
    def outer(self) -> Tensor:
        """K[S, outer]."""
        return self.padded_outer[: len(self)]

    @property
    def index(self) -> Tensor:
        """The indices on the device."""
        return self.padded_index[: len(self)]

    def extend(self, points: Sequence[int]) -> None:
        """Add points, with their rows of the kernel matrix."""
        first, last = len(self), len(self) + len(points)
        self.padded_index[first:last] = torch.tensor(list(points), device=self.padded_index.device)
        for part in slices(len(points), AT_ONCE):
            rows = slice(first + part.start, first + part.stop)
            self.padded_train[rows] = self.problem.train.columns(self.padded_index[rows]).T
            if not self.problem.same:
                self.padded_outer[rows] = self.problem.cross.columns(self.padded_index[rows]).T
        self.indices += [int(k) for k in points]
        fresh = self.padded_train[first:last][:, self.index]
        self.padded_gram[first:last, :last] = fresh
        self.padded_gram[:last, first:last] = fresh.T

    def keep(self, places: list[int]) -> None:
        """Keep only the points at the listed places."""
        kept, count = torch.tensor(places, device=self.padded_index.device).long(), len(places)
        self.padded_gram[:count, :count] = self.gram[kept][:, kept]
        # A set: train and outer may be one tensor, whose rows must move only once.
        for padded in {self.padded_train, self.padded_outer, self.padded_index}:
            padded[:count] = padded[kept]
        self.indices = [self.indices[place] for place in places]


class ImplicitEngine(ListedEngine):
    """The general engine, for problems that the others do not support, and for weighted points."""

    supported_quantities = frozenset({Quantity.GRADIENT, Quantity.FIRST_ORDER, Quantity.LOSS})
    cheap_steps = False

    @classmethod
    def supports(cls, requirements: Requirements) -> bool:
        return requirements.needs <= cls.supported_quantities and not requirements.exact

    @classmethod
    def build(cls, problem: Problem, requirements: Requirements) -> ImplicitEngine:
        return cls(problem, requirements.capacity, requirements.solvers)

    def __init__(self, problem: Problem, capacity: int, solvers: Solvers) -> None:
        self.problem = problem
        self.solvers = solvers
        self.work: Counter[str] = Counter()
        self.support = Support(problem, max(capacity, 1))
        like = problem.train.like
        self.weights = like.new_empty(0)
        self.preconditioner: Preconditioner | None = None
        self.alpha = like.new_empty(0, problem.outputs)
        #: Predictions of the chosen points by the last fit.
        self.fitted = self.alpha
        self.predictions = like.new_zeros(problem.cross.shape[0], problem.outputs)
        self.objective = problem.outer_value(self.predictions)

    @property
    def chosen(self) -> list[int]:  # type: ignore[override]
        return self.support.indices

    @property
    def operation_counts(self) -> Mapping[str, int]:
        return self.work

    @property
    def rho(self) -> float:
        """The ρ for the number of points with positive weight."""
        regulariser = self.problem.regulariser
        return regulariser.rho(0 if regulariser.constant else int((self.weights > 0).sum()))

    def extend(self, points: Sequence[int], weights: Sequence[float] | None = None) -> None:
        """Add points with a single fit."""
        self.support.extend(points)
        added = [1.0] * len(points) if weights is None else list(weights)
        self.weights = torch.cat([self.weights, self.weights.new_tensor(added)])
        fresh = self.alpha.new_zeros(len(points), self.problem.outputs)
        self.alpha = torch.cat([self.alpha, fresh])
        self.fit()

    def drop(self, places: Sequence[int]) -> None:
        kept = self.places_except(places)
        self.support.keep(kept)
        self.weights = self.weights[kept]
        self.alpha = self.alpha[kept]
        self.fit()

    def positive_points(self) -> tuple[Array, Array]:
        """Return the points of positive weight and their weights."""
        weights = self.weights.double().cpu().numpy()
        kept = weights > 0
        return np.array(self.chosen, dtype=np.int64)[kept], weights[kept]

    def reweigh(self, weights: Tensor) -> None:
        """Give the chosen points other weights and fit again."""
        self.weights = weights
        self.fit()

    def _inner_problem(self) -> InnerProblem:
        """Return the inner problem of the chosen points."""
        return InnerProblem(
            self.support.gram,
            self.problem.inner_targets[self.support.index],
            self.weights,
            self.rho,
            self.problem.inner_loss,
            self.preconditioner,
        )

    def fit(self) -> None:
        """Solve the inner problem from the last fit, then evaluate the outer objective."""
        fit = self.solvers.inner.solve(self._inner_problem(), self.alpha)
        self.work.update(fits=1, inner_iterations=fit.iterations, linear_iterations=0)
        self.alpha, self.fitted = fit.alpha, fit.predictions
        self.preconditioner = fit.preconditioner
        self.predictions = self.support.outer.T @ fit.alpha
        self.objective = self.problem.outer_value(self.predictions)

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        self.check_supported(what)
        if what is Quantity.LOSS:
            return self.problem.inner_loss.value(
                self._predict_train(columns), _rows(self.problem.inner_targets, columns)
            )
        problem = self.problem
        slopes = problem.outer_loss.gradient(self.predictions, problem.outer_targets)
        right = slopes * problem.outer_weights[:, None]
        values = problem.cross.transposed_matmul(right, columns)
        if what is Quantity.GRADIENT:
            values = self._apply_inverse_hessian(values, right, columns)
        if problem.same_targets and problem.inner_loss == problem.outer_loss:
            gradients = _rows(slopes, columns)  # the same loss at the same predictions
        else:
            targets = _rows(problem.inner_targets, columns)
            gradients = problem.inner_loss.gradient(self._predict_train(columns), targets)
        return -(gradients * values).sum(1)

    def _predict_train(self, columns: Tensor | None) -> Tensor:
        """Predict the training points, or ``columns`` only."""
        if self.problem.same:
            return _rows(self.predictions, columns)
        train = self.support.train
        return (train if columns is None else train[:, columns]).T @ self.alpha

    def _apply_inverse_hessian(
        self, values: Tensor, right: Tensor, columns: Tensor | None
    ) -> Tensor:
        """Compute u from V = ``values`` and R = ``right``."""
        if not len(self.support):
            return values / (2 * self.rho)
        # V at the chosen points; ``values`` lacks some of them if ``columns`` are given.
        support = self.support
        on_support = values[support.index] if columns is None else support.outer @ right
        rows = support.train if columns is None else support.train[:, columns]
        z = self._solve_system(on_support)
        return torch.addmm(values, rows.T, z, alpha=-1).mul_(1 / (2 * self.rho))

    def _solve_system(self, on_support: Tensor) -> Tensor:
        """Solve (2ρ I + A K_SS) z = A V_S."""
        system = self._inner_problem().system(self.fitted, self.preconditioner)
        tolerance = GRADIENT_TOLERANCE[on_support.dtype]
        solved = self.solvers.linear.solve_range(system, on_support, tolerance)
        self.work["linear_iterations"] += solved.iterations
        return solved.z

    def weight_gradient(self) -> Tensor:
        """Compute ∂G/∂w of the chosen points."""
        return self.joint_gradient()[:-1]

    def joint_gradient(self) -> Tensor:
        """Compute ∂G/∂w of the chosen points, and ∂G/∂ρ as the last entry."""
        # Only the chosen points matter: no product over all training points.
        support, problem = self.support, self.problem
        on_support = support.outer @ problem.outer_gradient(self.predictions)
        corrected = on_support - support.gram @ self._solve_system(on_support)
        own = problem.inner_targets[support.index]
        gradients = problem.inner_loss.gradient(self.fitted, own)
        scores = -(gradients * corrected).sum(1) / (2 * self.rho)
        return torch.cat([scores, -(self.alpha * corrected).sum()[None] / self.rho])


def _rows(values: Tensor, columns: Tensor | None) -> Tensor:
    return values if columns is None else values[columns]

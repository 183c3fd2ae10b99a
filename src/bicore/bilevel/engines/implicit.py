"""Forward selection for any loss: fit the inner problem after each point, score every point by the
implicit gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bicore.bilevel.hypergradient import (
    Hypergradient,
    Point,
    first_order,
    implicit_gradient,
    support_gradient,
)
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.inner import InnerProblem, InnerSolver
from bicore.bilevel.solvers.linear import LinearSolver
from bicore.bilevel.solvers.preconditioner import Preconditioner
from bicore.bilevel.support import Support


@dataclass
class Effort:
    """What the arithmetic took: fits, iterations of the inner solver and products by K_SS."""

    fits: int = 0
    inner_iterations: int = 0
    inner_products: int = 0
    linear_products: int = 0

    def told(self) -> dict[str, int]:
        return dict(vars(self))


@dataclass
class ImplicitForward:
    """The state of a growing coreset: support, weights, the fit on them and the outer objective."""

    problem: Problem
    capacity: int
    inner: InnerSolver
    linear: LinearSolver
    effort: Effort = field(default_factory=Effort)

    def __post_init__(self) -> None:
        self.support = Support(self.problem, self.capacity)
        like = self.problem.train.like
        self.weights = like.new_empty(0)
        self.preconditioner: Preconditioner | None = None
        self.alpha = like.new_empty(0, self.problem.outputs)
        self.predictions = like.new_zeros(self.problem.cross.shape[0], self.problem.outputs)
        self.objective = self.problem.outer_value(self.predictions)

    @property
    def indices(self) -> list[int]:
        return self.support.indices

    @property
    def rho(self) -> float:
        return self.problem.regulariser.rho(len(self.support))

    def add(self, k: int, weight: float = 1.0) -> None:
        """Take point k into the coreset and fit again."""
        self.extend([k], [weight])

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        """Take several points at once, with one fit."""
        self.support.extend(points)
        self.weights = torch.cat([self.weights, self.weights.new_tensor(list(weights))])
        self.alpha = torch.cat(
            [self.alpha, self.alpha.new_zeros(len(points), self.problem.outputs)]
        )
        self.fit()

    def reweigh(self, weights: Tensor) -> None:
        """Give the chosen points other weights and fit again."""
        self.weights = weights
        self.fit()

    def keep(self, positions: list[int]) -> None:
        """Drop every point whose place in the order is not listed, and fit again."""
        chosen = torch.tensor(positions, dtype=torch.long, device=self.alpha.device)
        self.support.keep(positions)
        self.weights = self.weights[chosen]
        self.alpha = self.alpha[chosen]
        self.fit()

    def scores(self, columns: Tensor | None = None) -> Tensor:
        """∂G/∂w of every training point (or of ``columns``): the lowest is the point to take."""
        return self._counted(
            implicit_gradient(self.problem, self._point(), self.linear, columns)
        ).scores

    def first_order(self, columns: Tensor | None = None) -> Tensor:
        """The scores with the identity in place of the inverse Hessian."""
        return first_order(self.problem, self._point(), columns)

    def losses(self) -> Tensor:
        """The inner loss of every training point under the fit."""
        return self.problem.inner_loss.value(
            self.support.train.T @ self.alpha, self.problem.inner_targets
        )

    def weight_gradient(self) -> Tensor:
        """∂G/∂w of the chosen points."""
        return self._counted(support_gradient(self.problem, self._point(), self.linear)).scores

    def rho_gradient(self) -> float:
        """∂G/∂ρ."""
        return self._counted(support_gradient(self.problem, self._point(), self.linear)).rho

    def fit(self) -> None:
        """Solve the inner problem from the last fit, and evaluate the outer objective."""
        fit = self.inner.solve(self._inner_problem(), self.alpha)
        self.effort.fits += 1
        self.effort.inner_iterations += fit.iterations
        self.effort.inner_products += fit.products
        self.alpha = fit.alpha
        self.preconditioner = fit.preconditioner
        self.predictions = self.support.outer.T @ fit.alpha
        self.objective = self.problem.outer_value(self.predictions)

    def _inner_problem(self) -> InnerProblem:
        own = self.problem.inner_targets[self.support.index]
        return InnerProblem(
            self.support.gram,
            own,
            self.weights,
            self.rho,
            self.problem.inner_loss,
            self.preconditioner,
        )

    def _point(self) -> Point:
        system = None
        if len(self.support):
            system = self._inner_problem().system(
                self.support.gram @ self.alpha, self.preconditioner
            )
        return Point(self.support, self.alpha, self.predictions, system, self.rho)

    def _counted(self, gradient: Hypergradient) -> Hypergradient:
        self.effort.linear_products += gradient.products
        return gradient

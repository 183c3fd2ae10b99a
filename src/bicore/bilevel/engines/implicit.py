"""Any loss: fit the inner problem after each point, score every point by the implicit gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from bicore.bilevel.contract import Demand, Quantity, ReweighableEngine
from bicore.bilevel.hypergradient import (
    Hypergradient,
    Point,
    first_order,
    implicit_gradient,
    support_gradient,
)
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.choice import Solvers
from bicore.bilevel.solvers.inner import Fit, InnerProblem
from bicore.bilevel.solvers.preconditioner import Carried
from bicore.bilevel.support import Support


@dataclass
class Effort:
    """What the arithmetic took: fits, iterations of the inner solver and products by K_SS."""

    fits: int = 0
    inner_iterations: int = 0
    inner_products: int = 0
    linear_products: int = 0


class ImplicitEngine(ReweighableEngine):
    """The general engine: it serves whatever the others leave."""

    offers = frozenset({Quantity.GRADIENT, Quantity.FIRST_ORDER, Quantity.LOSS})
    cheap_steps = False

    @classmethod
    def supports(cls, demand: Demand) -> bool:
        return demand.needs <= cls.offers and not demand.exact

    @classmethod
    def build(cls, problem: Problem, demand: Demand) -> ImplicitEngine:
        return cls(problem, demand.capacity, demand.solvers)

    def __init__(self, problem: Problem, capacity: int, solvers: Solvers) -> None:
        self.problem = problem
        self.solvers = solvers
        self.work = Effort()
        self.support = Support(problem, max(capacity, 1))
        like = problem.train.like
        self._weights = like.new_empty(0)
        self.preconditioner: Carried | None = None
        self.alpha = like.new_empty(0, problem.outputs)
        #: The last fit of the points, and the problem that it solved.
        self._fitted: tuple[InnerProblem, Fit] | None = None
        self._predictions = like.new_zeros(problem.cross.shape[0], problem.outputs)
        self.objective = problem.outer_value(self._predictions)

    @property
    def chosen(self) -> list[int]:  # type: ignore[override]
        return self.support.indices

    @property
    def weights(self) -> Tensor:
        return self._weights

    @property
    def predictions(self) -> Tensor:
        return self._predictions

    @property
    def effort(self) -> Mapping[str, int]:
        return asdict(self.work)

    @property
    def rho(self) -> float:
        """ρ of the points that have weight: one without is no part of the fit, and may leave it
        without a change."""
        regulariser = self.problem.regulariser
        if regulariser.constant:
            return regulariser.rho(len(self.support))
        return regulariser.rho(int((self._weights > 0).sum()))

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        """With one fit for all of them."""
        self.support.extend(points)
        self._weights = torch.cat([self._weights, self._weights.new_tensor(list(weights))])
        fresh = self.alpha.new_zeros(len(points), self.problem.outputs)
        self.alpha = torch.cat([self.alpha, fresh])
        self.fit()

    def drop(self, places: Sequence[int]) -> None:
        kept = self.without(places)
        index = torch.tensor(kept, dtype=torch.long, device=self.alpha.device)
        self.support.keep(kept)
        self._weights = self._weights[index]
        self.alpha = self.alpha[index]
        self.fit()

    def reweigh(self, weights: Tensor) -> None:
        self._weights = weights
        self.fit()

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        if what is Quantity.GRADIENT:
            found = implicit_gradient(self.problem, self._point(), self.solvers.linear, columns)
            return self._counted(found).scores
        if what is Quantity.FIRST_ORDER:
            return first_order(self.problem, self._point(), columns)
        if what is not Quantity.LOSS:
            raise self.not_offered(what)
        fitted = self._predictions if self.problem.same else self.support.train.T @ self.alpha
        losses = self.problem.inner_loss.value(fitted, self.problem.inner_targets)
        return losses if columns is None else losses[columns]

    def weight_gradient(self) -> Tensor:
        return self._support_gradient().scores

    def rho_gradient(self) -> float:
        """∂G/∂ρ."""
        return self._support_gradient().rho

    def fit(self) -> None:
        """Solve the inner problem from the last fit, and evaluate the outer objective."""
        problem = self._inner_problem()
        fit = self.solvers.inner.solve(problem, self.alpha)
        self._fitted = problem, fit
        self.work.fits += 1
        self.work.inner_iterations += fit.iterations
        self.work.inner_products += fit.products
        self.alpha = fit.alpha
        self.preconditioner = fit.preconditioner
        self._predictions = self.support.outer.T @ fit.alpha
        self.objective = self.problem.outer_value(self._predictions)

    def _inner_problem(self) -> InnerProblem:
        return InnerProblem(
            self.support.gram,
            self.problem.inner_targets[self.support.index],
            self._weights,
            self.rho,
            self.problem.inner_loss,
            self.preconditioner,
        )

    def _point(self) -> Point:
        if self._fitted is None or not len(self.support):
            return Point(self.support, self.alpha, self.predictions, None, self.rho)
        problem, fit = self._fitted
        system = problem.system(fit.predictions, self.preconditioner)
        return Point(self.support, self.alpha, self.predictions, system, problem.rho)

    def _support_gradient(self) -> Hypergradient:
        return self._counted(support_gradient(self.problem, self._point(), self.solvers.linear))

    def _counted(self, gradient: Hypergradient) -> Hypergradient:
        self.work.linear_products += gradient.products
        return gradient

"""Any loss: fit the inner problem after each point, score every point by the implicit gradient.

With R the rows v_j ∇ℓ_j(h_j) of the outer set and V = Kᵀ R:

    z   solves (2ρ I + A K_SS) z = A V_S
    u   = (V − K[:, S] z) / 2ρ              the function H⁻¹∇G at every point
    ∂G/∂w_k = −⟨g_k, u_k⟩                   ∂G/∂ρ = −2⟨α, u_S⟩

One product K·R and one small solve give the exact score of all n points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from bicore.bilevel.contract import Demand, Quantity, ReweighableEngine
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.inner import InnerProblem, Solvers
from bicore.bilevel.solvers.linear import LinearSolver, NewtonSystem
from bicore.bilevel.solvers.softmax import Fit, Preconditioner
from bicore.kernels.operators import parts

#: Points whose columns are asked for together: many more would be one long copy.
AT_ONCE = 256


class Support:
    """Indices S with K_SS, K[S, train] and K[S, outer]; memory (n + outer)·capacity."""

    def __init__(self, problem: Problem, capacity: int) -> None:
        self.problem = problem
        self.indices: list[int] = []
        like = problem.train.like
        self._square = like.new_empty(capacity, capacity)
        self._train = like.new_empty(capacity, problem.train.shape[0])
        self._index = torch.empty(capacity, dtype=torch.long, device=like.device)
        separate = problem.cross is not problem.train
        self._outer = like.new_empty(capacity, problem.cross.shape[0]) if separate else self._train

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def gram(self) -> Tensor:
        """K_SS."""
        return self._square[: len(self), : len(self)]

    @property
    def train(self) -> Tensor:
        """K[S, :], a row for each chosen point."""
        return self._train[: len(self)]

    @property
    def outer(self) -> Tensor:
        """K[S, outer]."""
        return self._outer[: len(self)]

    @property
    def index(self) -> Tensor:
        """The indices where the arithmetic is."""
        return self._index[: len(self)]

    def extend(self, points: Sequence[int]) -> None:
        """Take points in, with their rows of the kernel matrix."""
        first = len(self)
        last = len(self) + len(points)
        index = torch.tensor(list(points), dtype=torch.long, device=self._square.device)
        self._index[first:last] = index
        for part in parts(torch.arange(len(points)), AT_ONCE):
            rows = slice(first + int(part[0]), first + int(part[-1]) + 1)
            some = index[part.to(index.device)]
            self._train[rows] = self.problem.train.columns(some).T
            if self._outer is not self._train:
                self._outer[rows] = self.problem.cross.columns(some).T
        self.indices += [int(k) for k in points]
        fresh = self._train[first:last][:, self.index]
        self._square[first:last, :last] = fresh
        self._square[:last, first:last] = fresh.T

    def keep(self, positions: list[int]) -> None:
        """Drop every point whose place in the order is not listed."""
        chosen = torch.tensor(positions, dtype=torch.long, device=self._square.device)
        count = len(positions)
        square = self.gram[chosen][:, chosen].clone()
        train = self.train[chosen].clone()
        if self._outer is not self._train:
            self._outer[:count] = self.outer[chosen].clone()
        self._square[:count, :count] = square
        self._train[:count] = train
        self._index[:count] = self.index[chosen].clone()
        self.indices = [self.indices[place] for place in positions]


#: Relative residual asked of the linear system; its error enters the scores linearly.
GRADIENT_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}


@dataclass(frozen=True, eq=False)
class Hypergradient:
    """∂G/∂w of the points asked for, what the linear system took, and ∂G/∂ρ where only the chosen
    points were asked for."""

    scores: Tensor
    products: int
    rho: float = math.nan


@dataclass(frozen=True, eq=False)
class Point:
    """Where the gradient is taken: a fit on a support with its system, and the outer set's
    predictions."""

    support: Support
    alpha: Tensor
    predictions: Tensor
    system: NewtonSystem | None
    rho: float


def implicit_gradient(
    problem: Problem, point: Point, linear: LinearSolver, columns: Tensor | None = None
) -> Hypergradient:
    """∂G/∂w_k for every training point, or for ``columns`` only."""
    slopes = problem.outer_slopes(point.predictions)
    right = problem.weighed(slopes)
    values = problem.cross.transposed_matmul(right, columns)
    if point.system is None:  # the empty coreset predicts zero
        targets = _rows(problem.inner_targets, columns)
        gradients = problem.inner_loss.gradient(torch.zeros_like(values), targets)
        return Hypergradient(-(gradients * values).sum(1) / (2 * point.rho), 0)
    # V at the chosen points: among the values already, unless only some columns were asked for.
    on_support = values[point.support.index] if columns is None else point.support.outer @ right
    solved = linear.solve_range(point.system, on_support, GRADIENT_TOLERANCE[on_support.dtype])
    rows = point.support.train if columns is None else point.support.train[:, columns]
    function = torch.addmm(values, rows.T, solved.z, alpha=-1).mul_(1 / (2 * point.rho))
    if problem.one_model:
        gradients = _rows(slopes, columns)  # of the same loss at the same predictions
    else:
        gradients = _inner_slopes(problem, point, columns)
    return Hypergradient(-(gradients * function).sum(1), point.system.products)


def first_order(problem: Problem, point: Point, columns: Tensor | None = None) -> Tensor:
    """−⟨g_k, (K R)_k⟩: the gradient with the identity in place of the inverse Hessian, as GLISTER
    takes it; no system is solved."""
    values = problem.cross.transposed_matmul(problem.outer_gradient(point.predictions), columns)
    return -(_inner_slopes(problem, point, columns) * values).sum(1)


def _inner_slopes(problem: Problem, point: Point, columns: Tensor | None) -> Tensor:
    """g_k of the training points asked for."""
    if problem.same:
        fitted = _rows(point.predictions, columns)
    else:
        train = point.support.train
        fitted = (train if columns is None else train[:, columns]).T @ point.alpha
    return problem.inner_loss.gradient(fitted, _rows(problem.inner_targets, columns))


def _rows(values: Tensor, columns: Tensor | None) -> Tensor:
    return values if columns is None else values[columns]


def support_gradient(problem: Problem, point: Point, linear: LinearSolver) -> Hypergradient:
    """∂G/∂w of the chosen points alone: no product over the training points."""
    assert point.system is not None
    right = problem.outer_gradient(point.predictions)
    on_support = point.support.outer @ right
    solved = linear.solve_range(point.system, on_support, GRADIENT_TOLERANCE[on_support.dtype])
    corrected = on_support - point.support.gram @ solved.z
    own = problem.inner_targets[point.support.index]
    gradients = problem.inner_loss.gradient(point.support.gram @ point.alpha, own)
    scores = -(gradients * corrected).sum(1) / (2 * point.rho)
    rho = -float((point.alpha * corrected).sum()) / point.rho
    return Hypergradient(scores, point.system.products, rho)


@dataclass
class Work:
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
        self.work = Work()
        self.support = Support(problem, max(capacity, 1))
        like = problem.train.like
        self._weights = like.new_empty(0)
        self.preconditioner: Preconditioner | None = None
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

    def joint_gradient(self) -> Tensor:
        found = self._support_gradient()
        return torch.cat([found.scores, found.scores.new_tensor([found.rho])])

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

"""Solvers for the inner problem: fit α on the coreset.

    minimise over α   Σ_{i∈S} w_i ℓ_i(h_i) + ρ tr(αᵀ K_SS α),   h = K_SS α

Stationarity is r = w g + 2ρ α = 0: a fitted α is a scaled residual. The relative size of r says how
well a fit is solved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bicore._deprecated import renamed_fields
from bicore.bilevel.solvers.linear import (
    Adaptive,
    Cholesky,
    Factor,
    LinearSolver,
    NewtonSystem,
    by_class,
)
from bicore.bilevel.solvers.newton import Fit, NewtonRun, Place
from bicore.bilevel.solvers.softmax import Preconditioner, SoftmaxFit
from bicore.errors import ConvergenceError, InputError, NumericalError, check_settings
from bicore.losses import Loss
from bicore.runtime.clock import checkpoint

#: Required relative residual of a fit: about the square root of the precision for float32, well
#: below it for float64.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-7}
#: Rounding in K α limits every solver. A residual of this many tolerances gives the same picks.
SOLVED = 100
#: Below this relative residual Newton's method reuses the last direct factor.
CHORD = 1e-3


@dataclass(frozen=True, eq=False)
class InnerProblem:
    """A fit of the points S: Gram matrix, targets, weights and ρ."""

    gram: Tensor
    targets: Tensor
    weights: Tensor
    rho: float
    loss: Loss
    preconditioner: Preconditioner | None = None
    goal: float | None = None

    @property
    def tolerance(self) -> float:
        """The required relative residual: ``goal``, or a default for the precision."""
        return TOLERANCE[self.gram.dtype] if self.goal is None else self.goal

    def objective(self, alpha: Tensor, predictions: Tensor) -> float:
        data = torch.dot(self.loss.value(predictions, self.targets).double(), self.weights.double())
        return float(data) + self.rho * float((alpha * predictions).sum())

    def residual(self, alpha: Tensor, predictions: Tensor) -> tuple[Tensor, float]:
        """Return r and its size relative to the two terms that cancel in it."""
        pull = self.weights[:, None] * self.loss.gradient(predictions, self.targets)
        r = torch.add(pull, alpha, alpha=2 * self.rho)
        scale = _norm(pull) + 2 * self.rho * _norm(alpha)
        return r, 0.0 if scale == 0 else _norm(r) / scale

    def backward_error(self, alpha: Tensor, predictions: Tensor) -> float:
        """Return ‖r‖ relative to its value for a model that predicts zero, which rounding limits.

        If a fit nearly interpolates, the two terms of r are differences of nearly equal
        numbers, and r can be no smaller relative to them than rounding is relative to the targets.
        """
        r, relative = self.residual(alpha, predictions)
        zeros = torch.zeros_like(alpha)
        pull = _norm(self.weights[:, None] * self.loss.gradient(zeros, self.targets))
        return relative if pull == 0 else min(relative, _norm(r) / pull)

    def system(
        self,
        predictions: Tensor,
        preconditioner: Preconditioner | None = None,
        factor: Factor | None = None,
    ) -> NewtonSystem:
        curvature = self.loss.curvature(predictions, self.targets).scale_by(self.weights)
        return NewtonSystem(self.gram, curvature, 2 * self.rho, preconditioner, factor)


def _norm(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values))


class InnerSolver(ABC):
    """Fits the inner problem from a start."""

    @abstractmethod
    def solve(self, problem: InnerProblem, start: Tensor) -> Fit:
        """Fit α.

        Parameters
        ----------
        problem : InnerProblem
            The chosen points.
        start : Tensor
            The coefficients to start from.

        Returns
        -------
        Fit
            With the coefficients.
        """


@dataclass(frozen=True)
class Ridge(InnerSolver):
    """Squared error in closed form: (K_SS + ρ/w) α = t, by one Cholesky factor.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> BilevelSelector(loss="squared", inner=Ridge()).inner
    Ridge()
    """

    def solve(self, problem: InnerProblem, start: Tensor) -> Fit:
        if not problem.loss.quadratic:
            raise InputError(
                "inner='ridge' is for the squared error and the inner loss is "
                f"{problem.loss.name!r}; use Newton()."
            )
        # Stationary where (2ρ + A K) α = A t, with A = 2w.
        system = problem.system(torch.zeros_like(start))
        alpha = Cholesky().solve_range(system, problem.targets, problem.tolerance).z
        return _finish(problem, alpha, problem.gram @ alpha, 1, 1)


@dataclass(frozen=True)
class Newton(InnerSolver):
    """Newton's method with a line search, warm-started; for every smooth convex loss.

    Parameters
    ----------
    linear : LinearSolver
        Solves (2ρ I + A K) Δ = −r of each step.
    iterations : int
        The most steps.
    tolerance : float, optional
        Required relative residual; by default what the precision allows with a margin.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> BilevelSelector(loss="cross-entropy", inner=Newton(iterations=100)).inner.iterations
    100
    """

    linear: LinearSolver = field(default_factory=Adaptive)
    iterations: int = 50
    tolerance: float | None = None

    def __post_init__(self) -> None:
        check_settings(self, "iterations", "tolerance")

    def solve(self, problem: InnerProblem, start: Tensor) -> Fit:
        problem = replace(problem, goal=self.tolerance)
        on_cpu = problem.gram.device.type == "cpu"
        if isinstance(self.linear, Adaptive) and problem.loss.softmax and on_cpu:
            plain = _solve_plain(problem, start, self.iterations)
            if plain.residual <= problem.tolerance:
                return plain
            start = plain.alpha
        run = _TensorRun(problem, self.linear)
        fit, solved = run.run(run.evaluate(start, problem.gram @ start), self.iterations)
        if solved:
            return fit
        return _finish(problem, fit.alpha, fit.predictions, fit.iterations, run.products)


class _TensorRun(NewtonRun):
    """Newton's method in tensors, for any loss."""

    def __init__(self, problem: InnerProblem, linear: LinearSolver) -> None:
        self.problem = problem
        self.linear = linear
        self.tolerance = problem.tolerance
        self.eps = torch.finfo(problem.gram.dtype).eps
        self.preconditioner = problem.preconditioner
        self.factor: Factor | None = None

    def evaluate(self, alpha: Tensor, predictions: Tensor) -> Place:
        return Place(alpha, predictions, self.problem.objective(alpha, predictions))

    def residual(self, place: Place) -> tuple[Tensor, float]:
        return self.problem.residual(place.alpha, place.predictions)

    def step(self, place: Place, r: Tensor, size: float, tolerance: float) -> tuple[Tensor, Tensor]:
        # Close to the solution the curvature hardly changes, and the last factor is good enough.
        factor = self.factor if size < CHORD else None
        system = self.problem.system(place.predictions, self.preconditioner, factor)
        step = self.linear.solve(system, -r, tolerance).z
        moved = system.gram_product(step)
        self.products += system.products
        self.preconditioner, self.factor = system.preconditioner, system.factor
        return step, moved


def _solve_plain(problem: InnerProblem, start: Tensor, iterations: int) -> Fit:
    """Fit a softmax with NumPy arrays; it may end before the tolerance is reached."""
    fit = SoftmaxFit(
        problem.gram.double().numpy(),
        by_class(problem.targets),
        problem.weights.double().numpy(),
        problem.rho,
    )
    found = fit.solve(by_class(start), problem.tolerance, iterations, problem.preconditioner)
    alpha, predictions = (
        torch.from_numpy(part.T).to(start).contiguous() for part in (found.alpha, found.predictions)
    )
    return replace(found, alpha=alpha, predictions=predictions)


@renamed_fields(flat="gradient_tolerance", still="change_tolerance", cold="cold_start")
@dataclass(frozen=True)
class LBFGS(InnerSolver):
    """L-BFGS on α with ``torch.optim``; :meth:`paper` has the authors' settings.

    Parameters
    ----------
    step : float
        Length of the first step.
    iterations, history : int
        Maximum number of iterations, and number of them that shape the next direction.
    line_search : bool
        A strong Wolfe search; otherwise every step has the length ``step``.
    gradient_tolerance, change_tolerance : float
        Stop when the gradient's largest entry, or the change of the objective, is below this.
    mean : bool
        Whether the objective is divided by the number of rows: the length of the first step depends
        on it.
    cold_start : bool
        Start from small random numbers instead of the last fit.
    lenient : bool
        Accept what the iterations give.

    Examples
    --------
    >>> LBFGS.paper().iterations
    200
    """

    step: float = 1.0
    iterations: int = 2000
    history: int = 50
    line_search: bool = True
    gradient_tolerance: float = 0.0
    change_tolerance: float = 0.0
    mean: bool = False
    cold_start: bool = False
    lenient: bool = False

    def __post_init__(self) -> None:
        check_settings(self, "iterations history", "step", "gradient_tolerance change_tolerance")

    @classmethod
    def paper(cls) -> LBFGS:
        """Step 0.25, 200 iterations, a cold start, torch's own stopping rules.

        Returns
        -------
        LBFGS
            A solver that accepts unfinished fits without a warning.
        """
        return cls(
            0.25,
            200,
            100,
            False,
            gradient_tolerance=1e-7,
            change_tolerance=1e-9,
            mean=True,
            cold_start=True,
            lenient=True,
        )

    def solve(self, problem: InnerProblem, start: Tensor) -> Fit:
        divisor = float(len(start)) if self.mean else 1.0
        alpha = torch.nn.Parameter(start.clone())
        if self.cold_start:
            generator = torch.Generator().manual_seed(len(start))
            alpha.data = (torch.randn(start.shape, generator=generator) * 1e-3).to(start)
        calls = 0

        def closure() -> float:
            nonlocal calls
            calls += 1
            checkpoint()
            fitted = problem.gram @ alpha.data
            alpha.grad = problem.gram @ problem.residual(alpha.data, fitted)[0] / divisor
            return problem.objective(alpha.data, fitted) / divisor

        optimiser = torch.optim.LBFGS(
            [alpha],
            self.step,
            self.iterations,
            4 * self.iterations,
            self.gradient_tolerance,
            self.change_tolerance,
            self.history,
            "strong_wolfe" if self.line_search else None,
        )
        with torch.enable_grad():
            optimiser.step(closure)  # type: ignore[no-untyped-call]
        result = alpha.data
        return _finish(problem, result, problem.gram @ result, calls, 2 * calls, self.lenient)


def _finish(
    problem: InnerProblem,
    alpha: Tensor,
    predictions: Tensor,
    iterations: int,
    products: int,
    lenient: bool = False,
) -> Fit:
    """Return a fit that is solved as far as rounding allows, or raise an error."""
    size = problem.backward_error(alpha, predictions)
    zeros = torch.zeros_like(alpha)
    if size != size or (
        lenient and problem.objective(alpha, predictions) > problem.objective(zeros, zeros)
    ):
        raise NumericalError(
            "the inner problem diverged: its fit is NaN or worse than predicting nothing; use "
            "float64, a larger inner_reg, or inner=Newton()."
        )
    if size > SOLVED * problem.tolerance and not lenient:
        raise ConvergenceError(
            f"the inner problem stopped after {iterations} iterations at a relative residual of "
            f"{size:.2g} (goal {problem.tolerance:.2g}); use float64, a larger inner_reg, more "
            f"iterations, or a convex loss ({problem.loss.name!r} may not be)."
        )
    return Fit(alpha, predictions, size, iterations, products)


@dataclass(frozen=True)
class Solvers:
    """Solvers of the inner problem and of the linear systems of its derivative."""

    inner: InnerSolver = field(default_factory=Newton)
    linear: LinearSolver = field(default_factory=Adaptive)


def solvers_for(loss: Loss, inner: InnerSolver | None, linear: LinearSolver | None) -> Solvers:
    """Return the solvers given, or the closed form for the squared error and Newton's method
    otherwise."""
    system = linear or Adaptive()
    fitted = inner or (Ridge() if loss.quadratic else Newton(system))
    return Solvers(fitted, system)

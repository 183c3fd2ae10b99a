"""Solvers for the inner problem, which fit α on the coreset, and for the systems of Newton steps.

    minimise over α   Σ_{i∈S} w_i ℓ_i(h_i) + ρ tr(αᵀ K_SS α),   h = K_SS α

Stationarity is r = w g + 2ρ α = 0: a fitted α is a scaled residual. The relative size of r says how
well a fit is solved.

A Newton system is (s I + A K) z = b, with s = 2ρ and A the blocks of weighted curvature. The
operator is self-adjoint in the K-inner product ⟨a, b⟩ = tr(aᵀ K b), so conjugate gradients run
there with one product by K an iteration and no inverse of K anywhere. The direct solvers use the
symmetric form

    (s I + A K)⁻¹ A = A^½ (s I + A^½ K A^½)⁻¹ A^½

and, for softmax blocks, algorithm 3.3 of Rasmussen & Williams (2006): C factors of size m instead
of one of size C·m.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bicore._deprecated import renamed_fields
from bicore.bilevel.solvers.softmax import (
    Fit,
    Iterate,
    NewtonRun,
    Preconditioner,
    SoftmaxFit,
    SoftmaxSystem,
    factorise_softmax,
    scaled_gram,
)
from bicore.data import Array
from bicore.errors import ConvergenceError, InputError, NumericalError, check_settings
from bicore.losses import Blocks, Curvature, Isotropic, Loss, Softmax
from bicore.numerics.linear_algebra import (
    Precondition,
    Solved,
    cholesky_factor,
    conjugate_gradients,
)
from bicore.runtime.clock import checkpoint

#: A preconditioner is rebuilt after a solve of more than this many iterations.
PATIENCE = 40

#: Applies (s I + A K)⁻¹ A to a matrix of values.
Factor = Callable[[Tensor], Tensor]
#: Required relative residual of a fit: about the square root of the precision for float32, well
#: below it for float64.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-7}
#: Rounding in K α limits every solver. A residual of this many tolerances gives the same picks.
SOLVED = 100
#: Below this relative residual Newton's method reuses the last direct factor.
CHORD = 1e-3


def factorise(gram: Tensor, curvature: Curvature, shift: float) -> Factor:
    """Factorise a Newton system in the cheapest way that is exact for its curvature."""
    if isinstance(curvature, Isotropic):
        root = curvature.scale.clamp_min(0).sqrt()[:, None]
        lower = cholesky_factor(scaled_gram(gram, root[:, 0], shift))
        return lambda values: root * torch.cholesky_solve(root * values, lower)
    if isinstance(curvature, Softmax):
        apply = factorise_softmax(gram, curvature.weighted.T.contiguous(), shift)
        return lambda values: apply(values.T).T
    assert isinstance(curvature, Blocks)
    return _factorise_blocks(gram, curvature.values, shift)


def _factorise_blocks(gram: Tensor, blocks: Tensor, shift: float) -> Factor:
    """Factorise any blocks A = root rootᵀ, with one factor of size m·C."""
    size = blocks.shape[0] * blocks.shape[1]
    eigenvalues, vectors = torch.linalg.eigh(blocks)
    root = vectors * eigenvalues.clamp_min(0).sqrt()[:, None, :]
    matrix = torch.einsum("iab,ij,jac->ibjc", root, gram, root).reshape(size, size)
    matrix.diagonal().add_(shift)
    lower = cholesky_factor(matrix)

    def apply(values: Tensor) -> Tensor:
        right = torch.einsum("mab,ma->mb", root, values)
        inner = torch.cholesky_solve(right.reshape(-1, 1), lower).reshape(right.shape)
        return torch.einsum("mab,mb->ma", root, inner)

    return apply


@dataclass(eq=False)
class NewtonSystem:
    """The operator z ↦ s z + A K z.

    A preconditioner travels from one solve to the next. A factor serves the solves of this system,
    and those of a later one that is given it on purpose.
    """

    gram: Tensor
    curvature: Curvature
    shift: float
    preconditioner: Preconditioner | None = None
    factor: Factor | None = None

    def apply(self, z: Tensor) -> Tensor:
        """Return s z + A K z."""
        return self.curvature.apply(self.gram @ z).add_(z, alpha=self.shift)


class LinearSolver(ABC):
    """Solves a :class:`NewtonSystem`; raises an error if the tolerance is missed, unless
    lenient."""

    @abstractmethod
    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> Solved:
        """Solve (s I + A K) z = right.

        Parameters
        ----------
        system : NewtonSystem
            The operator.
        right : Tensor
            A row for each point, a column for each output.
        tolerance : float
            Required relative residual.

        Returns
        -------
        Solved
            With z.
        """

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> Solved:
        """Solve (s I + A K) z = A · values, the system of the hypergradient.

        Parameters
        ----------
        system : NewtonSystem
            The operator.
        values : Tensor
            Values to which A is applied.
        tolerance : float
            Required relative residual.

        Returns
        -------
        Solved
            With z.
        """
        return self.solve(system, system.curvature.apply(values), tolerance)


@dataclass(frozen=True)
class Cholesky(LinearSolver):
    """Direct factors, exact for every loss.

    One factor (isotropic curvature), C + 1 factors (softmax), or one of size m·C (any other loss).

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> BilevelSelector(loss="cross-entropy", linear=Cholesky()).linear
    Cholesky()
    """

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> Solved:
        ranged = self.solve_range(system, system.gram @ right, tolerance)
        return Solved((right - ranged.z) / system.shift, 0.0, 1)

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> Solved:
        if system.factor is None:
            system.factor = factorise(system.gram, system.curvature, system.shift)
        return Solved(system.factor(values), 0.0, 1)


@dataclass(frozen=True)
class ConjugateGradient(LinearSolver):
    """Conjugate gradients in the K-inner product.

    Parameters
    ----------
    iterations : int
        Maximum number of iterations of one solve.
    precondition : bool
        Use the inverse of s I + D^½ K D^½ with D a typical eigenvalue of each block.
    lenient : bool
        Whether to accept an unfinished solution (the paper stops after 50) instead of raising.
    tolerance : float, optional
        A relative residual of its own instead of the one the caller asks for.
    euclidean : bool
        Run on the symmetric form K (s I + A K) z = K b in the ordinary inner product instead, as
        the paper's code does: two products an iteration and the square of the condition number.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> BilevelSelector(loss="cross-entropy", linear=ConjugateGradient(lenient=True)).name
    'bilevel'
    """

    iterations: int = 500
    precondition: bool = True
    lenient: bool = False
    tolerance: float | None = None
    euclidean: bool = False

    def __post_init__(self) -> None:
        check_settings(self, "iterations", others="tolerance")

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> Solved:
        tolerance = tolerance if self.tolerance is None else self.tolerance
        solve = self._solve_euclidean if self.euclidean else self._solve_paired
        found = solve(system, right, tolerance)
        if found.reached != found.reached:
            raise NumericalError(
                f"conjugate gradients produced NaN after {found.iterations} iterations; use "
                "float64 or a larger inner_reg."
            )
        if found.reached > tolerance and not self.lenient:
            raise ConvergenceError(
                f"conjugate gradients stopped after {found.iterations} iterations at a relative "
                f"residual of {found.reached:.2g}, above the tolerance {tolerance:.2g}; allow more "
                "iterations, use linear=Cholesky(), or a larger inner_reg."
            )
        return found

    def _solve_paired(self, system: NewtonSystem, right: Tensor, tolerance: float) -> Solved:
        """Solve in the K-inner product; each vector is kept with its product by K."""

        def unchanged(residual: Tensor) -> tuple[Tensor, Tensor]:
            return residual.clone(), system.gram @ residual

        def image(direction: Tensor, gram_direction: Tensor) -> Tensor:
            curved = system.curvature.apply(gram_direction)
            return curved.add_(direction, alpha=system.shift)

        step: Precondition = unchanged
        if self.precondition:
            typical = system.curvature.typical()
            system.preconditioner = Preconditioner.fitting(
                system.preconditioner, system.gram, typical, system.shift, system.gram.dtype
            )
            step = system.preconditioner.apply
        found = conjugate_gradients(
            right,
            step,
            image,
            tolerance,
            self.iterations,
            # In the null space of K the operator is s times the identity.
            null_space=lambda residual: residual / system.shift,
        )
        if found.iterations > PATIENCE:
            system.preconditioner = None
        return found

    def _solve_euclidean(self, system: NewtonSystem, right: Tensor, tolerance: float) -> Solved:
        """Solve K (s I + A K) z = K b in the ordinary inner product."""
        return conjugate_gradients(
            system.gram @ right,
            lambda residual: (residual, residual),
            lambda direction, _: system.gram @ system.apply(direction),
            tolerance,
            self.iterations,
        )


@dataclass(frozen=True)
class Adaptive(LinearSolver):
    """Cholesky while it is cheapest, preconditioned conjugate gradients for larger systems."""

    largest: int = 64
    direct: Cholesky = field(default_factory=Cholesky)
    iterative: ConjugateGradient = field(default_factory=ConjugateGradient)

    def _choice(self, system: NewtonSystem) -> LinearSolver:
        limit = self.largest * system.curvature.direct_share
        return self.direct if len(system.gram) <= limit else self.iterative

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> Solved:
        found = _solve_plain(system, right, tolerance)
        return found or self._choice(system).solve(system, right, tolerance)

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> Solved:
        found = _solve_plain(system, values, tolerance, in_range=True)
        return found or self._choice(system).solve_range(system, values, tolerance)


def by_class(rows: Tensor) -> Array:
    """Convert a tensor with one row per point to an array with one row per class."""
    array: Array = rows.T.double().contiguous().numpy()
    return array


def _solve_plain(
    system: NewtonSystem, right: Tensor, tolerance: float, in_range: bool = False
) -> Solved | None:
    """Solve a softmax system on a CPU with NumPy arrays; None for others, or if that fails."""
    curvature = system.curvature
    if not isinstance(curvature, Softmax) or system.gram.device.type != "cpu":
        return None
    probabilities, weighted = map(by_class, (curvature.probabilities, curvature.weighted))
    plain = SoftmaxSystem(system.gram.double().numpy(), probabilities, weighted, system.shift)
    found = plain.solve(by_class(right), tolerance, system.preconditioner, in_range)
    if found is None:
        return None
    system.preconditioner = found.preconditioner
    z = torch.from_numpy(found.z.T).to(right).contiguous()
    return Solved(z, found.residual, found.iterations)


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
        return _finish(problem, alpha, problem.gram @ alpha, 1)


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
            plain = _fit_plain(problem, start, self.iterations)
            if plain.residual <= problem.tolerance:
                return plain
            start = plain.alpha
        run = _TensorRun(problem, self.linear)
        fit, solved = run.run(run.evaluate(start, problem.gram @ start), self.iterations)
        if solved:
            return fit
        return _finish(problem, fit.alpha, fit.predictions, fit.iterations)


class _TensorRun(NewtonRun):
    """Newton's method in tensors, for any loss."""

    def __init__(self, problem: InnerProblem, linear: LinearSolver) -> None:
        self.problem = problem
        self.linear = linear
        self.tolerance = problem.tolerance
        self.eps = torch.finfo(problem.gram.dtype).eps
        self.preconditioner = problem.preconditioner
        self.factor: Factor | None = None

    def evaluate(self, alpha: Tensor, predictions: Tensor) -> Iterate:
        return Iterate(alpha, predictions, self.problem.objective(alpha, predictions))

    def residual(self, current: Iterate) -> tuple[Tensor, float]:
        return self.problem.residual(current.alpha, current.predictions)

    def step(
        self, current: Iterate, r: Tensor, size: float, tolerance: float
    ) -> tuple[Tensor, Tensor]:
        # Close to the solution the curvature hardly changes, and the last factor is good enough.
        factor = self.factor if size < CHORD else None
        system = self.problem.system(current.predictions, self.preconditioner, factor)
        step = self.linear.solve(system, -r, tolerance).z
        self.preconditioner, self.factor = system.preconditioner, system.factor
        return step, system.gram @ step


def _fit_plain(problem: InnerProblem, start: Tensor, iterations: int) -> Fit:
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
        return _finish(problem, result, problem.gram @ result, calls, self.lenient)


def _finish(
    problem: InnerProblem,
    alpha: Tensor,
    predictions: Tensor,
    iterations: int,
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
    return Fit(alpha, predictions, size, iterations)


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

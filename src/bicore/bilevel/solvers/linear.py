"""Solvers for the Newton system (s I + A K) z = b, with s = 2ρ and A the blocks of weighted
curvature.

The operator is self-adjoint in the K-inner product ⟨a, b⟩ = tr(aᵀ K b), so conjugate gradients run
there with one product by K an iteration and no inverse of K anywhere. The direct solvers use the
symmetric form

    (s I + A K)⁻¹ A = A^½ (s I + A^½ K A^½)⁻¹ A^½

and, for softmax blocks, algorithm 3.3 of Rasmussen & Williams (2006): C factors of size m instead
of one of size C·m.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bicore.bilevel.solvers.factors import Carried, Factor, Preconditioner, factorised
from bicore.bilevel.solvers.softmax import SoftmaxSystem, Solution
from bicore.data import Array
from bicore.errors import ConvergenceError, InputError, NumericalError
from bicore.losses import Curvature, Softmax
from bicore.numerics.linear_algebra import Solved, conjugate_gradients

#: A preconditioner is made anew after a solve of more than this many iterations.
PATIENCE = 40


@dataclass(eq=False)
class NewtonSystem:
    """The operator z ↦ s z + A K z; counts its products by K.

    A preconditioner travels from one solve to the next. A factor serves the solves of this system,
    and those of a later one that is given it on purpose.
    """

    gram: Tensor
    curvature: Curvature
    shift: float
    preconditioner: Carried | None = None
    factor: Factor | None = None
    products: int = 0

    def gram_product(self, z: Tensor) -> Tensor:
        self.products += 1
        return self.gram @ z


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """z, how many iterations it took and the relative residual it reached."""

    z: Tensor
    iterations: int
    residual: float


class LinearSolver(ABC):
    """Solves a :class:`NewtonSystem`; raises where it misses the tolerance, unless lenient."""

    #: Whether it leaves the choice of method to the size of the system.
    adaptive = False

    @abstractmethod
    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        """Solve (s I + A K) z = right.

        Parameters
        ----------
        system : NewtonSystem
            The operator.
        right : Tensor
            A row for each point, a column for each output.
        tolerance : float
            The relative residual asked for.

        Returns
        -------
        LinearSolution
            With z.
        """

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> LinearSolution:
        """Solve (s I + A K) z = A · values, the system of the hypergradient.

        Parameters
        ----------
        system : NewtonSystem
            The operator.
        values : Tensor
            What A is applied to.
        tolerance : float
            The relative residual asked for.

        Returns
        -------
        LinearSolution
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

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        z = (
            right - self.solve_range(system, system.gram_product(right), tolerance).z
        ) / system.shift
        return LinearSolution(z, 1, 0.0)

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> LinearSolution:
        if system.factor is None:
            system.factor = factorised(system.gram, system.curvature, system.shift, values.shape[1])
        return LinearSolution(system.factor.apply(values), 1, 0.0)


@dataclass(frozen=True)
class ConjugateGradient(LinearSolver):
    """Conjugate gradients in the K-inner product.

    Parameters
    ----------
    iterations : int
        The most iterations of one solve.
    precondition : bool
        Use the inverse of s I + D^½ K D^½ with D a typical eigenvalue of each block.
    lenient : bool
        Accept what the iterations give (the paper stops after 50) instead of raising.
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

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        tolerance = tolerance if self.tolerance is None else self.tolerance
        if self.euclidean:
            found = self._solve_euclidean(system, right, tolerance)
        else:
            found = self._solve_paired(system, right, tolerance)
        _check("conjugate gradients", found.reached, tolerance, found.iterations, self.lenient)
        return LinearSolution(found.z, found.iterations, found.reached)

    def _solve_paired(self, system: NewtonSystem, right: Tensor, tolerance: float) -> Solved:
        """In the K-inner product: a vector's pair is K times it."""
        if self.precondition:
            system.preconditioner = Preconditioner.fitting(
                system.preconditioner, system.gram, system.curvature, system.shift
            )

        def image(direction: Tensor, gram_direction: Tensor) -> Tensor:
            curved = system.curvature.apply(gram_direction)
            return curved.add_(direction, alpha=system.shift)

        found = conjugate_gradients(
            right,
            lambda residual: self._step(system, residual),
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
        """On K (s I + A K) z = K b in the ordinary inner product: a vector is its own pair."""

        def image(direction: Tensor, same: Tensor) -> Tensor:
            half = system.curvature.apply(system.gram_product(direction))
            return system.gram_product(half.add_(direction, alpha=system.shift))

        return conjugate_gradients(
            system.gram_product(right),
            lambda residual: (residual, residual),
            image,
            tolerance,
            self.iterations,
        )

    def _step(self, system: NewtonSystem, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The preconditioned residual and K times it, with one product (or solve) of size m² in
        all."""
        if not self.precondition:
            return residual.clone(), system.gram_product(residual)
        system.products += 1
        assert isinstance(system.preconditioner, Preconditioner)
        return system.preconditioner.apply(residual)


@dataclass(frozen=True)
class Neumann(LinearSolver):
    """The Neumann series z = η Σ_j (I − η M)^j b with M = s I + A K.

    It converges when 0 < η < 2/λ_max(M), slowly when s is small beside A K.

    Parameters
    ----------
    terms : int
        The most terms.
    step : float, optional
        The factor η; by default 1/(s + max A · ‖K‖_∞), which is below 1/λ_max.
    lenient : bool
        Accept what the terms give instead of raising.
    tolerance : float, optional
        A relative residual of its own instead of the one the caller asks for.

    Examples
    --------
    >>> Neumann(terms=50, lenient=True).terms
    50
    """

    terms: int = 1000
    step: float | None = None
    lenient: bool = False
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.terms < 1:
            raise InputError(
                f"terms={self.terms} is below 1; a Neumann series needs at least one term."
            )

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        tolerance = tolerance if self.tolerance is None else self.tolerance
        goal = float(torch.linalg.vector_norm(right))
        z = torch.zeros_like(right)
        if goal == 0:
            return LinearSolution(z, 0, 0.0)
        eta = self._default_step(system, right.shape[1]) if self.step is None else self.step
        residual = right.clone()
        reached = 1.0
        term = 0
        while term < self.terms and reached > tolerance:
            z.add_(residual, alpha=eta)
            image = system.curvature.apply(system.gram_product(residual)).add_(
                residual, alpha=system.shift
            )
            residual.add_(image, alpha=-eta)
            term += 1
            reached = float(torch.linalg.vector_norm(residual)) / goal
            if not reached < 1e3:
                raise ConvergenceError(
                    f"the Neumann series diverges with step={eta:g} (residual {reached:.3g}); use "
                    "a smaller step."
                )
        _check("the Neumann series", reached, tolerance, term, self.lenient)
        return LinearSolution(z, term, reached)

    @staticmethod
    def _default_step(system: NewtonSystem, outputs: int) -> float:
        largest = torch.linalg.matrix_norm(system.curvature.blocks(outputs), ord=float("inf")).max()
        return 1 / (
            system.shift
            + float(largest) * float(torch.linalg.matrix_norm(system.gram, ord=float("inf")))
        )


def _check(what: str, reached: float, tolerance: float, iterations: int, lenient: bool) -> None:
    if reached != reached:
        raise NumericalError(
            f"{what} produced NaN after {iterations} iterations; use float64 or a larger inner_reg."
        )
    if reached > tolerance and not lenient:
        raise ConvergenceError(
            f"{what} stopped after {iterations} iterations at a relative residual of "
            f"{reached:.2g}, above the tolerance "
            f"{tolerance:.2g}; allow more iterations, use linear=Cholesky(), or a larger inner_reg."
        )


@dataclass(frozen=True)
class Adaptive(LinearSolver):
    """Cholesky while its factors are the cheapest way, preconditioned conjugate gradients beyond.

    Parameters
    ----------
    largest : int
        The size m up to which C + 1 factors beat iterations (measured; isotropic curvature is
        always direct).
    direct, iterative : LinearSolver
        The two ways.

    Examples
    --------
    >>> Adaptive(largest=100).direct
    Cholesky()
    """

    adaptive = True

    largest: int = 64
    direct: Cholesky = field(default_factory=Cholesky)
    iterative: ConjugateGradient = field(default_factory=ConjugateGradient)

    def _choice(self, system: NewtonSystem) -> LinearSolver:
        limit = system.curvature.direct_limit(self.largest)
        return self.direct if len(system.gram) <= limit else self.iterative

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        plain = _plain(system)
        if plain is not None:
            found = plain.solve(by_class(right), tolerance, system.preconditioner)
            if found is not None:
                return _taken(system, found, right)
        return self._choice(system).solve(system, right, tolerance)

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> LinearSolution:
        plain = _plain(system)
        if plain is not None:
            found = plain.solve_range(by_class(values), tolerance, system.preconditioner)
            if found is not None:
                return _taken(system, found, values)
        return self._choice(system).solve_range(system, values, tolerance)


def by_class(rows: Tensor) -> Array:
    """A tensor with a row for each point as an array with a row for each class."""
    array: Array = rows.T.double().contiguous().numpy()
    return array


def _plain(system: NewtonSystem) -> SoftmaxSystem | None:
    """A softmax system on a CPU in plain arrays; None for others."""
    curvature = system.curvature
    if not isinstance(curvature, Softmax) or system.gram.device.type != "cpu":
        return None
    return SoftmaxSystem(
        system.gram.double().numpy(),
        by_class(curvature.probabilities),
        by_class(curvature.weighted),
        system.shift,
    )


def _taken(system: NewtonSystem, found: Solution, like: Tensor) -> LinearSolution:
    """What plain arrays gave, and what they leave to the next solve."""
    system.preconditioner = found.preconditioner
    system.products += found.iterations
    z = torch.from_numpy(found.z.T).to(like).contiguous()
    return LinearSolution(z, found.iterations, found.residual)

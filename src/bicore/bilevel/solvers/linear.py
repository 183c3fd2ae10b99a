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
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bicore.bilevel.solvers.factors import Factor, factorised
from bicore.bilevel.solvers.preconditioner import Preconditioner
from bicore.errors import ConvergenceError, InputError, NumericalError
from bicore.losses import Blocks, Curvature, Isotropic

#: Iterations on a GPU between two questions how far they got.
TOGETHER = 6
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
    preconditioner: Preconditioner | None = None
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
    """Solves a :class:`NewtonSystem`; raises when it does not reach the tolerance, unless told to
    be lenient."""

    @abstractmethod
    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        """z with (s I + A K) z = right, to a relative residual of ``tolerance``."""

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> LinearSolution:
        """z with (s I + A K) z = A · values, the system of the hypergradient."""
        return self.solve(system, system.curvature.apply(values), tolerance)


@dataclass(frozen=True)
class Cholesky(LinearSolver):
    """Direct: one factor (isotropic curvature), C + 1 factors (softmax), or one of size m·C (any
    other loss)."""

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        z = (
            right - self.solve_range(system, system.gram_product(right), tolerance).z
        ) / system.shift
        return LinearSolution(z, 1, 0.0)

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> LinearSolution:
        if system.factor is None:
            system.factor = factorised(system.gram, system.curvature, system.shift, values.shape[1])
        return LinearSolution(system.factor.apply(values), 1, 0.0)


class DeviceIteration:
    """Conjugate gradients in the K-inner product whose numbers never leave the device.

    ``precondition`` gives P r and K P r, ``curved`` A v, ``shift`` is s. Once nothing is left but
    rounding, or what is left lies in the null space of K (``energy`` 0), further iterations change
    nothing.
    """

    def __init__(
        self,
        right: Tensor,
        precondition: Callable[[Tensor], tuple[Tensor, Tensor]],
        curved: Callable[[Tensor], Tensor],
        shift: Tensor | float,
    ) -> None:
        self.precondition = precondition
        self.curved = curved
        self.shift = shift
        self.z = torch.zeros_like(right)
        self.residual = right.clone()
        self.direction = self.z
        self.gram_direction = self.z
        self.before = self.energy = right.new_ones(())
        self.least: Tensor | None = None

    def advance(self, count: int) -> None:
        for _ in range(count):
            step, gram_step = self.precondition(self.residual)
            self.energy = (self.residual * gram_step).sum()
            if self.least is None:
                self.least = self.energy * torch.finfo(self.residual.dtype).eps ** 2
            self.direction = torch.addcmul(step, self.direction, self.energy / self.before)
            self.gram_direction = torch.addcmul(
                gram_step, self.gram_direction, self.energy / self.before
            )
            image = self.curved(self.gram_direction) + self.direction * self.shift
            going = self.energy > self.least
            length = torch.where(going, self.energy / (self.gram_direction * image).sum(), 0.0)
            self.before = torch.where(going, self.energy, 1.0)
            self.z = torch.addcmul(self.z, self.direction, length)
            self.residual = torch.addcmul(self.residual, image, length, value=-1)


@dataclass(frozen=True)
class ConjugateGradient(LinearSolver):
    """Conjugate gradients in the K-inner product.

    Parameters
    ----------
    iterations : the most iterations of one solve. precondition : use the inverse of s I + D^½ K D^½
    with D a typical eigenvalue of each block. euclidean : run on the symmetric form K (s I + A K) z
    = K b in the ordinary inner product instead, as the paper's code
        does: two products an iteration and the square of the condition number.
    lenient : accept what the iterations give (the paper stops after 50) instead of raising.
    tolerance : a relative residual of its own instead of the one the caller asks for.
    """

    iterations: int = 500
    precondition: bool = True
    lenient: bool = False
    tolerance: float | None = None
    euclidean: bool = False

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        tolerance = tolerance if self.tolerance is None else self.tolerance
        if self.euclidean:
            return self._solve_euclidean(system, right, tolerance)
        goal = float(torch.linalg.vector_norm(right))
        if goal == 0:
            return LinearSolution(torch.zeros_like(right), 0, 0.0)
        if self.precondition:
            system.preconditioner = Preconditioner.fitting(
                system.preconditioner, system.gram, system.curvature, system.shift
            )
        if right.is_cuda:
            z, reached, iteration = self._solve_on_device(system, right, goal, tolerance)
        else:
            z, reached, iteration = self._solve_on_host(system, right, goal, tolerance)
        if iteration > PATIENCE:
            system.preconditioner = None
        _check("conjugate gradients", reached, tolerance, iteration, self.lenient)
        return LinearSolution(z, iteration, reached)

    def _solve_on_host(
        self, system: NewtonSystem, right: Tensor, goal: float, tolerance: float
    ) -> tuple[Tensor, float, int]:
        z = torch.zeros_like(right)
        residual = right.clone()
        reached = 1.0
        iteration = 0
        direction = z
        gram_direction = z
        before = 1.0
        while iteration < self.iterations and reached > tolerance:
            step, gram_step = self._step(system, residual)
            energy = float(torch.dot(residual.view(-1), gram_step.view(-1)))
            if energy <= 0:
                # What is left lies in the null space of K, where the operator is s times the
                # identity.
                return z + residual / system.shift, 0.0, iteration
            direction = torch.add(step, direction, alpha=energy / before)
            gram_direction = torch.add(gram_step, gram_direction, alpha=energy / before)
            image = system.curvature.apply(gram_direction).add_(direction, alpha=system.shift)
            length = energy / float(torch.dot(gram_direction.view(-1), image.view(-1)))
            z.add_(direction, alpha=length)
            residual.add_(image, alpha=-length)
            iteration = iteration + 1
            before = energy
            reached = float(torch.linalg.vector_norm(residual)) / goal
        return z, reached, iteration

    def _solve_on_device(
        self, system: NewtonSystem, right: Tensor, goal: float, tolerance: float
    ) -> tuple[Tensor, float, int]:
        """The same iterations with all numbers on the GPU: it is asked how far it got only every
        few of them."""
        run = DeviceIteration(
            right,
            lambda residual: self._step(system, residual),
            system.curvature.apply,
            system.shift,
        )
        reached = 1.0
        iteration = 0
        while iteration < self.iterations and reached > tolerance:
            count = min(TOGETHER, self.iterations - iteration)
            run.advance(count)
            iteration += count
            reached = float(torch.linalg.vector_norm(run.residual)) / goal
            if reached > tolerance and float(run.energy) <= 0:
                return run.z + run.residual / system.shift, 0.0, iteration
        return run.z, reached, iteration

    def _solve_euclidean(
        self, system: NewtonSystem, right: Tensor, tolerance: float
    ) -> LinearSolution:
        residual = system.gram_product(right)
        goal = float(torch.linalg.vector_norm(residual))
        z = torch.zeros_like(right)
        direction = residual.clone()
        energy = goal**2
        reached = 1.0 if goal > 0 else 0.0
        iteration = 0
        while iteration < self.iterations and reached > tolerance:
            half = system.curvature.apply(system.gram_product(direction)).add_(
                direction, alpha=system.shift
            )
            image = system.gram_product(half)
            length = energy / float(torch.dot(direction.view(-1), image.view(-1)))
            z.add_(direction, alpha=length)
            residual.add_(image, alpha=-length)
            before = energy
            energy = float(torch.dot(residual.view(-1), residual.view(-1)))
            direction.mul_(energy / before).add_(residual)
            iteration = iteration + 1
            reached = energy**0.5 / goal
        _check("conjugate gradients", reached, tolerance, iteration, self.lenient)
        return LinearSolution(z, iteration, reached)

    def _step(self, system: NewtonSystem, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The preconditioned residual and K times it, with one product (or solve) of size m² in
        all."""
        if not self.precondition:
            return residual.clone(), system.gram_product(residual)
        system.products += 1
        assert system.preconditioner is not None
        return system.preconditioner.apply(residual)


@dataclass(frozen=True)
class Neumann(LinearSolver):
    """z = η Σ_j (I − η M)^j b with M = s I + A K; converges when 0 < η < 2/λ_max(M), slowly when s
    is small beside A K.

    ``step`` is η; None takes 1/(s + max A · ‖K‖_∞), an upper bound of λ_max. ``tolerance``
    overrides the caller's.
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

    ``largest`` is the size m up to which C + 1 factors beat iterations (measured; isotropic
    curvature is always direct).
    """

    largest: int = 64
    direct: Cholesky = field(default_factory=Cholesky)
    iterative: ConjugateGradient = field(default_factory=ConjugateGradient)

    def _choice(self, system: NewtonSystem) -> LinearSolver:
        if isinstance(system.curvature, Isotropic):
            return self.direct
        limit = self.largest // 4 if isinstance(system.curvature, Blocks) else self.largest
        return self.direct if len(system.gram) <= limit else self.iterative

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        return self._choice(system).solve(system, right, tolerance)

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> LinearSolution:
        return self._choice(system).solve_range(system, values, tolerance)

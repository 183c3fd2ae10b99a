"""Solvers for the Newton system (s I + A K) z = b, with s = 2ρ and A the blocks of weighted curvature.

The operator is self-adjoint in the K-inner product ⟨a, b⟩ = tr(aᵀ K b), so conjugate gradients run there with one
product by K an iteration and no inverse of K anywhere. The direct solvers use the symmetric form

    (s I + A K)⁻¹ A = A^½ (s I + A^½ K A^½)⁻¹ A^½

and, for softmax blocks, algorithm 3.3 of Rasmussen & Williams (2006): C factors of size m instead of one of size C·m.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bicore.errors import ConvergenceError, InputError, NumericalError
from bicore.losses import Blocks, Curvature, Isotropic, Softmax

#: Curvature below this share of the largest is raised to it where a factor needs it positive.
_CURVATURE_FLOOR = 1e-12
#: The same for the preconditioner, which may be rough but must not amplify rounding.
PRECONDITIONER_FLOOR = 1e-4
#: A preconditioner is made anew after this many bordering rows, or after a solve of more than ``PATIENCE`` iterations.
REFRESH, PATIENCE = 25, 40
#: Rounding may push a Schur complement below the shift that bounds it; it is not let below this share of it.
BORDER_FLOOR = 0.5


@dataclass(eq=False)
class NewtonSystem:
    """The operator z ↦ s z + A K z; counts its products by K.

    A preconditioner travels from one solve to the next. A factor serves the solves of this system, and those of a later one
    that is given it on purpose.
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
    """Solves a :class:`NewtonSystem`; raises when it does not reach the tolerance, unless told to be lenient."""

    @abstractmethod
    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        """z with (s I + A K) z = right, to a relative residual of ``tolerance``."""

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> LinearSolution:
        """z with (s I + A K) z = A · values, the system of the hypergradient."""
        return self.solve(system, system.curvature.apply(values), tolerance)


class Factor(ABC):
    """(s I + A K)⁻¹ A for a curvature A that was factorised once."""

    @abstractmethod
    def apply(self, values: Tensor) -> Tensor:
        """(s I + A K)⁻¹ A · values."""


@dataclass(frozen=True)
class Cholesky(LinearSolver):
    """Direct: one factor (isotropic curvature), C + 1 factors (softmax), or one of size m·C (any other loss)."""

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        z = (right - self.solve_range(system, system.gram_product(right), tolerance).z) / system.shift
        return LinearSolution(z, 1, 0.0)

    def solve_range(self, system: NewtonSystem, values: Tensor, tolerance: float) -> LinearSolution:
        if system.factor is None:
            system.factor = self._factorised(system, values.shape[1])
        return LinearSolution(system.factor.apply(values), 1, 0.0)

    @staticmethod
    def _factorised(system: NewtonSystem, outputs: int) -> Factor:
        curvature = system.curvature
        if isinstance(curvature, Isotropic):
            return IsotropicFactor.of(system, curvature)
        if isinstance(curvature, Softmax):
            return SoftmaxFactor.of(system, curvature)
        return GeneralFactor.of(system, curvature.blocks(outputs))


def lower_factor(matrix: Tensor) -> Tensor:
    """The Cholesky factor, or an error in words."""
    result: Tensor
    result, info = torch.linalg.cholesky_ex(matrix)
    if bool(info.any()):
        raise NumericalError(
            "a Cholesky factor of the inner problem failed: the kernel matrix is not positive semi-definite at this "
            "precision; use float64 or a larger inner_reg."
        )
    return result


def _shifted(gram: Tensor, root: Tensor, shift: float) -> Tensor:
    """s I + D^½ K D^½, for one row of roots or a batch of them."""
    matrix = gram * root.unsqueeze(-1) * root.unsqueeze(-2)
    matrix.diagonal(dim1=-2, dim2=-1).add_(shift)
    return matrix


@dataclass(frozen=True, eq=False)
class IsotropicFactor(Factor):
    """A = diag(a): A^½ (s I + A^½ K A^½)⁻¹ A^½."""

    root: Tensor
    lower: Tensor

    @classmethod
    def of(cls, system: NewtonSystem, curvature: Isotropic) -> IsotropicFactor:
        root = curvature.scale.clamp_min(0).sqrt()
        return cls(root[:, None], lower_factor(_shifted(system.gram, root, system.shift)))

    def apply(self, values: Tensor) -> Tensor:
        return self.root * torch.cholesky_solve(self.root * values, self.lower)


@dataclass(frozen=True, eq=False)
class SoftmaxFactor(Factor):
    """E − E R (Rᵀ E R)⁻¹ Rᵀ E with E_c = D_c^½ (s I + D_c^½ K D_c^½)⁻¹ D_c^½ for each class and R the sum over classes."""

    parts: Tensor
    lower: Tensor

    @classmethod
    def of(cls, system: NewtonSystem, curvature: Softmax) -> SoftmaxFactor:
        weighted = curvature.weighted.T.contiguous()
        root = weighted.clamp_min(_CURVATURE_FLOOR * float(weighted.max())).sqrt()
        parts = torch.cholesky_inverse(lower_factor(_shifted(system.gram, root, system.shift)))
        parts.mul_(root.unsqueeze(-1)).mul_(root.unsqueeze(-2))
        total = parts.sum(0)  # positive definite but for rounding, when some weights are tiny beside others
        total.diagonal().add_(total.diagonal().max() * torch.finfo(total.dtype).eps)
        return cls(parts, lower_factor(total))

    def apply(self, values: Tensor) -> Tensor:
        single = self.parts @ values.T.unsqueeze(-1)
        common = torch.cholesky_solve(single.sum(0), self.lower)
        return (single - self.parts @ common).squeeze(-1).T


@dataclass(frozen=True, eq=False)
class GeneralFactor(Factor):
    """Any blocks A = root rootᵀ: one factor of size m·C."""

    root: Tensor
    lower: Tensor

    @classmethod
    def of(cls, system: NewtonSystem, blocks: Tensor) -> GeneralFactor:
        m, outputs = blocks.shape[:2]
        eigenvalues, vectors = torch.linalg.eigh(blocks)
        root = vectors * eigenvalues.clamp_min(0).sqrt()[:, None, :]
        matrix = torch.einsum("iab,ij,jac->ibjc", root, system.gram, root).reshape(m * outputs, m * outputs)
        matrix.diagonal().add_(system.shift)
        return cls(root, lower_factor(matrix))

    def apply(self, values: Tensor) -> Tensor:
        right = torch.einsum("mab,ma->mb", self.root, values)
        inner = torch.cholesky_solve(right.reshape(-1, 1), self.lower).reshape(right.shape)
        return torch.einsum("mab,mb->ma", self.root, inner)


@dataclass(frozen=True)
class ConjugateGradient(LinearSolver):
    """Conjugate gradients in the K-inner product.

    Parameters
    ----------
    iterations : the most iterations of one solve.
    precondition : use the inverse of s I + D^½ K D^½ with D a typical eigenvalue of each block.
    euclidean : run on the symmetric form K (s I + A K) z = K b in the ordinary inner product instead, as the paper's code
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
        z = torch.zeros_like(right)
        if goal == 0:
            return LinearSolution(z, 0, 0.0)
        if self.precondition:
            system.preconditioner = Preconditioner.for_system(system)
        residual, reached, iteration = right.clone(), 1.0, 0
        direction, gram_direction, before = z, z, 1.0
        while iteration < self.iterations and reached > tolerance:
            step, gram_step = self._step(system, residual)
            energy = float(torch.dot(residual.view(-1), gram_step.view(-1)))
            if energy <= 0:
                # What is left lies in the null space of K, where the operator is s times the identity.
                z, reached = z + residual / system.shift, 0.0
                break
            direction = torch.add(step, direction, alpha=energy / before)
            gram_direction = torch.add(gram_step, gram_direction, alpha=energy / before)
            image = system.curvature.apply(gram_direction).add_(direction, alpha=system.shift)
            length = energy / float(torch.dot(gram_direction.view(-1), image.view(-1)))
            z.add_(direction, alpha=length)
            residual.add_(image, alpha=-length)
            iteration, before = iteration + 1, energy
            reached = float(torch.linalg.vector_norm(residual)) / goal
        if iteration > PATIENCE:
            system.preconditioner = None
        _check("conjugate gradients", reached, tolerance, iteration, self.lenient)
        return LinearSolution(z, iteration, reached)

    def _solve_euclidean(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        residual = system.gram_product(right)
        goal = float(torch.linalg.vector_norm(residual))
        z, direction = torch.zeros_like(right), residual.clone()
        energy, reached, iteration = goal**2, 1.0 if goal > 0 else 0.0, 0
        while iteration < self.iterations and reached > tolerance:
            half = system.curvature.apply(system.gram_product(direction)).add_(direction, alpha=system.shift)
            image = system.gram_product(half)
            length = energy / float(torch.dot(direction.view(-1), image.view(-1)))
            z.add_(direction, alpha=length)
            residual.add_(image, alpha=-length)
            before, energy = energy, float(torch.dot(residual.view(-1), residual.view(-1)))
            direction.mul_(energy / before).add_(residual)
            iteration, reached = iteration + 1, energy**0.5 / goal
        _check("conjugate gradients", reached, tolerance, iteration, self.lenient)
        return LinearSolution(z, iteration, reached)

    def _step(self, system: NewtonSystem, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The preconditioned residual and K times it, with one product (or solve) of size m² in all."""
        if not self.precondition:
            return residual.clone(), system.gram_product(residual)
        system.products += 1
        assert system.preconditioner is not None
        return system.preconditioner.apply(residual)


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """P = (s I + D K)⁻¹ = D^½ B⁻¹ D^−½ with B = s I + D^½ K D^½ and B⁻¹ stored.

    K P r needs no product by K: with y = D^−½ r it is D^−½ (y − s B⁻¹ y). Any s and D near the system's own serve, so an
    inverse lasts for many solves, and grows by a bordering row when a point joins.
    """

    root: Tensor
    inverse: Tensor
    shift: float
    age: int = 0

    @classmethod
    def for_system(cls, system: NewtonSystem) -> Preconditioner:
        """The one the system carries while it fits; a bordered one when a single point is new; otherwise a fresh one."""
        carried, size = system.preconditioner, len(system.gram)
        if carried is not None and len(carried.root) == size:
            return carried
        if carried is not None and len(carried.root) == size - 1 and carried.age < REFRESH:
            return carried._bordered(system.gram[-1], cls._roots(system)[-1:])
        root = cls._roots(system)
        inverse = torch.cholesky_inverse(lower_factor(_shifted(system.gram, root[:, 0], system.shift)))
        return cls(root, inverse, system.shift)

    @staticmethod
    def _roots(system: NewtonSystem) -> Tensor:
        typical = system.curvature.typical()
        return typical.clamp_min(PRECONDITIONER_FLOOR * float(typical.max()) + torch.finfo(typical.dtype).tiny).sqrt()[:, None]

    def _bordered(self, row: Tensor, root: Tensor) -> Preconditioner:
        """Bordering: B⁻¹ of one more row and column from the inverse of the smaller matrix."""
        m = len(self.root)
        border = row[:m] * self.root[:, 0] * root[0, 0]
        solved = self.inverse @ border
        corner = self.shift + float(row[m] * root[0, 0] ** 2)
        schur = corner - float(torch.dot(border, solved))
        schur = max(schur, self.shift * BORDER_FLOOR)  # in exact arithmetic it is at least the shift
        inverse = self.inverse.new_empty(m + 1, m + 1)
        torch.addr(self.inverse, solved, solved, alpha=1 / schur, out=inverse[:m, :m])
        inverse[:m, m] = inverse[m, :m] = solved / -schur
        inverse[m, m] = 1 / schur
        return Preconditioner(torch.cat([self.root, root]), inverse, self.shift, self.age + 1)

    def apply(self, right: Tensor) -> tuple[Tensor, Tensor]:
        """P r and K P r."""
        scaled = right / self.root
        inner = self.inverse @ scaled
        return inner * self.root, scaled.sub_(inner, alpha=self.shift).div_(self.root)


@dataclass(frozen=True)
class Neumann(LinearSolver):
    """z = η Σ_j (I − η M)^j b with M = s I + A K; converges when 0 < η < 2/λ_max(M), slowly when s is small beside A K.

    ``step`` is η; None takes 1/(s + max A · ‖K‖_∞), an upper bound of λ_max. ``tolerance`` overrides the caller's.
    """

    terms: int = 1000
    step: float | None = None
    lenient: bool = False
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.terms < 1:
            raise InputError(f"terms={self.terms} is below 1; a Neumann series needs at least one term.")

    def solve(self, system: NewtonSystem, right: Tensor, tolerance: float) -> LinearSolution:
        tolerance = tolerance if self.tolerance is None else self.tolerance
        goal = float(torch.linalg.vector_norm(right))
        z = torch.zeros_like(right)
        if goal == 0:
            return LinearSolution(z, 0, 0.0)
        eta = self._default_step(system, right.shape[1]) if self.step is None else self.step
        residual, reached, term = right.clone(), 1.0, 0
        while term < self.terms and reached > tolerance:
            z.add_(residual, alpha=eta)
            image = system.curvature.apply(system.gram_product(residual)).add_(residual, alpha=system.shift)
            residual.add_(image, alpha=-eta)
            term += 1
            reached = float(torch.linalg.vector_norm(residual)) / goal
            if not reached < 1e3:
                raise ConvergenceError(
                    f"the Neumann series diverges with step={eta:g} (residual {reached:.3g}); use a smaller step."
                )
        _check("the Neumann series", reached, tolerance, term, self.lenient)
        return LinearSolution(z, term, reached)

    @staticmethod
    def _default_step(system: NewtonSystem, outputs: int) -> float:
        largest = torch.linalg.matrix_norm(system.curvature.blocks(outputs), ord=float("inf")).max()
        return 1 / (system.shift + float(largest) * float(torch.linalg.matrix_norm(system.gram, ord=float("inf"))))


def _check(what: str, reached: float, tolerance: float, iterations: int, lenient: bool) -> None:
    if reached != reached:
        raise NumericalError(f"{what} produced NaN after {iterations} iterations; use float64 or a larger inner_reg.")
    if reached > tolerance and not lenient:
        raise ConvergenceError(
            f"{what} stopped after {iterations} iterations at a relative residual of {reached:.2g}, above the tolerance "
            f"{tolerance:.2g}; allow more iterations, use linear=Cholesky(), or a larger inner_reg."
        )


@dataclass(frozen=True)
class Adaptive(LinearSolver):
    """Cholesky while its factors are the cheapest way, preconditioned conjugate gradients beyond.

    ``largest`` is the size m up to which C + 1 factors beat iterations (measured; isotropic curvature is always direct).
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

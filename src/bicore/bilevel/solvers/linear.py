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

from bicore.bilevel.solvers.softmax import (
    Preconditioner,
    SoftmaxSystem,
    factorise_softmax,
    scaled_gram,
)
from bicore.data import Array
from bicore.errors import ConvergenceError, NumericalError, check_settings
from bicore.losses import Blocks, Curvature, Isotropic, Softmax
from bicore.numerics.linear_algebra import (
    Precondition,
    Solved,
    cholesky_factor,
    conjugate_gradients,
)

#: A preconditioner is rebuilt after a solve of more than this many iterations.
PATIENCE = 40

#: Applies (s I + A K)⁻¹ A to a matrix of values.
Factor = Callable[[Tensor], Tensor]


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
    """The operator z ↦ s z + A K z, which counts its products by K.

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

    def apply(self, z: Tensor) -> Tensor:
        """Return s z + A K z."""
        return self.curvature.apply(self.gram_product(z)).add_(z, alpha=self.shift)


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
        ranged = self.solve_range(system, system.gram_product(right), tolerance)
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
            return residual.clone(), system.gram_product(residual)

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
        if self.precondition:
            system.products += found.iterations
        if found.iterations > PATIENCE:
            system.preconditioner = None
        return found

    def _solve_euclidean(self, system: NewtonSystem, right: Tensor, tolerance: float) -> Solved:
        """Solve K (s I + A K) z = K b in the ordinary inner product."""
        return conjugate_gradients(
            system.gram_product(right),
            lambda residual: (residual, residual),
            lambda direction, _: system.gram_product(system.apply(direction)),
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
    system.products += found.iterations
    z = torch.from_numpy(found.z.T).to(right).contiguous()
    return Solved(z, found.residual, found.iterations)

"""Newton's method with a line search, and its arithmetic for the softmax cross-entropy on a CPU.

    minimise over α   Σ_{i∈S} w_i ℓ_i(h_i) + ρ tr(αᵀ K_SS α),   h = K_SS α
    r = w g + s α,   s = 2ρ,   a step Δ solves (s I + A K) Δ = −r

The relative size of r says how well a fit is solved. For the softmax g = p − y and
A_i = w_i (diag p_i − p_i p_iᵀ), in NumPy arrays with one row per class.

A fit of some hundred points is thousands of small operations: their number and the cost of each
call set the time. For a few points a solve is direct. Beyond, conjugate gradients run in float32 on
the scaled system

    (s I + Â K̂) u = D^−½ b,   z = D^½ u,   K̂ = D^½ K D^½,   Â = D^−½ A D^−½

preconditioned by a stored N = (s₀ I + K̂)⁻¹, of which K̂ N r = r − s₀ N r needs no product. Their
answer is corrected in float64: the residual of z itself is computed, and solved for again until it
is small enough.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import NumericalError
from bicore.numerics.descent import NOISE, Trial, first_descent, step_lengths
from bicore.numerics.linear_algebra import cholesky_factor
from bicore.runtime.clock import checkpoint

#: Maximum number of lengths of a line search.
ATTEMPTS = 40
#: A mean curvature below this share of the largest is raised to it, so that rounding is not
#: amplified.
PRECONDITIONER_FLOOR = 1e-4
#: A preconditioner is rebuilt after this many bordering rows.
REFRESH = 25
#: Rounding may push a Schur complement below its bound, the shift; it is raised to at least this
#: share of the shift.
BORDER_FLOOR = 0.5
#: The border of the last point is recomputed if its root curvature is wrong by this factor.
STALE = 1.25
#: Up to this many points C inverses are faster than iterations.
DIRECT = 32
#: Curvature below this share of the largest is raised to it if a factor must be positive.
CURVATURE_FLOOR = 1e-12
#: Smallest relative residual required of one solve in float32 …
SINGLE = 2e-6
#: … which must at least halve the true residual. After this many solves the general solver is used.
GOES = 16
#: Maximum number of iterations of one solve.
MOST = 500
#: Maximum number of Newton steps before the general solver is used.
ITERATIONS = 25


@dataclass(frozen=True, eq=False)
class Fit:
    """Coefficients α, the predictions h of the points, and the cost of the fit."""

    alpha: Any
    predictions: Any
    residual: float
    iterations: int
    preconditioner: Any = None


class Iterate(NamedTuple):
    """Coefficients with their predictions and objective; for a softmax also the probabilities."""

    alpha: Any
    predictions: Any
    objective: float
    probabilities: Any = None


class NewtonRun(ABC):
    """One fit by Newton's method; subclasses implement the arithmetic."""

    tolerance: float
    #: Machine epsilon of the arithmetic.
    eps: float
    #: Passed on from one linear system to the next.
    preconditioner: Any

    @abstractmethod
    def evaluate(self, alpha: Any, predictions: Any) -> Iterate:
        """Evaluate the objective."""

    @abstractmethod
    def residual(self, current: Iterate) -> tuple[Any, float]:
        """Return r and its size relative to the two terms that cancel in it."""

    @abstractmethod
    def step(
        self, current: Iterate, r: Any, size: float, tolerance: float
    ) -> tuple[Any, Any] | None:
        """Solve for Δ and KΔ; None if the system cannot be solved."""

    def run(self, current: Iterate, iterations: int) -> tuple[Fit, bool]:
        """Return the last fit, and whether it is solved."""
        r, size = self.residual(current)
        count = 0
        while size > self.tolerance and count < iterations:
            checkpoint()
            # The forcing term keeps the fast convergence without solving early systems more exactly
            # than needed.
            found = self.step(current, r, size, min(0.1, max(size, 0.1 * self.tolerance)))
            if found is None:
                break
            noise = NOISE * self.eps * abs(current.objective)
            lower = first_descent(self._trials(current, r, *found), current.objective, noise)
            if lower is None:
                break  # the remaining descent is below the rounding of the objective
            count += 1
            previous, stalled = size, lower.objective >= current.objective
            current = lower.point
            r, size = self.residual(current)
            if stalled and size >= previous:
                break
        fit = Fit(current.alpha, current.predictions, size, count, self.preconditioner)
        return fit, size <= self.tolerance

    def _trials(self, current: Iterate, r: Any, step: Any, moved: Any) -> Iterator[Trial[Iterate]]:
        slope = min(float((r * moved).sum()), 0.0)
        for length in step_lengths(1.0, ATTEMPTS):
            trial = self.evaluate(
                current.alpha + length * step, current.predictions + length * moved
            )
            yield Trial(trial, trial.objective, length * slope)


class Preconditioner:
    """P = (s I + D K)⁻¹ = D^½ B⁻¹ D^−½ with B = s I + D^½ K D^½ and B⁻¹ stored.

    K P r needs no product by K: with y = D^−½ r it is D^−½ (y − s B⁻¹ y). Any s and D near the
    system's own are good enough, so an inverse is used for many solves, and gets a bordering row
    when a point joins. The curvature of that point changes most, because the model has not fitted
    it yet. Its border is recomputed from ``smaller`` while its curvature changes.
    """

    def __init__(
        self, root: Tensor, inverse: Tensor, shift: float, smaller: Preconditioner | None = None
    ) -> None:
        self.root = root
        self.inverse = inverse
        self.shift = shift
        self.smaller = smaller
        self.age: int = 0 if smaller is None else smaller.age + 1

    @classmethod
    def fitting(
        cls,
        carried: Preconditioner | None,
        gram: Tensor,
        typical: Tensor,
        shift: float,
        dtype: torch.dtype,
    ) -> Preconditioner:
        """Return a preconditioner for a matrix: the last one, extended by one point, or a new
        one."""
        size = len(gram)
        floor = PRECONDITIONER_FLOOR * float(typical.max()) + torch.finfo(typical.dtype).tiny
        kinds = typical.dtype, dtype
        if carried is not None and (carried.root.dtype, carried.inverse.dtype) == kinds:
            last = math.sqrt(max(float(typical[-1]), floor))
            if len(carried.root) == size:
                smaller = carried.smaller
                if smaller is None or 1 / STALE < float(carried.root[-1]) / last < STALE:
                    return carried
                return smaller._add_border(gram[-1], last)
            if len(carried.root) == size - 1 and carried.age < REFRESH:
                carried.smaller = None
                return carried._add_border(gram[-1], last)
        root = typical.clamp_min(floor).sqrt()
        inverse = torch.cholesky_inverse(cholesky_factor(scaled_gram(gram, root, shift)))
        return cls(root, inverse.to(dtype), shift)

    def _add_border(self, row: Tensor, root: float) -> Preconditioner:
        """Return the inverse of a matrix with one more row and column, from that of the smaller
        matrix."""
        m = len(self.root)
        border = (row[:m] * self.root * root).to(self.inverse)
        solved = self.inverse @ border
        corner = self.shift + float(row[m]) * root**2
        # in exact arithmetic at least the shift
        schur = max(corner - float(torch.dot(border, solved)), self.shift * BORDER_FLOOR)
        inverse = self.inverse.new_empty(m + 1, m + 1)
        torch.addr(self.inverse, solved, solved, alpha=1 / schur, out=inverse[:m, :m])
        inverse[:m, m] = inverse[m, :m] = solved / -schur
        inverse[m, m] = 1 / schur
        roots = torch.cat([self.root, self.root.new_tensor([root])])
        return Preconditioner(roots, inverse, self.shift, self)

    def apply(self, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return P r and K P r."""
        root = self.root[:, None]
        scaled = right / root
        inner = self.inverse @ scaled
        return inner * root, scaled.sub_(inner, alpha=self.shift).div_(root)


def scaled_gram(gram: Tensor, root: Tensor, shift: float) -> Tensor:
    """Return s I + D^½ K D^½ for one row of roots or a batch of them."""
    matrix = gram * root.unsqueeze(-1) * root.unsqueeze(-2)
    matrix.diagonal(dim1=-2, dim2=-1).add_(shift)
    return matrix


def factorise_softmax(gram: Any, weighted: Any, shift: float) -> Callable[[Any], Any]:
    """Return a function that applies (s I + A K)⁻¹ A, by algorithm 3.3 of Rasmussen & Williams.

    It is E − E R (Rᵀ E R)⁻¹ Rᵀ E with E_c = D_c^½ (s I + D_c^½ K D_c^½)⁻¹ D_c^½ for each class and
    R the sum over classes. ``weighted`` are the D_c, a row for each class. For tensors and arrays.
    """
    root = weighted.clip(CURVATURE_FLOOR * float(weighted.max())) ** 0.5
    pairs = root[:, :, None] * root[:, None, :]
    system = gram * pairs
    system.reshape(len(system), -1)[:, :: len(gram) + 1] += shift
    parts = _invert(system)
    parts *= pairs
    # Positive definite up to rounding, if some weights are much smaller than others.
    total = parts.sum(0)
    eps = (torch if isinstance(gram, Tensor) else np).finfo(gram.dtype).eps
    diagonal = total.reshape(-1)[:: len(gram) + 1]
    diagonal += diagonal.max() * eps
    common = _invert(total)

    def apply(values: Any) -> Any:
        single = parts @ values[:, :, None]
        return (single - parts @ (common @ single.sum(0)))[:, :, 0]

    return apply


def _invert(matrix: Any) -> Any:
    if isinstance(matrix, Tensor):
        return torch.cholesky_inverse(cholesky_factor(matrix))
    return np.linalg.inv(matrix)


@dataclass(frozen=True, eq=False)
class Solution:
    """z, K z, the residual, the iterations and the preconditioner."""

    z: Array
    image: Array
    residual: float
    iterations: int
    preconditioner: Preconditioner | None


@dataclass(frozen=True, eq=False)
class SoftmaxSystem:
    """(s I + A K) z = b, with probabilities p and weighted ones w p, a row for each class."""

    gram: Array
    probabilities: Array
    weighted: Array
    shift: float

    def apply_curvature(self, rows: Array) -> Array:
        """Return A · rows."""
        mean = np.einsum("cm,cm->m", self.probabilities, rows)
        result: Array = rows - mean
        result *= self.weighted
        return result

    def typical(self) -> Array:
        """The mean eigenvalue of each block; it sends the vector of ones to zero."""
        trace = self.weighted.sum(0) - np.einsum("cm,cm->m", self.weighted, self.probabilities)
        typical: Array = trace / max(len(self.weighted) - 1, 1)
        return typical

    def solve(
        self, right: Array, tolerance: float, carried: Preconditioner | None, in_range: bool = False
    ) -> Solution | None:
        """Return z with relative residual ``tolerance``; None if this method does not reach it.

        With ``in_range``, the right side b is A · ``right``.
        """
        if len(self.gram) > DIRECT:
            b = self.apply_curvature(right) if in_range else right
            return self._iterate(b, tolerance, carried)
        try:
            apply = factorise_softmax(self.gram, self.weighted, self.shift)
        except np.linalg.LinAlgError:  # singular by rounding
            return None
        z = apply(right) if in_range else (right - apply(right @ self.gram)) / self.shift
        return Solution(z, z @ self.gram, 0.0, 1, carried)

    def _iterate(
        self, right: Array, tolerance: float, carried: Preconditioner | None
    ) -> Solution | None:
        gram, typical = torch.from_numpy(self.gram), torch.from_numpy(self.typical())
        try:
            preconditioner = Preconditioner.fitting(
                carried, gram, typical, self.shift, torch.float32
            )
        except NumericalError:
            return None
        goal = norm(right)
        if goal == 0:
            return Solution(np.zeros_like(right), np.zeros_like(right), 0.0, 0, preconditioner)
        z = np.zeros_like(right)
        image = np.zeros_like(right)
        residual = right
        reached = 1.0
        count = 0
        for _ in range(GOES):
            # slightly more than needed, because the norms of the two systems differ
            goal_in_single = max(min(tolerance / reached, 0.5) / 2, SINGLE)
            change, iterations = _iterate_in_single(self, preconditioner, residual, goal_in_single)
            count += iterations
            z += change
            image += change @ self.gram
            residual = right - self.shift * z - self.apply_curvature(image)
            before = reached
            reached = norm(residual) / goal
            if reached <= tolerance:
                return Solution(z, image, reached, count, preconditioner)
            if not reached <= before / 2:
                return None
        return None


def _iterate_in_single(
    system: SoftmaxSystem, preconditioner: Preconditioner, right: Array, tolerance: float
) -> tuple[Array, int]:
    """Solve the scaled system by conjugate gradients in float32; return z and the iterations."""
    inverse, root = preconditioner.inverse.numpy(), preconditioner.root.numpy()
    probabilities = system.probabilities.astype(np.float32)
    # A in the scaled variables: weighted probabilities over the typical curvature
    weighted = (system.weighted / root**2).astype(np.float32)
    scaled = right / root
    size = norm(scaled)
    # A call costs more than its arithmetic, so vectors with the same steps share an array.
    state, fresh, moves = (np.zeros((count, *right.shape), np.float32) for count in (2, 2, 3))
    (residual, z), (step, image), (moved, direction, paired) = state, fresh, moves
    residual[:] = scaled / size
    before, count = 1.0, 0
    while count < MOST:
        count += 1
        np.matmul(residual, inverse, out=step)
        np.multiply(step, -preconditioner.shift, out=image)
        image += residual  # K̂ times the step
        energy = float(np.vdot(residual, image))
        if not energy > 0:
            break  # only rounding is left; the caller reads the residual
        moves[1:] *= energy / before
        moves[1:] += fresh
        before = energy
        np.subtract(np.add.reduce(probabilities * paired), paired, out=moved)
        moved *= weighted
        moved -= system.shift * direction
        state += (-energy / float(np.vdot(paired, moved))) * moves[:2]
        if np.vdot(residual, residual) <= tolerance**2:
            break
    return z * (size * root), count


def norm(values: Array) -> float:
    """Return the norm of all numbers."""
    return math.sqrt(np.vdot(values, values))


@dataclass(eq=False)
class SoftmaxFit(NewtonRun):
    """A fit with NumPy arrays: targets and coefficients have one row per class."""

    gram: Array
    targets: Array
    weights: Array
    rho: float

    eps = float(np.finfo(np.float64).eps)

    def solve(
        self,
        alpha: Array,
        tolerance: float,
        iterations: int = ITERATIONS,
        carried: Preconditioner | None = None,
    ) -> Fit:
        """Fit from a start; a plain Newton method may end before the tolerance is reached."""
        self.tolerance, self.preconditioner = tolerance, carried
        current = self.evaluate(alpha, alpha @ self.gram)
        return self.run(current, min(iterations, ITERATIONS))[0]

    def evaluate(self, alpha: Array, predictions: Array) -> Iterate:
        h = predictions
        top = h.max(0)
        p = h - top
        np.exp(p, out=p)
        total = p.sum(0)
        losses = np.log(total) + top - np.einsum("cm,cm->m", h, self.targets)
        p /= total
        value = float(np.vdot(self.weights, losses)) + self.rho * float(np.vdot(alpha, h))
        return Iterate(alpha, h, value, p)

    def residual(self, current: Iterate) -> tuple[Array, float]:
        pull = self.weights * (current.probabilities - self.targets)
        keep = 2 * self.rho * current.alpha
        r = pull + keep
        scale = norm(pull) + norm(keep)
        return r, norm(r) / scale if scale > 0 else 0.0

    def step(
        self, current: Iterate, r: Array, size: float, tolerance: float
    ) -> tuple[Array, Array] | None:
        p = current.probabilities
        system = SoftmaxSystem(self.gram, p, self.weights * p, 2 * self.rho)
        found = system.solve(-r, tolerance, self.preconditioner)
        if found is None:
            return None
        self.preconditioner = found.preconditioner
        return found.z, found.image

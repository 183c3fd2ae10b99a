"""Newton's method with a line search, for tensors and for arrays alike.

    minimise over α   Σ_{i∈S} w_i ℓ_i(h_i) + ρ tr(αᵀ K_SS α),   h = K_SS α
    r = w g + 2ρ α,   a step Δ solves (2ρ I + A K) Δ = −r

The relative size of r says how well a fit is solved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from bicore.numerics.descent import NOISE, Trial, first_descent, step_lengths
from bicore.runtime.clock import checkpoint

#: Maximum number of lengths of a line search.
ATTEMPTS = 40


@dataclass(frozen=True, eq=False)
class Fit:
    """Coefficients α, the predictions h of the points, and the cost of the fit."""

    alpha: Any
    predictions: Any
    residual: float
    iterations: int
    products: int
    preconditioner: Any = None


class Place(NamedTuple):
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
    #: Products by K so far.
    products = 1

    @abstractmethod
    def evaluate(self, alpha: Any, predictions: Any) -> Place:
        """Evaluate the objective."""

    @abstractmethod
    def residual(self, place: Place) -> tuple[Any, float]:
        """Return r and its size relative to the two terms that cancel in it."""

    @abstractmethod
    def step(self, place: Place, r: Any, size: float, tolerance: float) -> tuple[Any, Any] | None:
        """Solve for Δ and KΔ; None if the system cannot be solved."""

    def run(self, place: Place, iterations: int) -> tuple[Fit, bool]:
        """Return the last fit, and whether it is solved."""
        r, size = self.residual(place)
        count = 0
        while size > self.tolerance and count < iterations:
            checkpoint()
            # The forcing term keeps the fast convergence without solving early systems more exactly
            # than needed.
            found = self.step(place, r, size, min(0.1, max(size, 0.1 * self.tolerance)))
            if found is None:
                break
            noise = NOISE * self.eps * abs(place.objective)
            lower = first_descent(self._trials(place, r, *found), place.objective, noise)
            if lower is None:
                break  # the remaining descent is below the rounding of the objective
            count += 1
            previous, stalled = size, lower.objective >= place.objective
            place = lower.point
            r, size = self.residual(place)
            if stalled and size >= previous:
                break
        fit = Fit(place.alpha, place.predictions, size, count, self.products, self.preconditioner)
        return fit, size <= self.tolerance

    def _trials(self, place: Place, r: Any, step: Any, moved: Any) -> Iterator[Trial[Place]]:
        slope = min(float((r * moved).sum()), 0.0)
        for length in step_lengths(1.0, ATTEMPTS):
            trial = self.evaluate(place.alpha + length * step, place.predictions + length * moved)
            yield Trial(trial, trial.objective, length * slope)

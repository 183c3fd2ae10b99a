"""Newton's method for the softmax cross-entropy on a CPU: plain arrays, a row for each class.

    minimise over α   Σ w_i ℓ_i(h_i) + ρ tr(αᵀKα),   h = Kα
    r = w (p − y) + s α,   s = 2ρ,   A_i = w_i (diag p_i − p_i p_iᵀ)
    a step Δ solves (s I + A K) Δ = −r       (:mod:`bicore.bilevel.solvers.softmax_system`)

A fit is mostly of points that were fitted before and one that joined; that one first solves a
problem of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bicore.bilevel.solvers.preconditioner import Carried
from bicore.bilevel.solvers.softmax_system import SoftmaxSystem, Solution, norm
from bicore.data import Array
from bicore.numerics.line_search import NOISE, Trial, first_enough, lengths

#: Newton's method leaves to the general solver what it has not solved by then.
ITERATIONS = 25
#: Lengths of a step that are tried before that.
ATTEMPTS = 8
#: The fit of a single point: steps, how far one may move its predictions, and a move that ends it.
SINGLE_POINT_STEPS, SINGLE_POINT_REACH, SINGLE_POINT_GOAL = 12, 4.0, 1e-3


@dataclass(frozen=True, eq=False)
class _Place:
    """Coefficients, their predictions and their probabilities."""

    alpha: Array
    predictions: Array
    probabilities: Array


@dataclass(frozen=True, eq=False)
class Fitted:
    """α, h, the relative residual, and what it took."""

    alpha: Array
    predictions: Array
    residual: float
    steps: int
    products: int
    preconditioner: Carried | None


@dataclass(frozen=True, eq=False)
class SoftmaxFit:
    """A fit in plain arrays: targets and coefficients have a row for each class."""

    gram: Array
    targets: Array
    weights: Array
    rho: float

    def solve(
        self,
        alpha: Array,
        tolerance: float,
        iterations: int = ITERATIONS,
        carried: Carried | None = None,
    ) -> Fitted | None:
        """From a start; None where a plain Newton method does not get there."""
        value, place = self._begun(alpha)
        if not alpha[:, -1].any() and alpha.any():  # the last point alone is new
            joined = self._joined(place, carried)
            if joined is not None and joined[0] < value:
                value, place = joined
        products = 1
        for iteration in range(min(iterations, ITERATIONS)):
            pull = self.weights * (place.probabilities - self.targets)
            keep = 2 * self.rho * place.alpha
            r = pull + keep
            scale = norm(pull) + norm(keep)
            size = norm(r) / scale if scale > 0 else 0.0
            if size <= tolerance:
                return Fitted(place.alpha, place.predictions, size, iteration, products, carried)
            # The forcing term keeps Newton's fast convergence without solving early systems
            # further than they deserve.
            forcing = min(0.1, max(size, 0.1 * tolerance))
            step = self._system(place).solve(-r, forcing, carried)
            if step is None:
                return None
            carried = step.preconditioner
            products += step.iterations + 1
            noise = NOISE * np.finfo(np.float64).eps * abs(value)
            found = first_enough(self._trials(place, step, r), value, noise)
            if found is None:
                return None
            place = found.point
            value = found.objective
        return None

    def _begun(self, alpha: Array) -> tuple[float, _Place]:
        h = alpha @ self.gram
        value, p = self._value(alpha, h)
        return value, _Place(alpha, h, p)

    def _joined(self, place: _Place, carried: Carried | None) -> tuple[float, _Place] | None:
        """Where a point that joined last would take the fit if all others answered linearly.

        What is far from linear is that point alone: its own coefficients a solve a problem of C
        numbers, w (p(h + κa) − y) + s a = 0, with κ its variance given the others.
        """
        answer = self._system(place).answer(carried)
        if answer is None:
            return None
        row = self.gram[-1]
        variance = max(float(row[-1] - row[:-1] @ answer), 0.0)
        own = _single_point(
            place.predictions[:, -1],
            self.targets[:, -1],
            float(self.weights[-1]),
            variance,
            2 * self.rho,
            place.alpha[:, -1],
        )
        alpha = place.alpha.copy()
        alpha[:, -1] += own
        alpha[:, :-1] -= own[:, None] * answer
        return self._begun(alpha)

    def _system(self, place: _Place) -> SoftmaxSystem:
        p = place.probabilities
        return SoftmaxSystem(self.gram, p, self.weights * p, 2 * self.rho)

    def _trials(self, start: _Place, step: Solution, r: Array) -> Iterator[Trial[_Place]]:
        slope = min(float(np.vdot(r, step.image)), 0.0)
        for length in lengths(1.0, ATTEMPTS):
            alpha = start.alpha + length * step.z
            h = start.predictions + length * step.image
            value, p = self._value(alpha, h)
            yield Trial(_Place(alpha, h, p), value, length * slope)

    def _value(self, alpha: Array, h: Array) -> tuple[float, Array]:
        """The objective, and the probabilities on the way."""
        top = h.max(0)
        p = h - top
        np.exp(p, out=p)
        total = p.sum(0)
        losses = np.log(total) + top - np.einsum("cm,cm->m", h, self.targets)
        p /= total
        return float(np.vdot(self.weights, losses)) + self.rho * float(np.vdot(alpha, h)), p


def _single_point(
    h: Array, target: Array, weight: float, variance: float, shift: float, alpha: Array
) -> Array:
    """The change a of one point's coefficients with w (p(h + κa) − y) + s (α + a) = 0."""
    change = np.zeros_like(h)
    for _ in range(SINGLE_POINT_STEPS):
        p = np.exp(h + variance * change - (h + variance * change).max())
        p /= p.sum()
        residual = weight * (p - target) + shift * (alpha + change)
        # (s I + κw (diag p − p pᵀ))⁻¹ by the formula of Sherman and Morrison
        scale = 1 / (shift + variance * weight * p)
        first = scale * residual
        second = scale * p
        share = variance * weight * (p @ first) / (1 - variance * weight * (p @ second))
        step = first + share * second
        # the predictions of one step are trusted no further than this
        reach = variance * np.abs(step).max()
        change -= step * min(1.0, SINGLE_POINT_REACH / max(reach, 1e-300))
        if reach < SINGLE_POINT_GOAL:
            break
    return change

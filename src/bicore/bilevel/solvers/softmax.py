"""Newton's method for the softmax cross-entropy where speed needs a way of its own: a dozen points
in plain arrays, or a padded problem on a GPU that nobody waits for.

    minimise over α   Σ w_i ℓ_i(h_i) + ρ tr(αᵀKα),   h = Kα
    r = w (p − y) + s α,   s = 2ρ,   A_i = w_i (diag p_i − p_i p_iᵀ)
    a step Δ solves (s I + A K) Δ = −r

For a few points the step is direct (:func:`bicore.bilevel.solvers.factors.softmax_range`). On the
GPU it is a fixed number of conjugate-gradient iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.solvers.factors import softmax_range
from bicore.data import Array
from bicore.numerics.conjugate_gradients import DeviceIteration, Precondition
from bicore.numerics.line_search import NOISE, Trial, enough, first_enough, lengths

#: Points up to which C inverses in plain arrays are quicker than anything with tensors.
LARGEST = 40
#: Newton's method leaves to the general solver what it has not solved by then.
ITERATIONS = 25
#: Lengths of a step that are tried before that.
ATTEMPTS = 8
#: Lengths that a step on the device may have: all are evaluated, the first that serves is taken.
DEVICE_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.03125, 0.0)


@dataclass(frozen=True, eq=False)
class _Place:
    """Coefficients, their predictions and their probabilities."""

    alpha: Array
    predictions: Array
    probabilities: Array


@dataclass(frozen=True, eq=False)
class SoftmaxFit:
    """A small fit in plain arrays: a matter of calls, not of arithmetic."""

    gram: Array
    targets: Array
    weights: Array
    rho: float

    def solve(
        self, alpha: Array, tolerance: float, iterations: int = ITERATIONS
    ) -> tuple[Array, Array, float, int] | None:
        """α, h, the relative residual and the number of steps; None where a plain Newton method
        does not get there."""
        h = self.gram @ alpha
        value, p = self._value(alpha, h)
        place = _Place(alpha, h, p)
        for iteration in range(min(iterations, ITERATIONS)):
            pull = self.weights * (place.probabilities - self.targets)
            keep = 2 * self.rho * place.alpha
            r = pull + keep
            scale = _norm(pull) + _norm(keep)
            size = _norm(r) / scale if scale > 0 else 0.0
            if size <= tolerance:
                return place.alpha, place.predictions, size, iteration
            try:
                step = self._step(place.probabilities, -r)
            except np.linalg.LinAlgError:
                return None
            noise = NOISE * np.finfo(np.float64).eps * abs(value)
            found = first_enough(self._trials(place, step, r), value, noise)
            if found is None:
                return None
            place = found.point
            value = found.objective
        return None

    def _trials(self, start: _Place, step: Array, r: Array) -> Iterator[Trial[_Place]]:
        moved = self.gram @ step
        slope = min(float(np.vdot(r, moved)), 0.0)
        for length in lengths(1.0, ATTEMPTS):
            alpha = start.alpha + length * step
            h = start.predictions + length * moved
            value, p = self._value(alpha, h)
            yield Trial(_Place(alpha, h, p), value, length * slope)

    def _value(self, alpha: Array, h: Array) -> tuple[float, Array]:
        """The objective, and the probabilities on the way."""
        top = h.max(1, keepdims=True)
        p = np.exp(h - top)
        total = p.sum(1, keepdims=True)
        losses = np.log(total) + top - np.einsum("ic,ic->i", h, self.targets)[:, None]
        p /= total
        return float(np.vdot(self.weights, losses)) + self.rho * float(np.vdot(alpha, h)), p

    def _step(self, p: Array, right: Array) -> Array:
        """(s I + A K)⁻¹ right = (right − (s I + A K)⁻¹ A K right) / s."""
        shift = 2 * self.rho
        solved = softmax_range(self.gram, self.weights * p, shift, self.gram @ right)
        step: Array = (right - solved) / shift
        return step


def _norm(values: Array) -> float:
    return math.sqrt(np.vdot(values, values))


class DeviceSoftmaxFit:
    """A fit on a GPU padded to a fixed size: a place that is not taken has weight 0, which leaves
    its row of every system an identity and its coefficients zero.

    ``gram``, ``targets`` and ``weights`` are written to from outside; ``alpha`` and ``fitted`` = Kα
    are the fit.
    """

    def __init__(self, like: Tensor, capacity: int, outputs: int) -> None:
        self.gram = like.new_zeros(capacity, capacity)
        self.targets = like.new_zeros(capacity, outputs)
        self.weights = like.new_zeros(capacity, 1)
        self.alpha = like.new_zeros(capacity, outputs)
        self.fitted = like.new_zeros(capacity, outputs)
        self.lengths = like.new_tensor(DEVICE_LENGTHS)

    def probabilities(self) -> Tensor:
        """Of the fit at every place."""
        return torch.softmax(self.fitted, 1)

    def curved(self, probabilities: Tensor, rows: Tensor) -> Tensor:
        """A · rows."""
        mean = (probabilities * rows).sum(1, keepdim=True)
        return self.weights * probabilities * (rows - mean)

    def system(
        self,
        right: Tensor,
        probabilities: Tensor,
        shift: Tensor,
        precondition: Precondition,
        iterations: int,
    ) -> tuple[Tensor, Tensor]:
        """z with (s I + A K) z = right after so many iterations, and the relative residual."""

        def image(direction: Tensor, gram_direction: Tensor) -> Tensor:
            return self.curved(probabilities, gram_direction) + direction * shift

        run = DeviceIteration(right, precondition, image)
        run.advance(iterations)
        # What is left when the energy is spent lies in the null space of K, where the operator is s
        # times the identity.
        spent = run.energy <= 0
        z = torch.where(spent, run.z + run.residual / shift, run.z)
        goal = torch.linalg.vector_norm(right).clamp_min(torch.finfo(right.dtype).tiny)
        return z, torch.where(spent, 0.0, torch.linalg.vector_norm(run.residual) / goal)

    def newton(
        self,
        shift: Tensor,
        precondition: Precondition,
        steps: int,
        iterations: int,
        watched: float | None = None,
    ) -> Tensor:
        """So many Newton steps from the last fit; the relative residual it ends with.

        With ``watched`` the host looks after each step and stops at that residual.
        """
        value = self._values(self.alpha[None], self.fitted[None], shift)[0]
        lengths_of_steps = self.lengths[:, None, None]
        for _ in range(steps):
            probabilities, r, size = self.residual(shift)
            if watched is not None and float(size) <= watched:
                break
            step, _ = self.system(-r, probabilities, shift, precondition, iterations)
            moved = self.gram @ step
            slope = (r * moved).sum().clamp_max(0.0)
            values = self._values(
                self.alpha + lengths_of_steps * step, self.fitted + lengths_of_steps * moved, shift
            )
            noise = NOISE * torch.finfo(r.dtype).eps * value.abs()
            serves = enough(values, value, self.lengths * slope, noise)
            first = serves.int().argmax().view(1)  # of no dimensions, it would be read back
            length = self.lengths[first]
            self.alpha.addcmul_(step, length)
            self.fitted.addcmul_(moved, length)
            value = values[first][0]
        return self.residual(shift)[2]

    def residual(self, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """p, r = w (p − y) + s α, and the size of r relative to its two terms."""
        probabilities = self.probabilities()
        data = self.weights * (probabilities - self.targets)
        own = shift * self.alpha
        scale = torch.linalg.vector_norm(data) + torch.linalg.vector_norm(own)
        r = data + own
        tiny = torch.finfo(r.dtype).tiny
        return probabilities, r, torch.linalg.vector_norm(r) / scale.clamp_min(tiny)

    def _values(self, alpha: Tensor, fitted: Tensor, shift: Tensor) -> Tensor:
        """The inner objective at each of several α with their predictions."""
        losses = torch.logsumexp(fitted, 2) - (fitted * self.targets).sum(2)
        return losses @ self.weights[:, 0] + shift * (alpha * fitted).sum((1, 2)) / 2

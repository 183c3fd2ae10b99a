"""Newton's method for small softmax fits in plain arrays: a fit of a dozen points is a matter of
calls, not of arithmetic.

The step is that of :class:`bicore.bilevel.solvers.factors.SoftmaxFactor`: with E_c = D_c^½ (s I +
D_c^½ K D_c^½)⁻¹ D_c^½ of every class,

    (s I + A K)⁻¹ A v = E v − E R (Rᵀ E R)⁻¹ Rᵀ E v        (s I + A K)⁻¹ b = (b − (s I + A K)⁻¹ A K b) / s
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bicore.bilevel.solvers.factors import CURVATURE_FLOOR
from bicore.data import Array

#: Points up to which C inverses in plain arrays are quicker than anything with tensors.
LARGEST = 40
#: Newton's method leaves to the general solver what it has not solved by then.
ITERATIONS = 25
#: Halvings of a step before that.
HALVINGS = 8
#: Share of the predicted decrease that a step of a line search must achieve.
ARMIJO = 1e-4


@dataclass(frozen=True, eq=False)
class SoftmaxFit:
    """min over α of Σ w_i ℓ_i(h_i) + ρ tr(αᵀKα), h = Kα, with the softmax cross-entropy for ℓ."""

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
        for iteration in range(min(iterations, ITERATIONS)):
            pull = self.weights * (p - self.targets)
            keep = 2 * self.rho * alpha
            r = pull + keep
            scale = _norm(pull) + _norm(keep)
            size = _norm(r) / scale if scale > 0 else 0.0
            if size <= tolerance:
                return alpha, h, size, iteration
            try:
                step = self._step(p, -r)
            except np.linalg.LinAlgError:
                return None
            moved = self.gram @ step
            slope = min(float(np.vdot(r, moved)), 0.0)
            noise = 10 * np.finfo(np.float64).eps * abs(value)
            length = 1.0
            for _ in range(HALVINGS):
                better, p = self._value(alpha + length * step, h + length * moved)
                if better <= value + ARMIJO * length * slope + noise:
                    break
                length /= 2
            else:
                return None
            alpha = alpha + length * step
            h = h + length * moved
            value = better
        return None

    def _value(self, alpha: Array, h: Array) -> tuple[float, Array]:
        """The objective, and the probabilities on the way."""
        top = h.max(1, keepdims=True)
        p = np.exp(h - top)
        total = p.sum(1, keepdims=True)
        losses = np.log(total) + top - np.einsum("ic,ic->i", h, self.targets)[:, None]
        p /= total
        return float(np.vdot(self.weights, losses)) + self.rho * float(np.vdot(alpha, h)), p

    def _step(self, p: Array, right: Array) -> Array:
        shift = 2 * self.rho
        weighted = np.ascontiguousarray((self.weights * p).T)
        root = np.sqrt(np.maximum(weighted, CURVATURE_FLOOR * weighted.max()))
        pairs = root[:, :, None] * root[:, None, :]
        system = self.gram * pairs
        diagonal = np.arange(len(self.gram))
        system[:, diagonal, diagonal] += shift
        parts = np.linalg.inv(system)
        parts *= pairs
        single = parts @ (self.gram @ right).T[:, :, None]
        total = parts.sum(0)
        total[diagonal, diagonal] += total[diagonal, diagonal].max() * np.finfo(np.float64).eps
        common = np.linalg.solve(total, single.sum(0))
        result: Array = (right - (single - parts @ common)[:, :, 0].T) / shift
        return result


def _norm(values: Array) -> float:
    return math.sqrt(np.vdot(values, values))

"""The relaxed design problem: weights between 0 and 1 in the place of a choice.

Minimise G(w) = ½σ² tr(M F(w)⁻¹), F(w) = ΦᵀWΦ + σ²I, over 0 ≤ w ≤ 1 and Σw ≤ m.

G is convex, and −∂G/∂w_k = ½σ² φ_kᵀF⁻¹MF⁻¹φ_k ≥ 0, so that the best vertex for a gradient is the m
points of the largest: matching pursuit on this bounded set is Frank and Wolfe's method. At every w
the gap ⟨∇G(w), w − s⟩ to that vertex s bounds G(w) − min G, and min G is below what any m points
reach. Frank–Wolfe closes the gap like 1/t; projected gradients with Barzilai–Borwein steps get
there much sooner, and the same gap certifies them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bicore.numerics.descent import capped, enough, spectral_length
from bicore.numerics.linear_algebra import cholesky_factor, row_by_row, summed_over_rows

#: The gap is closed to this share of the objective, in at most so many steps.
TOLERANCE = 1e-3
STEPS = 500
#: A step is shortened down to this share of itself.
SHORTEST_SHARE = 1e-10
#: Where the objective shows no curvature, the next step is so many times longer.
LENGTHENING = 10


@dataclass(frozen=True, eq=False)
class Relaxed:
    """Weights, their objective, a lower bound of the best, and the gap after every step."""

    weights: Tensor
    objective: float
    bound: float
    gaps: list[float]


def relax(
    features: Tensor,
    moment: Tensor,
    noise: float,
    size: int,
    tolerance: float = TOLERANCE,
    steps: int = STEPS,
) -> Relaxed:
    """Spectral projected gradients from equal weights, until the certified gap is closed."""
    value_at = partial(_value, features, moment, noise)
    count = min(size, len(features))
    weights = features.new_full((len(features),), count / len(features))
    objective, gradient = evaluated(features, moment, noise, weights)
    steepest = float(gradient.abs().max())
    bound = 0.0
    length = 1 / steepest if steepest else 1.0
    gaps = []
    for _ in range(steps):
        gaps.append(_gap(gradient, weights, count))
        bound = max(bound, objective - gaps[-1])
        if objective - bound <= tolerance * objective:
            break
        direction = capped(weights - length * gradient, count) - weights
        slope = float(gradient @ direction)
        share = _searched(value_at, weights, direction, objective, slope)
        moved = (weights + share * direction).clamp(0, 1)
        objective, gradient_there = evaluated(features, moment, noise, moved)
        length = spectral_length(moved - weights, gradient_there - gradient, LENGTHENING * length)
        weights = moved
        gradient = gradient_there
    return Relaxed(weights, objective, bound, gaps)


def _searched(
    value_at: Callable[[Tensor], float],
    weights: Tensor,
    direction: Tensor,
    objective: float,
    slope: float,
) -> float:
    """The share of a step that lowers the objective enough (Armijo's condition)."""
    share = 1.0
    while share > SHORTEST_SHARE:
        tried = value_at(weights + share * direction)
        if enough(tried, objective, share * slope):
            break
        share = _shorter(share, objective, slope, tried)
    return share


def _gap(gradient: Tensor, weights: Tensor, count: int) -> float:
    """⟨∇G, w − s⟩ to the best vertex s."""
    return float(gradient @ weights - gradient.topk(count, largest=False).values.sum())


def _shorter(share: float, objective: float, slope: float, tried: float) -> float:
    """The minimum of the parabola through the value and slope at 0 and the value at ``share``.

    Kept within a tenth and a half of the share.
    """
    least = -slope * share**2 / (2 * (tried - objective - slope * share))
    return min(max(least, 0.1 * share), 0.5 * share)


def evaluated(
    features: Tensor, moment: Tensor, noise: float, weights: Tensor
) -> tuple[float, Tensor]:
    """G(w) and its gradient."""
    inverse = _inverse(features, noise, weights)
    gradient = -0.5 / noise * (row_by_row(features, inverse @ moment @ inverse) * features).sum(1)
    return _objective(inverse, moment), gradient


def _value(features: Tensor, moment: Tensor, noise: float, weights: Tensor) -> float:
    return _objective(_inverse(features, noise, weights), moment)


def _inverse(features: Tensor, noise: float, weights: Tensor) -> Tensor:
    """σ²F(w)⁻¹."""
    matrix = summed_over_rows(features, features, weights) / noise
    matrix.diagonal().add_(1)
    return torch.cholesky_inverse(cholesky_factor(matrix, "noise"))


def _objective(inverse: Tensor, moment: Tensor) -> float:
    return 0.5 * float((inverse * moment).sum())

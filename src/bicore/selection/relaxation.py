"""The relaxed design problem: minimise G(w) = ½σ² tr(M F(w)⁻¹), F(w) = ΦᵀWΦ + σ²I, over 0 ≤ w ≤ 1 and Σw ≤ m.

G is convex, and −∂G/∂w_k = ½σ² φ_kᵀF⁻¹MF⁻¹φ_k ≥ 0, so that the best vertex for a gradient is the m points of the largest: matching
pursuit on this bounded set is Frank and Wolfe's method. At every w the gap ⟨∇G(w), w − s⟩ to that vertex s bounds G(w) − min G,
and min G is below what any m points reach. Frank–Wolfe closes the gap like 1/t; projected gradients with Barzilai–Borwein steps get
there much sooner, and the same gap certifies them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: The gap is closed to this share of the objective, in at most so many steps.
TOLERANCE, STEPS = 1e-3, 500
#: A step must bring this share of what the slope promises, and is halved down to this length.
ARMIJO, SHORTEST = 1e-4, 1e-10
#: Halvings of the step's interval.
HALVINGS = 50


@dataclass(frozen=True, eq=False)
class Relaxed:
    """Weights, their objective, a lower bound of the best, and the gap after every step."""

    weights: Tensor
    objective: float
    bound: float
    gaps: list[float]


def relax(features: Tensor, moment: Tensor, noise: float, size: int, tolerance: float = TOLERANCE, steps: int = STEPS) -> Relaxed:
    """Spectral projected gradients from equal weights, until the certified gap is closed."""
    count = min(size, len(features))
    weights = features.new_full((len(features),), count / len(features))
    objective, gradient, _ = _evaluated(features, moment, noise, weights)
    length, bound, gaps = 1 / float(gradient.abs().max()), 0.0, []
    for _ in range(steps):
        gaps.append(_gap(gradient, weights, count))
        bound = max(bound, objective - gaps[-1])
        if objective - bound <= tolerance * objective:
            break
        direction = capped(weights - length * gradient, count) - weights
        slope, share = float(gradient @ direction), 1.0
        while (
            share > SHORTEST
            and objective_of(features, moment, noise, weights + share * direction) > objective + ARMIJO * share * slope
        ):
            share /= 2
        moved = (weights + share * direction).clamp(0, 1)
        before, old = gradient, weights
        objective, gradient, _ = _evaluated(features, moment, noise, moved)
        weights, change = moved, moved - old
        curvature = float(change @ (gradient - before))
        length = float(change @ change) / curvature if curvature > 0 else 10 * length
    return Relaxed(weights, objective, bound, gaps)


def capped(weights: Tensor, total: float) -> Tensor:
    """The nearest point of {0 ≤ w ≤ 1, Σw = total}: one number is taken off all, found by halving."""
    low, high = float(weights.min()) - 1, float(weights.max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if float((weights - middle).clamp(0, 1).sum()) > total else (low, middle)
    return (weights - high).clamp(0, 1)


def frank_wolfe(features: Tensor, moment: Tensor, noise: float, size: int, steps: int) -> Relaxed:
    """So many steps of Frank and Wolfe's method with the exact step, from equal weights."""
    count = min(size, len(features))
    weights = features.new_full((len(features),), count / len(features))
    bound, gaps = 0.0, []
    for _ in range(steps):
        objective, gradient, lower = _evaluated(features, moment, noise, weights)
        vertex = torch.zeros_like(weights)
        vertex[gradient.topk(count, largest=False).indices] = 1
        gaps.append(_gap(gradient, weights, count))
        bound = max(bound, objective - gaps[-1])
        direction = vertex - weights
        weights = (weights + _step(features, moment, noise, lower, direction) * direction).clamp(0, 1)
    return Relaxed(weights, objective_of(features, moment, noise, weights), bound, gaps)


def _gap(gradient: Tensor, weights: Tensor, count: int) -> float:
    """⟨∇G, w − s⟩ to the best vertex s."""
    return float(gradient @ weights - gradient.topk(count, largest=False).values.sum())


def objective_of(features: Tensor, moment: Tensor, noise: float, weights: Tensor) -> float:
    """G(w)."""
    return _evaluated(features, moment, noise, weights)[0]


def gradient_of(features: Tensor, moment: Tensor, noise: float, weights: Tensor) -> Tensor:
    """∂G/∂w."""
    return _evaluated(features, moment, noise, weights)[1]


def hessian_of(features: Tensor, moment: Tensor, noise: float, weights: Tensor) -> Tensor:
    """∂²G/∂w² = σ² (ΦF⁻¹Φᵀ) ∘ (ΦF⁻¹MF⁻¹Φᵀ), entry by entry: a product of two positive semi-definite matrices."""
    inverse = torch.cholesky_inverse(_lower(features, noise, weights))
    half = features @ inverse
    return noise * (half @ features.T) * (half @ moment @ half.T)


def _lower(features: Tensor, noise: float, weights: Tensor) -> Tensor:
    matrix = features.T @ (weights[:, None] * features)
    matrix.diagonal().add_(noise)
    lower: Tensor = torch.linalg.cholesky(matrix)
    return lower


def _evaluated(features: Tensor, moment: Tensor, noise: float, weights: Tensor) -> tuple[float, Tensor, Tensor]:
    """The objective, its gradient, and the Cholesky factor of F times 1/σ, so that G = ½ tr(M (LLᵀ)⁻¹)."""
    lower = _lower(features, noise, weights) / noise**0.5
    inverse = torch.cholesky_inverse(lower)
    image = inverse @ moment @ inverse
    gradient = -0.5 / noise * ((features @ image) * features).sum(1)
    return 0.5 * float((inverse * moment).sum()), gradient, lower


def _step(features: Tensor, moment: Tensor, noise: float, lower: Tensor, direction: Tensor) -> float:
    """The best t in [0, 1] for w + t·direction: with L⁻¹ΔL⁻ᵀ = QΛQᵀ the objective is ½ Σ a_j/(1 + tλ_j), and its slope rises."""
    change = features.T @ (direction[:, None] * features) / noise
    values, vectors = torch.linalg.eigh(_between(lower, change))
    shares = ((vectors.T @ _between(lower, moment)) * vectors.T).sum(1)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        falling = float((shares * values / (1 + middle * values).square()).sum()) > 0
        low, high = (middle, high) if falling else (low, middle)
    return high


def _between(lower: Tensor, matrix: Tensor) -> Tensor:
    """L⁻¹ A L⁻ᵀ."""
    half = torch.linalg.solve_triangular(lower, matrix, upper=False)
    both: Tensor = torch.linalg.solve_triangular(lower, half.T, upper=False)
    return both

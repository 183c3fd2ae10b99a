"""Optimise the weights of a fixed support by projected gradient; the outer objective never ends above its start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.bilevel.implicit import ImplicitForward
from bicore.errors import InputError

#: Share of the predicted decrease that a step must achieve.
ARMIJO = 1e-4
#: Halvings of a step before the search ends where it stands.
HALVINGS = 25
#: The search ends when the projected step promises less than this share of the objective.
FLAT = 1e-9


class WeightOptimiser(ABC):
    """Lowers G(w) over w >= 0 with the support fixed."""

    @abstractmethod
    def optimise(self, state: ImplicitForward, final: bool = False) -> None:
        """Change the weights of ``state`` in place of the old ones; ``final`` allows the longer search at the end."""


@dataclass(frozen=True)
class ProjectedGradient(WeightOptimiser):
    """w ← max(w − η ∂G/∂w, 0) with Barzilai–Borwein steps and backtracking: every accepted step lowers G.

    ``steps`` after each point, ``final_steps`` when the support is complete.
    """

    steps: int = 10
    final_steps: int = 100

    def __post_init__(self) -> None:
        if self.steps < 1 or self.final_steps < 1:
            raise InputError(f"steps={self.steps}, final_steps={self.final_steps}; both must be at least 1.")

    def optimise(self, state: ImplicitForward, final: bool = False) -> None:
        weights, value = state.weights, state.objective
        gradient = state.weight_gradient()
        length = 0.5 / max(float(gradient.abs().max()), torch.finfo(gradient.dtype).tiny)
        for _ in range(self.final_steps if final else self.steps):
            moved = self._descend(state, weights, value, gradient, length)
            if moved is None:
                break
            fresh = state.weight_gradient()
            length = _spectral(moved - weights, fresh - gradient, length)
            weights, value, gradient = moved, state.objective, fresh
        if state.weights is not weights:
            state.reweigh(weights)

    @staticmethod
    def _descend(state: ImplicitForward, weights: Tensor, value: float, gradient: Tensor, length: float) -> Tensor | None:
        """The first point along the projected path that lowers G enough; None when there is none."""
        for _ in range(HALVINGS):
            trial = (weights - length * gradient).clamp_min(0)
            promised = float((gradient * (trial - weights)).sum())
            if -promised <= FLAT * abs(value):
                return None
            if bool((trial > 0).any()):
                state.reweigh(trial)
                if state.objective <= value + ARMIJO * promised:
                    return trial
            length /= 2
        return None


def _spectral(step: Tensor, change: Tensor, before: float) -> float:
    """⟨s, s⟩/⟨s, y⟩, the step of a quadratic with this curvature; doubled where the curvature is not positive."""
    along = float((step * change).sum())
    return float((step * step).sum()) / along if along > 0 else 2 * before


@dataclass(frozen=True)
class Adam(WeightOptimiser):
    """The paper's optimiser: a few projected Adam steps; the best weights seen are kept, so it never ends worse."""

    rate: float = 0.05
    steps: int = 10
    final_steps: int = 100
    decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8

    def optimise(self, state: ImplicitForward, final: bool = False) -> None:
        best, best_value = state.weights, state.objective
        weights, mean, square = best.clone(), torch.zeros_like(best), torch.zeros_like(best)
        for step in range(1, (self.final_steps if final else self.steps) + 1):
            gradient = state.weight_gradient()
            mean = self.decay * mean + (1 - self.decay) * gradient
            square = self.second_decay * square + (1 - self.second_decay) * gradient**2
            scaled = mean / (1 - self.decay**step)
            spread = (square / (1 - self.second_decay**step)).sqrt() + self.epsilon * float(gradient.abs().max())
            weights = (weights - self.rate * scaled / spread.clamp_min(torch.finfo(spread.dtype).tiny)).clamp_min(0)
            if not bool((weights > 0).any()):
                break
            state.reweigh(weights)
            if state.objective < best_value:
                best, best_value = weights, state.objective
        if state.weights is not best:
            state.reweigh(best)

"""Optimise the weights of a fixed support by projected gradient; the outer objective never ends
above its start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.bilevel.engines.implicit import ImplicitForward
from bicore.errors import InputError
from bicore.runtime import Clock

#: Share of the predicted decrease that a step must achieve.
ARMIJO = 1e-4
#: Halvings of a step before the search ends where it stands.
HALVINGS = 25
#: The search ends when the projected step promises less than this share of the objective.
FLAT = 1e-9
#: The first step changes no weight by more than about this share of itself.
FIRST_STEP = 0.5
#: Added to every weight in the metric, as a share of the mean weight, so that a weight of zero can
#: grow again.
METRIC_FLOOR = 0.01


class WeightOptimiser(ABC):
    """Lowers G(w) over w >= 0 with the support fixed."""

    @abstractmethod
    def optimise(
        self, state: ImplicitForward, final: bool = False, clock: Clock | None = None
    ) -> None:
        """Give ``state`` better weights; ``final`` allows the longer search at the end, ``clock``
        may end it early."""


@dataclass(frozen=True)
class ProjectedGradient(WeightOptimiser):
    """w ← P(w − η M ∂G/∂w) with P the projection on 0 ≤ w ≤ ``largest``; every accepted step lowers
    G.

    The metric M = diag(w + δ)², δ a hundredth of the mean weight, makes steps relative to each
    weight's own size, as if log w were optimised, and still lets a weight reach zero and come back;
    η is the Barzilai–Borwein step in that metric with backtracking. ``largest`` bounds the weights
    because the open cone has no minimum: a common factor on the weights is a smaller regulariser.
    ``steps`` after each point, ``final_steps`` when the support is complete.
    """

    steps: int = 10
    final_steps: int = 100
    largest: float = 100.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.final_steps < 1 or self.largest < 1:
            raise InputError(
                f"steps={self.steps}, final_steps={self.final_steps}, largest={self.largest}; each "
                "must be at least 1."
            )

    def optimise(
        self, state: ImplicitForward, final: bool = False, clock: Clock | None = None
    ) -> None:
        weights = state.weights
        value = state.objective
        gradient = state.weight_gradient()
        metric = _metric(weights)
        tiny = torch.finfo(gradient.dtype).tiny
        length = FIRST_STEP / max(float((metric.sqrt() * gradient).abs().max()), tiny)
        for _ in range(self.final_steps if final else self.steps):
            if clock is not None and clock.over:
                break
            moved = self._descend(state, weights, value, metric * gradient, gradient, length)
            if moved is None:
                break
            step = moved - weights
            fresh = state.weight_gradient()
            along = float((step * (fresh - gradient)).sum())
            length = float((step.square() / metric).sum()) / along if along > 0 else 2 * length
            weights = moved
            value = state.objective
            gradient = fresh
            metric = _metric(moved)
        if state.weights is not weights:
            state.reweigh(weights)

    def _descend(
        self,
        state: ImplicitForward,
        weights: Tensor,
        value: float,
        direction: Tensor,
        gradient: Tensor,
        length: float,
    ) -> Tensor | None:
        """The first point along the projected path that lowers G enough; None when there is none."""
        for _ in range(HALVINGS):
            trial = (weights - length * direction).clamp_(0, self.largest)
            promised = float((gradient * (trial - weights)).sum())
            if -promised <= FLAT * abs(value):
                return None
            if bool((trial > 0).any()):
                state.reweigh(trial)
                if state.objective <= value + ARMIJO * promised:
                    return trial
            length /= 2
        return None


def _metric(weights: Tensor) -> Tensor:
    return (weights + METRIC_FLOOR * weights.mean()).square()


@dataclass(frozen=True)
class Adam(WeightOptimiser):
    """The paper's optimiser: a few projected Adam steps; the best weights seen are kept, so it
    never ends worse."""

    rate: float = 0.05
    steps: int = 10
    final_steps: int = 100
    decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8

    def optimise(
        self, state: ImplicitForward, final: bool = False, clock: Clock | None = None
    ) -> None:
        best = state.weights
        best_value = state.objective
        weights = best.clone()
        mean = torch.zeros_like(best)
        square = torch.zeros_like(best)
        for step in range(1, (self.final_steps if final else self.steps) + 1):
            if clock is not None and clock.over:
                break
            gradient = state.weight_gradient()
            mean = self.decay * mean + (1 - self.decay) * gradient
            square = self.second_decay * square + (1 - self.second_decay) * gradient**2
            scaled = mean / (1 - self.decay**step)
            spread = (square / (1 - self.second_decay**step)).sqrt() + self.epsilon * float(
                gradient.abs().max()
            )
            weights = (
                weights - self.rate * scaled / spread.clamp_min(torch.finfo(spread.dtype).tiny)
            ).clamp_min(0)
            if not bool((weights > 0).any()):
                break
            state.reweigh(weights)
            if state.objective < best_value:
                best = weights
                best_value = state.objective
        if state.weights is not best:
            state.reweigh(best)

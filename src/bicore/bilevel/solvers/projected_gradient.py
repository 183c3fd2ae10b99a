"""Projected gradients with Barzilai–Borwein steps: weights on a convex set, any objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bicore.bilevel.solvers.line_search import Trial, first_enough, lengths
from bicore.runtime import Clock


class Weighed(Protocol):
    """An objective of weights that remembers where it was evaluated last."""

    @property
    def weights(self) -> Tensor: ...

    def value(self) -> float: ...

    def gradient(self) -> Tensor: ...

    def move(self, weights: Tensor) -> None: ...


def spectral_length(change: Tensor, difference: Tensor, metric: Tensor, longer: float) -> float:
    """⟨s, M⁻¹s⟩/⟨s, y⟩ for a step s that changed the gradient by y; ``longer`` where that is no
    curvature."""
    along = float((change * difference).sum())
    return float((change.square() / metric).sum()) / along if along > 0 else longer


@dataclass(frozen=True)
class ProjectedDescent:
    """w ← P(w − η M ∇), with η the spectral step in the metric M, shortened until it pays.

    ``project`` is P; ``metric`` gives the diagonal of M at some weights. A step that promises less
    than the share ``flat`` of the objective ends the search.
    """

    project: Callable[[Tensor], Tensor]
    metric: Callable[[Tensor], Tensor]
    attempts: int
    factor: float = 2.0
    flat: float = 0.0

    def run(
        self,
        state: Weighed,
        first: Callable[[Tensor, Tensor], float],
        steps: int,
        clock: Clock | None,
    ) -> None:
        """Lower the objective; the state never ends above where it began.

        ``first`` is the length to try first, from the metric and the gradient at the start.
        """
        weights = state.weights
        value = state.value()
        gradient = state.gradient()
        metric = self.metric(weights)
        length = first(metric, gradient)
        for _ in range(steps):
            if clock is not None and clock.over:
                break
            trials = self._trials(state, weights, value, metric * gradient, gradient, length)
            found = first_enough(trials, value)
            if found is None:
                break
            fresh = state.gradient()
            change = found.point - weights
            length = spectral_length(change, fresh - gradient, metric, 2 * length)
            weights = found.point
            value = found.objective
            gradient = fresh
            metric = self.metric(weights)
        if state.weights is not weights:
            state.move(weights)

    def _trials(
        self,
        state: Weighed,
        weights: Tensor,
        value: float,
        direction: Tensor,
        gradient: Tensor,
        first: float,
    ) -> Iterator[Trial[Tensor]]:
        """Points along the projected path, while they promise anything."""
        for length in lengths(first, self.attempts, self.factor):
            point = self.project(weights - length * direction)
            promised = float((gradient * (point - weights)).sum())
            if -promised <= self.flat * abs(value):
                return
            if bool((point > 0).any()):  # without any weight there is nothing to fit
                state.move(point)
                yield Trial(point, state.value(), promised)


def steepest(gradient: Tensor) -> float:
    """The largest entry, never zero: what a first step is measured by."""
    return max(float(gradient.abs().max()), torch.finfo(gradient.dtype).tiny)

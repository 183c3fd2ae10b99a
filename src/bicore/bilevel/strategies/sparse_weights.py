"""Weights on a simplex made sparse by a concave penalty, after Borsos, Mutný, Tagliasacchi and
Krause (JMLR 2024).

    minimise   G(w) + β Σ_k √(w_k + ε)     over   w ≥ 0, Σ_k w_k = m

On the simplex the sum of the weights says nothing about how many there are; the sum of their roots
does. β starts at a small share of the objective and doubles until at most m weights are left.
Projected gradients with Barzilai–Borwein steps; every step is a fit of the points that still have
weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.bilevel.engines.implicit import ImplicitForward
from bicore.bilevel.solvers.projection import capped
from bicore.bilevel.solvers.softmax import ARMIJO
from bicore.runtime import Clock

#: The first β makes the penalty this share of the objective.
FIRST_SHARE = 0.01
#: ε, as a share of the mean weight.
SMOOTHING = 1e-3
#: Doublings of β after which the search ends where it stands.
DOUBLINGS = 30
#: A step is shortened at most so often.
SHORTENINGS = 12


@dataclass
class Sparsity:
    """The weights of a state's points, the first ``fixed`` of which keep weight 1."""

    state: ImplicitForward
    size: int
    fixed: int
    largest: float

    def __post_init__(self) -> None:
        self.departed: list[int] = []  # points without weight, the last to go last
        count = len(self.state.support)
        free = self.size - self.fixed
        self.smoothing = SMOOTHING * free / max(count - self.fixed, 1)
        weights = self.state.weights.new_ones(count)
        weights[self.fixed :] = free / max(count - self.fixed, 1)
        self.beta = 0.0
        self.state.reweigh(weights)

    @property
    def left(self) -> int:
        """Points that still have weight."""
        return int((self.state.weights > 0).sum())

    def run(self, steps: int, clock: Clock) -> None:
        """Lower the objective, then raise β until few enough points are left."""
        self._descend(steps, clock)
        roots = float((self.state.weights[self.fixed :] + self.smoothing).sqrt().sum())
        self.beta = FIRST_SHARE * self.state.objective / roots
        for _ in range(DOUBLINGS):
            if self.left <= self.size or clock.over:
                return
            self._descend(steps, clock)
            self._depart()
            self.beta *= 2

    def ranked(self) -> list[int]:
        """All points, those of the largest weight first, then those that lost theirs last."""
        order = torch.argsort(
            self.state.weights[self.fixed :], descending=True, stable=True
        ).tolist()
        points = self.state.indices
        return [
            *points[: self.fixed],
            *(points[self.fixed + place] for place in order),
            *reversed(self.departed),
        ]

    def _depart(self) -> None:
        """Points without weight leave the fits; the penalty would hardly let them return."""
        weights = self.state.weights
        gone = torch.nonzero(weights == 0).flatten().tolist()
        if gone:
            self.departed += [self.state.indices[place] for place in gone]
            self.state.keep(torch.nonzero(weights > 0).flatten().tolist())

    def _descend(self, steps: int, clock: Clock) -> None:
        weights = self.state.weights
        value = self._value()
        gradient = self._gradient()
        length = (
            1
            / max(float(gradient.abs().max()), torch.finfo(gradient.dtype).tiny)
            * float(weights.mean())
        )
        for _ in range(steps):
            if clock.over:
                return
            moved = self._moved(weights, value, gradient, length)
            if moved is None:
                break
            fresh = self._gradient()
            change = moved - weights
            along = float(change @ (fresh - gradient))
            length = float(change @ change) / along if along > 0 else 2 * length
            weights = moved
            value = self._value()
            gradient = fresh
        if self.state.weights is not weights:
            self.state.reweigh(weights)

    def _moved(
        self, weights: Tensor, value: float, gradient: Tensor, length: float
    ) -> Tensor | None:
        """The first point along the projected path that lowers the penalised objective enough; None
        when there is none."""
        for _ in range(SHORTENINGS):
            trial = weights.clone()
            trial[self.fixed :] = capped(
                (weights - length * gradient)[self.fixed :], self.size - self.fixed, self.largest
            )
            promised = float(gradient @ (trial - weights))
            if promised >= 0:
                return None
            self.state.reweigh(trial)
            if self._value() <= value + ARMIJO * promised:
                return trial
            length /= 4
        return None

    def _value(self) -> float:
        return self.state.objective + self.beta * float(
            (self.state.weights[self.fixed :] + self.smoothing).sqrt().sum()
        )

    def _gradient(self) -> Tensor:
        gradient = self.state.weight_gradient()
        gradient[self.fixed :] += (
            0.5 * self.beta / (self.state.weights[self.fixed :] + self.smoothing).sqrt()
        )
        return gradient

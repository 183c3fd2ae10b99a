"""Weights on a simplex made sparse by a concave penalty, after Borsos, Mutný, Tagliasacchi and
Krause (JMLR 2024).

    minimise   G(w) + β Σ_k √(w_k + ε)     over   w ≥ 0, Σ_k w_k = m

On the simplex the sum of the weights says nothing about how many there are; the sum of their roots
does. β starts at a small share of the objective and doubles until at most m weights are left.
Projected gradients with Barzilai–Borwein steps; every step is a fit of the points that still have
weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bicore.bilevel.contract import ReweighableEngine
from bicore.numerics.projected_gradient import ProjectedDescent, steepest
from bicore.numerics.projection import capped
from bicore.runtime import Clock

#: The first β makes the penalty this share of the objective.
FIRST_SHARE = 0.01
#: ε, as a share of the mean weight.
SMOOTHING = 1e-3
#: Doublings of β after which the search ends where it stands.
DOUBLINGS = 30
#: A step is tried at most at so many lengths, each a quarter of the one before.
ATTEMPTS, FACTOR = 12, 4.0
#: A step that promises less than this share of the penalised objective is none.
FLAT = 1e-9


class SparseWeights:
    """The weights of an engine's points, the first ``fixed`` of which keep weight 1."""

    def __init__(self, engine: ReweighableEngine, size: int, fixed: int, largest: float) -> None:
        self.engine = engine
        self.size = size
        self.fixed = fixed
        self.largest = largest
        self.departed: list[int] = []  # points without weight, the last to go last
        self.beta = 0.0
        count = len(engine.chosen)
        mean = (size - fixed) / max(count - fixed, 1)
        self.smoothing = SMOOTHING * mean
        weights = engine.weights.new_ones(count)
        weights[fixed:] = mean
        self.move(weights)

    @property
    def weights(self) -> Tensor:
        """Where the penalised objective was evaluated last."""
        return self.engine.weights

    @property
    def left(self) -> int:
        """Points that still have weight."""
        return int((self.weights > 0).sum())

    def run(self, steps: int, clock: Clock) -> None:
        """Lower the objective, then raise β until few enough points are left."""
        self._descend(steps, clock)
        self.beta = FIRST_SHARE * self.engine.objective / float(self._roots().sum())
        for _ in range(DOUBLINGS):
            if self.left <= self.size or clock.over:
                return
            self._descend(steps, clock)
            self._depart()
            self.beta *= 2

    def ranked(self) -> list[int]:
        """All points, those of the largest weight first, then those that lost theirs last."""
        free = self.weights[self.fixed :]
        order = torch.argsort(free, descending=True, stable=True).tolist()
        points = self.engine.chosen
        kept = [points[self.fixed + place] for place in order]
        return [*points[: self.fixed], *kept, *reversed(self.departed)]

    def value(self) -> float:
        """G + β Σ√(w + ε)."""
        return self.engine.objective + self.beta * float(self._roots().sum())

    def gradient(self) -> Tensor:
        """Of the same."""
        gradient = self.engine.weight_gradient()
        gradient[self.fixed :] += 0.5 * self.beta / self._roots()
        return gradient

    def move(self, weights: Tensor) -> None:
        """Evaluate it elsewhere."""
        self.engine.reweigh(weights)

    def _roots(self) -> Tensor:
        return (self.weights[self.fixed :] + self.smoothing).sqrt()

    def _descend(self, steps: int, clock: Clock) -> None:
        descent = ProjectedDescent(self._projected, ATTEMPTS, factor=FACTOR, flat=FLAT)
        descent.run(self, self._first_length, steps, clock)

    def _first_length(self, gradient: Tensor) -> float:
        return 1 / steepest(gradient) * float(self.weights.mean())

    def _projected(self, weights: Tensor) -> Tensor:
        """The nearest point of the simplex; the given points keep weight 1."""
        weights[: self.fixed] = 1.0
        free = weights[self.fixed :]
        weights[self.fixed :] = capped(free, self.size - self.fixed, self.largest)
        return weights

    def _depart(self) -> None:
        """Points without weight leave the fits; the penalty would hardly let them return."""
        gone = torch.nonzero(self.weights == 0).flatten().tolist()
        if gone:
            self.departed += [self.engine.chosen[place] for place in gone]
            self.engine.drop(gone)

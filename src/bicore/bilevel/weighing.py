"""Weights that are learnt while points are chosen, or when all of them are."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bicore.bilevel.contract import ReweighableEngine
from bicore.bilevel.solvers.weights import WeightOptimiser
from bicore.runtime import Clock


@dataclass(frozen=True, eq=False)
class Weighing:
    """An optimiser on an engine's weights; a point whose weight reaches zero leaves for good."""

    engine: ReweighableEngine
    optimiser: WeightOptimiser

    def correct(self, clock: Clock, final: bool = False) -> None:
        """Lower the objective by the weights; ``final`` allows the longer search at the end."""
        self.optimiser.optimise(self.engine, final=final, clock=clock)
        gone = torch.nonzero(self.engine.weights <= 0).flatten().tolist()
        if gone:
            self.engine.drop(gone)

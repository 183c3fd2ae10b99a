"""What rows that rehearse have in common, whether they learn task after task or from a stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from experiments.networks import Architecture
from experiments.rows import Job, Row, Trials
from experiments.selectors import LAMBDA
from experiments.training import EPOCHS, Learner, build

BETAS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class RehearsingRow(Row):
    """The ``network`` that is trained, for so many ``epochs`` a task or at the end, and β.

    ``at_end``, nothing is rehearsed: a fresh network is trained on what is kept. ``penalty`` is the
    λ of a proxy, where there is one.
    """

    network: Architecture
    betas: tuple[float, ...] = BETAS
    at_end: bool = False
    epochs: int = EPOCHS
    penalty: float = LAMBDA

    @property
    def rehearsed(self) -> bool:
        return not self.at_end

    @property
    def trials(self) -> Trials:
        """Every β where something is rehearsed."""
        return Trials.of_beta(self.betas if self.rehearsed else (0.0,))

    @property
    def normalised(self) -> str:
        return self.network.normalised

    def toy(self) -> Self:
        return replace(super().toy(), network=self.network.toy(), epochs=1)

    def learner(self, job: Job, beta: float, points: int, memory: int, passes: int) -> Learner:
        """A network with room for so many points and rows of memory, and for so many passes at a
        time."""
        network = build(self.network.make, job.seed, job.device)
        return Learner(network, beta, points, memory, passes, seed=job.seed, fast=job.fast)

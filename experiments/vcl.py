"""Variational continual learning whose passes a GPU records once and replays."""

import torch
from torch import Tensor

from bicore.streaming import VariationalLearner
from bicore.streaming.vcl import VariationalFit
from experiments.training import Cohort, Passes, adam


class RecordedPasses(Passes):
    """The passes of a fit."""

    def __init__(self, fit: VariationalFit) -> None:
        how = fit.training
        device = fit.x.device
        super().__init__(len(fit.x), how.epochs, how.batch, fit.generator, device, how.fast)
        self.fit = fit
        self.penalties = torch.tensor(how.penalties, dtype=fit.x.dtype, device=device)
        # a recorded step draws from the device's own generator
        self.noise = None if fit.x.is_cuda else fit.generator
        self.optimiser = adam(fit.parameters(), how.rate, device)

    def loss(self, rows: Tensor) -> Tensor:
        return self.fit.loss(rows, self.noise, self.penalties)


class RecordedFit(VariationalFit):
    """A fit in recorded passes."""

    def run(self) -> None:
        Cohort([RecordedPasses(self)]).train(self.training.epochs)


class RecordedLearner(VariationalLearner):
    """A learner whose fits are recorded."""

    fit = RecordedFit

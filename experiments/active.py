"""BatchBALD (Kirsch, van Amersfoort and Gal 2019) for figure 3a: labels are acquired in batches by
a network with dropout that is trained anew for each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bicore import Dataset
from bicore.methods import BatchBALD
from experiments.networks import Network
from experiments.rows import Job
from experiments.selectors import context_of
from experiments.summary import Choice, Recipe, Sizes, Subset, SummaryRow, Tasks, learner
from experiments.tasks import Part
from experiments.training import Cohort, accuracy

#: Epochs without a better validation accuracy after which training stops.
PATIENCE = 3
#: Held-out points by which it stops.
VALIDATION = 100
#: The network is trained as in BatchBALD's own experiments; an epoch has about 5000 rows.
TRAINING = Recipe((), 50, 0.0, 0, False, rate=1e-3, rows=5056, batch=64)


@dataclass(frozen=True)
class BatchBALDChoice(Choice):
    """``per_class`` random points of each class, then batches of points that are informative
    together.

    The points of a size are the first of one sequence: within a batch they were taken greedily, so
    the first of a batch are the batch of that size.
    """

    per_class: int = 2
    batch: int = 10
    draws: int = 100
    configurations: int = 10_000
    training: Recipe = TRAINING

    def toy(self) -> Self:
        training = replace(self.training, epochs=2, rows=0)
        return replace(self, per_class=1, draws=4, configurations=100, training=training)

    def subsets(self, row: SummaryRow, job: Job, tasks: Tasks, sizes: Sizes) -> Iterator[Subset]:
        task = tasks[0]
        validation = task.held[:VALIDATION]
        labelled = self._first(task.train.y, job.seed)
        accuracies: list[tuple[int, float]] = []
        for size in sizes:
            while len(labelled) < size:
                network = self._train(row, job, task.train[labelled], validation)
                found = accuracy(network, [task.test], job.device, job.fast)[0]
                accuracies.append((len(labelled), found))
                new = self._acquire(network, task.train.x, labelled, job)
                labelled = np.concatenate([labelled, new])
            chosen = labelled[:size]
            facts = {"acquisition": [pair for pair in accuracies if pair[0] <= size]}
            yield Subset(task.train[chosen], np.ones(size), chosen, facts)

    def _first(self, labels: np.ndarray, seed: int) -> np.ndarray:
        """As many random points of each class."""
        order = np.random.default_rng(seed).permutation(len(labels))
        by_class = [order[labels[order] == label][: self.per_class] for label in np.unique(labels)]
        return np.concatenate(by_class)

    def _train(self, row: SummaryRow, job: Job, points: Part, validation: Part) -> Network:
        """A new network, as it was when its validation accuracy was best."""
        alone = replace(row, recipe=self.training)
        trained = learner(alone, job, points, np.ones(len(points)))
        cohort = Cohort([trained])
        best, waited, state = -1.0, 0, {}
        for _ in range(self.training.epochs):
            cohort.train(1)
            found = accuracy(trained.network, [validation], job.device, job.fast)[0]
            waited += 1
            if found > best:
                best, waited = found, 0
                values = trained.network.state_dict().items()
                state = {name: value.detach().clone() for name, value in values}
            if waited >= PATIENCE:
                break
        trained.network.load_state_dict(state)
        return trained.network

    def _acquire(
        self, network: Network, x: np.ndarray, labelled: np.ndarray, job: Job
    ) -> np.ndarray:
        """Rows of the next batch."""
        left = np.setdiff1d(np.arange(len(x)), labelled)
        selector = BatchBALD(self.draws, self.configurations)
        seed = job.seed + 1000 * len(labelled)  # other masks and samples for every batch
        options = {"random_state": seed, "model": context_of(job.device, network)}
        return left[selector.select(Dataset(x[left]), self.batch, **options).indices]

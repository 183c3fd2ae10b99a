"""MNIST in 75 … 250 points for the CNN (figure 3a), CIFAR-10 in 30 … 210 for the ResNet-18 (3c)."""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from benchmarks.common import ONE_THREAD
from bicore import BilevelSelector, Dataset
from bicore.bilevel import Adam, PerPoint
from bicore.kernels import Kernel
from bicore.methods import BatchBALD
from bicore.methods.registry import greedy_selector
from experiments.courses import Checkpoint, Course, checkpoint_folder, checkpoint_of, make_once
from experiments.networks import Architecture, Network
from experiments.rows import Job, Results, Row, Trials
from experiments.selectors import context_of
from experiments.tasks import Part, Task
from experiments.training import BATCH, RATE, Cohort, Learner, accuracy, build, tensors

#: The last epochs over which accuracy is averaged.
LAST = 5
#: Epochs after which the state of a long run is saved.
KEPT_EPOCHS = 10


@dataclass(frozen=True)
class Recipe:
    """How a summary is chosen and evaluated.

    ``starts`` random points begin; weights are learned by Adam if the paper learns them. If
    ``rows`` an epoch are more than the points, these are repeated; each time they look different.
    """

    sizes: tuple[int, ...]
    epochs: int
    penalty: float
    starts: int
    learned: bool
    rate: float = RATE
    decay: float = 0.0
    rows: int = 0
    precision: torch.dtype = torch.float64  # of the kernel
    batch: int = BATCH


MNIST = Recipe(tuple(range(75, 251, 25)), 4000, 1e-7, 10, True)
#: Six passes over sixty thousand images, whatever the size; here sixty over six thousand.
_BATCHES = {"rate": 5e-5, "decay": 1e-4, "rows": 6000, "precision": torch.float32, "batch": 64}
CIFAR = Recipe(tuple(range(30, 211, 30)), 60, 1e-4, 10, False, **_BATCHES)
Tasks, Sizes = Sequence[Task], Sequence[int]


class Subset(NamedTuple):
    """Points, their weights, the rows they are, and facts for the record."""

    points: Part
    weights: np.ndarray
    rows: np.ndarray
    facts: Mapping[str, Any] = MappingProxyType({})


class Choice(ABC):
    """How a summary is chosen."""

    #: Whether λ has a part in it.
    is_penalised = False

    @abstractmethod
    def subsets(self, row: SummaryRow, job: Job, tasks: Tasks, sizes: Sizes) -> Iterator[Subset]:
        """One of each size; the tasks are the pool, and everything but what is held out."""

    def toy(self) -> Self:
        """The same at a size that runs in seconds."""
        return self


@dataclass(frozen=True)
class UniformChoice(Choice):
    """Of all images, as in the paper."""

    def subsets(self, row: SummaryRow, job: Job, tasks: Tasks, sizes: Sizes) -> Iterator[Subset]:
        everything = tasks[1].train
        for size in sizes:
            rows = np.random.default_rng(job.seed).permutation(len(everything))[:size]
            yield Subset(everything[rows], np.ones(size), rows)


@dataclass(frozen=True)
class CoresetChoice(Choice):
    """A coreset of the pool that grows from size to size: the paper's, which begins with random
    points, or one by ``squared`` errors, with the library's defaults."""

    squared: bool = False

    @property
    def is_penalised(self) -> bool:
        return not self.squared

    def subsets(self, row: SummaryRow, job: Job, tasks: Tasks, sizes: Sizes) -> Iterator[Subset]:
        pool, recipe = tasks[0].train, row.recipe
        kernel = stored_kernel(row.problem.kernel, recipe.precision, pool, job.device)
        data = Dataset(kernel, pool.y)
        options: dict[str, Any] = {"initial": (), "runtime": ONE_THREAD}
        if not self.squared:
            starts = min(recipe.starts, *sizes)
            drawn = np.random.default_rng(job.seed).choice(len(pool), starts, replace=False)
            options |= {"initial": drawn.tolist(), "random_state": job.seed}
        selector = self._selector(recipe)
        for size in sizes:
            coreset = options["initial"] = selector.select(data, size, **options)
            yield Subset(pool[coreset.indices], coreset.weights, coreset.indices)

    def _selector(self, recipe: Recipe) -> BilevelSelector:
        if self.squared:
            return greedy_selector(kernel="precomputed")
        weights = {"weighting": "learned" if recipe.learned else "uniform", "optimiser": Adam()}
        loss = {"loss": "cross-entropy", "inner_reg": PerPoint(recipe.penalty)}
        return greedy_selector(kernel="precomputed", candidates=200, **loss, **weights)


@dataclass(frozen=True, kw_only=True)
class SummaryRow(Row):
    """Summaries of several sizes, on each of which a network is trained and tested."""

    choice: Choice
    recipe: Recipe
    network: Architecture
    memory: int = 0

    @property
    def trials(self) -> Trials:
        """The size varies."""
        return Trials(tuple(float(size) for size in self.recipe.sizes), (10.0, 14.0), "memory")

    def toy(self) -> Self:
        recipe = replace(self.recipe, epochs=6, rows=0)
        return replace(
            super().toy(), recipe=recipe, network=self.network.toy(), choice=self.choice.toy()
        )

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        kind = f"{self.recipe.epochs}-" + ",".join(f"{size:g}" for size in job.values)
        checkpoint = checkpoint_of(self, job, kind, self.recipe.penalty, KEPT_EPOCHS)
        return run(self, job, tasks, checkpoint)


def run(
    row: SummaryRow, job: Job, tasks: Sequence[Task], checkpoint: Checkpoint | None = None
) -> Results:
    """Results for each size; one selection, grown from size to size, serves all."""
    begun = time.perf_counter()
    sizes = sorted(int(size) for size in job.values)
    subsets = list(row.choice.subsets(row, job, tasks, sizes))
    picking = time.perf_counter() - begun
    learners = Cohort([learner(row, job, one.points, one.weights) for one in subsets])
    course = Course(learners, checkpoint, begun=begun)
    course.resume()
    course.place.picking = picking
    course.train(max(row.recipe.epochs - LAST, 0))
    found = _last_scores(learners, tasks[0], job, min(LAST, row.recipe.epochs))
    facts = {**course.costs(len(sizes)), "epochs": row.recipe.epochs}
    facts |= {"lambda": row.recipe.penalty} if row.choice.is_penalised else {}
    # a point whose weight is zero leaves
    for size, one, (test, held) in zip(sizes, subsets, found, strict=True):
        scores = {"test": [test], "held": [held]}
        yield float(size), {**scores, **facts, "picks": one.rows.tolist(), **one.facts}
    course.end()


@lru_cache(maxsize=1)
def stored_kernel(
    kernel: Callable[[], Kernel], precision: torch.dtype, pool: Part, device: str
) -> np.ndarray:
    """The kernel of the pool, computed by the first process that asks; the small steps of a
    selection are taken on the host."""
    content = hashlib.sha256(np.ascontiguousarray(pool.x).tobytes()).hexdigest()[:16]
    kind = str(precision).split(".")[-1]
    path = checkpoint_folder() / f"kernel-{kernel.__name__}-{kind}-{content}.pt"

    def make() -> dict[str, torch.Tensor]:
        return {"kernel": kernel()(tensors(pool, device)[0].to(precision)).cpu()}

    return make_once(path, make)["kernel"].double().numpy()


def learner(row: SummaryRow, job: Job, points: Part, weights: np.ndarray) -> Learner:
    """The points again and again, until an epoch is long enough."""
    recipe = row.recipe
    rows = np.resize(np.arange(len(points)), max(len(points), recipe.rows))
    network = build(row.network.make, job.seed, job.device)
    how = (recipe.epochs, recipe.batch, recipe.rate, job.seed, recipe.decay, job.fast)
    made = Learner(network, 0.0, len(rows), 1, *how)
    weight = torch.from_numpy((weights / weights.mean())[rows]).float().to(job.device)
    made.take(*tensors(points[rows], job.device), weight)
    return made


def _last_scores(learners: Cohort, task: Task, job: Job, epochs: int) -> list[list[float]]:
    """Accuracy on test and held-out points of each learner, averaged over some more epochs."""
    found = []
    for _ in range(epochs):
        learners.train(1)
        parts = ([task.test, task.held], job.device, job.fast)
        found.append([accuracy(learner.network, *parts) for learner in learners])
    return np.mean(found, 0).tolist()


#: Epochs without a better validation accuracy after which training stops.
PATIENCE = 3
#: Held-out points by which it stops.
VALIDATION = 100
#: The network is trained as in BatchBALD's own experiments; an epoch has about 5000 rows.
TRAINING = Recipe((), 50, 0.0, 0, False, rate=1e-3, rows=5056, batch=64)


@dataclass(frozen=True)
class BatchBALDChoice(Choice):
    """BatchBALD (Kirsch, van Amersfoort and Gal 2019): ``per_class`` random points of each class,
    then batches that are informative together, by a network with dropout that is trained anew for
    each.

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

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

from bicore import Coreset, Dataset
from bicore.bilevel import Adam, PerPoint
from bicore.kernels import Kernel
from bicore.methods.registry import greedy_selector
from experiments.courses import Checkpoint, Course, checkpoint_folder, middle_of, once
from experiments.networks import Architecture
from experiments.rows import Job, Results, Row, Trials
from experiments.selectors import on_the_host
from experiments.tasks import Part, Task
from experiments.training import BATCH, RATE, Cohort, Learner, accuracy, build, tensors

#: The last epochs over which accuracy is averaged.
LAST = 5
#: A long run is kept every so many epochs.
KEPT_EPOCHS = 10


@dataclass(frozen=True)
class Recipe:
    """How a summary is chosen and judged.

    ``starts`` random points begin; weights are learnt by Adam where the paper learns them. Where
    ``rows`` an epoch are more than the points, these are repeated; each time they look different.
    """

    sizes: tuple[int, ...]
    epochs: int
    penalty: float
    starts: int
    learnt: bool
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
    penalised = False

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


class Grown(Choice):
    """A coreset of the pool that grows from size to size."""

    def subsets(self, row: SummaryRow, job: Job, tasks: Tasks, sizes: Sizes) -> Iterator[Subset]:
        pool = tasks[0].train
        kernel = stored(row.problem.kernel, row.recipe.precision, pool, job.device)
        data = Dataset(kernel, pool.y)
        coreset: Coreset | None = None
        for size in sizes:
            coreset = self.grown(data, size, row.recipe, job.seed, coreset)
            yield Subset(pool[coreset.indices], coreset.weights, coreset.indices)

    @abstractmethod
    def grown(self, data: Dataset, size: int, recipe: Recipe, seed: int, before: Any) -> Coreset:
        """A coreset of this size that continues the one ``before``, if there is one."""


@dataclass(frozen=True)
class CrossEntropyChoice(Grown):
    """The paper's, which begins with random points."""

    penalised = True

    def grown(self, data: Dataset, size: int, recipe: Recipe, seed: int, before: Any) -> Coreset:
        weights = {"weighting": "learned" if recipe.learnt else "uniform", "optimiser": Adam()}
        loss = {"loss": "cross-entropy", "inner_reg": PerPoint(recipe.penalty)}
        selector = greedy_selector(kernel="precomputed", candidates=200, **loss, **weights)
        starts = min(recipe.starts, size)
        drawn = np.random.default_rng(seed).choice(len(data.x), starts, replace=False).tolist()
        first = drawn if before is None else before
        return selector.select(
            data, size, initial=first, random_state=seed, **on_the_host().keywords
        )


@dataclass(frozen=True)
class SquaredChoice(Grown):
    """By squared errors, as the library has it unless told otherwise."""

    def grown(self, data: Dataset, size: int, recipe: Recipe, seed: int, before: Any) -> Coreset:
        selector = greedy_selector(kernel="precomputed")
        return selector.select(
            data, size, initial=() if before is None else before, **on_the_host().keywords
        )


@dataclass(frozen=True, kw_only=True)
class SummaryRow(Row):
    """Summaries of several sizes, by each of which a network is trained and judged."""

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
        checkpoint = middle_of(self, job, kind, self.recipe.penalty, KEPT_EPOCHS)
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
    course: Course[Any] = Course(learners, checkpoint, begun=begun)
    course.resume()
    course.place.picking = picking
    course.train(max(row.recipe.epochs - LAST, 0))
    found = _last_scores(learners, tasks[0], job, min(LAST, row.recipe.epochs))
    spent = {
        **course.spent(len(sizes)),
        "epochs": row.recipe.epochs,
        **({"lambda": row.recipe.penalty} if row.choice.penalised else {}),
    }
    # a point whose weight is zero leaves
    for size, one, (test, held) in zip(sizes, subsets, found, strict=True):
        scores = {"test": [test], "held": [held]}
        yield float(size), {**scores, **spent, "picks": one.rows.tolist(), **one.facts}
    course.end()


@lru_cache(maxsize=1)
def stored(
    kernel: Callable[[], Kernel], precision: torch.dtype, pool: Part, device: str
) -> np.ndarray:
    """The kernel of the pool, computed by the first process that asks; the small steps of a
    selection are taken on the host."""
    content = hashlib.sha256(np.ascontiguousarray(pool.x).tobytes()).hexdigest()[:16]
    kind = str(precision).split(".")[-1]
    path = checkpoint_folder() / f"kernel-{kernel.__name__}-{kind}-{content}.pt"
    found = once(path, lambda: {"kernel": kernel()(tensors(pool, device)[0].to(precision)).cpu()})
    matrix: np.ndarray = found["kernel"].double().numpy()
    return matrix


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


def _last_scores(learners: Cohort[Learner], task: Task, job: Job, epochs: int) -> list[list[float]]:
    """Accuracy on test and held-out points of each learner, averaged over so many more epochs."""
    found = []
    for _ in range(epochs):
        learners.train(1)
        parts = [task.test, task.held]
        found.append(
            [accuracy(learner.network, parts, job.device, job.fast) for learner in learners]
        )
    scores: list[list[float]] = np.mean(found, 0).tolist()
    return scores

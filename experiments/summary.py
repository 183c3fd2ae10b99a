"""MNIST in 75 … 250 points for the CNN (figure 3a)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from bicore import BilevelSelector, Context, Coreset, Dataset, PerPoint, Runtime
from bicore.bilevel import Adam
from bicore.kernels import cnn
from experiments.networks import ConvNet
from experiments.settings import Setting
from experiments.tasks import Part, Task
from experiments.training import Cohort, Learner, accuracy, build, tensors

SIZES = tuple(range(75, 251, 25))
#: Images the coresets are chosen from; uniform samples come from all of them.
POOL, EPOCHS, LAMBDA, STARTS = 10_000, 4000, 1e-7, 10
METHODS = {"Uniform": "uniform", "Coreset": "coreset"}
OWN = {"Coreset, squared error": "squared"}
#: Accuracy is averaged over this many last epochs.
LAST = 5


def setting_of(method: str, seed: int) -> Setting:
    """The size varies."""
    return Setting("MNIST", method, 0, seed, tuple(float(size) for size in SIZES), (10.0, 14.0), "memory")


def run(
    setting: Setting, word: str, tasks: Sequence[Task], betas: Sequence[float], device: str, everything: Part, epochs: int = EPOCHS
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Results for each size; one selection, grown from size to size, serves all."""
    start, task, subsets = time.perf_counter(), tasks[0], []
    sizes = sorted(int(beta) for beta in betas)
    coreset: Coreset | None = None
    for size in sizes:
        if word == "uniform":  # from all images, as in the paper
            rows = np.random.default_rng(setting.seed).permutation(len(everything))[:size]
            subsets.append((everything[rows], np.ones(size), rows))
        else:
            coreset = chosen(word, task.train, size, setting.seed, device, coreset, min(STARTS, size))
            subsets.append((task.train[coreset.indices], coreset.weights, coreset.indices))
    picking = time.perf_counter() - start
    learners = Cohort([_learner(points, weights, setting.seed, device, epochs) for points, weights, _ in subsets])
    found = _last_scores(learners, task, device, epochs)
    spent = {"selection_seconds": picking / len(subsets), "seconds": (time.perf_counter() - start) / len(subsets)}
    spent |= {"epochs": epochs, "precision": learners.precision}
    for size, (_, _, rows), (test, held) in zip(sizes, subsets, found, strict=True):  # a point whose weight is zero leaves
        yield float(size), {"test": [test], "held": [held], **spent, "picks": rows.tolist()}


def chosen(word: str, pool: Part, size: int, seed: int, device: str, before: Coreset | None, starts: int) -> Coreset:
    """A coreset of the pool, continuing a smaller one; the paper's begins with ten random points and learns weights by Adam."""
    context = Context(runtime=Runtime("cpu", threads=1, progress=False))
    data = Dataset(stored(pool, device), pool.y)
    if word == "squared":
        return BilevelSelector(kernel="precomputed").select(data, size, initial=() if before is None else before, context=context)
    selector = BilevelSelector(
        kernel="precomputed", loss="cross-entropy", inner_reg=PerPoint(LAMBDA), weights="learnt", candidates=200, optimiser=Adam()
    )
    first: Any = np.random.default_rng(seed).choice(len(pool), starts, replace=False).tolist() if before is None else before
    return selector.select(data, size, initial=first, rng=seed, context=context)


@lru_cache(maxsize=1)
def stored(pool: Part, device: str) -> np.ndarray:
    """The kernel of the pool, computed once; the small steps of a selection are taken on the host."""
    matrix: np.ndarray = cnn()(tensors(pool, device)[0].double()).cpu().numpy()
    return matrix


def _learner(points: Part, weights: np.ndarray, seed: int, device: str, epochs: int) -> Learner:
    learner = Learner(build(ConvNet, seed, device), 0.0, len(points), 1, epochs, seed=seed)
    learner.take(*tensors(points, device), torch.from_numpy(weights / weights.mean()).float().to(device))
    return learner


def _last_scores(learners: Cohort, task: Task, device: str, epochs: int) -> list[list[float]]:
    """Accuracy on test and held-out points of each learner, averaged over the last epochs."""
    learners.train(max(epochs - LAST, 0))
    found = []
    for _ in range(min(LAST, epochs)):
        learners.train(1)
        found.append([accuracy(learner.network, [task.test, task.held], device) for learner in learners])
    scores: list[list[float]] = np.mean(found, 0).tolist()
    return scores

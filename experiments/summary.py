"""MNIST in 75 … 250 points for the CNN (figure 3a), CIFAR-10 in 30 … 210 for the ResNet-18 (figure
3c)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from bicore import BilevelSelector, Context, Coreset, Dataset, Kernel, PerPoint, Runtime
from bicore.bilevel import Adam
from bicore.kernels import cnn, resnet18
from experiments.checkpoints import Checkpoint, checkpoint_folder, once
from experiments.courses import Course
from experiments.networks import ConvNet, Network, ResNet18
from experiments.settings import Setting
from experiments.tasks import Part, Task
from experiments.training import BATCH, RATE, Cohort, Learner, accuracy, build, tensors

METHODS = {"Uniform": "uniform", "Coreset": "coreset"}
OWN = {"Coreset, squared error": "squared"}
#: Images of the pool that coresets come from; the last epochs over which accuracy is averaged.
POOL = 10_000
LAST = 5


@dataclass(frozen=True)
class Recipe:
    """How a summary is chosen and judged.

    Coresets come from a pool, uniform samples from all images. ``starts`` random points begin;
    weights are learnt by Adam where the paper learns them. Where ``rows`` an epoch are more than
    the points, these are repeated; each time they look different.
    """

    sizes: tuple[int, ...]
    epochs: int
    penalty: float
    starts: int
    learnt: bool
    network: Callable[[], Network]
    kernel: Callable[[], Kernel]
    rate: float = RATE
    decay: float = 0.0
    rows: int = 0
    precision: torch.dtype = torch.float64  # of the kernel
    batch: int = BATCH


#: Of CIFAR-10: six passes over sixty thousand images, whatever the size; here sixty over six
#: thousand.
RECIPES = {
    "MNIST": Recipe(tuple(range(75, 251, 25)), 4000, 1e-7, 10, True, ConvNet, cnn),
    "CIFAR-10": Recipe(
        tuple(range(30, 211, 30)),
        60,
        1e-4,
        10,
        False,
        ResNet18,
        resnet18,
        5e-5,
        1e-4,
        6000,
        torch.float32,
        64,
    ),
}


def setting_of(method: str, seed: int, dataset: str = "MNIST") -> Setting:
    """The size varies."""
    return Setting(
        dataset,
        method,
        0,
        seed,
        tuple(float(size) for size in RECIPES[dataset].sizes),
        (10.0, 14.0),
        "memory",
    )


def run(
    setting: Setting,
    word: str,
    tasks: Sequence[Task],
    betas: Sequence[float],
    device: str,
    everything: Part,
    recipe: Recipe | None = None,
    checkpoint: Checkpoint | None = None,
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Results for each size; one selection, grown from size to size, serves all."""
    recipe = recipe or RECIPES[setting.dataset]
    begun = time.perf_counter()
    task = tasks[0]
    sizes = sorted(int(beta) for beta in betas)
    subsets = list(_subsets(word, recipe, task, everything, sizes, setting.seed, device))
    picking = time.perf_counter() - begun
    learners = Cohort(
        [_learner(recipe, points, weights, setting.seed, device) for points, weights, _ in subsets]
    )
    course: Course[Any] = Course(learners, checkpoint, begun=begun)
    course.resume()
    course.place.picking = picking
    course.train(max(recipe.epochs - LAST, 0))
    found = _last_scores(learners, task, device, min(LAST, recipe.epochs))
    spent = {
        **course.spent(len(sizes)),
        "epochs": recipe.epochs,
        **({"lambda": recipe.penalty} if word == "coreset" else {}),
    }
    # a point whose weight is zero leaves
    for size, (_, _, rows), (test, held) in zip(sizes, subsets, found, strict=True):
        yield float(size), {"test": [test], "held": [held], **spent, "picks": rows.tolist()}
    course.end()


def _subsets(
    word: str,
    recipe: Recipe,
    task: Task,
    everything: Part,
    sizes: Sequence[int],
    seed: int,
    device: str,
) -> Iterator[tuple[Part, np.ndarray, np.ndarray]]:
    """Points, weights and rows of each size: uniform samples of all images, as in the paper, or one
    coreset that grows."""
    coreset: Coreset | None = None
    for size in sizes:
        if word == "uniform":
            rows = np.random.default_rng(seed).permutation(len(everything))[:size]
            yield everything[rows], np.ones(size), rows
        else:
            coreset = chosen(word, recipe, task.train, size, seed, device, coreset)
            yield task.train[coreset.indices], coreset.weights, coreset.indices


def chosen(
    word: str, recipe: Recipe, pool: Part, size: int, seed: int, device: str, before: Coreset | None
) -> Coreset:
    """A coreset of the pool, continuing a smaller one; the paper's begins with random points."""
    context = Context(runtime=Runtime("cpu", threads=1, progress=False))
    data = Dataset(stored(recipe.kernel, recipe.precision, pool, device), pool.y)
    if word == "squared":
        return BilevelSelector(kernel="precomputed").select(
            data, size, initial=() if before is None else before, context=context
        )
    selector = BilevelSelector(
        kernel="precomputed",
        loss="cross-entropy",
        inner_reg=PerPoint(recipe.penalty),
        candidates=200,
        weights="learnt" if recipe.learnt else "binary",
        optimiser=Adam(),
    )
    drawn = (
        np.random.default_rng(seed)
        .choice(len(pool), min(recipe.starts, size), replace=False)
        .tolist()
    )
    first: Any = drawn if before is None else before
    return selector.select(data, size, initial=first, rng=seed, context=context)


@lru_cache(maxsize=1)
def stored(
    kernel: Callable[[], Kernel], precision: torch.dtype, pool: Part, device: str
) -> np.ndarray:
    """The kernel of the pool, computed by the first process that asks; the small steps of a
    selection are taken on the host."""
    content = hashlib.sha256(np.ascontiguousarray(pool.x).tobytes()).hexdigest()[:16]
    path = (
        checkpoint_folder()
        / f"kernel-{kernel.__name__}-{str(precision).split('.')[-1]}-{content}.pt"
    )
    found = once(path, lambda: {"kernel": kernel()(tensors(pool, device)[0].to(precision)).cpu()})
    matrix: np.ndarray = found["kernel"].double().numpy()
    return matrix


def _learner(recipe: Recipe, points: Part, weights: np.ndarray, seed: int, device: str) -> Learner:
    """The points again and again, until an epoch is long enough."""
    rows = np.resize(np.arange(len(points)), max(len(points), recipe.rows))
    network = build(recipe.network, seed, device)
    learner = Learner(
        network, 0.0, len(rows), 1, recipe.epochs, recipe.batch, recipe.rate, seed, recipe.decay
    )
    learner.take(
        *tensors(points[rows], device),
        torch.from_numpy((weights / weights.mean())[rows]).float().to(device),
    )
    return learner


def _last_scores(learners: Cohort, task: Task, device: str, epochs: int) -> list[list[float]]:
    """Accuracy on test and held-out points of each learner, averaged over so many more epochs."""
    found = []
    for _ in range(epochs):
        learners.train(1)
        found.append(
            [accuracy(learner.network, [task.test, task.held], device) for learner in learners]
        )
    scores: list[list[float]] = np.mean(found, 0).tolist()
    return scores

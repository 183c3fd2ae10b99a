"""Variational continual learning with coresets (section 6.2): 20 points a task, withheld from
training and refined on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from bicore import Selector
from bicore.selectors import as_selector
from experiments.selectors import context_of, selector_of
from experiments.settings import Setting
from experiments.tasks import Part, Task
from experiments.vcl import Training, VariationalLearner

#: Of MNIST's pixels, by which they come standardised.
MEAN = 0.1307
DEVIATION = 0.3081
SIZES = (784, 256, 256, 10)
CORESET = 20
METHODS = {
    "k-center": "k-center-features",
    "Uniform": "uniform",
    "Coreset": "coreset",
    "Coreset RBF": "coreset-rbf",
}
OWN = {"Coreset, squared error": "coreset-squared"}


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: epochs a task and of the refining, the prior's deviation, pixels
    from 0 to 1 or standardised, and the weights of the divergence that are tried in every run; with
    a thousand points the bound itself (weight 1) is ruled by the prior.
    """

    epochs: int
    prior: float
    unit_pixels: bool
    penalties: tuple[float, ...]


#: The paper leaves the training open. These were found with uniform coresets by accuracy on
#: held-out points: for PermMNIST (seed 0) among 100 and 300 epochs, priors of 0.1 to 1 and both
#: kinds of pixels, and then twice the epochs that were best; for SplitMNIST (seeds 0 and 1) among
#: 50 to 300 epochs, where 600 turned out to forget much more.
RECIPES = {
    "PermMNIST": Recipe(600, 0.1, True, (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)),
    "SplitMNIST": Recipe(200, 1.0, False, (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)),
}


def setting_of(dataset: str, method: str, seed: int) -> Setting:
    """The weight of the divergence is what is tried."""
    return Setting(dataset, method, CORESET, seed, RECIPES[dataset].penalties, (0.1,), "penalty")


def run(
    setting: Setting,
    word: str,
    tasks: Sequence[Task],
    betas: Sequence[float],
    device: str,
    epochs: int | None = None,
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Results for each weight of the divergence, which train as one stack."""
    recipe = RECIPES[setting.dataset]
    epochs = recipe.epochs if epochs is None else epochs
    start = time.perf_counter()
    training = Training(epochs, penalties=tuple(betas))
    selector = _selector(word, setting.dataset, device)
    learner = VariationalLearner(
        SIZES,
        selector,
        setting.memory,
        training,
        training,
        setting.seed,
        device,
        recipe.prior,
        unit_pixels if recipe.unit_pixels else as_they_are,
    )
    for task in tasks:
        learner.add_task(task.train.x, task.train.y, context_of(selector, None, device))
    found = {
        kind: np.stack([_right(learner, getattr(task, kind)) for task in tasks], 1)
        for kind in ("test", "held")
    }
    seconds = (time.perf_counter() - start) / len(betas)
    for number, penalty in enumerate(betas):
        result = {kind: found[kind][number].tolist() for kind in found}
        yield (
            penalty,
            {
                **result,
                "epochs": epochs,
                "prior": recipe.prior,
                "unit_pixels": recipe.unit_pixels,
                "seconds": seconds,
            },
        )


def unit_pixels(x: Tensor) -> Tensor:
    """From 0 to 1 again."""
    return x * DEVIATION + MEAN


def as_they_are(x: Tensor) -> Tensor:
    return x


def _selector(word: str, dataset: str, device: str) -> Selector:
    return selector_of(word, dataset, device) if word.startswith("coreset") else as_selector(word)


def _right(learner: VariationalLearner, part: Part) -> np.ndarray:
    """The share of right answers of every copy."""
    right: np.ndarray = np.mean(learner.predict(part.x).argmax(-1).numpy() == part.y, 1)
    return right

"""Variational continual learning with coresets (section 6.2): 20 points a task, withheld from training and refined on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bicore import Selector
from bicore.selection import as_selector
from experiments.continual import context_of, selector_of
from experiments.settings import Setting
from experiments.tasks import Part, Task
from experiments.vcl import Training, VariationalLearner

SIZES, CORESET = (784, 256, 256, 10), 20
METHODS = {"k-center": "k-center-features", "Uniform": "uniform", "Coreset": "coreset", "Coreset RBF": "coreset-rbf"}
OWN = {"Coreset, squared error": "coreset-squared"}
#: The paper leaves the training open. Epochs of a task and of the refining are fixed; what is tried is the weight of the
#: divergence: with a thousand points the bound itself (weight 1) is ruled by the prior.
EPOCHS, PENALTIES = 200, (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
#: The paper does not say how many points a task had; these rows have ten times as many as its other experiments.
LARGE = {"Uniform, 10 000 points a task": "uniform", "Coreset, 10 000 points a task": "coreset"}
LARGE_POINTS, LARGE_EPOCHS, LARGE_PENALTIES = 10_000, 40, (1.0, 0.1, 0.01)


def setting_of(dataset: str, method: str, seed: int) -> Setting:
    """The weight of the divergence is what is tried."""
    penalties = LARGE_PENALTIES if method in LARGE else PENALTIES
    return Setting(dataset, method, CORESET, seed, penalties, (0.1,), "penalty")


def run(
    setting: Setting, word: str, tasks: Sequence[Task], betas: Sequence[float], device: str, epochs: int = EPOCHS
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Results for each weight of the divergence, which train as one stack."""
    start, training = time.perf_counter(), Training(epochs, penalties=tuple(betas))
    selector = _selector(word, setting.dataset, device)
    learner = VariationalLearner(SIZES, selector, setting.memory, training, training, setting.seed, device)
    for task in tasks:
        learner.add_task(task.train.x, task.train.y, context_of(selector, None, device))
    found = {kind: np.stack([_right(learner, getattr(task, kind)) for task in tasks], 1) for kind in ("test", "held")}
    seconds = (time.perf_counter() - start) / len(betas)
    for number, penalty in enumerate(betas):
        yield penalty, {**{kind: found[kind][number].tolist() for kind in found}, "epochs": epochs, "seconds": seconds}


def _selector(word: str, dataset: str, device: str) -> Selector:
    return selector_of(word, dataset, device) if word.startswith("coreset") else as_selector(word)


def _right(learner: VariationalLearner, part: Part) -> np.ndarray:
    """The share of right answers of every copy."""
    right: np.ndarray = np.mean(learner.predict(part.x).argmax(-1).numpy() == part.y, 1)
    return right

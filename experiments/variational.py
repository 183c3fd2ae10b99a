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
#: Epochs of a task and of the refining; the paper leaves them open, and they are chosen on held-out points.
EPOCHS = (100, 200)


def setting_of(dataset: str, method: str, seed: int) -> Setting:
    """The number of epochs is what is tried."""
    return Setting(dataset, method, CORESET, seed, tuple(float(epochs) for epochs in EPOCHS), (1.0,), "epochs")


def run(
    setting: Setting, word: str, tasks: Sequence[Task], betas: Sequence[float], device: str
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Results for each number of epochs."""
    for epochs in betas:
        start, training = time.perf_counter(), Training(int(epochs))
        selector = _selector(word, setting.dataset, device)
        learner = VariationalLearner(SIZES, selector, setting.memory, training, training, setting.seed, device)
        for task in tasks:
            learner.add_task(task.train.x, task.train.y, context_of(selector, None, device))
        result = {kind: [_right(learner, getattr(task, kind)) for task in tasks] for kind in ("test", "held")}
        yield epochs, {**result, "seconds": time.perf_counter() - start}


def _selector(word: str, dataset: str, device: str) -> Selector:
    return selector_of(word, dataset, device) if word.startswith("coreset") else as_selector(word)


def _right(learner: VariationalLearner, part: Part) -> float:
    return float(np.mean(learner.predict(part.x).argmax(1).numpy() == part.y))

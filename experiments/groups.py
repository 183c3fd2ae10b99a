"""Runs that share everything but β, as one group: what an experiment is made of.

Each function here makes the group of one row and seed; :mod:`experiments.mnist_tables` and
:mod:`experiments.cifar_tables` call them for the rows of every table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments import (
    cifar,
    continual,
    penalties,
    picks,
    runtime,
    streaming,
    summary,
    training,
    variational,
)
from experiments.checkpoints import Checkpoint, checkpoint_folder
from experiments.networks import NORMALISED, TOYS
from experiments.records import file_name
from experiments.selectors import LAMBDA
from experiments.settings import Setting
from experiments.tasks import Task

PAPER: dict[str, Any] = json.loads(Path(__file__).with_name("paper.json").read_text())
#: What a toy has less of: rows of memory, rows a batch of a stream.
QUICK_SHARE = 10
QUICK_BATCH = 24
#: Data sets whose runs are long enough to be kept in the middle: so often in a task, every so many
#: epochs of a summary or batches.
LONG = (cifar.DATASET, "CIFAR-10")
TASK_PARTS = 4
SUMMARY_EPOCHS = 10
BATCHES = 8
#: In the names of rows whose network is normalised.
NORMALISED_WORDS = "normalised network"
Number = dict[str, float]
Results = Iterator[tuple[float, dict[str, Any]]]


@dataclass(frozen=True)
class Group:
    """Runs that share everything but β: a setting, and a function that gives the result of each β
    asked for.

    ``source`` names the experiment and the method under which these very runs are recorded already.
    """

    setting: Setting
    run: Callable[[Setting, Sequence[Task], Sequence[float], str, bool], Results]
    tasks: str
    paper: Number | None
    source: tuple[str, str] | None = None


def continual_runs(
    dataset: str,
    method: str,
    word: str | None,
    memory: int,
    seed: int,
    paper: Number | None,
    betas: Sequence[float] = continual.BETAS,
    epochs: int = training.EPOCHS,
    penalty: float = LAMBDA,
) -> Group:
    setting = _with_quick(continual.setting_of(dataset, method, memory, seed, betas))

    def run(
        setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool
    ) -> Results:
        if quick:
            return continual.run(setting, word, made, betas, device, 1, TOYS[dataset])
        checkpoint = (
            _checkpoint(setting, f"{epochs}", penalty, max(1, epochs // TASK_PARTS))
            if dataset in LONG
            else None
        )
        network = NORMALISED[dataset] if NORMALISED_WORDS in method else None
        return continual.run(
            setting, word, made, betas, device, epochs, network, checkpoint, penalty
        )

    return Group(setting, run, dataset, paper)


def _with_quick(setting: Setting) -> Setting:
    """A toy needs a β even where none has been chosen."""
    return replace(setting, quick=(1.0,)) if math.isnan(setting.betas[0]) else setting


def _checkpoint(setting: Setting, kind: str, penalty: float, every: int) -> Checkpoint:
    """Beside nothing that is kept: a folder of this run for as long as it lasts, and what all runs
    of a seed begin with."""
    kind = f"{kind}-{'fast' if training.FAST else 'float32'}"
    name = file_name(
        f"{setting.dataset}-{setting.method}-{setting.memory}-{setting.seed}-{penalty:g}-{kind}"
    )
    start = f"start-{setting.dataset}-{'normalised-' * (NORMALISED_WORDS in setting.method)}{setting.seed}-{kind}.pt"
    folder = checkpoint_folder()
    return Checkpoint(folder / name, every, folder / start)


def streaming_runs(
    dataset: str,
    method: str,
    word: str,
    memory: int,
    seed: int,
    paper: Number | None,
    imbalanced: bool = False,
    betas: Sequence[float] = streaming.BETAS,
    flow: streaming.Flow | None = None,
) -> Group:
    setting = _with_quick(streaming.setting_of(dataset, method, memory, seed, betas))
    if flow is None:
        flow = (
            streaming.Flow(slots=1, penalty=streaming.IMBALANCED_LAMBDA)
            if imbalanced
            else streaming.Flow()
        )

    def run(
        setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool
    ) -> Results:
        if quick:
            toy = replace(flow, steps=1, rows=QUICK_BATCH)
            return streaming.run(setting, word, made, betas, device, toy, 1, TOYS[dataset])
        kind = f"{'imbalanced' if imbalanced else 'balanced'}-{flow.steps}"
        checkpoint = _checkpoint(setting, kind, flow.penalty, BATCHES) if dataset in LONG else None
        return streaming.run(setting, word, made, betas, device, flow, checkpoint=checkpoint)

    return Group(setting, run, f"{dataset} imbalanced" if imbalanced else dataset, paper)


def variational_runs(
    dataset: str, method: str, word: str, seed: int, paper: Number | None
) -> Group:
    setting = variational.setting_of(dataset, method, seed)

    def run(
        setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool
    ) -> Results:
        return variational.run(setting, word, made, betas, device, 1 if quick else None)

    return Group(setting, run, dataset, paper)


def summary_runs(method: str, word: str, seed: int, dataset: str = "MNIST") -> Group:
    setting = summary.setting_of(method, seed, dataset)
    recipe = summary.RECIPES[dataset]
    toy = replace(recipe, epochs=6, rows=0, network=TOYS[f"Split{dataset}"])

    def run(
        setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool
    ) -> Results:
        if quick:
            return summary.run(setting, word, made, betas, device, made[1].train, toy)
        kind = f"{recipe.epochs}-" + ",".join(f"{size:g}" for size in betas)
        checkpoint = (
            _checkpoint(setting, kind, recipe.penalty, SUMMARY_EPOCHS) if dataset in LONG else None
        )
        return summary.run(setting, word, made, betas, device, made[1].train, recipe, checkpoint)

    return Group(setting, run, f"pool of {dataset}", None)


def runtime_runs(method: str) -> Group:
    setting = runtime.setting_of(method)

    def run(
        setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool
    ) -> Results:
        return runtime.run(setting, made, device, *(((5,), 12) if quick else ()))

    return Group(setting, run, f"pool of {setting.dataset}", None)


def penalty_runs(method: str, word: str) -> Group:
    setting = penalties.setting_of(cifar.DATASET, method)

    def run(
        setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool
    ) -> Results:
        return penalties.run(setting, word, made, betas, device)

    return Group(setting, run, cifar.DATASET, None)


def picks_runs(method: str, seed: int) -> Group:
    setting = picks.setting_of(method, seed)

    def run(
        setting: Setting, made: Sequence[Task], betas: Sequence[float], device: str, quick: bool
    ) -> Results:
        return picks.run(setting, made, device)

    return Group(setting, run, "pool of MNIST", None)


def published(name: str, method: str, dataset: str) -> Number | None:
    found: Number | None = PAPER[name].get(method, {}).get(dataset)
    return found

"""Every experiment of the paper by name, and the data it runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bicore import InputError
from experiments import cifar, cifar_tables, mnist_tables, summary, tasks
from experiments.groups import Group
from experiments.tasks import Part, Task

#: Points a task of a toy.
QUICK_POINTS = 36


@dataclass(frozen=True)
class Experiment:
    """One table of the paper."""

    name: str
    title: str
    groups: Callable[[int], list[Group]]  # of a seed


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "continual",
            "Continual learning with a memory of 100 (table 1 and the appendix)",
            mnist_tables.continual_rows,
        ),
        Experiment(
            "traps",
            "Continual learning, rivals as the authors' code runs them",
            mnist_tables.trap_rows,
        ),
        Experiment("memory", "Memory sizes on SplitMNIST", mnist_tables.memory_rows),
        Experiment("proxy", "An RBF kernel as the proxy", mnist_tables.proxy_rows),
        Experiment(
            "vcl", "Variational continual learning, 20 points a task", mnist_tables.variational_rows
        ),
        Experiment(
            "streaming", "Streams with a memory of 100 (figure 4)", mnist_tables.streaming_rows
        ),
        Experiment(
            "streaming-fresh",
            "Streams with a fresh optimiser a batch, as the authors' code has it",
            mnist_tables.fresh_rows,
        ),
        Experiment(
            "imbalanced", "An imbalanced stream of SplitMNIST", mnist_tables.imbalanced_rows
        ),
        Experiment(
            "imbalanced-fresh",
            "The imbalanced stream with a fresh optimiser a batch",
            mnist_tables.imbalanced_fresh_rows,
        ),
        Experiment(
            "summary", "MNIST in 75 … 250 points for the CNN (figure 3a)", mnist_tables.summary_rows
        ),
        Experiment(
            "picks",
            "The 40 picks of figure 5 and what the paper says of them",
            mnist_tables.picks_rows,
        ),
        Experiment(
            "runtime", "Seconds of kernels and coresets of 1000 points", mnist_tables.runtime_rows
        ),
        Experiment(
            "cifar-penalty",
            "SplitCIFAR-10: λ by the proxy's held-out loss",
            cifar_tables.penalty_rows,
        ),
        Experiment(
            "cifar-betas",
            "SplitCIFAR-10: β by held-out points, one seed, fewer epochs",
            cifar_tables.beta_rows,
        ),
        Experiment(
            "cifar-stream-betas",
            "Streams of SplitCIFAR-10: β by held-out points, fewer steps",
            cifar_tables.stream_beta_rows,
        ),
        Experiment(
            "cifar-imbalanced",
            "An imbalanced stream of SplitCIFAR-10",
            cifar_tables.imbalanced_rows,
        ),
        Experiment(
            "cifar-continual",
            "Continual learning on SplitCIFAR-10 with a memory of 200",
            cifar_tables.continual_rows,
        ),
        Experiment(
            "cifar-streaming", "A balanced stream of SplitCIFAR-10", cifar_tables.streaming_rows
        ),
        Experiment(
            "cifar-summary",
            "CIFAR-10 in 30 … 210 points for the ResNet-18 (figure 3c)",
            cifar_tables.summary_rows,
        ),
        Experiment(
            "cifar-proxy", "An RBF kernel as the proxy on SplitCIFAR-10", cifar_tables.proxy_rows
        ),
    )
}


class Data:
    """The tasks of each kind, made once."""

    def __init__(self, folder: str | None, quick: bool) -> None:
        self.folder = None if quick else folder
        self.quick = quick
        if self.folder is not None and not any(
            (Path(self.folder) / name).exists() for name in ("MNIST", "cifar-10-batches-py")
        ):
            raise InputError(
                f"{self.folder} holds neither MNIST nor cifar-10-batches-py; give the folder that "
                "torchvision fills."
            )
        self._made: dict[str, list[Task]] = {}
        self._loaded: dict[str, tuple[Part, Part]] = {}

    def tasks(self, kind: str) -> list[Task]:
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _source(self, name: str) -> tuple[Part, Part]:
        if name not in self._loaded:
            train, test = tasks.load(self.folder, name)
            self._loaded[name] = (train, test[:60] if self.quick else test)
        return self._loaded[name]

    def _make(self, kind: str) -> list[Task]:
        few = QUICK_POINTS
        train, test = self._source("CIFAR-10" if "CIFAR" in kind else "MNIST")
        if kind in (*mnist_tables.DATASETS, cifar.DATASET):
            make = tasks.permuted if kind == "PermMNIST" else tasks.split
            return make(train, test, 2, few) if self.quick else make(train, test)
        # a pool, what is held out, and behind it a task of everything else
        if kind.startswith("pool"):
            size, rest = (
                (few, 2 * few) if self.quick else (summary.POOL, summary.POOL + tasks.POINTS)
            )
            held = train[size:rest]
            whole = Part(
                np.concatenate([train.x[:size], train.x[rest:]]),
                np.concatenate([train.y[:size], train.y[rest:]]),
            )
            return [Task(train[:size], held, test), Task(whole, held, test)]
        return (
            tasks.split(train, test, 2, (few // 2, 2 * few))
            if self.quick
            else tasks.split(train, test, points=tasks.IMBALANCED)
        )

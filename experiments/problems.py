"""What is learnt: data under the name they are recorded by, the network trained on them, and the
kernel that stands in for it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np

from bicore import InputError
from bicore.kernels import Kernel, cnn, fully_connected, resnet18
from experiments import tasks
from experiments.networks import CONVOLUTIONAL, FULLY_CONNECTED, RESIDUAL, Architecture
from experiments.tasks import Part, Source, Task

#: Points a task of a toy, tasks, and test points.
QUICK_POINTS = 36
QUICK_TASKS = 2
QUICK_TESTED = 60
#: Images of the pool that summaries come from.
POOL = 10_000


class Arrangement(Enum):
    """How images become tasks."""

    PERMUTED = "their pixels shuffled, for every task in another way"
    SPLIT = "pairs of classes"
    IMBALANCED = "pairs of classes, the last with most of the points"
    POOL = "a pool, and a second task of everything that is not held out"


@dataclass(frozen=True)
class Problem:
    """Images arranged as tasks, with the network and the kernel of the paper's experiments on them.

    ``candidates`` are those of a step of a selection. A problem whose runs are ``long`` has them
    kept in their middle.
    """

    name: str
    source: Source
    arrangement: Arrangement
    network: Architecture
    kernel: Callable[[], Kernel]
    candidates: int = 200
    long: bool = False

    @property
    def imbalanced(self) -> bool:
        return self.arrangement is Arrangement.IMBALANCED


PERM_MNIST = Problem(
    "PermMNIST", Source.MNIST, Arrangement.PERMUTED, FULLY_CONNECTED, fully_connected
)
SPLIT_MNIST = Problem("SplitMNIST", Source.MNIST, Arrangement.SPLIT, CONVOLUTIONAL, cnn)
SPLIT_CIFAR = Problem(
    "SplitCIFAR-10", Source.CIFAR, Arrangement.SPLIT, RESIDUAL, resnet18, 600, long=True
)
IMBALANCED_MNIST = replace(SPLIT_MNIST, arrangement=Arrangement.IMBALANCED)
IMBALANCED_CIFAR = replace(SPLIT_CIFAR, arrangement=Arrangement.IMBALANCED)
MNIST_POOL = replace(SPLIT_MNIST, name="MNIST", arrangement=Arrangement.POOL)
CIFAR_POOL = replace(SPLIT_CIFAR, name="CIFAR-10", arrangement=Arrangement.POOL)


class Data:
    """The tasks of every problem, made once."""

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
        self._made: dict[tuple[Source, Arrangement], list[Task]] = {}
        self._loaded: dict[Source, tuple[Part, Part]] = {}

    def tasks(self, problem: Problem) -> list[Task]:
        kind = (problem.source, problem.arrangement)
        if kind not in self._made:
            arrange = _ARRANGED[problem.arrangement]
            self._made[kind] = arrange(*self._images(problem.source), self.quick)
        return self._made[kind]

    def _images(self, source: Source) -> tuple[Part, Part]:
        if source not in self._loaded:
            train, test = tasks.load(self.folder, source)
            self._loaded[source] = (train, test[:QUICK_TESTED] if self.quick else test)
        return self._loaded[source]


def _permuted(train: Part, test: Part, quick: bool) -> list[Task]:
    if quick:
        return tasks.permuted(train, test, QUICK_TASKS, QUICK_POINTS)
    return tasks.permuted(train, test)


def _split(train: Part, test: Part, quick: bool) -> list[Task]:
    if quick:
        return tasks.split(train, test, QUICK_TASKS, QUICK_POINTS)
    return tasks.split(train, test)


def _imbalanced(train: Part, test: Part, quick: bool) -> list[Task]:
    if quick:
        return tasks.split(train, test, QUICK_TASKS, (QUICK_POINTS // 2, 2 * QUICK_POINTS))
    return tasks.split(train, test, points=tasks.IMBALANCED)


def _pool(train: Part, test: Part, quick: bool) -> list[Task]:
    size = QUICK_POINTS if quick else POOL
    rest = size + (QUICK_POINTS if quick else tasks.POINTS)
    held = train[size:rest]
    whole = Part(
        np.concatenate([train.x[:size], train.x[rest:]]),
        np.concatenate([train.y[:size], train.y[rest:]]),
    )
    return [Task(train[:size], held, test), Task(whole, held, test)]


_ARRANGED: dict[Arrangement, Callable[[Part, Part, bool], list[Task]]] = {
    Arrangement.PERMUTED: _permuted,
    Arrangement.SPLIT: _split,
    Arrangement.IMBALANCED: _imbalanced,
    Arrangement.POOL: _pool,
}

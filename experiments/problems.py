"""Learning problems: data, the network trained on them, and the kernel of its proxy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bicore import InputError
from bicore.kernels import Kernel, cnn, fully_connected, resnet18
from experiments import tasks
from experiments.networks import CONVOLUTIONAL, FULLY_CONNECTED, RESIDUAL, Architecture
from experiments.tasks import CIFAR, MNIST, Part, Task

#: Tasks of a toy, points of each, and test points.
QUICK = {"tasks": 2, "points": 36}
QUICK_TESTED = 60
#: Images of the pool that summaries come from.
POOL = 10_000


def arrange_permuted(train: Part, test: Part, quick: bool) -> list[Task]:
    """Pixels are shuffled, for every task in another way."""
    return tasks.permute(train, test, **(QUICK if quick else {}))


def arrange_split(train: Part, test: Part, quick: bool) -> list[Task]:
    """Pairs of classes."""
    return tasks.split(train, test, **(QUICK if quick else {}))


def arrange_imbalanced(train: Part, test: Part, quick: bool) -> list[Task]:
    """Pairs of classes, the last with most of the points."""
    points = (18, 72) if quick else tasks.IMBALANCED
    return tasks.split(train, test, len(points), points)


def arrange_pool(train: Part, test: Part, quick: bool) -> list[Task]:
    """A pool, and a second task of everything that is not held out."""
    size, held = (QUICK["points"],) * 2 if quick else (POOL, tasks.POINTS)
    kept_out = train[size : size + held]
    whole = tasks.join([train[:size], train[size + held :]])
    return [Task(train[:size], kept_out, test), Task(whole, kept_out, test)]


@dataclass(frozen=True)
class Problem:
    """Images arranged as tasks, with the network and the kernel of the paper's experiments on them.

    ``candidates`` are those of a step of a selection. The state of ``long`` runs is saved on the
    way.
    """

    name: str
    source: str
    arrange: Callable[[Part, Part, bool], list[Task]]
    network: Architecture
    kernel: Callable[[], Kernel]
    candidates: int = 200
    long: bool = False

    @property
    def is_imbalanced(self) -> bool:
        return self.arrange is arrange_imbalanced


PERM_MNIST = Problem("PermMNIST", MNIST, arrange_permuted, FULLY_CONNECTED, fully_connected)
SPLIT_MNIST = Problem("SplitMNIST", MNIST, arrange_split, CONVOLUTIONAL, cnn)
SPLIT_CIFAR = Problem("SplitCIFAR-10", CIFAR, arrange_split, RESIDUAL, resnet18, 600, long=True)
IMBALANCED_MNIST = replace(SPLIT_MNIST, arrange=arrange_imbalanced)
IMBALANCED_CIFAR = replace(SPLIT_CIFAR, arrange=arrange_imbalanced)
MNIST_POOL = replace(SPLIT_MNIST, name="MNIST", arrange=arrange_pool)
CIFAR_POOL = replace(SPLIT_CIFAR, name="CIFAR-10", arrange=arrange_pool)


class Data:
    """The tasks of every problem, made once."""

    def __init__(self, folder: str | None, quick: bool) -> None:
        known = ("MNIST", "cifar-10-batches-py")
        if not (quick or any((Path(folder) / name).exists() for name in known)):
            raise InputError(
                f"{folder} holds neither MNIST nor cifar-10-batches-py; give the folder that "
                "torchvision fills."
            )
        self.quick = quick
        self._load = cache(lambda source: tasks.load(None if quick else folder, source))
        self._arrange = cache(lambda arrange, source: arrange(*self._images(source), quick))

    def tasks(self, problem: Problem) -> list[Task]:
        return self._arrange(problem.arrange, problem.source)

    def _images(self, source: str) -> tuple[Part, Part]:
        train, test = self._load(source)
        return train, test[:QUICK_TESTED] if self.quick else test

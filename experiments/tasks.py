"""The paper's sequences of tasks and streams, built from MNIST and CIFAR-10.

Every task has training points as in the paper, as many held-out training points that nothing is
trained on or selected from (by which β is chosen), and the test points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bicore.sources import cifar10, digits, mnist

Array = np.ndarray
POINTS = 1000
BATCH = 125
#: Points of each task in the imbalanced stream.
IMBALANCED = (200, 200, 200, 200, 2000)
#: The names of the sources of images.
MNIST, CIFAR = "MNIST", "CIFAR-10"


@dataclass(frozen=True, eq=False)
class Part:
    """Images (n, channels, height, width) and labels."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Array | slice) -> Part:
        return Part(self.x[rows], self.y[rows])


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained on, what β is chosen on, what is reported."""

    train: Part
    held: Part
    test: Part


def load(folder: str | None, source: str = MNIST) -> list[Part]:
    """Training and test images of a folder; without one, scikit-learn's digits enlarged to their
    size: the toy of ``--quick``."""
    if folder is None:
        return _load_toy(source)
    if source == CIFAR:
        return [Part(*cifar10(folder, part)) for part in ("train", "test")]
    parts = (mnist(folder, part) for part in ("train", "test"))
    return [Part(x.reshape(-1, 1, 28, 28), y) for x, y in parts]


def _load_toy(source: str) -> list[Part]:
    x, y = digits()
    border = 4 if source == CIFAR else 2
    images = np.kron(x.reshape(-1, 1, 8, 8), np.ones((1, 1, 3, 3)))
    framed = np.pad(images, ((0, 0), (0, 0), (border, border), (border, border)))
    images = framed.astype(np.float32) * 2 - 0.4
    images = np.repeat(images, 3, axis=1) if source == CIFAR else images
    return [Part(images[:1200], y[:1200]), Part(images[1200:], y[1200:])]


def permute(train: Part, test: Part, tasks: int = 10, points: int = POINTS) -> list[Task]:
    """The first points with their pixels shuffled, once for every task and also for the first; the
    next ones are held out."""
    order = np.arange(28 * 28)
    rng = np.random.RandomState(0)
    parts = (train[:points], train[points : points + min(points, POINTS)], test)
    made = []
    for _ in range(tasks):
        rng.shuffle(order)
        flat = ((part.x.reshape(len(part), -1)[:, order], part) for part in parts)
        made.append(Task(*(Part(x.reshape(part.x.shape), part.y) for x, part in flat)))
    return made


def split(
    train: Part, test: Part, tasks: int = 5, points: Sequence[int] | int = POINTS
) -> list[Task]:
    """Pairs of classes (0, 1), (2, 3) …; points are drawn with seed 0 and as many others are held
    out."""
    counts = [points] * tasks if isinstance(points, int) else points
    rng = np.random.RandomState(0)
    made = []
    for pair, count in zip(range(tasks), counts, strict=True):
        classes = (2 * pair, 2 * pair + 1)
        rows = rng.permutation(np.flatnonzero(np.isin(train.y, classes)))
        held = rows[count : count + min(count, POINTS)]
        own = test[np.flatnonzero(np.isin(test.y, classes))]
        made.append(Task(train[rows[:count]], train[held], own))
    return made


def join(parts: Sequence[Part]) -> Part:
    return Part(*(np.concatenate([getattr(part, name) for part in parts]) for name in "xy"))


def batches(tasks: Sequence[Task], size: int = BATCH) -> Iterator[Part]:
    """The tasks one after the other in batches; a last part batch is dropped."""
    whole = join([task.train for task in tasks])
    for start in range(0, len(whole) - size + 1, size):
        yield whole[start : start + size]

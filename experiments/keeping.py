"""What tasks are remembered in: a share of the memory for each of them, or one choice over all."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from bicore import Context, ReplayMemory, Selector
from bicore.memory import Buffer
from experiments.selectors import Picker
from experiments.stores import Room, Store
from experiments.tasks import BATCH


class TaskMemory(Protocol):
    """What continual learning asks of a memory."""

    def add_task(self, x: Any, y: Any, *, context: Context) -> None: ...

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]: ...

    def save(self, path: str | os.PathLike[str]) -> Path: ...


class JointMemory:
    """A buffer that is shown one task after the other, in the batches of a stream, and chooses over
    all of them. Its rows are rehearsed equally, as much in sum as a share for every task would be.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    @property
    def tasks(self) -> int:
        """How many there were; the buffer's mark is saved with it."""
        return int(self.buffer.mark.get("tasks", 0))

    def add_task(self, x: Any, y: Any, *, context: Context) -> None:
        for start in range(0, len(x), BATCH):
            rows = slice(start, start + BATCH)
            self.buffer.update(x[rows], y[rows], context=context)
        self.buffer.mark = {"tasks": self.tasks + 1}

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of all rows: the mean of weight·loss is the number of tasks times their mean loss."""
        kept = self.buffer.snapshot()
        assert kept.y is not None
        labels = torch.from_numpy(kept.y.astype("int64"))
        return torch.from_numpy(kept.x), labels, torch.full((len(labels),), float(self.tasks))

    def save(self, path: str | os.PathLike[str]) -> Path:
        return self.buffer.save(path)


class Keeping(ABC):
    """How a row keeps points of its tasks."""

    @property
    def looks(self) -> bool:
        """Whether at the network in training, so that every β needs a memory of its own."""
        return False

    @property
    def penalised(self) -> bool:
        """Whether points are chosen with a proxy that has a λ."""
        return False

    @abstractmethod
    def memory(self) -> TaskMemory:
        """An empty one."""

    @abstractmethod
    def load(self, path: Path) -> TaskMemory:
        """One as it was written."""

    @abstractmethod
    def place(self, device: str) -> str:
        """Where points are chosen."""


@dataclass(frozen=True)
class InShares(Keeping):
    """An equal share for every task, with what the ``picker`` chooses from it."""

    picker: Picker
    selector: Selector
    capacity: int
    seed: int

    @property
    def looks(self) -> bool:
        return self.selector.needs_model

    @property
    def penalised(self) -> bool:
        return self.picker.penalised

    def memory(self) -> TaskMemory:
        return ReplayMemory(self.selector, self.capacity, self.picker.kept, self.seed)

    def load(self, path: Path) -> TaskMemory:
        return ReplayMemory.load(path, self.selector)

    def place(self, device: str) -> str:
        return self.picker.place(device)


@dataclass(frozen=True)
class Jointly(Keeping):
    """What the ``store`` of a stream chooses from all tasks."""

    store: Store
    room: Room

    def memory(self) -> TaskMemory:
        return JointMemory(self.store.buffer(self.room))

    def load(self, path: Path) -> TaskMemory:
        return JointMemory(self.store.load(path, self.room))

    def place(self, device: str) -> str:
        return self.store.place(device)

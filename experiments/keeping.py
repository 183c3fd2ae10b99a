"""What tasks are remembered in: a share of the memory for each of them, or one choice over all."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from bicore import Context, ReplayMemory, Selector
from bicore.memory import JointReplay
from experiments.selectors import Picker
from experiments.stores import ByMoments


class TaskMemory(Protocol):
    """What continual learning asks of a memory."""

    def add_task(self, x: Any, y: Any, *, context: Context) -> None: ...

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]: ...

    def save(self, path: str | os.PathLike[str]) -> Path: ...


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
    """What the ``store`` chooses from all tasks."""

    store: ByMoments
    capacity: int
    seed: int

    def memory(self) -> TaskMemory:
        store = self.store
        return JointReplay(
            self.capacity, store.features, store.rule, prior=store.prior, seed=self.seed
        )

    def load(self, path: Path) -> TaskMemory:
        return JointReplay.load(path)

    def place(self, device: str) -> str:
        return self.store.place(device)

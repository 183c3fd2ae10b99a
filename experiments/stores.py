"""Memories of streams and tasks: the buffers of the tables' rows, and how tasks share a memory."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from bicore import Dataset, MergeReduce, ReplayMemory
from bicore.methods import Selector
from bicore.moments.features.maps import Embedded
from bicore.runtime.context import Context
from bicore.streaming import (
    ClassBalancedReservoir,
    GradientSampling,
    JointReplay,
    MomentMemory,
    Prototypes,
    Reservoir,
)
from bicore.streaming.buffer import Buffer
from experiments.networks import Network
from experiments.problems import Problem
from experiments.selectors import LAMBDA, Picker

#: GSS sees the stream in batches of its own.
GSS_BATCH = 10


@dataclass(frozen=True)
class Room:
    """What a buffer is made for: a problem, so many rows, so many slots where it has some, the λ of
    a proxy, and a seed."""

    problem: Problem
    memory: int
    slots: int
    seed: int
    device: str = "cpu"
    penalty: float = LAMBDA


class Store(ABC):
    """A kind of buffer."""

    #: Whether it looks at the network in training, so that every β needs one of its own.
    looks = False
    #: Whether a file can hold it, so that a run that was cut off goes on.
    restorable = True

    @property
    def penalised(self) -> bool:
        """Whether what it keeps is chosen with a proxy that has a λ."""
        return False

    @abstractmethod
    def buffer(self, room: Room) -> Buffer:
        """An empty one."""

    @abstractmethod
    def load(self, path: Path, room: Room) -> Buffer:
        """One as it was written."""

    def batch(self, rows: int) -> int:
        """Rows it sees at a time, where batches of the stream have so many."""
        return rows

    def place(self, device: str) -> str:
        """Where it works."""
        return device


@dataclass(frozen=True)
class Sampled(Store):
    """A buffer that needs a size and a seed and nothing else."""

    kind: type[Buffer]

    def buffer(self, room: Room) -> Buffer:
        return self.kind(room.memory, room.seed)

    def load(self, path: Path, room: Room) -> Buffer:
        return self.kind.load(path)


@dataclass(frozen=True)
class ByGradients(Sampled):
    """Gradient-based sample selection, in batches of its own."""

    kind: type[Buffer] = GradientSampling
    looks = True

    def batch(self, rows: int) -> int:
        return GSS_BATCH


@dataclass(frozen=True)
class Slots(Store):
    """Merge and reduce, with what the ``picker`` chooses."""

    picker: Picker

    @property
    def penalised(self) -> bool:
        return self.picker.penalised

    def buffer(self, room: Room) -> Buffer:
        selector = self.picker.selector(room.problem, room.device, room.penalty)
        slots = min(room.slots, room.memory)
        return MergeReduce(selector, room.memory, slots, self.picker.kept, room.seed)

    def load(self, path: Path, room: Room) -> Buffer:
        return MergeReduce.load(path, self.picker.selector(room.problem, room.device, room.penalty))

    def place(self, device: str) -> str:
        return self.picker.place(device)


@dataclass(frozen=True)
class ByMoments(Store):
    """Rows chosen by a ``rule`` against the moments of the whole stream.

    Random ``features`` are drawn from the buffer's seed, classes count by the ``prior``, and the
    regulariser is the library's own.
    """

    rule: str = "elimination"
    features: str = "relu"
    prior: str = "data"
    on_host: bool = True

    def buffer(self, room: Room) -> Buffer:
        return MomentMemory(
            room.memory, self.features, self.rule, prior=self.prior, random_state=room.seed
        )

    def load(self, path: Path, room: Room) -> Buffer:
        return MomentMemory.load(path)

    def place(self, device: str) -> str:
        """The host, so that rows are the same wherever networks are trained; deep features would
        take it minutes."""
        return "cpu" if self.on_host else device


@dataclass(frozen=True)
class ByNetwork(Store):
    """Rows chosen against moments of the directions of what the network in training makes of them.

    Its embedding is taken anew after 1, 2, 4, 8, … batches.
    """

    prior: str = "data"
    looks = True
    #: No file holds the networks that its features came from.
    restorable = False

    def buffer(self, room: Room) -> Buffer:
        return Refreshed(room.memory, self.prior, room.seed)

    def load(self, path: Path, room: Room) -> Buffer:
        raise NotImplementedError("features of a network in training are in no file.")


class Refreshed(Buffer):
    """A memory by moments whose features are those of the current network."""

    needs_model = True
    needs_labels = True

    def __init__(self, capacity: int, prior: str, seed: int) -> None:
        super().__init__(capacity, seed)
        self.prior = prior
        self.batches = 0
        self.within: MomentMemory | None = None

    def _take(self, batch: Dataset, context: Context) -> None:
        self.batches += 1
        if self.batches & (self.batches - 1) == 0:
            assert isinstance(context.model, Network)
            features = Embedded(context.model.trunk()).unit()
            self.within = (
                MomentMemory(self.capacity, features, prior=self.prior, random_state=self.seed)
                if self.within is None
                else self.within.with_features(features, runtime=context)
            )
        assert self.within is not None
        self.within.update(batch.x, batch.y, batch.weights, model=context)
        self.kept = self.within.kept

    def _own(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """For what is undone; no file holds it."""
        return {"batches": self.batches, "within": self.within}, {}

    def _load_own(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self.batches, self.within = values["batches"], values["within"]

    def _weights(self) -> np.ndarray:
        assert self.within is not None
        return np.asarray(self.within.snapshot().weights)


RESERVOIR = Sampled(Reservoir)
BALANCED_RESERVOIR = Sampled(ClassBalancedReservoir)
PROTOTYPES = Sampled(Prototypes)
GSS = ByGradients()
#: The library's two rules that suit networks, by what a table calls them.
MOMENTS = {"Moments, elimination": ByMoments(), "Moments, gradient": ByMoments("gradient")}
#: The same as memories of tasks.
JOINT_MOMENTS = {
    "Joint moments, elimination": ByMoments(),
    "Joint moments, gradient": ByMoments("gradient"),
}
#: And in features of images that see what lies beside what.
JOINT_IMAGES = {
    f"{key}, random convolutions": replace(store, features="convolutions")
    for key, store in JOINT_MOMENTS.items()
}
#: The same with every class counted alike, however the stream is mixed.
EQUAL_MOMENTS = {
    f"{key}, equal prior": replace(store, prior="equal") for key, store in MOMENTS.items()
}


class TaskMemory(Protocol):
    """What continual learning asks of a memory."""

    def add_task(self, x: Any, y: Any, *, context: Context) -> None: ...

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]: ...

    def save(self, path: str | os.PathLike[str]) -> Path: ...


@dataclass(frozen=True)
class Keeping:
    """How a row keeps points of its tasks: an empty memory, one as it was written, and the device
    that points are chosen on."""

    memory: Callable[[], TaskMemory]
    load: Callable[[Path], TaskMemory]
    place: Callable[[str], str]
    #: Whether it looks at the network in training, so that every β needs a memory of its own.
    looks: bool = False
    #: Whether points are chosen with a proxy that has a λ.
    penalised: bool = False


def keep_shares(picker: Picker, selector: Selector, capacity: int, seed: int) -> Keeping:
    """An equal share for every task, with what the ``picker`` chooses from it."""
    return Keeping(
        lambda: ReplayMemory(selector, capacity, picker.kept, seed),
        lambda path: ReplayMemory.load(path, selector),
        picker.place,
        selector.needs_model,
        picker.penalised,
    )


def keep_jointly(store: ByMoments, capacity: int, seed: int) -> Keeping:
    """What the ``store`` chooses from all tasks."""
    options = {"prior": store.prior, "random_state": seed}
    return Keeping(
        lambda: JointReplay(capacity, store.features, store.rule, **options),
        JointReplay.load,
        store.place,
    )

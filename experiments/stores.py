"""Memories of streams and tasks for the rows of the tables."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

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
from experiments.problems import Problem
from experiments.selectors import LAMBDA, Picker

#: GSS sees the stream in batches of its own.
GSS_BATCH = 10


@dataclass(frozen=True)
class Room:
    """What a memory is made for: a problem, its rows, its slots if it has some, the λ of a proxy,
    and a seed."""

    problem: Problem
    memory: int
    slots: int
    seed: int
    device: str = "cpu"
    penalty: float = LAMBDA


class Store(ABC):
    """A kind of memory."""

    #: Whether it looks at the network in training, so that every β needs one of its own.
    looks = False
    #: Whether a file can hold it, so that a run that was cut off continues.
    restorable = True
    #: Whether what it keeps is chosen with a proxy that has a λ.
    is_penalised = False

    @abstractmethod
    def make(self, room: Room) -> Any:
        """An empty one."""

    @abstractmethod
    def load(self, path: Path, room: Room) -> Any:
        """One as it was written."""

    def batch(self, rows: int) -> int:
        """Rows it sees at a time, if batches of the stream have this many."""
        return rows

    def place(self, device: str) -> str:
        """Where it works."""
        return device


@dataclass(frozen=True)
class Sampled(Store):
    """A buffer that needs a size and a seed and nothing else."""

    kind: type[Buffer]

    def make(self, room: Room) -> Buffer:
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
class Picked(Store):
    """A memory with what the ``picker`` chooses: an equal share for every task."""

    picker: Picker

    @property
    def looks(self) -> bool:
        return self.picker.looks

    @property
    def is_penalised(self) -> bool:
        return self.picker.is_penalised

    def _selector(self, room: Room) -> Selector:
        return self.picker.selector(room.problem, room.device, room.penalty)

    def make(self, room: Room) -> ReplayMemory:
        return ReplayMemory(
            room.memory, self._selector(room), self.picker.kept_weighting, room.seed
        )

    def load(self, path: Path, room: Room) -> ReplayMemory:
        return ReplayMemory.load(path, self._selector(room))

    def place(self, device: str) -> str:
        return self.picker.place(device)


@dataclass(frozen=True)
class Slots(Picked):
    """Merge and reduce, with what the ``picker`` chooses."""

    def make(self, room: Room) -> MergeReduce:
        options = (min(room.slots, room.memory), self.picker.kept_weighting, room.seed)
        return MergeReduce(room.memory, self._selector(room), *options)

    def load(self, path: Path, room: Room) -> MergeReduce:
        return MergeReduce.load(path, self._selector(room))


@dataclass(frozen=True)
class ByMoments(Store):
    """Rows chosen by a ``rule`` against the moments of a stream, or ``jointly`` of all tasks.

    Random ``features`` are drawn from the memory's seed, classes count by the ``prior``, and the
    regulariser is the library's own.
    """

    rule: str = "elimination"
    features: str = "relu"
    prior: str = "data"
    on_host: bool = True
    jointly: bool = False

    @property
    def kind(self) -> type:
        return JointReplay if self.jointly else MomentMemory

    def make(self, room: Room) -> Any:
        options = {"prior": self.prior, "random_state": room.seed}
        return self.kind(room.memory, self.features, self.rule, **options)

    def load(self, path: Path, room: Room) -> Any:
        return self.kind.load(path)

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

    def make(self, room: Room) -> Buffer:
        return Refreshed(room.memory, self.prior, room.seed)

    def load(self, path: Path, room: Room) -> Buffer:
        raise NotImplementedError("features of a network in training are in no file.")


class Refreshed(Buffer):
    """A memory by moments whose features are those of the current network."""

    needs_model = True
    needs_labels = True
    _own_state = ("batches", "within")

    def __init__(self, capacity: int, prior: str, seed: int) -> None:
        super().__init__(capacity, seed)
        self.prior = prior
        self.batches = 0
        self.within: MomentMemory | None = None

    def _process_batch(self, batch: Dataset, context: Context) -> None:
        self.batches += 1
        if self.batches & (self.batches - 1) == 0:
            features = Embedded(context.model.trunk()).unit()
            options = {"prior": self.prior, "random_state": self.random_state}
            self.within = (
                MomentMemory(self.capacity, features, **options)
                if self.within is None
                else self.within.with_features(features, runtime=context.runtime)
            )
        self.within.update(batch.x, batch.y, batch.weights, runtime=context.runtime)
        self.kept = self.within.kept

    def _weights(self, kept: Dataset) -> np.ndarray:
        return np.asarray(self.within.snapshot().weights)


RESERVOIR = Sampled(Reservoir)
BALANCED_RESERVOIR = Sampled(ClassBalancedReservoir)
PROTOTYPES = Sampled(Prototypes)
GSS = ByGradients()
#: The library's two rules that suit networks, by what a table calls them.
MOMENTS = {"Moments, elimination": ByMoments(), "Moments, gradient": ByMoments("gradient")}
#: The same with every class counted alike, however the stream is mixed.
EQUAL_MOMENTS = {
    f"{key}, equal prior": replace(store, prior="equal") for key, store in MOMENTS.items()
}
#: The same as memories of tasks.
JOINT_MOMENTS = {
    key.replace("Moments", "Joint moments"): replace(store, jointly=True)
    for key, store in MOMENTS.items()
}
#: And in features of images that see neighbouring pixels.
JOINT_IMAGES = {
    f"{key}, random convolutions": replace(store, features="convolutions")
    for key, store in JOINT_MOMENTS.items()
}

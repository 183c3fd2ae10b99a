"""Rows that rehearse, their learners on the way through tasks, batches or epochs, and checkpoints.

The state of a run is a file of tensors, written next to the old one and renamed; reading it runs
nothing. A run that was stopped continues from it, and it is removed when the run is recorded.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import torch

from experiments.networks import Architecture
from experiments.records import file_name
from experiments.rows import Job, Row, Trials
from experiments.selectors import LAMBDA
from experiments.training import EPOCHS, Cohort, Learner, Memory, build


def checkpoint_folder() -> Path:
    """``$BICORE_CHECKPOINTS``, or ``checkpoints`` where the command runs; it can be removed at any
    time between runs."""
    return Path(os.environ.get("BICORE_CHECKPOINTS", "checkpoints"))


def once(path: Path, make: Callable[[], dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Tensors that are made by the process that asks first, and read by the others, who wait for
    it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not path.exists():
            beside = path.with_suffix(".part")
            torch.save(make(), beside)
            beside.replace(path)
    found: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return found


class Kept(Protocol):
    """A memory or a buffer."""

    def save(self, path: str | os.PathLike[str]) -> Path: ...


Keeper = TypeVar("Keeper", bound=Kept)


@dataclass
class Place:
    """How far a run is: tasks or batches that are done, epochs of the next, and the seconds spent,
    in all and on selections."""

    task: int = 0
    epochs: int = 0
    seconds: float = 0.0
    picking: float = 0.0


@dataclass
class Checkpoint:
    """Where a run of several learners stands, and everything that changes."""

    folder: Path
    every: int  # epochs of a task or a summary, or batches of a stream
    #: Where the network after the first task is kept for all runs that begin with it.
    start: Path | None = None

    @property
    def path(self) -> Path:
        return self.folder / "state.pt"

    def save(self, place: Place, learners: Sequence[Learner], kept: Sequence[Kept]) -> None:
        """Everything as it is at this place; what is kept changes from task to task or batch to
        batch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(kept):
            one.save(self._kept(place.task, number))
        state: dict[str, Any] = {
            "place": asdict(place),
            "betas": [learner.beta for learner in learners],
            "learners": [_taken(learner) for learner in learners],
            "random": _random(),
        }
        beside = self.path.with_suffix(".part")
        torch.save(state, beside)
        beside.replace(self.path)
        for old in set(self.folder.glob("kept-*")) - {
            self._kept(place.task, number) for number in range(len(kept))
        }:
            old.unlink()

    def restore(
        self, learners: Sequence[Learner], kept: list[Keeper], load: Callable[[Path], Keeper] | None
    ) -> Place:
        """Put everything back; the beginning, where there is nothing."""
        if not self.path.exists():
            return Place()
        state = torch.load(self.path, map_location="cpu", weights_only=True)
        # some have been recorded since, or β is another: begin anew
        if state["betas"] != [learner.beta for learner in learners]:
            return Place()
        place = Place(**state["place"])
        for learner, taken in zip(learners, state["learners"], strict=True):
            _put(learner, taken)
        if load is not None:
            kept[:] = [load(self._kept(place.task, number)) for number in range(len(kept))]
        torch.set_rng_state(state["random"][0])
        if torch.cuda.is_available() and len(state["random"]) > 1:
            torch.cuda.set_rng_state(state["random"][1])
        return place

    def remove(self) -> None:
        """The run is recorded."""
        for path in self.folder.glob("*") if self.folder.exists() else ():
            path.unlink()
        if self.folder.exists():
            self.folder.rmdir()

    def _kept(self, done: int, number: int) -> Path:
        return self.folder / f"kept-{done}-{number}.npz"


def middle_of(row: Row, job: Job, kind: str, penalty: float, every: int) -> Checkpoint | None:
    """Where the state of a row's runs is kept for as long as they last, with what all runs of a
    seed begin with; None where runs are short. ``kind`` tells apart runs that differ otherwise."""
    if not row.problem.long:
        return None
    name = row.problem.name
    kind = f"{kind}-{'fast' if job.fast else 'float32'}"
    folder = checkpoint_folder()
    own = file_name(f"{name}-{row.key}-{row.memory}-{job.seed}-{penalty:g}-{kind}")
    network = f"{row.normalised}-" if row.normalised else ""
    return Checkpoint(folder / own, every, folder / f"start-{name}-{network}{job.seed}-{kind}.pt")


def _taken(learner: Learner) -> dict[str, Any]:
    averages = [
        learner.optimiser.state.get(value, {})
        for group in learner.optimiser.param_groups
        for value in group["params"]
    ]
    return {
        "network": {
            name: value.detach().cpu() for name, value in learner.network.state_dict().items()
        },
        "optimiser": [{name: value.cpu() for name, value in one.items()} for one in averages],
        "generator": learner.generator.get_state(),
    }


def _put(learner: Learner, taken: dict[str, Any]) -> None:
    learner.network.load_state_dict(taken["network"])
    values = [value for group in learner.optimiser.param_groups for value in group["params"]]
    for value, averages in zip(values, taken["optimiser"], strict=True):
        for name, number in averages.items():
            place = value.device if number.dim() or value.is_cuda else torch.device("cpu")
            learner.optimiser.state[value][name] = number.to(place, copy=True)
    learner.generator.set_state(taken["generator"])


def _random() -> list[torch.Tensor]:
    return [
        torch.get_rng_state(),
        *([torch.cuda.get_rng_state()] if torch.cuda.is_available() else []),
    ]


@dataclass
class Course(Generic[Keeper]):
    """Learners that differ in β or in their points, and what is ``kept`` to rehearse: nothing, one
    for all, or one for each."""

    learners: Cohort[Learner]
    checkpoint: Checkpoint | None = None
    kept: list[Keeper] = field(default_factory=list)
    place: Place = field(default_factory=Place)
    begun: float = field(default_factory=time.perf_counter)

    def resume(self, load: Callable[[Path], Keeper] | None = None) -> None:
        """Go to the place that was written last; ``load`` reads what was kept there."""
        if self.checkpoint is not None:
            self.place = self.checkpoint.restore(self.learners.learners, self.kept, load)
            self.begun -= self.place.seconds

    def save(self) -> None:
        """Write everything as it is now."""
        if self.checkpoint is not None:
            self.place.seconds = time.perf_counter() - self.begun
            self.checkpoint.save(self.place, self.learners.learners, self.kept)

    def train(self, epochs: int) -> None:
        """The epochs that are left of so many; with a checkpoint, in stretches after each of which
        everything is written."""
        while self.place.epochs < epochs:
            left = epochs - self.place.epochs
            stretch = left if self.checkpoint is None else min(self.checkpoint.every, left)
            self.learners.train(stretch)
            self.place.epochs += stretch
            if self.place.epochs < epochs:
                self.save()
        self.place.epochs = 0

    def rehearse(self, rows: Callable[[Keeper], Memory]) -> None:
        """From now on the ``rows`` of what is kept now."""
        for which, learner in enumerate(self.learners if self.kept else ()):
            learner.rehearse(rows(self.kept[min(which, len(self.kept) - 1)]))

    @contextmanager
    def choosing(self) -> Iterator[None]:
        """Time spent here is that of selections."""
        begin = time.perf_counter()
        yield
        self.place.picking += time.perf_counter() - begin

    def spent(self, runs: int) -> dict[str, Any]:
        """What each of so many runs has cost, and the precision of its products."""
        seconds = {
            "seconds": time.perf_counter() - self.begun,
            "selection_seconds": self.place.picking,
        }
        return {
            **{name: value / runs for name, value in seconds.items()},
            "precision": self.learners.precision,
        }

    def end(self) -> None:
        """All runs are recorded."""
        if self.checkpoint is not None:
            self.checkpoint.remove()


BETAS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class RehearsingRow(Row):
    """The ``network`` that is trained, for so many ``epochs`` a task or at the end, and β.

    ``at_end``, nothing is rehearsed: a fresh network is trained on what is kept. ``penalty`` is the
    λ of a proxy, where there is one.
    """

    network: Architecture
    betas: tuple[float, ...] = BETAS
    at_end: bool = False
    epochs: int = EPOCHS
    penalty: float = LAMBDA

    @property
    def rehearsed(self) -> bool:
        return not self.at_end

    @property
    def trials(self) -> Trials:
        """Every β where something is rehearsed."""
        return Trials.of_beta(self.betas if self.rehearsed else (0.0,))

    @property
    def normalised(self) -> str:
        return self.network.normalised

    def toy(self) -> Self:
        return replace(super().toy(), network=self.network.toy(), epochs=1)

    def learner(self, job: Job, beta: float, points: int, memory: int, passes: int) -> Learner:
        """A network with room for so many points and rows of memory, and for so many passes at a
        time."""
        network = build(self.network.make, job.seed, job.device)
        return Learner(network, beta, points, memory, passes, seed=job.seed, fast=job.fast)

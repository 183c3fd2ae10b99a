"""Training of learners with rehearsal over tasks, batches or epochs, with checkpoints.

The state of a run is a file of tensors, written to a temporary file and renamed; reading it runs
nothing. A run that was stopped continues from it, and it is removed when the run is recorded.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from bicore.files import replacing
from experiments.networks import Architecture
from experiments.records import file_name
from experiments.rows import Job, Row, Trials
from experiments.selectors import LAMBDA
from experiments.stores import Room, Store
from experiments.training import EPOCHS, Cohort, Learner, Memory, build

#: Reads a memory that a checkpoint wrote.
Load = Callable[[Path], Any]


def checkpoint_folder() -> Path:
    """``$BICORE_CHECKPOINTS``, or ``checkpoints`` where the command runs; it can be removed at any
    time between runs."""
    return Path(os.environ.get("BICORE_CHECKPOINTS", "checkpoints"))


def make_once(path: Path, make: Callable[[], dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Tensors that are made by the process that asks first, and read by the others, which wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not path.exists():
            with replacing(path) as temporary:
                torch.save(make(), temporary)
    return torch.load(path, map_location="cpu", weights_only=True)


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
    """Where the state of a run of several learners is saved."""

    folder: Path
    every: int  # epochs of a task or a summary, or batches of a stream
    #: Where the network after the first task is kept for all runs that begin with it.
    start: Path | None = None

    @property
    def path(self) -> Path:
        return self.folder / "state.pt"

    def save(self, place: Place, learners: Sequence[Learner], kept: Sequence[Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        files = self._files(place, kept)
        for one, path in zip(kept, files, strict=True):
            one.save(path)
        state = {
            "place": asdict(place),
            "betas": [learner.beta for learner in learners],
            "learners": [learner.state() for learner in learners],
            "random": torch.get_rng_state(),
            "random on GPUs": torch.cuda.get_rng_state_all(),
        }
        with replacing(self.path) as temporary:
            torch.save(state, temporary)
        for old in set(self.folder.glob("kept-*")) - set(files):
            old.unlink()

    def restore(self, learners: Sequence[Learner], kept: list[Any], load: Load | None) -> Place:
        """Restore everything; the beginning, if there is nothing."""
        if not self.path.exists():
            return Place()
        state = torch.load(self.path, map_location="cpu", weights_only=True)
        # some have been recorded since, or β is another: begin anew
        if state["betas"] != [learner.beta for learner in learners]:
            return Place()
        place = Place(**state["place"])
        for learner, own in zip(learners, state["learners"], strict=True):
            learner.load_state(own)
        kept[:] = [load(path) for path in self._files(place, kept)]
        torch.set_rng_state(state["random"])
        if torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["random on GPUs"])
        return place

    def remove(self) -> None:
        """The run is recorded."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _files(self, place: Place, kept: Sequence[Any]) -> list[Path]:
        return [self.folder / f"kept-{place.task}-{number}.npz" for number in range(len(kept))]


def checkpoint_of(row: Row, job: Job, kind: str, penalty: float, every: int) -> Checkpoint | None:
    """Where the state of a row's runs is saved, and what all runs of a seed begin with; None for
    short runs. ``kind`` separates runs that differ otherwise."""
    if not row.problem.long:
        return None
    name = row.problem.name
    kind = f"{kind}-{'fast' if job.fast else 'float32'}"
    folder = checkpoint_folder()
    own = file_name(f"{name}-{row.key}-{row.memory}-{job.seed}-{penalty:g}-{kind}")
    network = f"{row.normalisation}-" if row.normalisation else ""
    return Checkpoint(folder / own, every, folder / f"start-{name}-{network}{job.seed}-{kind}.pt")


@dataclass
class Course:
    """Learners that differ in β or in their points, and the memories ``kept`` to rehearse: none,
    one for all, or one for each."""

    learners: Cohort
    checkpoint: Checkpoint | None = None
    kept: list[Any] = field(default_factory=list)
    place: Place = field(default_factory=Place)
    begun: float = field(default_factory=time.perf_counter)

    def resume(self, load: Load | None = None) -> None:
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
        """The epochs that are left of these; with a checkpoint, in stretches after each of which
        everything is written."""
        while self.place.epochs < epochs:
            left = epochs - self.place.epochs
            stretch = left if self.checkpoint is None else min(self.checkpoint.every, left)
            self.learners.train(stretch)
            self.place.epochs += stretch
            if self.place.epochs < epochs:
                self.save()
        self.place.epochs = 0

    def memory_of(self, which: int) -> Any:
        """The memory of a learner."""
        return self.kept[min(which, len(self.kept) - 1)]

    def rehearse(self, rows: Callable[[Any], Memory]) -> None:
        """From now on the ``rows`` of what is kept now."""
        for which, learner in enumerate(self.learners if self.kept else ()):
            learner.rehearse(rows(self.memory_of(which)))

    @contextmanager
    def choosing(self) -> Iterator[None]:
        """Time spent here is that of selections."""
        begin = time.perf_counter()
        yield
        self.place.picking += time.perf_counter() - begin

    def costs(self, runs: int) -> dict[str, Any]:
        """What each of several runs has cost, and the precision of its products."""
        seconds = (time.perf_counter() - self.begun) / runs
        spent = {"seconds": seconds, "selection_seconds": self.place.picking / runs}
        return {**spent, "precision": self.learners.precision}

    def end(self) -> None:
        """All runs are recorded."""
        if self.checkpoint is not None:
            self.checkpoint.remove()


BETAS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class RehearsingRow(Row):
    """The ``network`` that is trained, for some ``epochs`` a task or at the end, β, and the
    ``store`` of what is rehearsed, if there is one; a merge-reduce buffer has ``slots``.

    ``at_end``, nothing is rehearsed: a fresh network is trained on what is kept. ``penalty`` is the
    λ of a proxy, if there is one.
    """

    network: Architecture
    store: Store | None
    betas: tuple[float, ...] = BETAS
    at_end: bool = False
    epochs: int = EPOCHS
    penalty: float = LAMBDA
    slots: int = 10

    @property
    def is_rehearsed(self) -> bool:
        return self.store is not None and not self.at_end

    @property
    def trials(self) -> Trials:
        """Every β if something is rehearsed."""
        return Trials.of_beta(self.betas if self.is_rehearsed else (0.0,))

    @property
    def normalisation(self) -> str:
        return self.network.normalisation

    def toy(self) -> Self:
        return replace(super().toy(), network=self.network.toy(), epochs=1)

    def learner(self, job: Job, beta: float, points: int, memory: int, passes: int) -> Learner:
        """A network with room for some points and rows of memory, and for some passes at a time."""
        network = build(self.network.make, job.seed, job.device)
        return Learner(network, beta, points, memory, passes, seed=job.seed, fast=job.fast)

    def begin(self, job: Job, learners: Cohort, checkpoint: Checkpoint | None) -> Course:
        """The course of these learners at its last place, with one memory for all, or one for each
        if memories look at the networks."""
        room = Room(self.problem, self.memory, self.slots, job.seed, job.device, self.penalty)
        store = self.store
        count = 0 if store is None else len(job.values) if store.looks else 1
        course = Course(learners, checkpoint, [store.make(room) for _ in range(count)])
        course.resume(lambda path: store.load(path, room))
        return course

    def facts(self, course: Course, job: Job) -> dict[str, Any]:
        """The costs of each run of a job, and λ if it has a part in it."""
        own = {"lambda": self.penalty} if self.store is not None and self.store.is_penalised else {}
        return {**course.costs(len(job.values)), **own}

"""Learners on their way through tasks, batches or epochs, with what they rehearse.

A course with a checkpoint that was cut off goes on where it stood.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from experiments.checkpoints import Checkpoint, Keeper, Place
from experiments.training import Cohort, Learner, Memory


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

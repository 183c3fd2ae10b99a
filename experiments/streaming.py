"""Streams (section 6.3, figure 4, and the imbalanced ones): batches of 125, 40 steps each, with a
buffer that is rehearsed.

The weights of a buffer's rows add up to 1. Rows of coresets and prototypes count for as much of the
stream as they stand for, those of reservoirs equally. The paper scales a slot's loss by its count
of batches: its β for a merge-reduce buffer and ours differ by the number of batches seen, but in
the rows that weigh slots as it does.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Self

import numpy as np
import torch

from bicore.streaming.buffer import Buffer
from experiments.courses import Checkpoint, Course, RehearsingRow, middle_of
from experiments.rows import Job, Results
from experiments.selectors import context_of
from experiments.stores import Room, Store
from experiments.tasks import BATCH, Part, Task, batches
from experiments.training import Cohort, Learner, Memory, scores, tensors

#: Rows a batch of a toy.
QUICK_BATCH = 24
#: A long run is kept every so many batches.
BATCHES = 8


class Weighting(Enum):
    """What the rows of a buffer count for in rehearsal."""

    EQUAL = "all alike, one in sum"
    SHARE = "as much of the stream as they stand for, one in sum"
    BATCHES = "the same, as many in sum as there were batches: β grows with the stream"


class Optimiser(Enum):
    """Its averages at the end of a batch."""

    LASTING = "kept to the end of the stream"
    FRESH = "forgotten, as in the authors' code"


@dataclass(frozen=True, kw_only=True)
class StreamRow(RehearsingRow):
    """A stream in batches, so many ``steps`` each, with rehearsal of what the ``store`` keeps; a
    merge-reduce buffer has ``slots``."""

    store: Store
    weighting: Weighting
    optimiser: Optimiser = Optimiser.LASTING
    steps: int = 40
    batch: int = BATCH
    slots: int = 10

    def toy(self) -> Self:
        return replace(super().toy(), steps=1, batch=QUICK_BATCH)

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        kind = f"{'imbalanced' if self.problem.imbalanced else 'balanced'}-{self.steps}"
        checkpoint = middle_of(self, job, kind, self.penalty, BATCHES)
        return run(self, job, tasks, checkpoint if self.store.restorable else None)

    def room(self, job: Job) -> Room:
        """What its buffers are made for."""
        return Room(self.problem, self.memory, self.slots, job.seed, job.device, self.penalty)


def run(
    row: StreamRow, job: Job, tasks: Sequence[Task], checkpoint: Checkpoint | None = None
) -> Results:
    """Results for each β. A buffer that looks at no network is fed once for all of them."""
    begun = time.perf_counter()
    size = row.store.batch(row.batch)
    steps = max(1, row.steps * size // row.batch)
    room = row.room(job)
    buffers = [row.store.buffer(room) for _ in (job.values if row.store.looks else [None])]
    betas = () if row.at_end else job.values
    learners = Cohort([row.learner(job, beta, size, row.memory, steps) for beta in betas])
    course = Course(learners, checkpoint, buffers, begun=begun)
    course.resume(lambda path: row.store.load(path, room))
    _follow(course, row, job, batches(tasks, size), steps)
    trained = [_from_scratch(row, job, buffers[0])] if row.at_end else list(learners)
    spent = {
        **course.spent(len(job.values)),
        "steps": row.steps,
        **({"lambda": row.penalty} if row.store.penalised else {}),
    }
    for beta, learner in zip(job.values, trained, strict=True):
        yield beta, {**scores(learner.network, tasks, job.device, job.fast), **spent}
    course.end()


def _follow(
    course: Course[Buffer], row: StreamRow, job: Job, stream: Iterator[Part], steps: int
) -> None:
    """Train on every batch that is left, show it to the buffers, rehearse what they hold."""

    def rows(buffer: Buffer) -> Memory:
        return rehearsed(buffer, row.weighting, job.device, course.place.task)

    place = row.store.place(job.device)
    if course.place.task:
        course.rehearse(rows)
    for batch in islice(stream, course.place.task, None):
        for learner in course.learners:
            learner.take(*tensors(batch, job.device))
            if row.optimiser is Optimiser.FRESH:
                learner.restart()
        course.learners.train(steps)
        with course.choosing():
            for which, buffer in enumerate(course.kept):
                looked = course.learners.learners[which] if row.store.looks else None
                model = None if looked is None else looked.network.eval()
                buffer.update(batch.x, batch.y, model=context_of(place, model))
        course.place.task += 1
        course.rehearse(rows)
        if course.checkpoint is not None and course.place.task % course.checkpoint.every == 0:
            course.save()


def _from_scratch(row: StreamRow, job: Job, buffer: Buffer) -> Learner:
    """A fresh network trained on what the buffer holds at the end."""
    kept = rehearsed(buffer, row.weighting, job.device)
    learner = row.learner(job, 0.0, len(kept.x), 1, row.epochs)
    learner.take(kept.x, kept.y)
    Cohort([learner]).train(row.epochs)
    return learner


def rehearsed(buffer: Buffer, weighting: Weighting, device: str, seen: int = 1) -> Memory:
    """What a buffer holds, as it is rehearsed after so many batches were ``seen``."""
    kept = buffer.snapshot()
    assert kept.y is not None
    equal = weighting is Weighting.EQUAL
    told = np.ones(len(kept.weights)) if equal else kept.weights
    total = seen if weighting is Weighting.BATCHES else 1
    weight = torch.from_numpy(total * told / told.sum()).float()
    return Memory(
        torch.from_numpy(kept.x).float().to(device),
        torch.from_numpy(kept.y.astype("int64")).to(device),
        weight.to(device),
    )

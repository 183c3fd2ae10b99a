"""Streams (section 6.3, figure 4, and the imbalanced ones): batches of 125, 40 steps each, with a
buffer that is rehearsed.

The weights of a buffer's rows add up to 1. Rows of coresets and prototypes count for the part of
the stream that they represent, those of reservoirs equally. The paper scales a slot's loss by its
count of batches: its β for a merge-reduce buffer and ours differ by the number of batches seen,
except in the rows that weigh slots as it does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Self

import numpy as np
import torch

from bicore.streaming.buffer import Buffer
from experiments.courses import Checkpoint, Course, RehearsingRow, checkpoint_of
from experiments.rows import Job, Results
from experiments.selectors import context_of
from experiments.tasks import BATCH, Part, Task, batches
from experiments.training import Cohort, Learner, Memory, scores, tensors

#: Rows a batch of a toy.
QUICK_BATCH = 24
#: Batches after which the state of a long run is saved.
BATCHES = 8


class Weighting(Enum):
    """What the rows of a buffer count for in rehearsal."""

    EQUAL = "all alike, one in sum"
    SHARE = "the part of the stream that they represent, one in sum"
    BATCHES = "the same, as many in sum as there were batches: β grows with the stream"


@dataclass(frozen=True, kw_only=True)
class StreamRow(RehearsingRow):
    """A stream in batches, some ``steps`` each, with rehearsal of what the ``store`` keeps. With
    ``fresh``, the optimiser forgets its averages at the end of a batch, as in the authors' code."""

    weighting: Weighting
    fresh: bool = False
    steps: int = 40
    batch: int = BATCH

    def toy(self) -> Self:
        return replace(super().toy(), steps=1, batch=QUICK_BATCH)

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        kind = f"{'imbalanced' if self.problem.is_imbalanced else 'balanced'}-{self.steps}"
        checkpoint = checkpoint_of(self, job, kind, self.penalty, BATCHES)
        return run(self, job, tasks, checkpoint if self.store.restorable else None)


def run(
    row: StreamRow, job: Job, tasks: Sequence[Task], checkpoint: Checkpoint | None = None
) -> Results:
    """Results for each β. A buffer that looks at no network is fed once for all of them."""
    size = row.store.batch(row.batch)
    steps = max(1, row.steps * size // row.batch)
    betas = () if row.at_end else job.values
    learners = Cohort([row.learner(job, beta, size, row.memory, steps) for beta in betas])
    course = row.begin(job, learners, checkpoint)
    _follow(course, row, job, batches(tasks, size), steps)
    trained = [_from_scratch(row, job, course.kept[0])] if row.at_end else list(learners)
    facts = {**row.facts(course, job), "steps": row.steps}
    for beta, learner in zip(job.values, trained, strict=True):
        yield beta, {**scores(learner.network, tasks, job.device, job.fast), **facts}
    course.end()


def _follow(course: Course, row: StreamRow, job: Job, stream: Iterator[Part], steps: int) -> None:
    """Train on every batch that is left, show it to the buffers, rehearse what they hold."""

    def rows(buffer: Buffer) -> Memory:
        return to_memory(buffer, row.weighting, job.device, course.place.task)

    place = row.store.place(job.device)
    if course.place.task:
        course.rehearse(rows)
    for batch in islice(stream, course.place.task, None):
        for learner in course.learners:
            learner.take(*tensors(batch, job.device))
            if row.fresh:
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
    kept = to_memory(buffer, row.weighting, job.device)
    learner = row.learner(job, 0.0, len(kept.x), 1, row.epochs)
    learner.take(kept.x, kept.y)
    Cohort([learner]).train(row.epochs)
    return learner


def to_memory(buffer: Buffer, weighting: Weighting, device: str, seen: int = 1) -> Memory:
    """What a buffer holds, as it is rehearsed after some batches were ``seen``."""
    kept = buffer.snapshot()
    weight = np.ones(len(kept)) if weighting is Weighting.EQUAL else kept.weights
    total = seen if weighting is Weighting.BATCHES else 1
    return Memory(
        torch.from_numpy(kept.x).float().to(device),
        torch.from_numpy(kept.y.astype("int64")).to(device),
        torch.from_numpy(total * weight / weight.sum()).float().to(device),
    )

"""The 40 picks of figure 5: one start point, the first 2500 images, 1000 candidates a step, binary
weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bicore import BilevelSelector, Context, Dataset, PerPoint, Runtime
from experiments.rows import Job, Results, Row, Trials
from experiments.tasks import Task

POOL = 2500
CANDIDATES = 1000
PICKS = 40
LAMBDA = 1e-7


@dataclass(frozen=True, kw_only=True)
class PicksRow(Row):
    """The paper's coreset by cross-entropy, or one by squared errors."""

    squared: bool = False
    memory: int = PICKS

    @property
    def trials(self) -> Trials:
        return Trials()

    def selector(self, points: int) -> BilevelSelector:
        """For a pool of so many points."""
        if self.squared:
            return BilevelSelector(kernel="cntk")
        return BilevelSelector(
            kernel="cntk",
            loss="cross-entropy",
            inner_reg=PerPoint(LAMBDA),
            candidates=min(CANDIDATES, points),
            first="random",
        )

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        return run(self, job, tasks)


def run(row: PicksRow, job: Job, tasks: Sequence[Task]) -> Results:
    """The picks in order, and what the paper says of them: ten classes among the first ten, and
    more eights than ones."""
    start = time.perf_counter()
    pool = tasks[0].train[:POOL]
    context = Context(runtime=Runtime(job.device, progress=False))
    coreset = row.selector(len(pool)).select(
        Dataset(pool.x, pool.y), row.memory, rng=job.seed, context=context
    )
    labels = pool.y[coreset.indices].tolist()
    found = {
        "picks": coreset.indices.tolist(),
        "labels": labels,
        "classes_in_first_ten": len(set(labels[:10])),
        "eights": labels.count(8),
        "ones": labels.count(1),
        "seconds": time.perf_counter() - start,
    }
    yield 0.0, found

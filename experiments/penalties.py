"""λ on CIFAR-10, once: by the held-out loss of the proxy fitted on the coresets that are chosen
with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bicore import BilevelSelector, Dataset, PerPoint
from experiments.problems import Problem
from experiments.proxies import Proxy
from experiments.rows import Job, Results, Row, Trials
from experiments.selectors import on_the_host
from experiments.tasks import Task

#: The paper's grid, and the points of a coreset: what the memory keeps of a task when it has seen
#: two.
GRID = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SIZE = 100


@dataclass(frozen=True, kw_only=True)
class PenaltyRow(Row):
    """Every λ of the grid with one proxy."""

    proxy: Proxy
    memory: int = SIZE

    @property
    def trials(self) -> Trials:
        return Trials(GRID, (1e-3,), "penalty")

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        return run(self, job, tasks)


def run(row: PenaltyRow, job: Job, tasks: Sequence[Task]) -> Results:
    """For each λ the proxy's loss on every task's held-out points."""
    start = time.perf_counter()
    losses: dict[float, list[float]] = {penalty: [] for penalty in job.values}
    for task in tasks:
        inner, outer = _kernels(row.proxy, row.problem, task, job.device)
        for penalty in job.values:
            losses[penalty].append(held_out_loss(inner, outer, penalty, row.memory, job.seed))
    seconds = (time.perf_counter() - start) / len(job.values)
    for penalty in job.values:
        yield penalty, {"held_loss": losses[penalty], "seconds": seconds}


def held_out_loss(
    inner: Dataset, outer: Dataset, penalty: float, size: int, seed: int = 0
) -> float:
    """Of the proxy that knows a coreset chosen without the held-out points."""
    selector = BilevelSelector(
        kernel="precomputed", loss="cross-entropy", inner_reg=PerPoint(penalty), first="random"
    )
    context = on_the_host()
    chosen = selector.select(inner, size, rng=seed, context=context)
    # nothing is added
    judged = selector.select(
        inner, len(chosen.indices), initial=chosen, outer=outer, context=context
    )
    return float(judged.objectives[-1])


def _kernels(proxy: Proxy, problem: Problem, task: Task, device: str) -> tuple[Dataset, Dataset]:
    """Of the training points, and of the held-out ones with them."""
    kernel = proxy.kernel(problem, device)
    x = torch.from_numpy(task.train.x)
    held = torch.from_numpy(task.held.x)
    inner = Dataset(kernel(x).double().numpy(), task.train.y)
    return inner, Dataset(kernel(held, x).double().numpy(), task.held.y)

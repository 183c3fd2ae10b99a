"""Experiments without trained networks: the picks of figure 5, λ on CIFAR-10, and run times."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch

from benchmarks.common import ONE_THREAD, device_seconds
from bicore import BilevelSelector, Dataset, Runtime
from bicore.bilevel import PerPoint
from bicore.methods.registry import greedy_selector
from experiments.rows import Job, Results, Row, Trials
from experiments.selectors import Proxy
from experiments.tasks import Task

#: Figure 5: one start point, the first 2500 images, 1000 candidates a step, binary weights.
POOL = 2500
CANDIDATES = 1000
PICKS = 40
LAMBDA = 1e-7
#: The paper's grid of λ, and the points of a coreset: what the memory keeps of a task when it has
#: seen two.
GRID = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SIZE = 100


def _softmax(penalty: float, **options: Any) -> BilevelSelector:
    return greedy_selector(loss="cross-entropy", inner_reg=PerPoint(penalty), **options)


@dataclass(frozen=True, kw_only=True)
class PicksRow(Row):
    """The paper's coreset by cross-entropy, or one by squared errors."""

    squared: bool = False
    memory: int = PICKS

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        """The picks in order, and what the paper says of them: ten classes among the first ten, and
        more eights than ones."""
        start = time.perf_counter()
        pool = tasks[0].train[:POOL]
        selector = greedy_selector(kernel="cntk")
        if not self.squared:
            drawn = {"candidates": min(CANDIDATES, len(pool)), "first": "random"}
            selector = _softmax(LAMBDA, kernel="cntk", **drawn)
        options = {"random_state": job.seed, "runtime": Runtime(job.device, progress=False)}
        coreset = selector.select(Dataset(pool.x, pool.y), self.memory, **options)
        labels = pool.y[coreset.indices].tolist()
        facts = {"picks": coreset.indices.tolist(), "labels": labels}
        facts |= {"classes_in_first_ten": len(set(labels[:10])), "eights": labels.count(8)}
        yield 0.0, {**facts, "ones": labels.count(1), "seconds": time.perf_counter() - start}


@dataclass(frozen=True, kw_only=True)
class PenaltyRow(Row):
    """Every λ of the grid with one proxy: the held-out loss of the proxy fitted on the coresets
    that are chosen with it."""

    proxy: Proxy
    memory: int = SIZE

    @property
    def trials(self) -> Trials:
        return Trials(GRID, (1e-3,), "penalty")

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        """For each λ the proxy's loss on every task's held-out points."""
        start = time.perf_counter()
        kernel = self.proxy.kernel(self.problem, job.device)
        losses: dict[float, list[float]] = {penalty: [] for penalty in job.values}
        for task in tasks:
            x, held = torch.from_numpy(task.train.x), torch.from_numpy(task.held.x)
            inner = Dataset(kernel(x).double().numpy(), task.train.y)
            outer = Dataset(kernel(held, x).double().numpy(), task.held.y)
            for penalty in job.values:
                losses[penalty].append(held_out_loss(inner, outer, penalty, self.memory, job.seed))
        seconds = (time.perf_counter() - start) / len(job.values)
        for penalty in job.values:
            yield penalty, {"held_loss": losses[penalty], "seconds": seconds}


def held_out_loss(
    inner: Dataset, outer: Dataset, penalty: float, size: int, seed: int = 0
) -> float:
    """The loss of the proxy that knows a coreset chosen without the held-out points."""
    selector = _softmax(penalty, kernel="precomputed", first="random")
    chosen = selector.select(inner, size, random_state=seed, runtime=ONE_THREAD)
    # nothing is added
    options = {"initial": chosen, "outer": outer, "runtime": ONE_THREAD}
    fitted = selector.select(inner, len(chosen.indices), **options)
    return float(fitted.objectives[-1])


@dataclass(frozen=True, kw_only=True)
class RuntimeRow(Row):
    """The kernel of some points by a problem's network, and coresets of some ``sizes``."""

    memory: int = 1000
    points: int = 1000
    sizes: tuple[int, ...] = (100, 400)

    def toy(self) -> Self:
        return replace(super().toy(), points=12, sizes=(5,))

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        """Seconds of the kernel in float32, and of cross-entropy selections by the paper's setting
        and by all candidates."""
        begin = time.perf_counter()
        points = tasks[0].train[: self.points]
        images = torch.from_numpy(np.ascontiguousarray(points.x)).to(job.device)
        kernel = self.problem.kernel()
        found: dict[str, Any] = {"kernel": device_seconds(partial(kernel, images))}
        data = Dataset(kernel(images.double()).cpu().numpy(), points.y)
        for size in self.sizes:
            for candidates in (200, None):
                selector = _softmax(1e-3, kernel="precomputed", candidates=candidates)
                coreset = selector.select(data, size, runtime=ONE_THREAD)
                key = f"coreset {size}, {candidates or 'all'} candidates"
                found[key] = coreset.provenance.selection_seconds
        yield 0.0, {**found, "device": job.device, "seconds": time.perf_counter() - begin}


def paper_time(work: str) -> str:
    """The paper's name for something timed; its coresets had 200 candidates."""
    if work == "kernel":
        return "kernel (GTX 1080 Ti)"
    return f"{work.split(',')[0]} (one CPU thread)"

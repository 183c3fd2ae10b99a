"""The runtime table: the kernel of 1000 points, then coresets of 100 and 400 from it, for the CNN
and the ResNet-18 kernel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch

from bicore import BilevelSelector, Dataset, PerPoint
from experiments.rows import Job, Results, Row, Trials
from experiments.selectors import on_the_host
from experiments.tasks import Task

REPEATS = 3


@dataclass(frozen=True)
class Selection:
    """A timed selection: its size, and how many candidates are looked at for each point."""

    size: int
    candidates: int | None

    @property
    def key(self) -> str:
        """Its name in records."""
        looked = "all" if self.candidates is None else self.candidates
        return f"coreset {self.size}, {looked} candidates"

    @property
    def paper(self) -> str:
        """The paper's name for it, which had 200 candidates."""
        return f"coreset {self.size} (one CPU thread)"


@dataclass(frozen=True, kw_only=True)
class RuntimeRow(Row):
    """The kernel of a problem's network, of so many points, and the ``sizes`` of the coresets."""

    memory: int = 1000
    points: int = 1000
    sizes: tuple[int, ...] = (100, 400)

    @property
    def selections(self) -> list[Selection]:
        """What is timed beside the kernel."""
        return [Selection(size, candidates) for size in self.sizes for candidates in (200, None)]

    @property
    def trials(self) -> Trials:
        return Trials()

    def toy(self) -> Self:
        return replace(super().toy(), points=12, sizes=(5,))

    def run(self, job: Job, tasks: Sequence[Task]) -> Results:
        return run(self, job, tasks)


def run(row: RuntimeRow, job: Job, tasks: Sequence[Task]) -> Results:
    """Seconds of the kernel in float32, and of cross-entropy selections by the paper's setting and
    by all candidates."""
    begin = time.perf_counter()
    x = tasks[0].train.x[: row.points]
    y = tasks[0].train.y[: row.points]
    images = torch.from_numpy(np.ascontiguousarray(x)).to(job.device)
    kernel = row.problem.kernel()
    kernel(images[:3])
    seconds = [_kernel_seconds(kernel, images, job.device) for _ in range(REPEATS)]
    data = Dataset(kernel(images.double()).cpu().numpy(), y)
    result: dict[str, Any] = {"kernel": min(seconds), "device": job.device}
    for one in row.selections:
        result[one.key] = _selection_seconds(data, one.size, one.candidates)
    yield 0.0, {**result, "seconds": time.perf_counter() - begin}


def _selection_seconds(data: Dataset, size: int, candidates: int | None) -> float:
    selector = BilevelSelector(
        kernel="precomputed", loss="cross-entropy", inner_reg=PerPoint(1e-3), candidates=candidates
    )
    return selector.select(data, size, context=on_the_host()).provenance.selection_seconds


def _kernel_seconds(kernel: Any, images: torch.Tensor, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    kernel(images)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start

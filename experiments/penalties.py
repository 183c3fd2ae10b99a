"""λ on CIFAR-10, once: by the held-out loss of the proxy fitted on the coresets that are chosen
with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from bicore import BilevelSelector, Context, Dataset, PerPoint, Runtime
from experiments.proxies import proxy
from experiments.settings import Setting
from experiments.tasks import Task

#: The paper's grid, and the points of a coreset: what the memory keeps of a task when it has seen
#: two.
GRID = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SIZE = 100


#: The network's kernel, by which λ is chosen; and the RBF kernel, which the paper says fails on
#: CIFAR-10.
METHODS = {"Coreset": "coreset", "Coreset RBF": "coreset-rbf"}


def setting_of(dataset: str, method: str = "Coreset") -> Setting:
    return Setting(dataset, method, SIZE, 0, GRID, (1e-3,), "penalty")


def run(
    setting: Setting, word: str, tasks: Sequence[Task], penalties: Sequence[float], device: str
) -> Iterator[tuple[float, dict[str, Any]]]:
    """For each λ the proxy's loss on every task's held-out points."""
    start = time.perf_counter()
    losses: dict[float, list[float]] = {penalty: [] for penalty in penalties}
    for task in tasks:
        inner, outer = _kernels(setting.dataset, word, task, device)
        for penalty in penalties:
            losses[penalty].append(held_out_loss(inner, outer, penalty, setting))
    seconds = (time.perf_counter() - start) / len(penalties)
    for penalty in penalties:
        yield penalty, {"held_loss": losses[penalty], "seconds": seconds}


def held_out_loss(inner: Dataset, outer: Dataset, penalty: float, setting: Setting) -> float:
    """Of the proxy that knows a coreset chosen without the held-out points."""
    selector = BilevelSelector(
        kernel="precomputed", loss="cross-entropy", inner_reg=PerPoint(penalty), first="random"
    )
    context = Context(runtime=Runtime("cpu", threads=1, progress=False))
    chosen = selector.select(inner, setting.memory, rng=setting.seed, context=context)
    # nothing is added
    judged = selector.select(
        inner, len(chosen.indices), initial=chosen, outer=outer, context=context
    )
    return float(judged.objectives[-1])


def _kernels(dataset: str, word: str, task: Task, device: str) -> tuple[Dataset, Dataset]:
    kernel = proxy(dataset, word, device)
    x = torch.from_numpy(task.train.x)
    held = torch.from_numpy(task.held.x)
    return Dataset(kernel(x).double().numpy(), task.train.y), Dataset(
        kernel(held, x).double().numpy(), task.held.y
    )

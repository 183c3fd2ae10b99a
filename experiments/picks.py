"""The 40 picks of figure 5: one start point, the first 2500 images, 1000 candidates a step, binary
weights."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from bicore import BilevelSelector, Context, Dataset, PerPoint, Runtime
from experiments.settings import Setting
from experiments.tasks import Task

POOL = 2500
CANDIDATES = 1000
PICKS = 40
LAMBDA = 1e-7
METHODS = {"Coreset": "cross-entropy", "Coreset, squared error": "squared"}


def setting_of(method: str, seed: int) -> Setting:
    return Setting("MNIST", method, PICKS, seed)


def run(
    setting: Setting, tasks: Sequence[Task], device: str
) -> Iterator[tuple[float, dict[str, Any]]]:
    """The picks in order, and what the paper says of them: ten classes among the first ten, and
    more eights than ones."""
    start = time.perf_counter()
    pool = tasks[0].train[:POOL]
    selector = BilevelSelector(kernel="cntk")
    if METHODS[setting.method] == "cross-entropy":
        selector = BilevelSelector(
            kernel="cntk",
            loss="cross-entropy",
            inner_reg=PerPoint(LAMBDA),
            candidates=min(CANDIDATES, len(pool)),
            first="random",
        )
    context = Context(runtime=Runtime(device, progress=False))
    coreset = selector.select(
        Dataset(pool.x, pool.y), setting.memory, rng=setting.seed, context=context
    )
    labels = pool.y[coreset.indices].tolist()
    yield (
        0.0,
        {
            "picks": coreset.indices.tolist(),
            "labels": labels,
            "classes_in_first_ten": len(set(labels[:10])),
            "eights": labels.count(8),
            "ones": labels.count(1),
            "seconds": time.perf_counter() - start,
        },
    )

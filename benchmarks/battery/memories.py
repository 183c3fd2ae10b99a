"""Memories of rows sorted by class, as tasks or as a stream.

The rows that a memory ends with are evaluated on the problem of all classes, of which every part
that it chose from showed a few: a selection that only separates those scores badly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import feed
from bicore import Dataset
from bicore.methods.registry import build_selector
from bicore.runtime.context import Context
from bicore.streaming import ClassBalancedReservoir, MergeReduce, ReplayMemory, Reservoir
from bicore.streaming.buffer import Buffer

#: Classes of a task.
CLASSES_A_TASK = 2
#: Rows of a batch of the stream.
BATCH = 100
#: Buffers that need no selector, by name.
BUFFERS: dict[str, Callable[[int, int], Buffer]] = {
    "reservoir": Reservoir,
    "class-balanced-reservoir": ClassBalancedReservoir,
}


@dataclass(frozen=True, eq=False)
class Picks:
    """Chosen rows of a pool."""

    indices: np.ndarray
    weights: np.ndarray
    #: Of the model they were chosen for, if there was one.
    kernel: str | None = None


#: Rows that a memory holds at the end of a pool, by the name and the options of a selector or a
#: buffer, the pool, the capacity, the seed and the context.
Memory = Callable[[str, dict[str, Any], Dataset, int, int, Context], Picks]


def replay(
    name: str, options: dict[str, Any], data: Dataset, capacity: int, seed: int, context: Context
) -> Picks:
    """Tasks of two classes each (the first ones of three if the number is odd), in an order that
    the seed draws; earlier tasks shrink as the library has it."""
    memory = ReplayMemory(capacity, build_selector(name, **options), random_state=seed)
    order = _class_order(data.y, seed)
    tasks = [
        np.flatnonzero(np.isin(data.y, classes))
        for classes in np.array_split(order, max(1, len(order) // CLASSES_A_TASK))
    ]
    for rows in tasks:
        memory.add_task(data.x[rows], data.y[rows], model=context)
    indices = [rows[task.ids] for rows, task in zip(tasks, memory.tasks, strict=True)]
    # as in the rehearsal loss: the mean of a task counts as much as that of any other
    weights = [np.full(len(own), 1 / len(own)) for own in indices]
    return Picks(np.concatenate(indices), np.concatenate(weights), _kernel_name(memory))


def stream(
    name: str, options: dict[str, Any], data: Dataset, capacity: int, seed: int, context: Context
) -> Picks:
    """Batches of a stream that is sorted by class, in an order that the seed draws."""
    if name in BUFFERS:
        buffer = BUFFERS[name](capacity, seed)
    else:
        buffer = MergeReduce(capacity, build_selector(name, **options), slots=1, random_state=seed)
    place = np.argsort(_class_order(data.y, seed))
    codes = np.unique(data.y, return_inverse=True)[1]
    order = np.argsort(place[codes], kind="stable")
    kept = feed(buffer, data.x[order], data.y[order], BATCH, model=context).snapshot()
    return Picks(order[kept.ids], kept.weights, _kernel_name(buffer))


def _class_order(y: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng((seed, len(y))).permutation(np.unique(y))


def _kernel_name(memory: Any) -> str | None:
    kernel = getattr(getattr(memory, "selector", None), "kernel", None)
    return None if kernel is None else str(kernel.name)

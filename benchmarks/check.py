"""Find what became slower: seconds relative to a matrix product of the same run, compared with
recorded ratios.

    make bench-check        (python -m benchmarks check)
    python -m benchmarks check --record

A ratio does not depend on how fast the machine is, as long as it has the same kind of processor.
Every problem is timed several times next to the product, and the least ratio counts.
"""

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import numpy as np
import torch

from benchmarks.common import ONE_THREAD, feed, time_call
from benchmarks.pages import read_record
from bicore import select
from bicore.streaming import MomentMemory

#: A problem that is slower by more than this share is shown.
TOLERANCE = 0.2
#: Rows and columns of the product, and how often it runs to take about as long as a problem.
SIDE, TIMES = 600, 8


def run(arguments: Any) -> dict[str, Any]:
    torch.set_num_threads(1)
    ratios = {name: _least_ratio(work, arguments.repeats) for name, work in problems().items()}
    if not arguments.record:
        for line in slower(ratios, read_record("check")["ratios"]) or ["nothing became slower"]:
            print(line)
    return {"ratios": ratios}


def problems() -> dict[str, Callable[[], Any]]:
    """Small problems of every engine, a second each at most."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=600)
    x = rng.normal(size=(5, 30))[y] + rng.normal(size=(600, 30))

    def choose(size: int, **options: Any) -> Callable[[], Any]:
        return partial(select, x, y, size, runtime=ONE_THREAD, **options)

    network = {"method": "bilevel-ntk", "inner_reg": 1.0}
    return {
        "default, 50 of 600": choose(50),
        "squared error, 100 of 600": choose(100, **network),
        "cross-entropy, 30 of 600": choose(30, loss="cross-entropy", **network),
        "linear, 100 of 600": choose(100, kernel="linear", inner_reg=1.0),
        "moment memory, 600 rows": lambda: feed(MomentMemory(50), x, y, 100),
    }


def _least_ratio(work: Callable[[], Any], repeats: int) -> float:
    """Over a product that is timed before and after each run."""
    matrix = torch.ones(SIDE, SIDE, dtype=torch.float64)

    def multiply() -> None:
        for _ in range(TIMES):
            matrix @ matrix

    work()
    ratios = []
    for _ in range(repeats):
        times = [time_call(one, 1, process_time)[0] for one in (multiply, work, multiply)]
        ratios.append(2 * times[1] / (times[0] + times[2]))
    return min(ratios)


def slower(now: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """One line for each problem whose ratio grew by more than the tolerance."""
    return [
        f"{name}: {ratio:.2f} products, recorded {recorded[name]:.2f}"
        for name, ratio in now.items()
        if name in recorded and ratio > (1 + TOLERANCE) * recorded[name]
    ]

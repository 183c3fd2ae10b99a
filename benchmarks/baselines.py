"""Seconds of every method on the CPU: 10 000 points of 512 features, 500 chosen; and an MNIST pool
of 1000, 250 chosen.

    python -m benchmarks baselines --data DIR --record

Methods that look at a network get one that has been run over the points before: its pass is timed
apart.
"""

import time
from typing import Any

import numpy as np
import torch

from benchmarks.common import data_folder, on_cpu, report
from benchmarks.comparison import mnist_pools
from bicore import Dataset
from bicore.evaluate.models import convolutional, perceptron
from bicore.methods.baselines.simple import BatchBALD
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.registry import METHODS, build_selector
from bicore.networks.observe import observe
from bicore.runtime.context import Context

#: Points of the large problem, and points chosen from it and from MNIST.
POINTS, SIZES = 10_000, (500, 250)
#: BatchBALD scores every joint label for every point at every step: at 10 000 points that is
#: minutes, and it needs the network.
LARGE = [name for name in METHODS if name != "batchbald"]


def large() -> Dataset:
    """Points of 512 features in ten classes that overlap: a lazy rule skips nothing."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=POINTS)
    return Dataset(rng.normal(size=(POINTS, 512)) + 2 * np.eye(10, 512)[y], y)


def run(arguments: Any) -> dict[str, Any]:
    pool, _ = mnist_pools(data_folder(arguments.data)).of(0)
    torch.manual_seed(0)
    flat, images = perceptron((512,), 10), convolutional((1, 28, 28), 10)
    parts: dict[str, tuple[Any, ...]] = {
        "10 000 × 512, 500 points": (large(), SIZES[0], LARGE, flat, {"kernel": "linear"}),
        "MNIST pool of 1000, 250 points": (pool, SIZES[1], list(METHODS), images, {}),
    }
    rows: list[dict[str, Any]] = []

    def add(part: str, method: str, seconds: float, points: int, needs_model: bool) -> None:
        row = {"part": part, "method": method, "seconds": seconds, "points": points}
        rows.append({**row, "needs_model": needs_model})
        report(rows[-1])

    for part, (data, size, names, network, ours) in parts.items():
        start = time.perf_counter()
        seen = observe(network, data.x)
        passed = time.perf_counter() - start
        for name in names:
            selector = build_selector(name, **(ours if METHODS[name][0] is BilevelSelector else {}))
            model = network if isinstance(selector, BatchBALD) else seen
            context = on_cpu(model if selector.needs_model else None)
            timed = _timed(selector, data, size, context, arguments.repeats)
            add(part, name, *timed, selector.needs_model)
        add(part, "the network's pass", passed, 0, True)
    return {"rows": rows}


def _timed(
    selector: Any, data: Dataset, size: int, context: Context, repeats: int
) -> tuple[float, int]:
    """The least of several times; a method that takes long is timed once."""
    times: list[float] = []
    while len(times) < repeats and (not times or times[0] < 5):
        start = time.perf_counter()
        coreset = selector.select(data, size, **context.keywords)
        times.append(time.perf_counter() - start)
    return min(times), len(coreset)

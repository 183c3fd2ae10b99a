"""Seconds of every method on the CPU: 500 of 10,000 rows with 512 features, and 250 of 1,000 MNIST
images.

    python -m benchmarks baselines --data DIR --record

Methods that look at a network get one that has been run over the points before: its pass is timed
separately.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.common import CPU, data_folder, make_overlapping, time_call
from benchmarks.comparison import mnist_pools
from bicore import Dataset
from bicore.evaluate.models import convolutional, perceptron
from bicore.methods.baselines.simple import BatchBALD
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.registry import METHODS, build_selector
from bicore.networks.observe import observe

#: Points of the large problem, and points chosen from it and from MNIST.
POINTS, SIZES = 10_000, (500, 250)
#: BatchBALD scores every joint label for every point at every step: at 10 000 points that is
#: minutes, and it needs the network.
LARGE = [name for name in METHODS if name != "batchbald"]
#: Seconds of a method from which it is timed once.
LONG = 5


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    pool, _ = mnist_pools(data_folder(arguments.data)).of(0)
    torch.manual_seed(0)
    flat, images = perceptron((512,), 10), convolutional((1, 28, 28), 10)
    large = Dataset(*make_overlapping(POINTS, 512))
    parts: dict[str, tuple[Any, ...]] = {
        "10 000 × 512, 500 points": (large, SIZES[0], LARGE, flat, {"kernel": "linear"}),
        "MNIST pool of 1000, 250 points": (pool, SIZES[1], list(METHODS), images, {}),
    }
    for part, (data, size, names, network, ours) in parts.items():
        passed, seen = time_call(partial(observe, network, data.x))
        for name in names:
            selector = build_selector(name, **(ours if METHODS[name][0] is BilevelSelector else {}))
            model = network if isinstance(selector, BatchBALD) else seen
            options = {"model": model if selector.needs_model else None, "runtime": CPU}
            work = partial(selector.select, data, size, **options)
            seconds, coreset = time_call(work, arguments.repeats, most=LONG)
            row = {"part": part, "method": name, "seconds": seconds, "points": len(coreset)}
            yield {**row, "needs_model": selector.needs_model}
        row = {"part": part, "method": "the network's pass", "seconds": passed}
        yield {**row, "points": 0, "needs_model": True}

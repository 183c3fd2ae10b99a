"""What exchanges cost beside the greedy selection they start from, and what they gain.

    python -m benchmarks exchange --data DIR --record

Whole calls of ``bicore.select`` on one thread in float64, the kernel matrix included: MNIST with
the default kernel, and rows of a made-up embedding with the linear one. Seconds are the processor's
own, the least of some repeats, so that neighbours on the machine count little.
"""

import time
from typing import Any

import numpy as np

from benchmarks.common import best, data_folder, mnist_vectors, report
from bicore import Coreset, Runtime, select

#: Name, rows, points chosen, options, the most times greedy's seconds that were aimed at, repeats.
PROBLEMS = (
    ("MNIST", 1000, 100, {"rule": "gradient"}, 2.0, 3),
    ("MNIST", 1000, 100, {"rule": "gain"}, 2.0, 3),
    ("MNIST", 10_000, 500, {"rule": "gradient"}, 5.0, 1),
    ("embedding", 50_000, 100, {"kernel": "linear"}, None, 1),
)
WIDTH = 256


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    rows = []
    for name, count, size, options, aim, repeats in PROBLEMS:
        x, y = mnist_vectors(folder, "train", count) if name == "MNIST" else embedding(count)
        x = x.astype(np.float64)
        found = {"data": name, "rows": count, "size": size, "options": options, "aim": aim}
        for strategy in ("greedy", "exchange"):
            seconds, coreset = timed(x, y, size, repeats, strategy=strategy, **options)
            found[strategy] = {"seconds": seconds, "objective": coreset.objective}
        found["exchanges"] = coreset.details["exchanges"]
        found["ratio"] = found["exchange"]["seconds"] / found["greedy"]["seconds"]
        rows.append(found)
        report(found)
    return {"rows": rows}


def embedding(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes in 256 directions of falling spread."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, WIDTH))
    y = rng.integers(0, 10, count)
    spread = 1 / np.sqrt(1 + np.arange(WIDTH))
    x = 0.5 * centres[y] + rng.normal(size=(count, WIDTH)) * spread
    return x / np.sqrt(WIDTH), y


def timed(x: Any, y: Any, size: int, repeats: int, **options: Any) -> tuple[float, Coreset]:
    """The least processor time of a whole call, and its coreset."""
    runtime = Runtime("cpu", "float64", progress=False, threads=1)
    found: list[Coreset] = []

    def work() -> None:
        found.append(select(x, y, size=size, runtime=runtime, **options))

    return best(work, repeats, time.process_time), found[-1]

"""Time and memory of a selection by rows, features and kernel, next to their estimates.

    python -m benchmarks estimates --record

Rows of a made-up embedding of ten classes, 100 of them chosen, one thread, 8 GB allowed. Seconds
are processor time of a whole call, so that other processes count little; next to them are those
that ``bicore.estimate`` had expected by its own processor time, and the bytes it had planned. The
constants of the estimate were fitted on other numbers of rows, features and points.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.common import ONE_THREAD, time_call
from bicore import estimate, select
from bicore.runtime.clock import Clock

SIZE, MEMORY, CLASSES = 100, "8GB", 10
EVERY = ("default", "linear", "laplace", "ntk")
#: Rows, features and kernels; and of those in files.
ARRAYS = (
    (1000, 64, EVERY),
    (10_000, 256, EVERY),
    (50_000, 256, EVERY),
    (50_000, 768, ("default",)),
    (200_000, 256, ("default",)),
)
FILES = ((1_000_000, 256),)
#: Rows that are made at a time.
BLOCK = 50_000


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    for count, width, kernels in ARRAYS:
        data = embedding(count, width)
        options = {name: {} if name == "default" else {"kernel": name} for name in kernels}
        ways = {name: _measure(data, one) for name, one in options.items()}
        yield {"rows": count, "width": width, "ways": ways}
    for count, width in FILES:
        with tempfile.TemporaryDirectory(prefix="bicore-estimates-") as folder:
            for number, start in enumerate(range(0, count, BLOCK)):
                x, y = embedding(min(BLOCK, count - start), width, seed=number)
                np.save(Path(folder) / f"x-{number:03d}.npy", x.astype(np.float16))
                np.save(Path(folder) / f"y-{number:03d}.npy", y)
            yield {"rows": count, "width": width, "ways": {"files": _measure((folder,), {})}}
    return {"size": SIZE, "memory": MEMORY}


def _measure(data: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Expected, then done."""
    options = {"size": SIZE, "runtime": replace(ONE_THREAD, memory=MEMORY), **options}
    with mock.patch.object(Clock, "now", process_time):
        expected = estimate(*data, **options)
    seconds, coreset = time_call(partial(select, *data, **options), 1, process_time)
    return {
        "seconds": seconds,
        "expected_seconds": expected.seconds,
        "bytes": expected.bytes,
        "held": expected.operator,
        "stand_in": expected.approximation is not None,
        "kernel": coreset.provenance.kernel,
    }


def embedding(count: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes of the same spread in every direction; the centres do not depend on the seed."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((CLASSES, width), dtype=np.float32)
    y = rng.integers(0, CLASSES, count)
    return rng.standard_normal((count, width), dtype=np.float32) + 0.3 * centres[y], y

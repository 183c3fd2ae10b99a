"""How long a selection takes by rows, features and kernel, and how much memory.

    python -m benchmarks estimates --record

Rows of a made-up embedding of ten classes, 100 of them chosen, one thread, 8 GB allowed. Seconds
are the processor's own of a whole call, so that neighbours on the machine count little; beside them
is what ``bicore.estimate`` had expected, and the bytes it had planned. Files are read in parts.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import report
from bicore import Runtime, estimate, select

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


def run(arguments: Any) -> dict[str, Any]:
    rows = []

    def add(count: int, width: int, ways: dict[str, Any]) -> None:
        rows.append({"rows": count, "width": width, "ways": ways})
        report(rows[-1])

    for count, width, kernels in ARRAYS:
        data = embedding(count, width)
        options = {name: {} if name == "default" else {"kernel": name} for name in kernels}
        add(count, width, {name: _way(data, one) for name, one in options.items()})
    for count, width in FILES:
        with tempfile.TemporaryDirectory(prefix="bicore-estimates-") as folder:
            _write(Path(folder), count, width)
            add(count, width, {"files": _way((folder,), {})})
    return {"size": SIZE, "memory": MEMORY, "rows": rows}


def _way(data: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Expected, then done."""
    runtime = Runtime("cpu", memory=MEMORY, threads=1, progress=False)
    expected = estimate(*data, size=SIZE, runtime=runtime, **options)
    start = time.process_time()
    coreset = select(*data, size=SIZE, runtime=runtime, **options)
    return {
        "seconds": time.process_time() - start,
        "expected_seconds": expected.seconds,
        "bytes": expected.bytes,
        "held": expected.operator,
        "stand_in": expected.approximation is not None,
        "kernel": coreset.provenance.kernel,
    }


def embedding(count: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes of the same spread in every direction."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((CLASSES, width), dtype=np.float32)
    y = rng.integers(0, CLASSES, count)
    x = rng.standard_normal((count, width), dtype=np.float32)
    x += 0.3 * centres[y]
    return x, y


def _write(folder: Path, count: int, width: int) -> None:
    for number, start in enumerate(range(0, count, BLOCK)):
        x, y = embedding(min(BLOCK, count - start), width, seed=number)
        np.save(folder / f"x-{number:03d}.npy", x.astype(np.float16))
        np.save(folder / f"y-{number:03d}.npy", y)

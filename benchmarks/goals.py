"""Problems with a goal for seconds, memory or rows per second on one thread, next to a lower bound.

    python -m benchmarks goals --data DIR --repeats 3 --record [--methods NAME,…]

Each problem runs in a process of its own. Seconds are processor time, the least of the repeats, so
that other processes disturb them little; a problem that takes more than a minute runs once. DIR
has MNIST, cifar10-embedding and banking77-embedding (train.npy, train_labels.npy). A problem
that is not named with ``--methods`` keeps its row of the record; ``idle`` has rows of a machine
with free cores.
"""

import resource
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch

from benchmarks import scale, stream_moments
from benchmarks.busy import measure_rates
from benchmarks.common import (
    ONE_THREAD,
    call_alone,
    cifar_embedding,
    data_folder,
    make_embedding,
    make_overlapping,
    mnist_vectors,
    read_known,
    report,
    time_call,
)
from benchmarks.pages import format_count
from bicore import select
from bicore.bilevel import PerPoint
from bicore.shards.executors import Threads
from bicore.shards.selection import select_from_shards

#: Seconds from which a problem runs once.
LONG = 60.0
EXACT_ROWS, EXACT_POINTS = 100_000, 10
Found = dict[str, Any]


def run(arguments: Any) -> Found:
    folder, known = data_folder(arguments.data), read_known("goals")
    rows = {row["name"]: row for row in known.get("rows", ())}
    for name in arguments.methods.split(",") if arguments.methods else PROBLEMS:
        found = call_alone(_run_problem, name, folder, arguments.repeats)
        rows[name] = {"name": name, **found}
        report(rows[name])
    found = {"rows": [rows[name] for name in PROBLEMS if name in rows]}
    return found | {key: known[key] for key in ("idle",) if key in known}


def _run_problem(name: str, folder: str, repeats: int) -> Found:
    torch.set_num_threads(1)
    return PROBLEMS[name](folder, repeats)


def measure(work: Callable[[], Any], repeats: int) -> float:
    """The least processor seconds."""
    return time_call(work, repeats, process_time, LONG)[0]


def cross_entropy(folder: str, repeats: int) -> Found:
    x, y = mnist_vectors(folder, limit=1000)
    x = x.astype(np.float64)
    options = {"method": "bilevel-ntk", "loss": "cross-entropy", "inner_reg": PerPoint(1e-3)}
    seconds = measure(partial(select, x, y, 100, runtime=ONE_THREAD, **options), repeats)
    bound = 100 * 2 * 1000**2 * 10 / measure_rates()["operations"]
    words = "100 of 1 000 images of MNIST, cross-entropy, λ of the paper, float64"
    return {"problem": words, "seconds": seconds, "goal": 0.62, "bound": bound}


def default(folder: str, repeats: int) -> Found:
    x, y = (part[:10_000].copy() for part in cifar_embedding(folder, "train"))
    seconds = measure(partial(select, x, y, 100, runtime=ONE_THREAD), repeats)
    words = "100 of 10 000 × 256 rows of an embedding, all defaults"
    facts = {"problem": words, "seconds": seconds, "goal": 5.0, "goal_bytes": 600e6}
    return {**facts, **_measure_reading(x, 100)}


def many_classes(folder: str, repeats: int) -> Found:
    place = Path(folder) / "banking77-embedding"
    x, y = np.load(place / "train.npy"), np.load(place / "train_labels.npy")
    seconds = measure(partial(select, x, y, 154, runtime=ONE_THREAD), repeats)
    words = "154 of 10 003 × 512 rows of 77 classes, all defaults"
    return {"problem": words, "seconds": seconds, "goal": 20.0, **_measure_reading(x, 154)}


def exchanges(folder: str, repeats: int, rows: int = 50_000, size: int = 2500) -> Found:
    x, y = make_embedding(rows, 256)
    options = {"kernel": "linear", "inner_reg": 10.0, "strategy": "exchange", "exact": True}
    seconds = measure(partial(select, x, y, size, runtime=ONE_THREAD, **options), repeats)
    counts = f"{format_count(size)} of {format_count(rows)}"
    words = f"{counts} × 256 made-up rows, exchanges in features"
    facts = {"problem": words, "seconds": seconds, "goal": 120.0, "goal_bytes": 4e9}
    # all features times two vectors for each point, and for each pair of the first and last pass
    bound = 3 * 4.0 * size * x.size / measure_rates()["operations"]
    return {**facts, "peak_bytes": _peak_bytes(), "bound": bound}


def moment_memory(folder: str, repeats: int) -> Found:
    features, width, batch = 64, 512, stream_moments.BATCH
    x, y = make_overlapping(batch * 100, features)
    runs = [stream_moments.time_stream(x.astype(np.float32), y, width) for _ in range(repeats)]
    needed = stream_moments.multiplications(features, width)
    bound = batch * stream_moments.multiplications_a_second("float64") / sum(needed.values())
    words = "`MomentMemory`, 64 columns, p = 512, batches of 125, 100 rows kept"
    found = batch / min(float(np.mean(one["times"])) for one in runs)
    return {"problem": words, "rows_a_second": found, "goal": 6500.0, "bound": bound}


def exact_passes(width: int, folder: str, repeats: int) -> Found:
    """Passes in units of a bare pass, which reads, converts and multiplies all rows."""
    with tempfile.TemporaryDirectory(prefix="bicore-goals-") as place:
        source = scale.write_rows(Path(place), EXACT_ROWS, width)
        options = {"executor": Threads(1), "runtime": ONE_THREAD, "exact": True}
        bare = measure(partial(scale.bare_pass, source, 1), 10)
        one, more = (
            measure(partial(select_from_shards, source, points, **options), repeats)
            for points in (1, 1 + EXACT_POINTS)
        )
    words = f"exact passes by gains, {format_count(EXACT_ROWS)} × {width} rows of a file"
    passes = (more - one) / EXACT_POINTS / bare
    return {"problem": words, "bare_passes": passes, "goal": 5.0, "bound": 1.0}


def _measure_reading(x: np.ndarray, size: int) -> Found:
    """The peak of memory so far, and the bound of reading all features once for each point."""
    return {"peak_bytes": _peak_bytes(), "bound": size * 8 * x.size / measure_rates()["bytes"]}


def _peak_bytes() -> int:
    """The peak of memory so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


PROBLEMS: dict[str, Callable[[str, int], Found]] = {
    "cross_entropy": cross_entropy,
    "default": default,
    "many_classes": many_classes,
    "moment_memory": moment_memory,
    "exact_256": partial(exact_passes, 256),
    "exact_512": partial(exact_passes, 512),
    "exchanges": exchanges,
}

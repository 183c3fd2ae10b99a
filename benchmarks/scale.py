"""Selection in passes over rows in parts: seconds, passes, memory, and the loss compared with
selection in memory.

    python -m benchmarks scale --json [--record] [--processes THREADS] [--pool MOST_ROWS]
    python -m benchmarks scale --device cuda --json     on a card, rows made there

Every file is chosen from in a process of its own, so that its memory is its own: the peak without
mapped files, with the interpreter. A bare pass converts all rows and multiplies them by 20 columns,
with the same number of threads.
"""

import math
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import (
    Peak,
    call_alone,
    cifar_embedding,
    device_seconds,
    mnist_vectors,
    report,
    time_call,
)
from bicore import Coreset
from bicore.moments.features import RandomReLU
from bicore.runtime.context import Runtime
from bicore.shards.executors import Executor, GPUExecutor, Threads
from bicore.shards.selection import select_from_shards
from bicore.sources.numpy_files import NpyShards
from bicore.sources.parts import ArrayShards

CLASSES, SIZE = 10, 1000
FILES = ((100_000, 256), (100_000, 512), (1_000_000, 256), (4_000_000, 256))
MOST_ROWS = 1_000_000
#: Points of the exact way, which takes one a pass: seconds a point are shown.
EXACT_SIZE = 10
#: Points of the comparison with the exact way.
QUALITY_SIZE = 200
FEATURES = 256
COLUMNS = 20
#: Rows, columns, classes, points and the goal in seconds.
CARD_CASES = (
    (10_000_000, 256, 10, 10_000, 60.0),
    (1_000_000, 1024, 10, 5000, 30.0),
    (1_280_000, 768, 1000, 12_800, 120.0),
)
CARD_PART_ROWS = 2**20
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "default, no exchange": {"exchange": False},
    "exact, gain": {"exact": True, "rule": "gain"},
    "exact, gradient": {"exact": True, "rule": "gradient"},
}


def run(arguments: Any) -> dict[str, Any]:
    if arguments.device != "cpu":
        return {"record": "scale_gpu", **_measure_card()}
    threads = arguments.processes
    with tempfile.TemporaryDirectory(prefix="bicore-scale-") as place:
        folder = Path(place)
        rows = []
        for count, width in FILES:
            if count <= (arguments.pool or MOST_ROWS):
                write_rows(folder, count, width)
                facts = {"count": count, "width": width, "size": SIZE}
                rows.append({**facts, **call_alone(_measure_file, folder, threads)})
                report(rows[-1])
    exponent = _exponent([row for row in rows if row["width"] == 256])
    quality = list(_compare_exact(arguments))
    return {"threads": threads, "rows": rows, "exponent": exponent, "quality": quality}


def open_rows(folder: Path, **options: Any) -> NpyShards:
    return NpyShards(folder / "x.npy", labels=folder / "y.npy", **options)


def write_rows(folder: Path, count: int, width: int, **options: Any) -> NpyShards:
    """Write rows of ten classes to a file in float16."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, count)
    centres = 0.3 * rng.standard_normal((CLASSES, width), dtype=np.float32)
    rows = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float16, (count, width))
    for start in range(0, count, 50_000):
        own = labels[start : start + 50_000]
        noise = rng.standard_normal((len(own), width), dtype=np.float32)
        rows[start : start + 50_000] = noise + centres[own]
    rows.flush()
    np.save(folder / "y.npy", labels)
    return open_rows(folder, **options)


def _measure_file(folder: Path, threads: int) -> dict[str, Any]:
    source = open_rows(folder)
    bare, _ = time_call(partial(bare_pass, source, threads), 3)
    runtime = Runtime(threads=threads, progress=False)
    timed = Timed(Threads(threads))
    with Peak() as peak:
        found = select_from_shards(source, SIZE, executor=timed, runtime=runtime)
    exact = Timed(Threads(threads))
    options = {"executor": exact, "runtime": runtime, "exact": True}
    seconds, _ = time_call(partial(select_from_shards, source, EXACT_SIZE, **options))
    point = (seconds - exact.seconds[0]) / EXACT_SIZE
    return {
        "bare_pass": bare,
        **timed.facts(found, peak.seconds),
        "peak_bytes": peak.bytes,
        "peak_bytes_beyond_imports": peak.bytes - peak.before,
        "exact_in_bare_passes_a_point": point / bare,
    }


def bare_pass(source: NpyShards, threads: int) -> None:
    columns = np.random.default_rng(0).standard_normal((source.shape[0], COLUMNS), dtype=np.float32)

    def work(source: NpyShards, part: Any) -> float:
        x = source.read(part).x
        steps = np.array_split(x, max(1, len(x) // 1024))
        return sum(float((step.astype(np.float32) @ columns)[0, 0]) for step in steps)

    list(Threads(threads).map(work, source))


class Timed(Executor):
    """Another executor with the seconds of every pass, and this process's own ones of all."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.device = executor.device
        self.seconds: list[float] = []
        self.own = 0.0

    def map(self, work: Any, source: Any) -> Iterator[Any]:
        start, own = time.perf_counter(), time.process_time()
        yield from self.executor.map(work, source)
        self.seconds.append(time.perf_counter() - start)
        self.own += time.process_time() - own

    def facts(self, found: Coreset, seconds: float) -> dict[str, Any]:
        """Passes and seconds of a selection."""
        first, further = self.seconds[0], float(np.median(self.seconds[1:]))
        facts = {"seconds": seconds, "first_pass": first, "further_pass": further}
        return {**facts, "passes": found.details["passes"], "objective": found.objective}


def _exponent(rows: list[dict[str, Any]]) -> float | None:
    """The slope of log seconds in log rows, first to last."""
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    return math.log(last["seconds"] / first["seconds"]) / math.log(last["count"] / first["count"])


def _compare_exact(arguments: Any) -> Iterator[dict[str, Any]]:
    """The default compared with one point a pass."""
    threads = Threads(arguments.processes)
    for name, x, y in _sets(arguments.data):
        source = ArrayShards(x, y, part_rows=8192)
        found = {}
        for way, options in WAYS.items():
            one = select_from_shards(source, QUALITY_SIZE, executor=threads, **options)
            found[way] = {"objective": one.objective, "passes": one.details["passes"]}
        own, exact, other = (
            found[way]["objective"] for way in ("default", "exact, gain", "exact, gradient")
        )
        row = {"data": name, "count": len(x), "size": QUALITY_SIZE, "ways": found}
        row |= {"default_over_exact": own / exact}
        row |= {"default_over_best_exact": own / min(exact, other)}
        report(row)
        yield row


def _sets(folder: str | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, 100_000)
    # Several kinds of each class in few directions, as digits are.
    kinds = rng.standard_normal((CLASSES, 6, 12)) @ rng.standard_normal((12, 64))
    rows = kinds[labels, rng.integers(0, 6, len(labels))]
    rows = np.maximum(rows + 2.0 * rng.standard_normal(rows.shape), 0)
    yield "made up, like digits", rows.astype(np.float16), labels
    if (Path(folder or ".") / "cifar10-embedding").exists():
        x, y = cifar_embedding(folder, "train")
        yield "CIFAR-10 embedding", x.astype(np.float32), y
    if (Path(folder or ".") / "MNIST").exists():
        x, y = mnist_vectors(folder)
        chosen = RandomReLU(FEATURES, random_state=0).fit(x[:1000])
        rows = [chosen.features(part) for part in torch.from_numpy(x).split(10_000)]
        yield "MNIST in random features", torch.cat(rows).half().numpy(), y


def _measure_card() -> dict[str, Any]:
    held = torch.empty(2**30, dtype=torch.float16, device="cuda")
    a = torch.randn(8192, 8192, device="cuda")
    rates = {
        "bytes_a_second": held.nbytes / device_seconds(held.sum),
        "multiply_adds_a_second": 8192**3 / device_seconds(lambda: a @ a),
    }
    rows = []
    for count, width, classes, size, goal in CARD_CASES:
        x, y = _make_on_card(count, width, classes)
        source = ArrayShards(x, y, part_rows=CARD_PART_ROWS)
        timed = Timed(GPUExecutor("cuda"))
        torch.cuda.reset_peak_memory_stats()
        with timed.executor:
            seconds, found = time_call(partial(select_from_shards, source, size, executor=timed))
        facts = timed.facts(found, seconds)
        work = count * min(2 * width * classes, width**2) / rates["multiply_adds_a_second"]
        row = {"count": count, "width": width, "classes": classes, "size": size, "goal": goal}
        row |= facts | {
            "floor_bytes_seconds": facts["passes"] * x.nbytes / rates["bytes_a_second"],
            "floor_multiply_adds_seconds": facts["passes"] * work,
            "peak_bytes_of_the_card": torch.cuda.max_memory_allocated(),
        }
        report(row)
        rows.append(row)
    return {"rates": rates, "same_picks": _same_picks(), "rows": rows}


def _same_picks() -> bool:
    source = ArrayShards(*_make_on_card(50_000, 128, CLASSES))
    gpu, host = (
        select_from_shards(source, 200, executor=one).indices
        for one in (GPUExecutor("cuda"), Threads())
    )
    return bool(np.array_equal(gpu, host))


def _make_on_card(count: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    draw = torch.Generator("cuda").manual_seed(0)
    labels = torch.randint(0, classes, (count,), generator=draw, device="cuda")
    centres = 0.3 * torch.randn(classes, width, generator=draw, device="cuda")
    rows = torch.empty(count, width, dtype=torch.float16)
    for start in range(0, count, CARD_PART_ROWS):
        own = labels[start : start + CARD_PART_ROWS]
        noise = torch.randn(len(own), width, generator=draw, device="cuda")
        rows[start : start + CARD_PART_ROWS] = (noise + centres[own]).half().cpu()
    return rows.numpy(), labels.cpu().numpy()

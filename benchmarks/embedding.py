"""What chosen rows of a real embedding train: 50 000 rows, logistic and ridge heads, every method
of ``compare`` that needs no network.

    python -m benchmarks embedding --data DIR --json --record [--pool MOST_SIZE] [--rows FILE]

DIR holds cifar10-embedding/train.npz and test.npz (x, y). A selection that takes longer than its
limit is a row that says so, and the method is not asked for larger sizes. A rerun goes on from the
rows it finds.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import bicore
from benchmarks.common import Rows, cifar_embedding, report
from benchmarks.linear_heads import Data, head_accuracies
from bicore import Runtime
from bicore.errors import BicoreError
from bicore.selectors import METHODS, as_selector
from bicore.shards import select_from_shards
from bicore.sources import ArrayShards

SIZES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
#: Seeds of what is drawn at random.
DRAWN = ("uniform", "class-balanced")
SEEDS = 3
#: Seconds that a selection may take; one point a pass is made up to the size beside it.
LIMIT = float(os.environ.get("BICORE_LIMIT", 120))
EXACT_SIZES = {"gradient": 5000, "gain": 500}
DEFAULT = "from shards"
Pick = Callable[[int], np.ndarray]


def run(arguments: Any) -> dict[str, Any]:
    data = embedding_data(arguments.data)
    most = arguments.pool or max(SIZES)
    sizes = [size for size in SIZES if size <= most]
    done = Rows(arguments.rows)
    for name, seed, pick in _ways(data):
        if name.startswith("one point a pass"):
            _add_prefixes(done, name, pick, [s for s in sizes if s <= _most_exact(name)], data)
        else:
            all(_add_row(done, name, seed, size, pick, data) for size in sizes)
    rows = [row for row in done if row["size"] <= most]
    return {"limit_seconds": LIMIT, "rows": rows}


def embedding_data(folder: str | None) -> Data:
    (x, y), (test_x, test_y) = (cifar_embedding(folder, part) for part in ("train", "test"))
    return {"x": x.astype(np.float32), "y": y, "test_x": test_x, "test_y": test_y}


def _ways(data: Data) -> list[tuple[str, int, Pick]]:
    source = ArrayShards(data["x"], data["y"], part_rows=8192)

    def shards(**options: Any) -> Pick:
        return lambda size: select_from_shards(source, size, **options).indices

    def method(name: str, seed: int) -> Pick:
        runtime = Runtime("cpu", max_seconds=LIMIT, progress=False)
        return lambda size: _whole(
            bicore.select(data["x"], data["y"], size, method=name, seed=seed, runtime=runtime), size
        )

    ways = [(name, seed, method(name, seed)) for name in DRAWN for seed in range(SEEDS)]
    ways.append((DEFAULT, 0, shards()))
    ways += [
        (f"one point a pass, {rule}", 0, shards(passes="exact", rule=rule)) for rule in EXACT_SIZES
    ]
    others = [name for name in METHODS if name not in DRAWN and not as_selector(name).needs_model]
    return ways + [(name, 0, method(name, 0)) for name in others]


def _whole(coreset: Any, size: int) -> np.ndarray:
    if len(coreset) < size:
        raise TimeoutError(f"{len(coreset)} of {size} points in {LIMIT:.0f} s")
    return np.asarray(coreset.indices)


def _most_exact(name: str) -> int:
    return EXACT_SIZES[name.rsplit(" ", 1)[1]]


def _add_row(done: Rows, name: str, seed: int, size: int, pick: Pick, data: Data) -> bool:
    """Add one selection with its accuracies; whether it was made."""
    row = done.find(method=name, seed=seed, size=size)
    if row is None:
        row = {"method": name, "seed": seed, "size": size}
        start = time.perf_counter()
        try:
            picks = pick(size)
        except (BicoreError, TimeoutError, MemoryError) as error:
            row["failed"] = str(error).splitlines()[0]
        else:
            row["seconds"] = time.perf_counter() - start
            row |= head_accuracies(picks, data)
        done.add(row)
        report(row)
    return "failed" not in row


def _add_prefixes(done: Rows, name: str, pick: Pick, sizes: list[int], data: Data) -> None:
    """Sizes of one run: its points in order."""
    missing = [size for size in sizes if done.find(method=name, seed=0, size=size) is None]
    if not missing:
        return
    start = time.perf_counter()
    picks = pick(max(sizes))
    seconds = time.perf_counter() - start
    for size in missing:
        row = {"method": name, "seed": 0, "size": size, "seconds_of_largest": seconds}
        done.add(row | head_accuracies(picks[:size], data))

"""What chosen rows of a real embedding train: 50 000 rows, logistic and ridge heads, every method
of ``compare`` that needs no network.

    python -m benchmarks embedding --data DIR --json --record [--pool MOST_SIZE] [--rows FILE]

DIR holds cifar10-embedding/train.npz and test.npz (x, y). A selection that takes longer than its
limit is a row that says so, and the method is not asked for larger sizes. A rerun goes on from the
rows it finds.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bicore
from benchmarks.common import report
from benchmarks.linear_heads import logistic_accuracy, ridge_accuracy
from bicore import Runtime
from bicore.errors import BicoreError, InputError
from bicore.selectors import METHODS, as_selector
from bicore.shards import select_from_shards
from bicore.shards.sources import ArrayShards

SIZES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
#: Seeds of what is drawn at random.
DRAWN = ("uniform", "class-balanced")
SEEDS = 3
#: Seconds that a selection may take; one point a pass is made up to the size beside it.
LIMIT = float(os.environ.get("BICORE_LIMIT", 120))
EXACT_SIZES = {"gradient": 5000, "gain": 500}
CLASSES = 10
DEFAULT = "from shards"


def run(arguments: Any) -> dict[str, Any]:
    data = _data(arguments.data)
    most = arguments.pool or max(SIZES)
    sizes = [size for size in SIZES if size <= most]
    done = Done(Path(arguments.rows))
    for name, seed, pick in _ways(data, sizes):
        if name.startswith("one point a pass"):
            _prefixes(done, name, pick, [s for s in sizes if s <= _most_exact(name)], data)
            continue
        for size in sizes:
            if not _row(done, name, seed, size, pick, data):
                break
    rows = [row for row in done.rows if row["size"] <= most]
    return {"limit_seconds": LIMIT, "rows": rows}


Data = dict[str, np.ndarray]
Pick = Callable[[int], np.ndarray]


def _data(folder: str | None) -> Data:
    place = Path(folder or ".") / "cifar10-embedding"
    if not (place / "train.npz").exists():
        raise InputError(f"{place}/train.npz is not there; pass --data DIR with the embedding.")
    with np.load(place / "train.npz") as train, np.load(place / "test.npz") as test:
        return {
            "x": train["x"].astype(np.float32),
            "y": train["y"].astype(np.int64),
            "test_x": test["x"].astype(np.float64),
            "test_y": test["y"].astype(np.int64),
        }


def _ways(data: Data, sizes: list[int]) -> list[tuple[str, int, Pick]]:
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


class Done:
    """Rows on disk, so that a rerun goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def find(self, name: str, seed: int, size: int) -> dict[str, Any] | None:
        wanted = (name, seed, size)
        keys = ("method", "seed", "size")
        same = [row for row in self.rows if tuple(row[key] for key in keys) == wanted]
        return same[0] if same else None

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        report(row)


def _row(done: Done, name: str, seed: int, size: int, pick: Pick, data: Data) -> bool:
    """One selection, judged; whether it was made."""
    known = done.find(name, seed, size)
    if known is None:
        known = {"method": name, "seed": seed, "size": size}
        start = time.perf_counter()
        try:
            picks = pick(size)
        except (BicoreError, TimeoutError, MemoryError) as error:
            known["failed"] = str(error).splitlines()[0]
        else:
            known["seconds"] = time.perf_counter() - start
            known |= _judged(picks, data)
        done.add(known)
    return "failed" not in known


def _prefixes(done: Done, name: str, pick: Pick, sizes: list[int], data: Data) -> None:
    """Sizes of one run: its points in order."""
    missing = [size for size in sizes if done.find(name, 0, size) is None]
    if not missing:
        return
    start = time.perf_counter()
    picks = pick(max(sizes))
    seconds = time.perf_counter() - start
    for size in missing:
        told = {"method": name, "seed": 0, "size": size, "seconds_of_largest": seconds}
        done.add(told | _judged(picks[:size], data))


def _judged(picks: np.ndarray, data: Data) -> dict[str, float]:
    x, y = data["x"][picks].astype(np.float64), data["y"][picks]
    test = data["test_x"], data["test_y"]
    return {
        "logistic": logistic_accuracy(x, y, *test),
        "ridge": ridge_accuracy(x, y, *test, CLASSES),
    }

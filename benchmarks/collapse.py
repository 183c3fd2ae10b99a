"""Answers from a single class: Gaussian classes of unequal shares, and pairs of MNIST digits.

    python -m benchmarks collapse --data DIR --seeds 200 --processes 2 --record

Each selection is made from arrays, and from files that are read in passes.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.common import report
from bicore import Runtime, select
from bicore.sources.opening import open_source

SHARES = (0.5, 0.3, 0.1)
SIZES = (2, 5, 10, 20)
ROWS, COLUMNS, DIGITS, POINTS = 600, 100, 2000, 10
#: Files that the rows are written to.
PARTS = 3
RUNTIME = Runtime(device="cpu", threads=1, progress=False)


def run(arguments: Any) -> dict[str, Any]:
    """Count single-class answers and compare accuracies with uniform samples."""
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        jobs = list(product(SHARES, SIZES, [arguments.seeds]))
        cells = pool.starmap(_cell, jobs, chunksize=1)
        found: dict[str, Any] = {"cells": cells}
        if arguments.data:
            pairs = pool.starmap(
                _pair, [(arguments.data, *two) for two in combinations(range(10), 2)]
            )
            found["digits"] = {
                "pairs": len(pairs),
                **{k: sum(one[k] for one in pairs) for k in pairs[0]},
            }
    return found


def _gaussians(seed: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(ROWS) < share).astype(int)
    x = rng.normal(size=(ROWS, COLUMNS)) + (2 * y[:, None] - 1) * 0.5
    return (x - x.mean(0)) / x.std(0), y


def _accuracy(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> float:
    if len(np.unique(y[rows])) == 1:
        return float((y == y[rows[0]]).mean())
    return float(LogisticRegression().fit(x[rows], y[rows]).score(x, y))


def _choose_from_files(x: np.ndarray, y: np.ndarray, size: int) -> np.ndarray:
    with tempfile.TemporaryDirectory(prefix="bicore-collapse-") as folder:
        for number, rows in enumerate(np.array_split(np.arange(len(y)), PARTS)):
            np.save(Path(folder) / f"x-{number}.npy", x[rows])
            np.save(Path(folder) / f"y-{number}.npy", y[rows])
        return select(folder, size=size, passes=True, runtime=RUNTIME).indices


def _cell(share: float, size: int, seeds: int) -> dict[str, Any]:
    """Accuracies of one share and size: mean and worst seed by the way rows were chosen."""
    ways: dict[str, list[float]] = {"arrays": [], "files": [], "uniform": []}
    single = dict.fromkeys(ways, 0)
    for seed in range(seeds):
        x, y = _gaussians(seed, share)
        chosen = {
            "arrays": select(x, y, size, runtime=RUNTIME).indices,
            "files": _choose_from_files(x, y, size),
            "uniform": np.random.default_rng((seed, size)).permutation(ROWS)[:size],
        }
        for way, rows in chosen.items():
            single[way] += int(len(np.unique(y[rows])) == 1)
            ways[way].append(_accuracy(x, y, rows))
    scores = {way: [round(float(np.mean(own)), 4), round(min(own), 4)] for way, own in ways.items()}
    found = {"share": share, "size": size, "seeds": seeds, "single_class": single, **scores}
    report(found)
    return found


def _pair(folder: str, first: int, second: int) -> dict[str, int]:
    """Whether the picks of two digits are of one class, by kernel."""
    data = open_source("mnist", folder=folder, limit=DIGITS).data
    y = np.asarray(data.y)
    own = np.isin(y, (first, second))
    x = np.asarray(data.x, dtype=float).reshape(len(y), -1)[own]
    return {
        kernel: int(
            len(set(y[own][select(x, y[own], POINTS, kernel=kernel, runtime=RUNTIME).indices])) == 1
        )
        for kernel in ("auto", "linear")
    }

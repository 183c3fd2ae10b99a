"""Selections from a single class: Gaussian classes of unequal shares, and pairs of MNIST digits.

    python -m benchmarks collapse --data DIR --seeds 200 --processes 2 --record

Each selection is made from arrays, and from files that are read in passes.
"""

from __future__ import annotations

import tempfile
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.common import ONE_THREAD, fit_score, mnist_vectors, run_jobs
from bicore import select

SHARES = (0.5, 0.3, 0.1)
SIZES = (2, 5, 10, 20)
ROWS, COLUMNS, DIGITS, POINTS = 600, 100, 2000, 10
#: Files that the rows are written to.
PARTS = 3


def run(arguments: Any) -> dict[str, Any]:
    """Count single-class answers and compare accuracies with random samples."""
    jobs = product(SHARES, SIZES, [arguments.seeds])
    cells = list(run_jobs(_measure_cell, jobs, arguments.processes))
    found: dict[str, Any] = {"cells": sorted(cells, key=lambda one: (-one["share"], one["size"]))}
    if arguments.data:
        jobs = [(arguments.data, *two) for two in combinations(range(10), 2)]
        pairs = list(run_jobs(_is_collapsed, jobs, arguments.processes))
        counts = {kernel: sum(one[kernel] for one in pairs) for kernel in pairs[0]}
        found["digits"] = {"pairs": len(pairs), **counts}
    return found


def _gaussians(seed: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(ROWS) < share).astype(int)
    x = rng.normal(size=(ROWS, COLUMNS)) + (2 * y[:, None] - 1) * 0.5
    return (x - x.mean(0)) / x.std(0), y


def _choose_from_files(x: np.ndarray, y: np.ndarray, size: int) -> np.ndarray:
    with tempfile.TemporaryDirectory(prefix="bicore-collapse-") as folder:
        for number, rows in enumerate(np.array_split(np.arange(len(y)), PARTS)):
            np.save(Path(folder) / f"x-{number}.npy", x[rows])
            np.save(Path(folder) / f"y-{number}.npy", y[rows])
        return select(folder, size=size, passes=True, runtime=ONE_THREAD).indices


def _measure_cell(share: float, size: int, seeds: int) -> dict[str, Any]:
    """Accuracies of one share and size: mean and worst seed by the way rows were chosen."""
    ways: dict[str, list[float]] = {"arrays": [], "files": [], "uniform": []}
    single = dict.fromkeys(ways, 0)
    for seed in range(seeds):
        x, y = _gaussians(seed, share)
        chosen = {
            "arrays": select(x, y, size, runtime=ONE_THREAD).indices,
            "files": _choose_from_files(x, y, size),
            "uniform": np.random.default_rng((seed, size)).permutation(ROWS)[:size],
        }
        for way, rows in chosen.items():
            single[way] += int(len(np.unique(y[rows])) == 1)
            ways[way].append(fit_score(LogisticRegression(), x[rows], y[rows], x, y))
    scores = {way: [round(float(np.mean(own)), 4), round(min(own), 4)] for way, own in ways.items()}
    return {"share": share, "size": size, "seeds": seeds, "single_class": single, **scores}


def _is_collapsed(folder: str, *digits: int) -> dict[str, int]:
    """Whether the picks of two digits are of one class, by kernel."""
    x, y = mnist_vectors(folder, limit=DIGITS)
    own = np.isin(y, digits)
    x, y = x[own].astype(float), y[own]
    found = {}
    for kernel in ("auto", "linear"):
        rows = select(x, y, POINTS, kernel=kernel, runtime=ONE_THREAD).indices
        found[kernel] = int(len(set(y[rows])) == 1)
    return found

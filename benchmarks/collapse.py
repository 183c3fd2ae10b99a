"""Answers from a single class: Gaussian classes of unequal shares, and pairs of MNIST digits."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from bicore import Runtime, select
from bicore.sources.opening import open_source

SHARES = (0.5, 0.3, 0.1)
SIZES = (2, 5, 10, 20)
ROWS, COLUMNS, DIGITS, POINTS = 600, 100, 2000, 10
RUNTIME = Runtime(device="cpu", threads=1, progress=False)


def run(arguments: Any) -> dict[str, Any]:
    """Count single-class answers and compare accuracies with uniform samples."""
    seeds = range(int(arguments.seeds or 200))
    cells = [_cell(share, size, seeds) for share in SHARES for size in SIZES]
    found: dict[str, Any] = {"record": "collapse", "cells": cells}
    if arguments.data:
        found["digits"] = _digits(arguments.data)
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


def _cell(share: float, size: int, seeds: range) -> dict[str, Any]:
    chosen, uniform, single = [], [], 0
    for seed in seeds:
        x, y = _gaussians(seed, share)
        rows = select(x, y, size, runtime=RUNTIME).indices
        single += len(np.unique(y[rows])) == 1
        chosen.append(_accuracy(x, y, rows))
        drawn = np.random.default_rng((seed, size)).choice(ROWS, size, replace=False)
        uniform.append(_accuracy(x, y, drawn))
    found = {
        "share": share,
        "size": size,
        "seeds": len(seeds),
        "single_class": int(single),
        "accuracy": [round(float(np.mean(chosen)), 4), round(min(chosen), 4)],
        "uniform": [round(float(np.mean(uniform)), 4), round(min(uniform), 4)],
    }
    print(found, flush=True)
    return found


def _digits(folder: str) -> dict[str, int]:
    """Count the pairs of digits whose picks are of one class, by kernel."""
    data = open_source("mnist", folder=folder, limit=DIGITS).data
    y = np.asarray(data.y)
    x = np.asarray(data.x, dtype=float).reshape(len(y), -1)
    single = dict.fromkeys(("auto", "linear"), 0)
    for pair in combinations(np.unique(y), 2):
        own = np.isin(y, pair)
        for kernel in single:
            rows = select(x[own], y[own], POINTS, kernel=kernel, runtime=RUNTIME).indices
            single[kernel] += int(len(np.unique(y[own][rows])) == 1)
    return {"pairs": 45, **single}

"""Tables of more than 20,000 rows: the default on pools of growing size, and uniform samples."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.battery.sets import LARGE, load
from benchmarks.common import Rows

#: Points to select, rows of the pools (0: all rows), rows that are evaluated on.
SIZES, POOLS, TEST = (10, 50, 200), (0, 5000, 20_000, 50_000), 2000
#: The largest size is slow; it is selected for the first seeds, from these pools.
LARGEST, FIRST_SEEDS, END_POOLS = 1000, 3, (5000, 0)


def run(arguments: Any) -> dict[str, Any]:
    """Select from every table, seed and pool; ``--sets`` names the folder of the tables."""
    rows = Rows(arguments.rows)
    done = {(row["table"], row["seed"], row["pool"], row["size"]) for row in rows}
    usual = [(seed, pool, SIZES) for pool in POOLS for seed in range(arguments.seeds)]
    seeds = range(min(FIRST_SEEDS, arguments.seeds))
    largest = [(seed, pool, (LARGEST,)) for seed in seeds for pool in END_POOLS]
    jobs = [
        (name, seed, pool, sizes, str(arguments.sets))
        for seed, pool, sizes in (*usual, *largest)
        for name in LARGE
        if (name, seed, pool, sizes[0]) not in done
    ]
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes) as workers:
        for found in workers.imap_unordered(_job, jobs):
            rows.add(*found)
    return {"record": "large", "rows": rows}


def _job(job: tuple[str, int, int, tuple[int, ...], str]) -> list[dict[str, Any]]:
    """Select some sizes from one pool of one table, and once uniformly from all rows."""
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.filterwarnings("ignore")
    from bicore import Runtime, select

    name, seed, count, sizes, folder = job
    x, y = load(name, Path(folder))
    rng = np.random.default_rng((seed, 11))
    order = rng.permutation(len(y))
    test, rows = order[:TEST], order[TEST:]
    if count >= len(rows):
        return []
    spread = x[rows].std(0)
    x = (x - x[rows].mean(0)) / np.where(spread > 0, spread, 1)
    pool = rows[:count] if count else rows
    runtime = Runtime(device="cpu", threads=1, progress=False)
    found = []
    for size in sizes:
        began = time.process_time()
        ways = {
            count: pool[select(x[pool], y[pool], size, random_state=seed, runtime=runtime).indices]
        }
        seconds = round(time.process_time() - began, 2)
        if not count:
            ways["uniform"] = rng.choice(rows, size, replace=False)
        found += [
            {
                "table": name,
                "rows": len(rows),
                "seed": seed,
                "size": size,
                "pool": way,
                "seconds": seconds if way == count else 0.0,
                "single_class": bool(y.dtype.kind != "f" and len(np.unique(y[chosen])) == 1),
                "scores": _scores(x[chosen], y[chosen], x[test], y[test]),
            }
            for way, chosen in ways.items()
        ]
    return found


def _scores(x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> list[float]:
    """Accuracy, or R² clipped at −1, of a linear model, a forest and the nearest neighbour."""
    from sklearn import ensemble, linear_model, neighbors

    models: tuple[Any, ...] = (
        linear_model.LogisticRegression(max_iter=300),
        ensemble.RandomForestClassifier(60, random_state=0),
        neighbors.KNeighborsClassifier(1),
    )
    if y.dtype.kind == "f":
        models = (
            linear_model.RidgeCV(np.logspace(-2, 3, 11)),
            ensemble.RandomForestRegressor(60, random_state=0),
            neighbors.KNeighborsRegressor(1),
        )
    elif len(np.unique(y)) == 1:
        return [round(float((test_y == y[0]).mean()), 4)] * len(models)
    scores = [float(model.fit(x, y).score(test_x, test_y)) for model in models]
    return [round(max(score, -1.0), 4) for score in scores]

"""Tables of more than 20,000 rows: the default on pools of growing size, and random samples.

python -m benchmarks large --sets SETS --record
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from sklearn import ensemble, linear_model, neighbors

from benchmarks.battery.sets import LARGE, load
from benchmarks.common import ONE_THREAD, Rows, fit_score, run_jobs, standardise, time_call
from bicore import select

#: Points to select, rows of the pools (0: all rows), rows that are evaluated on.
SIZES, POOLS, TEST = (10, 50, 200), (0, 5000, 20_000, 50_000), 2000
#: The largest size is slow; it is selected from these pools only.
LARGEST, END_POOLS = 1000, (5000, 0)
#: The pools between these two show a trend, for which some seeds are enough.
FEW_SEEDS = 5


def run(arguments: Any) -> dict[str, Any]:
    """Select from every table, seed and pool; ``--sets`` names the folder of the tables."""
    rows = Rows(arguments.rows)
    seeds = range(arguments.seeds)
    usual = [
        (seed, pool, SIZES)
        for pool in POOLS
        for seed in seeds
        if pool in END_POOLS or seed < FEW_SEEDS
    ]
    largest = [(seed, pool, (LARGEST,)) for seed in seeds for pool in END_POOLS]
    jobs = [
        (name, seed, pool, sizes, str(arguments.sets))
        for seed, pool, sizes in (*usual, *largest)
        for name in LARGE
        if rows.find(table=name, seed=seed, pool=pool, size=sizes[0]) is None
    ]
    for found in run_jobs(evaluate, jobs, arguments.processes):
        rows.add(*found)
    return {"record": "large", "rows": rows}


def evaluate(
    name: str, seed: int, count: int, sizes: tuple[int, ...], folder: str
) -> list[dict[str, Any]]:
    """Select some sizes from one pool of one table, and once uniformly from all rows."""
    x, y = load(name, Path(folder))
    rng = np.random.default_rng((seed, 11))
    order = rng.permutation(len(y))
    test, rows = order[:TEST], order[TEST:]
    if count >= len(rows):
        return []
    x = standardise(x, rows)
    pool = rows[:count] if count else rows
    found = []
    for size in sizes:
        options = {"random_state": seed, "runtime": ONE_THREAD}
        work = partial(select, x[pool], y[pool], size, **options)
        seconds, coreset = time_call(work, 1, process_time)
        ways = {count: pool[coreset.indices]}
        if not count:
            ways["uniform"] = rng.choice(rows, size, replace=False)
        found += [
            {
                "table": name,
                "rows": len(rows),
                "seed": seed,
                "size": size,
                "pool": way,
                "seconds": round(seconds, 2) if way == count else 0.0,
                "single_class": bool(y.dtype.kind != "f" and len(np.unique(y[chosen])) == 1),
                "scores": _score(x[chosen], y[chosen], x[test], y[test]),
            }
            for way, chosen in ways.items()
        ]
    return found


def _score(x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> list[float]:
    """Accuracy, or R² clipped at −1, of a linear model, a forest and the nearest neighbour."""
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
    scores = [fit_score(model, x, y, test_x, test_y) for model in models]
    return [round(max(score, -1.0), 4) for score in scores]

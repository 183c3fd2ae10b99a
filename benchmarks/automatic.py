"""``inner_reg="auto"`` against a grid on five data sets: the regret of not having tried.

    python -m benchmarks automatic --data DIR --record

For every data set and seed a pool and test points are drawn, 50 points are selected with the
automatic regulariser and with each of a grid around the kernel's mean diagonal, and a model of the
same kernel and regulariser, fitted on them, is scored on the test points: accuracy, or R². Regret
is the best score of the grid (chosen on the test points, which nobody could do) less that of the
automatic regulariser.
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.metrics import r2_score

from benchmarks.common import data_folder, on_cpu, report, ridge_answers
from bicore import Dataset
from bicore.kernels import fully_connected
from bicore.methods.registry import greedy_selector
from bicore.sources import digits, mnist

POOL = 800
TEST = 500
SIZE = 50
#: Times the mean of the kernel's diagonal.
GRID = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)


def run(arguments: Any) -> dict[str, Any]:
    rows = []
    for name, (x, y) in _sources(arguments).items():
        found = [_one(x, y, seed) for seed in range(arguments.seeds)]
        facts = {kind: [one[kind] for one in found] for kind in ("auto", "grid", "values")}
        rows.append({"data": name, **facts})
        report(name, np.mean(facts["auto"]).round(4), np.max(facts["grid"], 1).mean().round(4))
    return {"size": SIZE, "grid": list(GRID), "rows": rows}


def _sources(arguments: Any) -> dict[str, tuple[Any, Any]]:
    found = {"digits": digits(), "MNIST": mnist(data_folder(arguments.data), "train", 10_000)}
    for name, load in (
        ("breast cancer", load_breast_cancer),
        ("wine", load_wine),
        ("diabetes", load_diabetes),
    ):
        found[name] = load(return_X_y=True)
    return {
        name: (_scaled(np.asarray(x, dtype=np.float64).reshape(len(x), -1), name), y)
        for name, (x, y) in found.items()
    }


def _scaled(x: Any, name: str) -> Any:
    """Columns of tables in units of their spread; images stay as they are."""
    return x if name in ("digits", "MNIST") else (x - x.mean(0)) / x.std(0)


def _one(x: Any, y: Any, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    count = min(POOL, 2 * len(x) // 3)
    pool = order[:count]
    test = order[count : count + TEST]
    data = Dataset(x[pool], y[pool])
    kernel = fully_connected()
    scale = float(np.mean([kernel(x[row : row + 1])[0, 0] for row in pool[:100]]))
    size = min(SIZE, count // 3)
    auto, value = _score(data, kernel, "auto", x[test], y[test], size, seed)
    grid = [_score(data, kernel, share * scale, x[test], y[test], size, seed)[0] for share in GRID]
    return {"auto": auto, "grid": grid, "values": value / scale}


def _score(
    data: Dataset, kernel: Any, rho: Any, test_x: Any, test_y: Any, size: int, seed: int
) -> tuple[float, float]:
    selector = greedy_selector(kernel=kernel, inner_reg=rho)
    coreset = selector.select(data, size, random_state=seed, **on_cpu().keywords)
    value = float(coreset.provenance.inner_reg)
    chosen = coreset.indices
    assert data.y is not None
    labels = data.y.dtype.kind != "f"
    classes = np.unique(data.y)
    targets = (data.y[:, None] == classes).astype(float) if labels else data.y[:, None]
    centre = targets.mean(0)
    answer = ridge_answers(kernel, data.x[chosen], targets[chosen], centre, value, test_x)
    if labels:
        return float((classes[answer.argmax(1)] == test_y).mean()), value
    return float(r2_score(test_y, answer[:, 0])), value

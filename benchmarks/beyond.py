"""Selection for several models, and for regression, on scikit-learn's tables.

    python -m benchmarks beyond --record

Every score is that of a kernel ridge regression fitted on the chosen points and tested on others;
seeds give the split.
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

from benchmarks.common import CPU, draw_split
from bicore import Dataset
from bicore.kernels import RBF, Laplace, Polynomial, fully_connected
from bicore.methods import JointSelector, KCenter, Selector, Uniform
from bicore.methods.registry import greedy_selector
from bicore.sources import digits

POOL = 1200
JOINT = 60
SIZES = (20, 50, 100, 200)
Row = dict[str, Any]


def run(arguments: Any) -> Row:
    parts = {"joint": _compare_models, "regression": _predict_targets}
    rows = {name: work(range(arguments.seeds)) for name, work in parts.items()}
    return {"pool": POOL, "joint_size": JOINT, **rows}


def _split(x: Any, y: Any, pool: int, seed: int) -> list[Dataset]:
    return [Dataset(x[rows], y[rows]) for rows in draw_split(len(x), pool, None, seed)]


def _compare_models(seeds: range) -> list[Row]:
    """Accuracy of every model on the coreset of each, and on the one chosen for all."""
    kernels = {"RBF": RBF(0.02), "network": fully_connected(), "Laplace": Laplace(0.02)}
    kernels["polynomial"] = Polynomial(2)
    models = {name: greedy_selector(kernel=kernel) for name, kernel in kernels.items()}
    both = {"all at once": JointSelector(list(models.values())), "uniform": Uniform()}
    rows = []
    for name, selector in {**models, **both}.items():
        scores: dict[str, list[float]] = {model: [] for model in models}
        for seed in seeds:
            pool, test = _split(*digits(), POOL, seed)
            picks = selector.select(pool, JOINT, random_state=seed, runtime=CPU).indices.tolist()
            for model, judge in models.items():
                guesses = judge.predict(pool, test.x, picks, runtime=CPU)
                scores[model].append(_accuracy(guesses, test, pool))
        rows.append({"chosen_for": name, "accuracy": scores})
    return rows


def _predict_targets(seeds: range) -> list[Row]:
    """R² on a medical table, and on the right halves of digits predicted from their left halves."""
    x, y = load_diabetes(return_X_y=True)
    images = digits()[0].reshape(-1, 8, 8)
    halves = (images[..., :4].reshape(-1, 32), images[..., 4:].reshape(-1, 32))
    tables = {
        "diabetes": (x / x.std(0), (y - y.mean()) / y.std(), 300),
        "halves of digits, 32 targets": (*halves, POOL),
    }
    judge = greedy_selector(kernel="rbf")
    methods: dict[str, Selector] = {"uniform": Uniform(), "k-center": KCenter(), "bilevel": judge}
    return [
        {"data": name, **_by_size(method, one, judge, table, seeds)}
        for name, table in tables.items()
        for method, one in methods.items()
    ]


def _by_size(name: str, method: Any, judge: Any, table: Any, seeds: range) -> Row:
    scores = []
    for seed in seeds:
        data, test = _split(*table, seed)
        chosen = method.select(data, max(SIZES), random_state=seed, runtime=CPU).indices
        sets = [chosen[:size].tolist() for size in SIZES]
        guesses = [judge.predict(data, test.x, picks, runtime=CPU) for picks in sets]
        scores.append([_explained_variance(one, test, data) for one in guesses])
    return {"method": name, "sizes": list(SIZES), "scores": scores}


def _accuracy(guesses: Any, test: Dataset, data: Dataset) -> float:
    return float(np.mean(guesses == test.y))


def _explained_variance(guesses: Any, test: Dataset, data: Dataset) -> float:
    return float(1 - np.mean((guesses - test.y) ** 2) / np.mean((test.y - data.y.mean(0)) ** 2))

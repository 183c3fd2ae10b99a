"""Several models at once, selection without labels, and regression, on tables that come with
scikit-learn.

    python -m benchmarks beyond --record

Every score is that of a kernel ridge regression fitted on the chosen points and tested on others;
seeds give the split.
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

from benchmarks.common import on_cpu, report
from bicore import BilevelSelector, Dataset
from bicore.kernels import RBF, Kernel, Laplace, Polynomial, fully_connected
from bicore.methods import JointSelector, KCenter, Reconstruction, Selector, Uniform, VDesign
from bicore.methods.registry import greedy_selector
from bicore.sources import digits

POOL = 1200
JOINT = 60
SIZES = (20, 50, 100, 200)


def run(arguments: Any) -> dict[str, Any]:
    rows = {
        "joint": _joint(arguments.seeds),
        "unlabelled": _unlabelled(arguments.seeds),
        "regression": _regression(arguments.seeds),
    }
    return {"pool": POOL, "joint_size": JOINT, **rows}


def _split(x: Any, y: Any, seed: int, pool: int = POOL) -> tuple[Dataset, Dataset]:
    order = np.random.default_rng(seed).permutation(len(x))
    return Dataset(x[order[:pool]], y[order[:pool]]), Dataset(x[order[pool:]], y[order[pool:]])


def _models() -> dict[str, Kernel]:
    return {
        "RBF": RBF(0.02),
        "network": fully_connected(),
        "Laplace": Laplace(0.02),
        "polynomial": Polynomial(2),
    }


def _joint(seeds: int) -> list[dict[str, Any]]:
    """Accuracy of every model on the coreset of each, and on the one chosen for all."""
    x, y = digits()
    selectors = {name: greedy_selector(kernel=kernel) for name, kernel in _models().items()}
    chosen_for: dict[str, Selector] = {
        **selectors,
        "all at once": JointSelector(list(selectors.values())),
        "nobody": Uniform(),
    }
    rows = []
    for name, selector in chosen_for.items():
        scores: dict[str, list[float]] = {model: [] for model in selectors}
        for seed in range(seeds):
            pool, test = _split(np.asarray(x), y, seed)
            picks = selector.select(
                pool, JOINT, random_state=seed, **on_cpu().keywords
            ).indices.tolist()
            for model, judge in selectors.items():
                guesses = judge.predict(pool, test.x, picks, runtime=on_cpu().runtime)
                scores[model].append(_accuracy(guesses, test, pool))
        rows.append({"chosen_for": name, "accuracy": scores})
        report(name, {model: np.mean(found).round(4) for model, found in scores.items()})
    return rows


def _unlabelled(seeds: int) -> list[dict[str, Any]]:
    """Accuracy of one model on points that were chosen without their labels, by size."""
    x, y = digits()
    kernel = fully_connected()
    judge = greedy_selector(kernel=kernel)
    methods: dict[str, Selector] = {
        "uniform": Uniform(),
        "k-center": KCenter(),
        "V-design": VDesign(kernel),
        "reconstruction": Reconstruction(kernel),
        "with labels": judge,
    }
    return [
        _by_size(name, method, judge, np.asarray(x), y, POOL, seeds, _accuracy)
        for name, method in methods.items()
    ]


def _regression(seeds: int) -> list[dict[str, Any]]:
    """R² on a medical table, and on the right halves of digits predicted from their left halves."""
    x, y = load_diabetes(return_X_y=True)
    images = np.asarray(digits()[0]).reshape(-1, 8, 8)
    halves = (images[..., :4].reshape(-1, 32), images[..., 4:].reshape(-1, 32))
    tables = {
        "diabetes": (x / x.std(0), (y - y.mean()) / y.std(), 300),
        "halves of digits, 32 targets": (*halves, POOL),
    }
    judge = greedy_selector(kernel="rbf")
    methods: dict[str, Selector] = {"uniform": Uniform(), "k-center": KCenter(), "bilevel": judge}
    return [
        {"data": name, **_by_size(method, one, judge, *table, seeds, _explained)}
        for name, table in tables.items()
        for method, one in methods.items()
    ]


def _by_size(
    name: str,
    method: Selector,
    judge: BilevelSelector,
    x: Any,
    y: Any,
    pool: int,
    seeds: int,
    score: Any,
) -> dict[str, Any]:
    scores: list[list[float]] = []
    for seed in range(seeds):
        data, test = _split(x, y, seed, pool)
        chosen = method.select(data, max(SIZES), random_state=seed, **on_cpu().keywords).indices
        sets = [chosen[:size].tolist() for size in SIZES]
        guesses = [judge.predict(data, test.x, picks, runtime=on_cpu().runtime) for picks in sets]
        scores.append([score(one, test, data) for one in guesses])
    report(name, np.mean(scores, 0).round(4).tolist())
    return {"method": name, "sizes": list(SIZES), "scores": scores}


def _accuracy(guesses: Any, test: Dataset, data: Dataset) -> float:
    return float(np.mean(guesses == test.y))


def _explained(guesses: Any, test: Dataset, data: Dataset) -> float:
    assert test.y is not None
    assert data.y is not None
    return float(1 - np.mean((guesses - test.y) ** 2) / np.mean((test.y - data.y.mean(0)) ** 2))

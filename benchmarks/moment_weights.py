"""Whether learned weights help a moment memory: heads on its rows, alike and with weights.

    python -m benchmarks moment_weights --data DIR --seeds 3 --record

The weights are those that lower the memory's own objective most, by its exact slope and from equal
ones; the objective is told too. Digits and the first MNIST images come in random order in batches
of 125; a quarter of the rows is kept for the test.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize

from benchmarks.common import data_folder, mnist_vectors, report
from benchmarks.heads import CPU, labelled
from bicore.evaluate.models import LogisticJudge, RidgeJudge
from bicore.evaluate.samples import as_sample
from bicore.evaluate.samples import draw_tuning_rows as drawn
from bicore.kernels import Linear
from bicore.sources import digits
from bicore.streaming import MomentMemory

BATCH = 125
CAPACITIES = (20, 50, 100)
IMAGES = 12_000
#: Of the rows, for training.
SHARE = 0.75
STEPS = 200


def run(arguments: Any) -> dict[str, Any]:
    rows = []
    for name, x, y in _sets(data_folder(arguments.data)):
        for seed in range(arguments.seeds):
            for capacity in CAPACITIES:
                row = {"data": name, "seed": seed, **_one(x, y, capacity, seed)}
                report(row)
                rows.append(row)
    return {"rows": rows}


def _sets(folder: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    yield "digits", *digits()
    x, y = mnist_vectors(folder, limit=IMAGES)
    yield "MNIST", x.astype(np.float32), y


def _one(x: np.ndarray, y: np.ndarray, capacity: int, seed: int) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = np.split(order, [int(SHARE * len(x))])
    memory = MomentMemory(capacity, random_state=seed)
    for start in range(0, len(train), BATCH):
        own = train[start : start + BATCH]
        memory.update(x[own], y[own])
    weights, before, after = learnt(memory)
    kept = memory.snapshot()
    tuning = train[drawn(len(train), seed)]
    judges = {"ridge": RidgeJudge(Linear()), "logistic": LogisticJudge()}
    found: dict[str, Any] = {"capacity": capacity, "objective": [before, after]}
    for name, judge in judges.items():
        samples = [
            as_sample(kept.x, kept.y, one, CPU, True) for one in (np.ones(capacity), weights)
        ]
        tuned = judge.tuned_by(labelled(x[tuning], y[tuning]))
        found[name] = tuned.scores(samples, labelled(x[test], y[test]), int(y.max()) + 1, seed)
    return found


def learnt(memory: MomentMemory) -> tuple[np.ndarray, float, float]:
    """Weights of the rows kept, their mean one; the objective with equal weights and with these."""
    assert memory.moments is not None
    assert memory._features is not None
    assert memory.kept is not None
    features, outer = memory._features, memory._outer(memory.moments)
    targets = memory._targets(memory.kept, features)
    ridge = memory.ridge(outer)
    gram, linear = features @ features.T, features @ outer.cross
    quadratic = outer.times(features) @ features.T

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        root = np.sqrt(np.maximum(weights, 0))[:, None]
        inverse = np.linalg.inv(root * gram * root.T + ridge * np.eye(len(root)))
        fitted = root * (inverse @ (root * targets))
        pulled = quadratic @ fitted - linear
        reach = gram @ (root * (inverse @ (root * pulled)))
        slopes = -2.0 / ridge * (pulled - reach)
        residuals = targets - gram @ fitted
        value = float(np.vdot(fitted, pulled - linear)) + outer.constant
        return value, -np.einsum("ij,ij->i", slopes, residuals)

    start = np.ones(len(targets))
    bounds = [(0.0, None)] * len(start)
    options = {"maxiter": STEPS}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x / found.x.mean(), objective(start)[0], float(found.fun)

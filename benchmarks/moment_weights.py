"""Whether learned weights help a moment memory: heads on its rows with and without weights.

    python -m benchmarks moment_weights --data DIR --seeds 3 --record

The weights are those that lower the memory's own objective most, by its exact slope and from equal
ones; the objective is shown too. Digits and the first MNIST images come in random order in batches
of 125; a quarter of the rows is held out for the test.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from benchmarks.common import draw_split, feed, mnist_vectors
from benchmarks.heads import CPU, label_rows
from bicore.evaluate.models import LogisticJudge, RidgeJudge, as_sample, draw_tuning_rows
from bicore.kernels import Linear
from bicore.sources import digits
from bicore.streaming import MomentMemory

BATCH = 125
CAPACITIES = (20, 50, 100)
IMAGES = 12_000
#: Of the rows, for training.
SHARE = 0.75
STEPS = 200


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    x, y = mnist_vectors(arguments.data, limit=IMAGES)
    sets = {"digits": digits(), "MNIST": (x.astype(np.float32), y)}
    for (name, (x, y)), seed in product(sets.items(), range(arguments.seeds)):
        for capacity in CAPACITIES:
            yield {"data": name, "seed": seed, **_compare(x, y, capacity, seed)}


def _compare(x: np.ndarray, y: np.ndarray, capacity: int, seed: int) -> dict[str, Any]:
    train, test = draw_split(len(x), int(SHARE * len(x)), None, seed)
    memory = feed(MomentMemory(capacity, random_state=seed), x[train], y[train], BATCH)
    weights, before, after = learn_weights(memory)
    kept = memory.snapshot()
    samples = [as_sample(kept.x, kept.y, one, CPU, True) for one in (np.ones(capacity), weights)]
    tuning = train[draw_tuning_rows(len(train), seed)]
    found: dict[str, Any] = {"capacity": capacity, "objective": [before, after]}
    for name, judge in {"ridge": RidgeJudge(Linear()), "logistic": LogisticJudge()}.items():
        tuned = judge.tune(label_rows(x[tuning], y[tuning]))
        found[name] = tuned.scores(samples, label_rows(x[test], y[test]), int(y.max()) + 1, seed)
    return found


def learn_weights(memory: MomentMemory) -> tuple[np.ndarray, float, float]:
    """Weights of the rows kept, their mean one; the objective with equal weights and with these."""
    features, outer = memory._features, memory._outer(memory.moments)
    targets = memory._targets(memory.kept, features)
    parts = (features @ features.T, features @ outer.cross, outer.multiply(features) @ features.T)
    gram, linear, quadratic, targets = (torch.as_tensor(one) for one in (*parts, targets))
    ridge = memory.ridge(outer) * torch.eye(len(targets), dtype=torch.float64)

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        w = torch.tensor(weights, requires_grad=True)
        fitted = torch.linalg.solve(w[:, None] * gram + ridge, w[:, None] * targets)
        value = (fitted * (quadratic @ fitted - 2 * linear)).sum() + outer.constant
        value.backward()
        return value.item(), w.grad.numpy()

    start = np.ones(len(targets))
    options = {"bounds": [(0.0, None)] * len(start), "options": {"maxiter": STEPS}}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", **options)
    return found.x / found.x.mean(), objective(start)[0], float(found.fun)

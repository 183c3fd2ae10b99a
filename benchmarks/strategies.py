"""Large coresets: cost and gain of each strategy on 10,000 MNIST images.

    python -m benchmarks strategies --data DIR --record

The kernel of a fully connected network, stored; squared error; one regulariser for all. Loss is the
outer objective, accuracy that of the kernel model fitted on the coreset, on all test images;
seconds are of the selection alone.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.common import CPU, mnist_vectors, time_call
from bicore import Dataset
from bicore.bilevel.strategies.base import Strategy
from bicore.kernels import fully_connected
from bicore.methods import Batches, Elimination, Exchange, Greedy, Simplex, Uniform
from bicore.methods.registry import greedy_selector

POOL = 10_000
SIZES = (100, 500, 2000, 5000)
#: The largest size that greedy selection is run at, and the most exchanges, where they are counted.
GREEDY = 2000
ROUNDS = {100: None, 500: None, 2000: 200}
#: Sizes at which the weights of the simplex are tried.
WEIGHED = (100, 500, 2000)
DETAILS = ("exchanges", "exchange_gain", "eliminated", "relaxed_objective", "relaxed_support")


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    x, y = mnist_vectors(arguments.data, "train", POOL)
    test_x, test_y = mnist_vectors(arguments.data, "test")
    x, test_x = (torch.from_numpy(np.ascontiguousarray(part)).double() for part in (x, test_x))
    kernel = fully_connected()
    gram, cross = kernel(x).numpy(), kernel(test_x, x).numpy()
    data = Dataset(gram, y)
    first = greedy_selector(kernel="precomputed").select(data, 1, runtime=CPU)
    rho = float(first.provenance.inner_reg)
    score = partial(_score, gram, cross, y, test_y, rho)
    for size in SIZES:
        for strategy in _strategies(size):
            selector = strategy
            if not isinstance(strategy, Uniform):
                options = {"inner_reg": rho, "strategy": strategy}
                selector = greedy_selector(kernel="precomputed", **options)
            seconds, coreset = time_call(partial(selector.select, data, size, runtime=CPU))
            row = {"size": size, "strategy": repr(strategy), "seconds": seconds}
            row |= score(coreset.indices)
            yield row | {name: one for name, one in coreset.info.items() if name in DETAILS}
    return {"inner_reg": rho, "pool": POOL, "all": score(np.arange(len(y)))}


def _strategies(size: int) -> list[Strategy | Uniform]:
    greedy = [Greedy()] if size <= GREEDY else []
    found: list[Strategy | Uniform] = [Uniform(), *greedy, Batches(50)]
    if size in ROUNDS:
        found.append(Exchange(ROUNDS[size]))
    if 1.5 * size <= POOL // 2:
        found.append(Elimination(1.5))
    return [*found, Simplex(1.5)] if size in WEIGHED else found


def _score(
    gram: Any, cross: Any, y: Any, test_y: Any, rho: float, chosen: np.ndarray
) -> dict[str, float]:
    """Loss over the pool and accuracy on the test images of ridge regression on chosen points."""
    targets = np.eye(10)[y] - np.eye(10)[y].mean(0)
    own = gram[np.ix_(chosen, chosen)] + rho * np.eye(len(chosen))
    alpha = np.linalg.solve(own, targets[chosen])
    loss = float(((gram[:, chosen] @ alpha - targets) ** 2).sum(1).mean())
    guesses = (cross[:, chosen] @ alpha + np.eye(10)[y].mean(0)).argmax(1)
    return {"loss": loss, "accuracy": float((guesses == test_y).mean())}

"""Large coresets: where each strategy pays, on 10 000 MNIST images.

    python -m benchmarks strategies --data DIR --record

The kernel of a fully connected network, stored; squared error; one regulariser for all. Loss is the
outer objective, accuracy that of the kernel model fitted on the coreset, on all test images;
seconds are of the selection alone.
"""

import time
from typing import Any

import numpy as np
import torch

from benchmarks.common import data_folder, on_cpu, report
from bicore import Coreset, Dataset
from bicore.bilevel.strategies.base import Strategy
from bicore.kernels import fully_connected
from bicore.methods import Batches, Elimination, Exchange, Greedy, Simplex, Uniform
from bicore.methods.registry import greedy_selector
from bicore.sources import mnist

POOL = 10_000
SIZES = (100, 500, 2000, 5000)
#: The largest size that greedy selection is run at, and the most exchanges, where they are counted.
GREEDY = 2000
ROUNDS = {100: None, 500: None, 2000: 200}
#: Sizes at which the weights of the simplex are tried.
WEIGHED = (100, 500, 2000)
DETAILS = ("exchanges", "exchange_gain", "eliminated", "relaxed_objective", "relaxed_support")


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    (x, y), (test_x, test_y) = mnist(folder, "train", POOL), mnist(folder, "test")
    kernel = fully_connected()
    x, test_x = (
        torch.from_numpy(np.ascontiguousarray(part.reshape(len(part), -1))).double()
        for part in (x, test_x)
    )
    gram = kernel(x).numpy()
    cross = kernel(test_x, x).numpy()
    data = Dataset(gram, y)
    rows = []
    first = greedy_selector(kernel="precomputed").select(data, 1, **on_cpu().keywords)
    rho = float(first.provenance.inner_reg)
    for size in SIZES:
        for strategy in _strategies(size):
            start = time.perf_counter()
            coreset = _selected(strategy, data, size, rho)
            seconds = time.perf_counter() - start
            row = {"size": size, "strategy": repr(strategy), "seconds": seconds}
            row |= _scores(gram, cross, y, test_y, coreset, rho)
            rows.append(row | {name: one for name, one in coreset.info.items() if name in DETAILS})
            report(rows[-1])
    whole = _scores(gram, cross, y, test_y, None, rho)
    return {"inner_reg": rho, "pool": POOL, "rows": rows, "all": whole}


def _strategies(size: int) -> list[Strategy | Uniform]:
    greedy = [Greedy()] if size <= GREEDY else []
    found: list[Strategy | Uniform] = [Uniform(), *greedy, Batches(50)]
    if size in ROUNDS:
        found.append(Exchange(ROUNDS[size]))
    if 1.5 * size <= POOL // 2:
        found.append(Elimination(1.5))
    return [*found, Simplex(1.5)] if size in WEIGHED else found


def _selected(strategy: Strategy | Uniform, data: Dataset, size: int, rho: float) -> Coreset:
    if isinstance(strategy, Uniform):
        return strategy.select(data, size, **on_cpu().keywords)
    return greedy_selector(kernel="precomputed", inner_reg=rho, strategy=strategy).select(
        data, size, **on_cpu().keywords
    )


def _scores(
    gram: Any, cross: Any, y: Any, test_y: Any, coreset: Coreset | None, rho: float
) -> dict[str, float]:
    """Loss over the pool and accuracy on the test images of ridge regression on the coreset, or on
    everything."""
    chosen = np.arange(len(y)) if coreset is None else coreset.indices
    targets = np.eye(10)[y] - np.eye(10)[y].mean(0)
    alpha = np.linalg.solve(
        gram[np.ix_(chosen, chosen)] + rho * np.eye(len(chosen)), targets[chosen]
    )
    loss = float(((gram[:, chosen] @ alpha - targets) ** 2).sum(1).mean())
    guesses = (cross[:, chosen] @ alpha + np.eye(10)[y].mean(0)).argmax(1)
    return {"loss": loss, "accuracy": float((guesses == test_y).mean())}

"""Flipped labels: the share of selected rows with wrong labels, and the accuracy of a model trained
on them.

    python -m benchmarks noise --data DIR --record

A fifth of the labels are replaced by another class. Pools of 1000 points, coresets of 100; the
model is a ridge regression with the same kernel, tested on clean points. Seeds give the pool and
the flips. Rules with a clean outer set know 200 clean points; "trusted" leaves out the points whose
label contradicts a model of the other folds.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks.common import CPU, data_folder
from bicore import Dataset
from bicore.kernels import fully_connected
from bicore.losses import CustomLoss
from bicore.methods import Selector, Uniform, exclude_suspect_labels
from bicore.methods.registry import greedy_selector
from bicore.sources import digits, mnist

POOL = 1000
CLEAN = 200
TEST = 500
SIZE = 100
SHARE = 0.2
#: With a small one the model fits what it is given, wrong labels included; it is that of the test.
REGULARISERS = (0.001, 0.1)


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    sources = {"digits": digits(), "MNIST": mnist(data_folder(arguments.data), "train", 20_000)}
    for (name, (x, y)), rho in product(sources.items(), REGULARISERS):
        x = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        for rule, (selector, help_given) in _rules(rho).items():
            seeds = range(arguments.seeds)
            found = [_evaluate(x, y, selector, help_given, rho, seed) for seed in seeds]
            shares, scores = map(list, zip(*found, strict=True))
            row = {"data": name, "inner_reg": rho, "rule": rule}
            yield {**row, "flipped": shares, "accuracy": scores}
    return {"share": SHARE, "size": SIZE, "pool": POOL}


def _rules(rho: float) -> dict[str, tuple[Selector, str]]:
    options: dict[str, Any] = {"kernel": fully_connected(), "inner_reg": rho}
    squared = greedy_selector(**options)
    softmax = greedy_selector(**options, loss="cross-entropy")
    bounded = CustomLoss(_bounded_loss, name="bounded")
    robust = greedy_selector(**options, loss="squared", outer_loss=bounded)
    return {
        "uniform": (Uniform(), ""),
        "squared": (squared, ""),
        "cross-entropy": (softmax, ""),
        "reducible": (greedy_selector(**options, rule="reducible"), ""),
        "squared, balanced": (greedy_selector(**options, quotas="balanced"), ""),
        "squared, robust outer": (robust, ""),
        "squared, trusted": (squared, "trusted"),
        "cross-entropy, trusted": (softmax, "trusted"),
        "uniform, trusted": (Uniform(), "trusted"),
        "squared, clean outer": (squared, "clean"),
    }


def _bounded_loss(h: Any, t: Any) -> Any:
    """Grows like the error itself far out: a wrong label pulls no more than a constant."""
    return torch.sqrt(0.05 + (h - t).square()).sum()


def _evaluate(
    x: Any, y: Any, selector: Selector, help_given: str, rho: float, seed: int
) -> tuple[float, float]:
    """The share of flipped labels among the picks, and the accuracy of a model trained on them."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    pool, known, test = np.split(order[: POOL + CLEAN + TEST], [POOL, POOL + CLEAN])
    labels = y[pool].copy()
    flipped = rng.choice(POOL, int(SHARE * POOL), replace=False)
    labels[flipped] = (labels[flipped] + rng.integers(1, 10, len(flipped))) % 10
    outer = Dataset(x[known], y[known]) if help_given == "clean" else None
    data = Dataset(x[pool], labels)
    if help_given == "trusted":
        data = exclude_suspect_labels(data, greedy_selector(kernel=fully_connected()), runtime=CPU)
    picks = selector.select(data, SIZE, outer=outer, random_state=seed, runtime=CPU).indices
    kernel, chosen, targets = fully_connected(), x[pool[picks]], np.eye(10)[labels[picks]]
    centre = targets.mean(0)
    alpha = np.linalg.solve(kernel(chosen) + rho * np.eye(SIZE), targets - centre)
    right = (kernel(x[test], chosen) @ alpha + centre).argmax(1) == y[test]
    return float(np.isin(picks, flipped).mean()), float(right.mean())

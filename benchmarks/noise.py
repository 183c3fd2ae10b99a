"""Flipped labels: how many of the points that each rule picks carry a wrong one, and what a judge
makes of them.

    python -m benchmarks noise --data DIR --record

A fifth of the labels are replaced by another class. Pools of 1000 points, coresets of 100; the
judge is a ridge regression with the same kernel on clean test points. Seeds give the pool and the
flips. Rules with a clean outer set know 200 points to judge by; "trusted" leaves out the points
whose label a model of the other folds denies.
"""

from typing import Any

import numpy as np

from benchmarks.common import data_folder, on_cpu, report, ridge_answers
from bicore import Dataset
from bicore.kernels import fully_connected
from bicore.losses import CustomLoss
from bicore.methods import Selector, Uniform, trusted
from bicore.methods.registry import greedy_selector
from bicore.sources import digits, mnist

POOL = 1000
CLEAN = 200
TEST = 500
SIZE = 100
SHARE = 0.2
#: With a small one the model fits what it is given, wrong labels and all; the judge has the same.
REGULARISERS = (0.001, 0.1)


def run(arguments: Any) -> dict[str, Any]:
    sources = {"digits": digits(), "MNIST": mnist(data_folder(arguments.data), "train", 20_000)}
    rows = []
    for name, (x, y) in sources.items():
        x = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        for rho in REGULARISERS:
            for rule, (selector, help_given) in _rules(rho).items():
                runs = range(arguments.seeds)
                found = [_one(x, y, selector, help_given, rho, seed) for seed in runs]
                shares, scores = map(list, zip(*found, strict=True))
                row = {"data": name, "inner_reg": rho, "rule": rule}
                rows.append({**row, "flipped": shares, "accuracy": scores})
                report(name, rho, rule, np.mean(shares).round(3), np.mean(scores).round(4))
    return {"share": SHARE, "size": SIZE, "pool": POOL, "rows": rows}


def _rules(rho: float) -> dict[str, tuple[Selector, str]]:
    options: dict[str, Any] = {"kernel": fully_connected(), "inner_reg": rho}
    robust = CustomLoss(_bounded, name="bounded")
    return {
        "uniform": (Uniform(), ""),
        "squared": (greedy_selector(**options), ""),
        "cross-entropy": (greedy_selector(**options, loss="cross-entropy"), ""),
        "reducible": (greedy_selector(**options, rule="reducible"), ""),
        "squared, balanced": (greedy_selector(**options, quotas="balanced"), ""),
        "squared, robust outer": (
            greedy_selector(**options, loss="squared", outer_loss=robust),
            "",
        ),
        "squared, trusted": (greedy_selector(**options), "trusted"),
        "cross-entropy, trusted": (greedy_selector(**options, loss="cross-entropy"), "trusted"),
        "uniform, trusted": (Uniform(), "trusted"),
        "squared, clean outer": (greedy_selector(**options), "clean"),
    }


def _bounded(h: Any, t: Any) -> Any:
    """Grows like the error itself far out: a wrong label pulls no more than a constant."""
    import torch

    return torch.sqrt(0.05 + (h - t).square()).sum()


def _one(
    x: Any, y: Any, selector: Selector, help_given: str, rho: float, seed: int
) -> tuple[float, float]:
    """The share of flipped labels among the picks, and the judge's accuracy."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    pool, known, test = np.split(order[: POOL + CLEAN + TEST], [POOL, POOL + CLEAN])
    labels = y[pool].copy()
    flipped = rng.choice(POOL, int(SHARE * POOL), replace=False)
    labels[flipped] = (labels[flipped] + rng.integers(1, 10, len(flipped))) % 10
    outer = Dataset(x[known], y[known]) if help_given == "clean" else None
    context = on_cpu()
    data = Dataset(x[pool], labels)
    if help_given == "trusted":
        data = trusted(data, greedy_selector(kernel=fully_connected()), runtime=context.runtime)
    picks = selector.select(data, SIZE, outer=outer, random_state=seed, **context.keywords).indices
    targets = np.eye(10)[labels[picks]]
    chosen = x[pool[picks]]
    guesses = ridge_answers(fully_connected(), chosen, targets, targets.mean(0), rho, x[test])
    right = guesses.argmax(1) == y[test]
    return float(np.isin(picks, flipped).mean()), float(right.mean())

"""Which loss, rule and regulariser should be the default? Evaluate each by what its picks train.

    python -m benchmarks ablation --data DIR [--device cuda] [--seeds 5] [--out FILE]

Pools of 1000 points (digits, MNIST), a fully connected NTK as the proxy, two evaluation models a
data set: kernel ridge regression, and a network (digits: the paper's fully connected one; MNIST:
the paper's CNN). A seed draws the pool; all variants of a seed share it, so their differences are
paired.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.common import CPU, draw_split, mnist_vectors, time_call
from bicore import Dataset, Runtime
from bicore.bilevel import PerPoint
from bicore.evaluate.models import RidgeJudge, Sample, as_judge
from bicore.kernels import fully_connected
from bicore.methods.registry import greedy_selector
from bicore.sources import digits

POOL = 1000
SIZES = (20, 50, 100, 200)
#: Steps of training for each network.
STEPS = 1000
#: The penalty of the kernel model with which the recorded rows were made.
RIDGE = 1e-3
#: The network that evaluates picks of a data set, and the shape of a point.
NETWORKS = {"digits": ("mlp", (64,)), "mnist": ("cnn", (1, 28, 28))}

SOFTMAX, SQUARED = {"loss": "cross-entropy"}, {"loss": "squared"}
PAPER = {"inner_reg": PerPoint(1e-3), "first": "random", "candidates": 200}
VARIANTS: dict[str, dict[str, Any] | None] = {
    "uniform": None,
    "cross-entropy, PerPoint 1e-3 (paper)": {**SOFTMAX, **PAPER},
    "cross-entropy, rho 0.01": {**SOFTMAX, "inner_reg": 0.01},
    "cross-entropy, rho 0.1": {**SOFTMAX, "inner_reg": 0.1},
    "cross-entropy, auto": SOFTMAX,
    "squared gradient, rho 0.001": {**SQUARED, "inner_reg": 0.001},
    "squared gradient, rho 0.01": {**SQUARED, "inner_reg": 0.01},
    "squared gradient, rho 0.1": {**SQUARED, "inner_reg": 0.1},
    "squared gradient, rho 1": {**SQUARED, "inner_reg": 1.0},
    "squared gradient, auto": SQUARED,
    "squared gradient, auto, random first": {**SQUARED, "first": "random"},
    "squared gradient, auto, 200 candidates": {**SQUARED, "candidates": 200},
    "squared gain, rho 0.01": {**SQUARED, "inner_reg": 0.01, "rule": "gain"},
    "squared gain, rho 0.1": {**SQUARED, "inner_reg": 0.1, "rule": "gain"},
    "squared gain, auto": {**SQUARED, "rule": "gain"},
}


def _load(name: str, folder: str | None, seed: int) -> tuple[np.ndarray, ...]:
    if name == "digits":
        x, y = digits()
        x = (x - x.mean()) / x.std()
        pool, rest = draw_split(len(x), POOL, None, seed)
        return x[pool], y[pool], x[rest], y[rest]
    x, y = mnist_vectors(folder)
    pool = np.random.default_rng(seed).choice(len(x), POOL, replace=False)
    return x[pool], y[pool], *mnist_vectors(folder, "test")


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    device = Runtime(device=arguments.device).torch_device  # of evaluation models
    for name, (network, shape) in NETWORKS.items():
        judges = {"network": as_judge(network, STEPS)}
        judges["kernel"] = RidgeJudge(fully_connected(), ridge=RIDGE)
        for seed in range(arguments.seeds):
            x, y, test_x, test_y = _load(name, arguments.data, seed)
            picked = {
                variant: _select(x, y, seed, options) for variant, options in VARIANTS.items()
            }
            pool, test = _sample(x, y, shape, device), _sample(test_x, test_y, shape, device)
            for size in SIZES:
                sets = [_take(pool, order[:size]) for order, _ in picked.values()]
                scores = {key: one.scores(sets, test, 10, seed) for key, one in judges.items()}
                for place, (variant, (_, facts)) in enumerate(picked.items()):
                    row = {"data": name, "variant": variant, "size": size, "seed": seed}
                    yield row | {key: found[place] for key, found in scores.items()} | facts
    return {"pool": POOL, "seeds": arguments.seeds}


def _select(x: Any, y: Any, seed: int, options: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """The order of the largest coreset, whose prefixes are the smaller ones."""
    if options is None:
        order = np.random.default_rng((seed, 1)).permutation(len(x))
        return order, {"inner_reg": None, "select_seconds_200": 0.0}
    choose = greedy_selector(**options).select
    given = {"size": max(SIZES), "random_state": seed, "runtime": CPU}
    seconds, coreset = time_call(partial(choose, Dataset(x, y), **given))
    facts = {"inner_reg": coreset.provenance.inner_reg, "select_seconds_200": seconds}
    return coreset.indices, facts


def _sample(x: np.ndarray, y: np.ndarray, shape: tuple[int, ...], device: torch.device) -> Sample:
    images = torch.as_tensor(x).reshape(-1, *shape).to(device, torch.float32)
    return Sample(images, torch.as_tensor(y).to(device), torch.ones(len(images), device=device))


def _take(pool: Sample, rows: np.ndarray) -> Sample:
    return pool.take(torch.as_tensor(rows.copy()).to(pool.x.device))

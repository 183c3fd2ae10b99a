"""Which loss, rule and regulariser should be the default? Judge each by what its picks train.

    python -m benchmarks ablation --data DIR [--device cuda] [--seeds 5] [--out FILE]

Pools of 1000 points (digits, MNIST), a fully connected NTK as the proxy, two judges a data set:
kernel ridge regression, and a network (digits: the paper's fully connected one; MNIST: the paper's
CNN). A seed draws the pool; all variants of a seed share it, so their differences are paired.
"""

import time
from typing import Any

import numpy as np
import torch

from benchmarks.common import data_folder, mnist_vectors, report
from bicore import Dataset, Runtime, select
from bicore.bilevel import PerPoint
from bicore.evaluate.models import Judge, RidgeJudge, as_judge
from bicore.evaluate.samples import Sample
from bicore.kernels import fully_connected
from bicore.sources import digits

POOL = 1000
SIZES = (20, 50, 100, 200)
#: The penalty of the kernel judge with which the recorded rows were made.
RIDGE = 1e-3

VARIANTS: dict[str, dict[str, Any] | None] = {
    "uniform": None,
    "cross-entropy, PerPoint 1e-3 (paper)": {
        "loss": "cross-entropy",
        "inner_reg": PerPoint(1e-3),
        "first": "random",
        "candidates": 200,
    },
    "cross-entropy, rho 0.01": {"loss": "cross-entropy", "inner_reg": 0.01},
    "cross-entropy, rho 0.1": {"loss": "cross-entropy", "inner_reg": 0.1},
    "cross-entropy, auto": {"loss": "cross-entropy"},
    "squared gradient, rho 0.001": {"loss": "squared", "inner_reg": 0.001},
    "squared gradient, rho 0.01": {"loss": "squared", "inner_reg": 0.01},
    "squared gradient, rho 0.1": {"loss": "squared", "inner_reg": 0.1},
    "squared gradient, rho 1": {"loss": "squared", "inner_reg": 1.0},
    "squared gradient, auto": {"loss": "squared"},
    "squared gradient, auto, random first": {"loss": "squared", "first": "random"},
    "squared gradient, auto, 200 candidates": {"loss": "squared", "candidates": 200},
    "squared gain, rho 0.01": {"loss": "squared", "inner_reg": 0.01, "rule": "gain"},
    "squared gain, rho 0.1": {"loss": "squared", "inner_reg": 0.1, "rule": "gain"},
    "squared gain, auto": {"loss": "squared", "rule": "gain"},
}


def _digits(seed: int) -> tuple[np.ndarray, ...]:
    x, y = digits()
    x = (x - x.mean()) / x.std()
    order = np.random.default_rng(seed).permutation(len(x))
    pool, rest = order[:POOL], order[POOL:]
    return x[pool], y[pool], x[rest], y[rest]


def _mnist(folder: str, seed: int) -> tuple[np.ndarray, ...]:
    x, y = mnist_vectors(folder)
    test_x, test_y = mnist_vectors(folder, "test")
    pool = np.random.default_rng(seed).choice(len(x), POOL, replace=False)
    return x[pool], y[pool], test_x, test_y


def run(arguments: Any) -> dict[str, Any]:
    # selection; the judges train on the device asked for
    runtime = Runtime(device="cpu", progress=False)
    device = Runtime(device=arguments.device).torch_device
    folder = data_folder(arguments.data)
    rows: list[dict[str, Any]] = []
    judges = {"digits": ("mlp", (64,)), "mnist": ("cnn", (1, 28, 28))}
    for name, (judge, shape) in judges.items():
        network = as_judge(judge, 1000)
        for seed in range(arguments.seeds):
            x, y, test_x, test_y = _digits(seed) if name == "digits" else _mnist(folder, seed)
            picked = _selections(x, y, seed, runtime)
            pool, test = _sample(x, y, shape, device), _sample(test_x, test_y, shape, device)
            for size in SIZES:
                rows += _judged(name, network, pool, test, picked, size, seed)
            report(name, "seed", seed, "done")
    return {"pool": POOL, "seeds": arguments.seeds, "rows": rows}


def _selections(
    x: np.ndarray, y: np.ndarray, seed: int, runtime: Runtime
) -> dict[str, dict[str, Any]]:
    """The largest coreset of each variant; the smaller ones are its prefixes."""
    picked: dict[str, dict[str, Any]] = {}
    data = Dataset(x, y)
    for variant, options in VARIANTS.items():
        start = time.perf_counter()
        if options is None:
            order = np.random.default_rng((seed, 1)).permutation(len(x))
            reg = None
        else:
            coreset = select(data, size=max(SIZES), random_state=seed, runtime=runtime, **options)
            order = coreset.indices
            reg = coreset.provenance.inner_reg
        picked[variant] = {"order": order, "reg": reg, "seconds": time.perf_counter() - start}
    return picked


def _sample(x: np.ndarray, y: np.ndarray, shape: tuple[int, ...], device: torch.device) -> Sample:
    images = torch.as_tensor(x).reshape(-1, *shape).to(device, torch.float32)
    return Sample(images, torch.as_tensor(y).to(device), torch.ones(len(images), device=device))


def _judged(
    name: str,
    network: Judge,
    pool: Sample,
    test: Sample,
    picked: dict[str, Any],
    size: int,
    seed: int,
) -> list[dict[str, Any]]:
    chosen = [
        torch.as_tensor(one["order"][:size].copy()).to(pool.x.device) for one in picked.values()
    ]
    sets = [Sample(pool.x[rows], pool.y[rows], pool.weight[rows]) for rows in chosen]
    scores = {
        "network": network.scores(sets, test, 10, seed),
        "kernel": RidgeJudge(fully_connected(), ridge=RIDGE).scores(sets, test, 10, seed),
    }
    rows = []
    for place, (variant, one) in enumerate(picked.items()):
        row = {"data": name, "variant": variant, "size": size, "seed": seed}
        row |= {judge: found[place] for judge, found in scores.items()}
        rows.append(row | {"inner_reg": one["reg"], "select_seconds_200": one["seconds"]})
    return rows

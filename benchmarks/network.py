"""Selection on a CNN itself beside selection by a proxy: seconds a point, and what the same CNN
learns from the points.

    python -m benchmarks network --data DIR --record

MNIST images, the paper's standard formulation (fit the network after every point, implicit gradient
through its own curvature) against kernels that stand for it. Every coreset trains the CNN from
scratch, from several starts.
"""

import time
from collections import defaultdict
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.common import data_folder, on_cpu, report
from bicore import Dataset
from bicore.kernels import cnn, fully_connected
from bicore.methods import NetworkSelector, Selector, Uniform
from bicore.methods.registry import greedy_selector
from bicore.networks import ConjugateGradients, Stochastic
from bicore.networks.solvers import NeumannSeries
from bicore.sources import mnist

POOL = 300
TEST = 4000
SIZE = 40
STARTS = 5
EPOCHS = 200
RATE = 3e-3


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    (x, y), (test_x, test_y) = mnist(folder, "train"), mnist(folder, "test", TEST)
    rows: list[dict[str, Any]] = []
    for name, (selector, kernel) in _selectors().items():
        shape = (POOL, -1) if name.startswith("proxy, fully") else (POOL, 1, 28, 28)
        found: dict[str, list[float]] = defaultdict(list)
        for seed in range(arguments.seeds):
            drawn = np.random.default_rng(seed).choice(len(x), POOL, replace=False)
            images = x[drawn].reshape(POOL, 1, 28, 28).astype(np.float32)
            start = time.perf_counter()
            given = images if kernel is None else kernel(images.reshape(shape).astype(np.float64))
            found["kernel_seconds"].append(time.perf_counter() - start)
            context = on_cpu(_network(seed), dtype="float32" if "network" in name else "float64")
            start = time.perf_counter()
            data = Dataset(given, y[drawn])
            picks = selector.select(data, SIZE, random_state=seed, **context.keywords).indices
            found["seconds_a_point"].append((time.perf_counter() - start) / SIZE)
            found["accuracy"].append(_accuracy(images[picks], y[drawn][picks], test_x, test_y))
        rows.append({"method": name, **found})
        report(name, {key: np.mean(one).round(4) for key, one in found.items()})
    parameters = sum(value.numel() for value in _network(0).parameters())
    sizes = {"pool": POOL, "size": SIZE, "test": TEST, "starts": STARTS, "parameters": parameters}
    return {**sizes, "rows": rows}


def _selectors() -> dict[str, tuple[Selector, Any]]:
    """Each with the kernel it reads a matrix of."""
    training = Stochastic(epochs=20, batch=32, rate=RATE)
    options: dict[str, Any] = {"inner_reg": 0.01, "training": training, "curvature": "gauss-newton"}
    conjugate = NetworkSelector(**options, inverse=ConjugateGradients(30))
    neumann = NetworkSelector(**options, inverse=NeumannSeries(50, 1e-3, damping=1.0))
    softmax = greedy_selector(kernel="precomputed", loss="cross-entropy")
    squared = greedy_selector(kernel="precomputed")
    return {
        "uniform": (Uniform(), None),
        "network, conjugate gradients": (conjugate, None),
        "network, Neumann series": (neumann, None),
        "proxy, convolutional, cross-entropy": (softmax, cnn()),
        "proxy, convolutional, squared error": (squared, cnn()),
        "proxy, fully connected, squared error": (squared, fully_connected()),
    }


def _network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    first = [nn.Conv2d(1, 8, 5), nn.ReLU(), nn.AvgPool2d(2)]
    second = [nn.Conv2d(8, 16, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(256, 10))


def _accuracy(x: Any, y: Any, test_x: Any, test_y: Any) -> float:
    """Mean over several starts of the CNN trained on the points alone."""
    inputs = torch.from_numpy(x)
    labels = torch.from_numpy(y.astype(np.int64))
    images = torch.from_numpy(test_x.reshape(-1, 1, 28, 28)).float()
    scores = []
    for start in range(STARTS):
        network = _network(100 + start)
        optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
        for _ in range(EPOCHS):
            optimiser.zero_grad()
            F.cross_entropy(network(inputs), labels).backward()
            optimiser.step()
        with torch.no_grad():
            scores.append(float((network(images).argmax(1).numpy() == test_y).mean()))
    return float(np.mean(scores))

"""Selection on a CNN compared with selection by a proxy: seconds per row, and the accuracy of the
CNN.

    python -m benchmarks network --data DIR --record

MNIST images, the paper's standard formulation (fit the network after every point, implicit gradient
through its own curvature) against kernels that replace it. Every coreset trains the CNN from
scratch, from several starts.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.common import data_folder, predict, time_call, train
from bicore import Dataset, Runtime
from bicore.kernels import cnn, fully_connected
from bicore.methods import NetworkSelector, Selector, Uniform
from bicore.methods.registry import greedy_selector
from bicore.networks import ConjugateGradients, Stochastic
from bicore.networks.problem import NeumannSeries
from bicore.sources import mnist

POOL = 300
TEST = 4000
SIZE = 40
STARTS = 5
EPOCHS = 200
RATE = 3e-3


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    folder = data_folder(arguments.data)
    (x, y), (test_x, test_y) = mnist(folder, "train"), mnist(folder, "test", TEST)
    for name, (selector, kernel) in _selectors().items():
        shape = (POOL, -1) if name.startswith("proxy, fully") else (POOL, 1, 28, 28)
        dtype = "float32" if "network" in name else "float64"
        found: dict[str, list[float]] = defaultdict(list)
        for seed in range(arguments.seeds):
            drawn = np.random.default_rng(seed).choice(len(x), POOL, replace=False)
            images = x[drawn].reshape(POOL, 1, 28, 28).astype(np.float32)
            seconds, given = 0.0, images
            if kernel is not None:
                points = images.reshape(shape).astype(np.float64)
                seconds, given = time_call(partial(kernel, points))
            found["kernel_seconds"].append(seconds)
            options = {"random_state": seed, "model": _network(seed)}
            options["runtime"] = Runtime("cpu", dtype, progress=False)
            data = Dataset(given, y[drawn])
            seconds, coreset = time_call(partial(selector.select, data, SIZE, **options))
            found["seconds_a_point"].append(seconds / SIZE)
            picks = coreset.indices
            found["accuracy"].append(_accuracy(images[picks], y[drawn][picks], test_x, test_y))
        yield {"method": name, **found}
    parameters = sum(value.numel() for value in _network(0).parameters())
    sizes = {"pool": POOL, "size": SIZE, "test": TEST, "starts": STARTS}
    return {**sizes, "parameters": parameters}


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
    images = test_x.reshape(-1, 1, 28, 28)
    starts = (_network(100 + start) for start in range(STARTS))
    networks = [train(one, x, y, EPOCHS, RATE) for one in starts]
    return float(np.mean([predict(one, images) == test_y for one in networks]))

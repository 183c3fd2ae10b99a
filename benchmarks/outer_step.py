"""One outer step of learned weights: in the parameters of a ResNet-18, and in the proxy.

    python -m benchmarks outer_step --device cuda --json

The paper's section 4: 30 steps of conjugate gradients through the network against the representer
proxy. Images are random, which changes no operation. The step is the implicit gradient of the
weights of a coreset; fits and kernels are not part of it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.func import grad

from benchmarks.common import device_seconds
from bicore import Dataset, Runtime
from bicore.bilevel.prepare import prepare
from bicore.methods.network import CRITERIA
from bicore.methods.registry import greedy_selector
from bicore.networks import ConjugateGradients
from bicore.networks.problem import FlatModule, NetworkProblem, Rows
from experiments.networks import ResNet18

POOL, PRODUCTS = 1000, 30
#: Sizes of the coreset.
SIZES = (100, 400)


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(POOL, 3, 32, 32)).astype(np.float32)
    y = rng.integers(0, 10, POOL)
    for size in SIZES:
        network = _network_step(x, y, size, torch.device(arguments.device))
        direct = device_seconds(network, arguments.repeats)
        proxy = device_seconds(_proxy_step(x, y, size), arguments.repeats)
        seconds = {"network_seconds": direct, "proxy_seconds": proxy}
        yield {"size": size, **seconds, "ratio": direct / proxy}
    return {"pool": POOL, "products": PRODUCTS}


def _network_step(x: Any, y: Any, size: int, device: torch.device) -> Callable[[], Any]:
    torch.manual_seed(0)
    network = ResNet18().to(device).eval()
    problem = NetworkProblem(FlatModule(network), CRITERIA["cross-entropy"], 1.0, gauss_newton=True)
    inputs, labels = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    pool = Rows(inputs, labels, torch.full((POOL,), 1 / POOL, device=device))
    chosen = Rows(inputs[:size], labels[:size], torch.ones(size, device=device))
    theta = problem.module.start
    theta = theta - 1e-4 * grad(problem.inner)(theta, chosen)
    # All products are made: with a tolerance of 0 no residual ends the search.
    solver = ConjugateGradients(PRODUCTS, tolerance=0.0)

    def step() -> Any:
        gradient = problem.outer_gradient(theta, pool)
        direction = solver.solve(
            lambda v, number: problem.hessian_product(theta, chosen, v), gradient
        )
        return -problem.directional_slopes(theta, chosen, direction)

    return step


def _proxy_step(x: Any, y: Any, size: int) -> Callable[[], Any]:
    """On one CPU thread, as in the paper."""
    selector = greedy_selector(kernel="ntk", loss="cross-entropy", inner_reg=1.0)
    runtime = Runtime(device="cpu", threads=1)
    data = Dataset(x.reshape(POOL, -1), y)
    prepared = prepare(selector, data, None, size, 0, runtime)
    engine = prepared.fit(list(range(size)))

    def step() -> Any:
        with runtime.apply():
            return engine.weight_gradient()

    return step

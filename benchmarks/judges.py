"""Judges of a selection: models trained on the chosen points alone and tested on data no method saw.

Many small trainings run as one: models of the same shape are stacked and trained together by ``torch.func``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from bicore.kernels import Kernel

#: Regulariser of the kernel judge, relative to the mean of the kernel's diagonal.
RIDGE = 1e-3


def mlp(features: int, classes: int) -> Callable[[], nn.Module]:
    """The paper's fully connected network: two hidden layers of 100, dropout 0.2."""

    def build() -> nn.Module:
        layers = [nn.Linear(features, 100), nn.ReLU(), nn.Dropout(0.2), nn.Linear(100, 100), nn.ReLU(), nn.Dropout(0.2)]
        return nn.Sequential(*layers, nn.Linear(100, classes))

    return build


def cnn(classes: int) -> Callable[[], nn.Module]:
    """The paper's CNN for 28×28 images: two blocks of convolution, dropout, ReLU and max-pooling, then 128 units."""

    def build() -> nn.Module:
        first = [nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 32, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(32, 64, 5), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        return nn.Sequential(*first, *second, nn.Linear(1024, 128), nn.Dropout(0.5), nn.ReLU(), nn.Linear(128, classes))

    return build


def network_accuracies(
    build: Callable[[], nn.Module],
    x: Tensor,
    y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    seed: int,
    steps: int = 1000,
    rate: float = 5e-4,
) -> list[float]:
    """Train one network for each row of sets x (sets, points, features), y (sets, points), all at once with Adam; test each."""
    models = []
    for _ in range(len(x)):
        torch.manual_seed(seed)  # every set starts from the same weights: differences are the data's
        models.append(build().to(x.device))
    parameters, _ = stack_module_state(models)
    template = models[0].train()

    def loss(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(template, (weights, {}), (inputs,)), labels)

    gradients = vmap(grad(loss), randomness="different")
    optimiser = torch.optim.Adam(parameters.values(), lr=rate)
    for _ in range(steps):
        found = gradients({name: value.detach() for name, value in parameters.items()}, x, y)
        for name, value in parameters.items():
            value.grad = found[name]
        optimiser.step()
    template.eval()
    return _accuracies(template, parameters, test_x, test_y)


@torch.no_grad()
def _accuracies(template: nn.Module, parameters: dict[str, Any], test_x: Tensor, test_y: Tensor) -> list[float]:
    predict = vmap(lambda weights, inputs: functional_call(template, (weights, {}), (inputs,)).argmax(1), in_dims=(0, None))
    right = sum(
        (predict(parameters, part) == labels).sum(1) for part, labels in zip(test_x.split(500), test_y.split(500), strict=True)
    )
    return (right / len(test_x)).tolist()


def kernel_accuracy(kernel: Kernel, x: Tensor, y: Tensor, test_x: Tensor, test_y: Tensor, classes: int) -> float:
    """Kernel ridge regression on centred one-hot labels."""
    gram = kernel.gram(x)
    shift = RIDGE * gram.diagonal().mean()
    targets = F.one_hot(y, classes).to(x)
    centre = targets.mean(0)
    alpha = torch.linalg.solve(gram + shift * torch.eye(len(x)).to(x), targets - centre)
    scores = torch.cat([kernel.evaluate(part, x) @ alpha for part in test_x.split(1000)]) + centre
    return float((scores.argmax(1) == test_y).double().mean())

"""Variational continual learning with coresets (Nguyen, Li, Bui and Turner 2018), mean-field, on plain torch.

The posterior after a task is the prior of the next. A coreset of each task is withheld from its training; before predicting, a copy
of the posterior is refined on all coresets together and then thrown away.

    learner = VariationalLearner([784, 256, 256, 10], selector, coreset_size=20)
    for x, y in tasks:
        learner.add_task(x, y)
    accuracy = (learner.predict(test_x).argmax(1) == test_y).float().mean()
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bicore import Context, Dataset, Selector


class MeanFieldLinear(nn.Module):
    """A linear layer whose weights and biases are independent Gaussians; the prior starts as N(0, 1).

    Outputs are sampled by their own Gaussian (local reparameterisation): mean x μ, variance x² σ².
    """

    def __init__(self, inputs: int, outputs: int, deviation: float = 0.05, scale: float | None = None) -> None:
        super().__init__()
        spread = inputs**-0.5 if scale is None else scale
        self.mean = nn.Parameter(torch.randn(inputs + 1, outputs) * spread)
        self.log_deviation = nn.Parameter(torch.full((inputs + 1, outputs), float(np.log(deviation))))
        self.prior_mean: Tensor
        self.prior_log_deviation: Tensor
        self.register_buffer("prior_mean", torch.zeros_like(self.mean.data))
        self.register_buffer("prior_log_deviation", torch.zeros_like(self.mean.data))

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        x = torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)
        mean, variance = x @ self.mean, x.square() @ (2 * self.log_deviation).exp()
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return mean + variance.clamp_min(1e-16).sqrt() * noise

    def divergence(self) -> Tensor:
        """KL(q ‖ prior) = Σ log(s/σ) + (σ² + (μ − m)²)/(2s²) − 1/2."""
        ratio = 2 * (self.log_deviation - self.prior_log_deviation)
        gap = (self.mean - self.prior_mean).square() / (2 * self.prior_log_deviation).exp()
        return 0.5 * (ratio.exp() + gap - 1 - ratio).sum()

    def absorb(self) -> None:
        """Make the posterior the prior."""
        self.prior_mean.copy_(self.mean.detach())
        self.prior_log_deviation.copy_(self.log_deviation.detach())


class MeanFieldNetwork(nn.Module):
    """Mean-field layers with ReLU between them, one head for all tasks."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MeanFieldLinear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(torch.relu(x) if number else x, generator)
        return x

    def divergence(self) -> Tensor:
        return torch.stack([layer.divergence() for layer in self.layers]).sum()

    def absorb(self) -> None:
        for layer in self.layers:
            layer.absorb()


@dataclass(frozen=True)
class Training:
    """How a posterior is fitted: the mean loss of ``samples`` draws plus KL/N, by Adam."""

    epochs: int = 100
    batch: int = 256
    rate: float = 1e-3
    samples: int = 1


def fit(
    network: MeanFieldNetwork, x: Tensor, y: Tensor, training: Training, generator: torch.Generator,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> None:  # fmt: skip
    """Maximise the evidence bound of (x, y) under the network's prior."""
    optimiser = torch.optim.Adam(network.parameters(), lr=training.rate)
    for _ in range(training.epochs):
        for rows in torch.randperm(len(x), generator=generator, device=x.device).split(training.batch):
            inputs = x[rows].expand(training.samples, *x[rows].shape)
            outputs = network(inputs, generator).flatten(0, 1)
            targets = y[rows].repeat(training.samples, *[1] * (y.dim() - 1))
            bound = loss(outputs, targets) + network.divergence() / len(x)
            optimiser.zero_grad()
            bound.backward()
            optimiser.step()


class VariationalLearner:
    """Task after task: choose the coreset, train on the rest, refine on all coresets before predicting."""

    def __init__(
        self, sizes: Sequence[int], selector: Selector | None, coreset_size: int = 20, training: Training | None = None,
        refining: Training | None = None, seed: int = 0, device: str = "cpu",
    ) -> None:  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = MeanFieldNetwork(sizes).to(device)
        self.selector, self.coreset_size, self.seed = selector, coreset_size, seed
        self.training = training or Training()
        self.refining = refining or self.training
        self.generator = torch.Generator(device).manual_seed(seed)
        self.device = torch.device(device)
        self.coresets: list[tuple[Tensor, Tensor]] = []

    def add_task(self, x: np.ndarray, y: np.ndarray, context: Context | None = None) -> None:
        """Fit the posterior of one more task, with its coreset withheld."""
        if self.selector is not None and self.coreset_size >= len(x):
            raise ValueError(f"coreset_size={self.coreset_size} leaves nothing of a task of {len(x)} rows to train on.")
        held = np.zeros(len(x), dtype=bool)
        if self.selector is not None and self.coreset_size:
            seed = np.random.default_rng((self.seed, len(self.coresets)))
            held[self.selector.select(Dataset(x, y), self.coreset_size, rng=seed, context=context).indices] = True
            self.coresets.append(self._tensors(x[held], y[held]))
        if self._first():
            self._start_at_maximum_likelihood(*self._tensors(x[~held], y[~held]))
        fit(self.network, *self._tensors(x[~held], y[~held]), self.training, self.generator)
        self.network.absorb()

    def _first(self) -> bool:
        return all(float(layer.prior_log_deviation.abs().max()) == 0 for layer in self.network.layers)

    def _start_at_maximum_likelihood(self, x: Tensor, y: Tensor) -> None:
        """The first task starts from ordinary training, as in the original: from a random mean the bound prefers the prior."""
        means = [layer.mean for layer in self.network.layers]
        optimiser = torch.optim.Adam(means, lr=self.training.rate)
        for _ in range(self.training.epochs):
            for rows in torch.randperm(len(x), generator=self.generator, device=x.device).split(self.training.batch):
                optimiser.zero_grad()
                F.cross_entropy(self.network(x[rows], self.generator), y[rows]).backward()
                optimiser.step()

    def predict(self, x: np.ndarray, samples: int = 20) -> Tensor:
        """Class probabilities, averaged over draws of the posterior refined on the coresets."""
        network = self.network
        if self.coresets:
            network = copy.deepcopy(network)
            pooled = (torch.cat([coreset[part] for coreset in self.coresets]) for part in range(2))
            fit(network, *pooled, self.refining, self.generator)
        with torch.no_grad():
            inputs = torch.as_tensor(np.asarray(x), dtype=torch.float32).flatten(1).to(self.device)
            draws = [torch.softmax(network(inputs, self.generator), 1) for _ in range(samples)]
        return torch.stack(draws).mean(0).cpu()

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        inputs = torch.as_tensor(np.asarray(x), dtype=torch.float32).flatten(1).to(self.device)
        return inputs, torch.as_tensor(np.asarray(y), dtype=torch.long).to(self.device)

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
from experiments.training import Cohort, Passes, adam


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
    """How a posterior is fitted: the mean loss of ``samples`` draws plus ``penalty``·KL/N, by Adam. The bound has penalty 1."""

    epochs: int = 100
    batch: int = 256
    rate: float = 1e-3
    samples: int = 1
    penalty: float = 1.0


class Fit(Passes):
    """Adam on the evidence bound of (x, y) under the network's prior; without the bound, on the likelihood by the means alone."""

    def __init__(
        self, network: MeanFieldNetwork, x: Tensor, y: Tensor, training: Training, generator: torch.Generator,
        loss: Callable[[Tensor, Tensor], Tensor], bound: bool,
    ) -> None:  # fmt: skip
        super().__init__(len(x), training.epochs, training.batch, generator, x.device)
        self.network, self.x, self.y, self.training, self.criterion, self.bound = network, x, y, training, loss, bound
        self.noise = None if x.is_cuda else generator  # a recorded step draws from the device's own generator
        parameters = network.parameters() if bound else (layer.mean for layer in network.layers)
        self.optimiser = adam(parameters, training.rate, x.device)

    def loss(self, rows: Tensor) -> Tensor:
        x, y, samples = self.x.index_select(0, rows), self.y.index_select(0, rows), self.training.samples
        outputs = self.network(x.expand(samples, *x.shape), self.noise).flatten(0, 1)
        loss = self.criterion(outputs, y.repeat(samples, *[1] * (y.dim() - 1)))
        return loss + self.training.penalty * self.network.divergence() / self.points if self.bound else loss


def fit(
    network: MeanFieldNetwork, x: Tensor, y: Tensor, training: Training, generator: torch.Generator,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy, bound: bool = True,
) -> None:  # fmt: skip
    """Maximise the evidence bound of (x, y) under the network's prior, or the likelihood alone."""
    Cohort([Fit(network, x, y, training, generator, loss, bound)]).train(training.epochs)


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
        self._refined: MeanFieldNetwork | None = None

    def add_task(self, x: np.ndarray, y: np.ndarray, context: Context | None = None) -> None:
        """Fit the posterior of one more task, with its coreset withheld."""
        if self.selector is not None and self.coreset_size >= len(x):
            raise ValueError(f"coreset_size={self.coreset_size} leaves nothing of a task of {len(x)} rows to train on.")
        held = np.zeros(len(x), dtype=bool)
        if self.selector is not None and self.coreset_size:
            seed = np.random.default_rng((self.seed, len(self.coresets)))
            held[self.selector.select(Dataset(x, y), self.coreset_size, rng=seed, context=context).indices] = True
            self.coresets.append(self._tensors(x[held], y[held]))
        self._refined = None
        rest = self._tensors(x[~held], y[~held])
        if self._first():  # from a random mean the bound prefers the prior: the first task starts from ordinary training
            fit(self.network, *rest, self.training, self.generator, bound=False)
        fit(self.network, *rest, self.training, self.generator)
        self.network.absorb()

    def _first(self) -> bool:
        return all(float(layer.prior_log_deviation.abs().max()) == 0 for layer in self.network.layers)

    def refined(self) -> MeanFieldNetwork:
        """A copy of the posterior refined on all coresets, made once a task."""
        if self._refined is None:
            self._refined = copy.deepcopy(self.network)
            if self.coresets:
                x, y = (torch.cat([coreset[part] for coreset in self.coresets]) for part in range(2))
                fit(self._refined, x, y, self.refining, self.generator)
        return self._refined

    def predict(self, x: np.ndarray, samples: int = 20) -> Tensor:
        """Class probabilities, averaged over draws of the refined posterior."""
        network = self.refined()
        with torch.no_grad():
            inputs = torch.as_tensor(np.asarray(x), dtype=torch.float32).flatten(1).to(self.device)
            draws = [torch.softmax(network(inputs, self.generator), 1) for _ in range(samples)]
        return torch.stack(draws).mean(0).cpu()

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        inputs = torch.as_tensor(np.asarray(x), dtype=torch.float32).flatten(1).to(self.device)
        return inputs, torch.as_tensor(np.asarray(y), dtype=torch.long).to(self.device)

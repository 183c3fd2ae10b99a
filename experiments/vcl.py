"""Variational continual learning with coresets (Nguyen, Li, Bui and Turner 2018), mean-field, on
plain torch.

The posterior after a task is the prior of the next. A coreset of each task is withheld from its
training; before predicting, a copy of the posterior is refined on all coresets together and then
thrown away.

    learner = VariationalLearner([784, 256, 256, 10], selector, coreset_size=20)
    for x, y in tasks:
        learner.add_task(x, y)
    accuracy = (learner.predict(test_x)[0].argmax(1) == test_y).float().mean()

Copies of one network that differ in the weight of the divergence train as one stack of matrices:
what they share is computed once, and a small GPU kernel serves all of them. Adam works on every
number alone, so that each copy trains as it would by itself.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bicore import Context, Dataset, Selector
from experiments.training import Cohort, Passes, adam

#: Of the weights before the first task is learnt.
DEVIATION = 0.05
#: Predicted at a time.
ROWS = 5000
Generator = torch.Generator | None


class MeanFieldLinear(nn.Module):
    """Copies of a linear layer whose weights and biases are independent Gaussians; their prior
    starts as N(0, ``prior``²).

    Outputs are sampled by their own Gaussian (local reparameterisation): mean x μ, variance x² σ².
    Inputs are (…, copies, rows, inputs), or (…, 1, rows, inputs) where all copies see the same.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        copies: int = 1,
        prior: float = 1.0,
        deviation: float = DEVIATION,
    ) -> None:
        super().__init__()
        start = torch.randn(inputs + 1, outputs) * inputs**-0.5
        self.mean = nn.Parameter(start.repeat(copies, 1, 1))
        self.log_deviation = nn.Parameter(torch.full_like(self.mean.data, math.log(deviation)))
        self.prior_mean: Tensor
        self.prior_log_deviation: Tensor
        self.register_buffer("prior_mean", torch.zeros_like(self.mean.data))
        self.register_buffer(
            "prior_log_deviation", torch.full_like(self.mean.data, math.log(prior))
        )

    def forward(self, x: Tensor, samples: int = 1, generator: Generator = None) -> Tensor:
        """(samples, copies, rows, outputs); x may have the samples in front already."""
        x = torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)
        mean = x @ self.mean
        variance = x.square() @ (2 * self.log_deviation).exp()
        shape = (samples, *mean.shape[-3:])
        noise = torch.randn(shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return mean + variance.clamp_min(1e-16).sqrt() * noise

    def divergence(self) -> Tensor:
        """KL(q ‖ prior) = Σ log(s/σ) + (σ² + (μ − m)²)/(2s²) − 1/2 of each copy."""
        ratio = 2 * (self.log_deviation - self.prior_log_deviation)
        gap = (self.mean - self.prior_mean).square() / (2 * self.prior_log_deviation).exp()
        return 0.5 * (ratio.exp() + gap - 1 - ratio).sum((1, 2))

    def absorb(self) -> None:
        """Make the posterior the prior."""
        self.prior_mean.copy_(self.mean.detach())
        self.prior_log_deviation.copy_(self.log_deviation.detach())


class MeanFieldNetwork(nn.Module):
    """Copies of mean-field layers with ReLU between them, one head for all tasks."""

    def __init__(self, sizes: Sequence[int], copies: int = 1, prior: float = 1.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            MeanFieldLinear(a, b, copies, prior) for a, b in pairwise(sizes)
        )

    def forward(self, x: Tensor, samples: int = 1, generator: Generator = None) -> Tensor:
        """Outputs (samples, copies, rows, outputs) for rows that all copies see."""
        x = x[None]
        for number, layer in enumerate(self.layers):
            x = layer(torch.relu(x) if number else x, samples, generator)
        return x

    def divergence(self) -> Tensor:
        return torch.stack([layer.divergence() for layer in self.layers]).sum(0)

    def absorb(self) -> None:
        for layer in self.layers:
            layer.absorb()


@dataclass(frozen=True)
class Training:
    """How a posterior is fitted: the mean loss of ``samples`` draws plus penalty·KL/N, by Adam.

    The bound has penalty 1; a copy of the network is trained for each of ``penalties``. ``fast``
    lets products use fewer bits on a GPU.
    """

    epochs: int = 100
    batch: int = 256
    rate: float = 1e-3
    samples: int = 1
    penalties: tuple[float, ...] = (1.0,)
    fast: bool = True


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of every row."""
    return F.cross_entropy(outputs, targets, reduction="none")


class Fit(Passes):
    """Adam on the evidence bound of (x, y) under the network's prior; without the bound, on the
    likelihood by the means alone."""

    def __init__(
        self,
        network: MeanFieldNetwork,
        x: Tensor,
        y: Tensor,
        training: Training,
        generator: torch.Generator,
        losses: Callable[[Tensor, Tensor], Tensor],
        bound: bool,
    ) -> None:
        super().__init__(
            len(x), training.epochs, training.batch, generator, x.device, training.fast
        )
        self.network = network
        self.x = x
        self.y = y
        self.samples = training.samples
        self.losses = losses
        self.bound = bound
        self.penalties = torch.tensor(training.penalties, dtype=x.dtype, device=x.device)
        # a recorded step draws from the device's own generator
        self.noise = None if x.is_cuda else generator
        parameters = network.parameters() if bound else (layer.mean for layer in network.layers)
        self.optimiser = adam(parameters, training.rate, x.device)

    def loss(self, rows: Tensor) -> Tensor:
        """The sum over the copies, none of which depends on another."""
        x = self.x.index_select(0, rows)
        y = self.y.index_select(0, rows)
        outputs = self.network(x, self.samples, self.noise)
        times = outputs.shape[0] * outputs.shape[1]
        targets = y.repeat(times, *[1] * (y.dim() - 1))
        losses = self.losses(outputs.flatten(0, 2), targets).view(times, len(x)).mean(1)
        fitted = losses.sum() / self.samples
        if not self.bound:
            return fitted
        return fitted + self.penalties @ self.network.divergence() / self.points


def fit(
    network: MeanFieldNetwork,
    x: Tensor,
    y: Tensor,
    training: Training,
    generator: torch.Generator,
    losses: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    bound: bool = True,
) -> None:
    """Maximise the evidence bound of (x, y) under the network's prior, or the likelihood alone."""
    Cohort([Fit(network, x, y, training, generator, losses, bound)]).train(training.epochs)


class VariationalLearner:
    """Task after task: choose the coreset, train on the rest, refine on all coresets before
    predicting.

    ``prior`` is the standard deviation of the prior before the first task; ``prepare`` is done to
    the inputs of the network, not to those of the selector.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        selector: Selector | None,
        coreset_size: int = 20,
        training: Training | None = None,
        refining: Training | None = None,
        seed: int = 0,
        device: str = "cpu",
        prior: float = 1.0,
        prepare: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> None:
        self.prepare = prepare
        self.training = training or Training()
        self.refining = replace(refining or self.training, penalties=self.training.penalties)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.network = MeanFieldNetwork(sizes, len(self.training.penalties), prior).to(device)
        self.selector = selector
        self.coreset_size = coreset_size
        self.seed = seed
        self.tasks = 0
        self.generator = torch.Generator(device).manual_seed(seed)
        self.device = torch.device(device)
        self.coresets: list[tuple[Tensor, Tensor]] = []
        self._refined: MeanFieldNetwork | None = None

    def add_task(self, x: np.ndarray, y: np.ndarray, context: Context | None = None) -> None:
        """Fit the posterior of one more task, with its coreset withheld."""
        if self.selector is not None and self.coreset_size >= len(x):
            raise ValueError(
                f"coreset_size={self.coreset_size} leaves nothing of a task of {len(x)} rows to "
                "train on."
            )
        held = np.zeros(len(x), dtype=bool)
        if self.selector is not None and self.coreset_size:
            seed = np.random.default_rng((self.seed, len(self.coresets)))
            data = Dataset(x, y)
            coreset = self.selector.select(data, self.coreset_size, rng=seed, context=context)
            held[coreset.indices] = True
            self.coresets.append(self._tensors(x[held], y[held]))
        self._refined = None
        rest = self._tensors(x[~held], y[~held])
        # from a random mean the bound prefers the prior: the first task starts from ordinary
        # training
        if self.tasks == 0:
            fit(self.network, *rest, self.training, self.generator, bound=False)
        fit(self.network, *rest, self.training, self.generator)
        self.network.absorb()
        self.tasks += 1

    def refined(self) -> MeanFieldNetwork:
        """A copy of the posterior refined on all coresets, made once a task."""
        if self._refined is None:
            self._refined = copy.deepcopy(self.network)
            if self.coresets:
                x, y = map(torch.cat, zip(*self.coresets, strict=True))
                fit(self._refined, x, y, self.refining, self.generator)
        return self._refined

    def predict(self, x: np.ndarray, samples: int = 20) -> Tensor:
        """Class probabilities of every copy (copies, rows, classes), averaged over draws of the
        refined posterior."""
        network = self.refined()
        with torch.no_grad():
            parts = self._inputs(x).split(ROWS)
            found = [
                sum(torch.softmax(network(part, 1, self.generator)[0], -1) for _ in range(samples))
                for part in parts
            ]
        return (torch.cat(found, 1) / samples).cpu()

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        return self._inputs(x), torch.as_tensor(np.asarray(y), dtype=torch.long).to(self.device)

    def _inputs(self, x: np.ndarray) -> Tensor:
        rows = torch.as_tensor(np.asarray(x), dtype=torch.float32).flatten(1)
        return self.prepare(rows.to(self.device))

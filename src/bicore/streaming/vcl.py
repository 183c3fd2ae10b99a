"""Variational continual learning with coresets (Nguyen, Li, Bui and Turner 2018), mean-field.

The posterior after a task is the prior of the next. A coreset of each task is withheld from its
training; before predicting, a copy of the posterior is refined on the coresets and thrown away.
With one head all tasks share the outputs; with several each task has outputs of its own.

Copies of one network that differ in the weight of the divergence train as one stack of matrices:
what they share is computed once, and each trains as it would by itself.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bicore._deprecated import renamed_keywords, renamed_methods
from bicore.arguments import as_seed
from bicore.data import Array, Dataset
from bicore.errors import InputError, check_integer, check_number, check_type, shown
from bicore.methods.base import Selector
from bicore.runtime.context import Runtime
from bicore.streaming.base import as_context
from bicore.types import RandomState

#: Standard deviation of the weights before the first task.
DEVIATION = 0.05
#: Rows predicted at a time.
ROWS = 5000
#: Loss per row, from outputs and targets.
Losses = Callable[[Tensor, Tensor], Tensor]
CROSS_ENTROPY: Losses = partial(F.cross_entropy, reduction="none")


class MeanFieldLinear(nn.Module):
    """Copies of a linear layer whose weights and biases are independent Gaussians.

    Outputs are sampled by their own Gaussian (local reparameterisation): mean x μ, variance x² σ².
    """

    def __init__(self, inputs: int, outputs: int, copies: int = 1, prior: float = 1.0) -> None:
        super().__init__()
        start = torch.randn(inputs + 1, outputs) * inputs**-0.5
        self.mean = nn.Parameter(start.repeat(copies, 1, 1))
        self.log_deviation = nn.Parameter(torch.full_like(self.mean.data, math.log(DEVIATION)))
        self.prior_mean: Tensor
        self.prior_log_deviation: Tensor
        self.register_buffer("prior_mean", torch.zeros_like(self.mean.data))
        spread = torch.full_like(self.mean.data, math.log(prior))
        self.register_buffer("prior_log_deviation", spread)

    def forward(
        self, x: Tensor, samples: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        """Sample outputs."""
        x = torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)
        mean = x @ self.mean
        variance = x.square() @ (2 * self.log_deviation).exp()
        shape = (samples, *mean.shape[-3:])
        noise = torch.randn(shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return mean + variance.clamp_min(1e-16).sqrt() * noise

    def divergence(self) -> Tensor:
        """KL(q ‖ prior) = Σ log(s/σ) + (σ² + (μ − m)²)/(2s²) − 1/2."""
        ratio = 2 * (self.log_deviation - self.prior_log_deviation)
        gap = (self.mean - self.prior_mean).square() / (2 * self.prior_log_deviation).exp()
        return 0.5 * (ratio.exp() + gap - 1 - ratio).sum((1, 2))

    def absorb(self) -> None:
        """Make the posterior the prior."""
        self.prior_mean.copy_(self.mean.detach())
        self.prior_log_deviation.copy_(self.log_deviation.detach())


class MeanFieldNetwork(nn.Module):
    """Copies of mean-field layers with ReLU between them, and one or several heads."""

    def __init__(self, sizes: Sequence[int], copies: int = 1, prior: float = 1.0) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        self.last = (*pairs[-1], copies, prior)
        self.hidden = len(pairs) - 1
        self.layers: Any = nn.ModuleList(MeanFieldLinear(a, b, copies, prior) for a, b in pairs)

    def add_head(self) -> None:
        """Add a last layer, at its prior."""
        self.layers.append(MeanFieldLinear(*self.last).to(self.layers[0].mean))

    def forward(
        self, x: Tensor, samples: int = 1, generator: torch.Generator | None = None, head: int = 0
    ) -> Tensor:
        """Sample outputs of rows that all copies see."""
        x = x[None]
        for layer in self.layers[: self.hidden]:
            x = torch.relu(layer(x, samples, generator))
        outputs: Tensor = self.layers[self.hidden + head](x, samples, generator)
        return outputs

    def divergence(self) -> Tensor:
        """The divergence of all layers from their priors."""
        return torch.stack([layer.divergence() for layer in self.layers]).sum(0)

    def absorb(self) -> None:
        """Make the posterior the prior."""
        for layer in self.layers:
            layer.absorb()


@dataclass(frozen=True)
class VariationalTraining:
    """Fits a posterior: the mean loss of some draws plus penalty·KL/N, by Adam.

    Parameters
    ----------
    epochs, batch : int
        Passes over the rows, and rows of a step.
    rate : float
        The step of Adam.
    samples : int
        Draws of the weights for each step.
    penalties : tuple of float
        Weights of the divergence, 1 in the evidence bound. A copy of the network trains for each.
    fast : bool
        Whether products on a GPU may use fewer bits.

    Examples
    --------
    >>> VariationalTraining(epochs=5).penalties
    (1.0,)
    """

    epochs: int = 100
    batch: int = 256
    rate: float = 1e-3
    samples: int = 1
    penalties: tuple[float, ...] = (1.0,)
    fast: bool = True

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "samples"):
            check_integer(name, getattr(self, name))
        check_number("rate", self.rate, above=0)
        for penalty in self.penalties:
            check_number("penalties", penalty, least=0)


@dataclass(frozen=True, eq=False)
class VariationalFit:
    """One fit of a posterior to rows."""

    network: MeanFieldNetwork
    x: Tensor
    y: Tensor
    training: VariationalTraining
    generator: torch.Generator
    losses: Losses = CROSS_ENTROPY
    bound: bool = True
    head: int = 0

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters that are fitted."""
        if self.bound:
            return list(self.network.parameters())
        return [layer.mean for layer in self.network.layers]

    def loss(self, rows: Tensor, noise: torch.Generator | None, penalties: Tensor) -> Tensor:
        """Sum the objectives of the copies, none of which depends on another."""
        x, y = self.x.index_select(0, rows), self.y.index_select(0, rows)
        outputs = self.network(x, self.training.samples, noise, self.head)
        times = outputs.shape[0] * outputs.shape[1]
        targets = y.repeat(times, *[1] * (y.dim() - 1))
        losses = self.losses(outputs.flatten(0, 2), targets).view(times, len(x)).mean(1)
        fitted = losses.sum() / self.training.samples
        if not self.bound:
            return fitted
        return fitted + penalties @ self.network.divergence() / len(self.x)

    def run(self) -> None:
        """Take all steps of Adam."""
        optimiser = torch.optim.Adam(self.parameters(), lr=self.training.rate)
        penalties = self.x.new_tensor(self.training.penalties)
        device = self.generator.device
        for _ in range(self.training.epochs):
            order = torch.randperm(len(self.x), generator=self.generator, device=device)
            for rows in order.to(self.x.device).split(self.training.batch):  # type: ignore[no-untyped-call]
                optimiser.zero_grad(set_to_none=True)
                self.loss(rows, self.generator, penalties).backward()  # type: ignore[no-untyped-call]
                optimiser.step()


@renamed_methods(refined="refine")
class VariationalLearner:
    """Learn tasks in sequence: choose a coreset, train on the rest, refine on coresets to predict.

    Parameters
    ----------
    sizes : sequence of int
        Widths of the network, from the inputs to the outputs.
    selector : Selector, optional
        Selector of the coreset of each task; without one nothing is withheld.
    coreset_size : int
        Number of rows of each coreset.
    training, refinement : VariationalTraining, optional
        How posteriors are fitted to tasks, and refined on coresets (default: as tasks).
    random_state : int, Generator, RandomState or None
        Seed for all random draws.
    device : str
        Device of the network.
    prior_std : float
        Standard deviation of the prior before the first task.
    multi_head : bool
        Whether every task has outputs of its own; :meth:`predict` then needs the task.
    prepare : callable, optional
        Applied to the inputs of the network, not to those of the selector.

    Examples
    --------
    >>> from bicore.methods import KCenter
    >>> x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    >>> learner = VariationalLearner([3, 8, 2], KCenter(), 5, VariationalTraining(epochs=2))
    >>> learner.add_task(x, (x[:, 0] > 0).astype(int))
    >>> learner.predict(x).shape
    torch.Size([1, 40, 2])
    """

    #: The class that fits; subclasses may use a faster one.
    fit: type[VariationalFit] = VariationalFit

    @renamed_keywords(prior="prior_std", refining="refinement")
    def __init__(
        self,
        sizes: Sequence[int],
        selector: Selector | None,
        coreset_size: int = 20,
        training: VariationalTraining | None = None,
        refinement: VariationalTraining | None = None,
        random_state: RandomState = 0,
        device: str = "cpu",
        prior_std: float = 1.0,
        multi_head: bool = False,
        prepare: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if not hasattr(sizes, "__len__") or len(sizes) < 2:
            words = "the widths from the inputs to the outputs, such as [3, 8, 2]"
            raise InputError(f"sizes must be {words}; got {shown(sizes)}.")
        sizes = [check_integer("sizes", width) for width in sizes]
        check_number("prior_std", prior_std, above=0)
        check_type("multi_head", multi_head, bool, "True or False")
        self.training = training or VariationalTraining()
        self.refinement = replace(refinement or self.training, penalties=self.training.penalties)
        self.selector = selector
        self.coreset_size = check_integer("coreset_size", coreset_size, 0)
        self.random_state = as_seed(random_state)
        self.device = torch.device(device)
        self.generator = torch.Generator(device).manual_seed(self.random_state)
        self.multi_head = multi_head
        self.prepare = prepare
        self.tasks = 0
        self.coresets: list[tuple[Tensor, Tensor]] = []
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.random_state)
            network = MeanFieldNetwork(sizes, len(self.training.penalties), prior_std)
        self.network = network.to(self.device)
        self._refined: dict[int, MeanFieldNetwork] = {}

    @renamed_keywords()
    def add_task(
        self, x: Array, y: Array, model: nn.Module | None = None, runtime: Runtime | None = None
    ) -> None:
        """Fit the posterior for another task, with its coreset held out.

        Parameters
        ----------
        x, y : array
            Rows and labels, which are numbers of outputs.
        model : torch.nn.Module, optional
            The current model, if the selector needs one.
        runtime : Runtime, optional
            Device, precision and limits of the selection.

        Raises
        ------
        InputError
            If the coreset leaves nothing to train on.
        """
        size = self.coreset_size if self.selector is not None else 0
        if size >= len(x):
            raise InputError(
                f"coreset_size={size} leaves nothing of a task of {len(x)} rows to train on; "
                f"use at most {len(x) - 1}."
            )
        held = np.zeros(len(x), dtype=bool)
        if self.selector is not None and size:
            rng = np.random.default_rng((self.random_state, self.tasks))
            context = as_context(model, runtime)
            coreset = self.selector.select(
                Dataset(x, y), size, random_state=rng, **context.keywords
            )
            held[coreset.indices] = True
        if self.multi_head and self.tasks:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(self.random_state + self.tasks)
                self.network.add_head()
        head = self.tasks if self.multi_head else 0
        self.coresets.append(self._tensors(x[held], y[held]))
        self._refined = {}
        rest = self._tensors(x[~held], y[~held])
        # From a random mean the bound prefers the prior, so the first task starts from ordinary
        # training.
        if self.tasks == 0:
            self._run(self.network, *rest, self.training, bound=False, head=head)
        self._run(self.network, *rest, self.training, head=head)
        self.network.absorb()
        self.tasks += 1

    def _run(
        self, network: MeanFieldNetwork, x: Tensor, y: Tensor, how: VariationalTraining, **more: Any
    ) -> None:
        self.fit(network, x, y, how, self.generator, **more).run()

    def refine(self, task: int = 0) -> MeanFieldNetwork:
        """Return a copy of the posterior refined on coresets, computed once after each task.

        Parameters
        ----------
        task : int
            The task whose coreset is used with several heads; with one head all of them are.

        Returns
        -------
        MeanFieldNetwork
            The copy; the posterior itself is unchanged.
        """
        head = task if self.multi_head else 0
        if head not in self._refined:
            network = copy.deepcopy(self.network)
            parts = [self.coresets[task]] if self.multi_head else self.coresets
            x, y = (torch.cat(columns) for columns in zip(*parts, strict=True))
            if len(x):
                self._run(network, x, y, self.refinement, head=head)
            self._refined[head] = network
        return self._refined[head]

    def predict(self, x: Array, samples: int = 20, task: int = 0) -> Tensor:
        """Return class probabilities, averaged over draws of the refined posterior.

        Parameters
        ----------
        x : array
            Rows.
        samples : int
            The number of draws.
        task : int
            The task they belong to, with several heads.

        Returns
        -------
        Tensor
            (copies, rows, classes).
        """
        if not 0 <= task < max(self.tasks, 1):
            raise InputError(f"task={task} must be a task that was learned: 0 to {self.tasks - 1}.")
        network = self.refine(task)
        head = task if self.multi_head else 0
        found = []
        with torch.no_grad():
            for part in self._inputs(x).split(ROWS):  # type: ignore[no-untyped-call]
                drawn = [network(part, 1, self.generator, head)[0] for _ in range(samples)]
                found.append(torch.stack(drawn).softmax(-1).mean(0))
        return torch.cat(found, 1).cpu()

    def _tensors(self, x: Array, y: Array) -> tuple[Tensor, Tensor]:
        return self._inputs(x), torch.as_tensor(np.asarray(y), dtype=torch.long).to(self.device)

    def _inputs(self, x: Array) -> Tensor:
        rows = torch.as_tensor(np.asarray(x), dtype=torch.float32).flatten(1).to(self.device)
        return rows if self.prepare is None else self.prepare(rows)

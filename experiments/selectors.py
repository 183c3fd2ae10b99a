"""Selectors of the rows of the tables, with their kernels and networks.

Kernels are computed on the GPU for selections that run on the host: a choice among a thousand
points is a chain of small steps that a processor takes sooner than a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from torch import Tensor, nn

from benchmarks.common import ONE_THREAD
from bicore import Coreset, Dataset, Runtime
from bicore.bilevel import PerPoint
from bicore.kernels import RBF, Kernel
from bicore.methods import KCenter, Selector
from bicore.methods.registry import build_selector, greedy_selector
from bicore.networks.observe import observe
from bicore.runtime.context import Context
from experiments.problems import Problem

#: γ of the paper's RBF kernel.
GAMMA = 5e-4
#: The paper's λ, in its per-point form.
LAMBDA = 1e-3


@dataclass(frozen=True)
class Elsewhere(Kernel):
    """The same kernel, computed on another device than the one that asks."""

    kernel: Kernel
    device: str

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel.evaluate(a.to(self.device), b.to(self.device)).to(a.device)

    def gram(self, a: Tensor, block: int | None = None) -> Tensor:
        return self.kernel.gram(a.to(self.device), block).to(a.device)

    def diag(self, a: Tensor) -> Tensor:
        return self.kernel.diag(a.to(self.device)).to(a.device)

    @property
    def name(self) -> str:
        return self.kernel.name


class Proxy(Enum):
    """What replaces the network that is trained: its kernel, an RBF kernel, or what the network
    makes of the points in front of its last layer, or the directions of that alone."""

    NETWORK = auto()
    RBF = auto()
    EMBEDDING = auto()
    DIRECTIONS = auto()

    @property
    def looks(self) -> bool:
        """Whether it looks at the network in training."""
        return self in (Proxy.EMBEDDING, Proxy.DIRECTIONS)

    def kernel(self, problem: Problem, device: str) -> Kernel | str:
        if self.looks:
            return "linear"
        kernel = RBF(GAMMA) if self is Proxy.RBF else problem.kernel()
        return Elsewhere(kernel, device) if device != "cpu" else kernel


@dataclass(frozen=True)
class KCenterFromFirst(KCenter):
    """k-center that begins with the first row."""

    def select(self, data: Dataset, size: int | float, **options: Any) -> Coreset:
        return super().select(data, size, **{**options, "initial": [0]})


@dataclass(frozen=True)
class OverEmbedding(Selector):
    """A selector of what the current network makes of the points, or of its directions alone.

    Its proxy separates the classes of the points it is given, and knows of no others.
    """

    selector: Selector
    directions: bool = False

    needs_model = True
    needs_labels = True

    def select(self, data: Dataset, size: int | float, **options: Any) -> Coreset:
        embedding = observe(options["model"], data.x).embedding.double().cpu().numpy()
        if self.directions:
            lengths = np.linalg.norm(embedding, axis=1, keepdims=True)
            embedding = embedding / np.maximum(lengths, np.finfo(float).tiny)
        seen = Dataset(embedding, data.y, data.sample_weight, data.ids)
        own = {"model": None, "model_classes": None, "runtime": ONE_THREAD}
        return self.selector.select(seen, size, **{**options, **own})


class Noisy(nn.Module):
    """A network whose dropout cannot be switched off."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def train(self, mode: bool = True) -> Noisy:
        return super().train(True)

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


class Picker(ABC):
    """How a row chooses its points."""

    #: Whether its proxy has a λ; squared errors have the library's own regulariser.
    is_penalised = False
    #: Whether it looks at the network in training.
    looks = False
    #: Which weights a memory keeps.
    kept_weighting = "uniform"

    @abstractmethod
    def selector(self, problem: Problem, device: str, penalty: float = LAMBDA) -> Selector:
        """The selector on this problem; ``penalty`` is the λ of its proxy."""

    def place(self, device: str) -> str:
        """Where a selection runs: a network is looked at where it lies."""
        return device


@dataclass(frozen=True)
class Named(Picker):
    """A selector of the library by its name; with gradients scaled to length 1, or k-center that
    begins with the first row, as in the authors' code."""

    name: str
    scaled: bool = False
    from_first: bool = False

    @property
    def looks(self) -> bool:
        return build_selector(self.name).needs_model

    def selector(self, problem: Problem, device: str, penalty: float = LAMBDA) -> Selector:
        if self.from_first:
            return KCenterFromFirst(over="features")
        return build_selector(self.name, **({"normalise": True} if self.scaled else {}))


@dataclass(frozen=True)
class ByProxy(Picker):
    """The paper's coreset: cross-entropy with a proxy. By default candidates are drawn anew for
    each point, and weights are binary; ``balanced`` takes classes in turn. ``squared`` errors have
    the library's defaults."""

    proxy: Proxy = Proxy.NETWORK
    all_candidates: bool = False
    weighted: bool = False
    balanced: bool = False
    squared: bool = False

    @property
    def is_penalised(self) -> bool:
        return not self.squared

    @property
    def looks(self) -> bool:
        return self.proxy.looks

    @property
    def kept_weighting(self) -> str:
        return "learned" if self.weighted else "uniform"

    def selector(self, problem: Problem, device: str, penalty: float = LAMBDA) -> Selector:
        softmax = {
            "loss": "cross-entropy",
            "inner_reg": PerPoint(penalty),
            "candidates": None if self.all_candidates else problem.candidates,
            "first": "random",
            "weighting": "final" if self.weighted else "uniform",
            "quotas": "balanced" if self.balanced else None,
        }
        kernel = self.proxy.kernel(problem, device)
        selector = greedy_selector(kernel=kernel, **({} if self.squared else softmax))
        directions = self.proxy is Proxy.DIRECTIONS
        return OverEmbedding(selector, directions) if self.proxy.looks else selector

    def place(self, device: str) -> str:
        """The host, unless the network is looked at."""
        return device if self.proxy.looks else "cpu"


UNIFORM = Named("uniform")
CORESET = ByProxy()
RBF_CORESET = ByProxy(Proxy.RBF)
WEIGHTED_CORESET = ByProxy(weighted=True)
BALANCED_CORESET = ByProxy(balanced=True)
SQUARED_CORESET = ByProxy(squared=True)
EMBEDDING_CORESET = ByProxy(Proxy.EMBEDDING, squared=True)
DIRECTIONS_CORESET = ByProxy(Proxy.DIRECTIONS)


def context_of(place: str, model: nn.Module | None = None) -> Context:
    """One thread there, and the network that may be looked at."""
    return Context(model, Runtime(place, threads=1, progress=False), classes=range(10))

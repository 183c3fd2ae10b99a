"""How the rows of the tables choose their points, and the kernels and networks they look at.

Kernels are computed on the GPU for selections that run on the host: a choice among a thousand
points is a chain of small steps that a processor takes sooner than a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from torch import Tensor, nn

from bicore import Coreset, Dataset, Runtime
from bicore.bilevel import PerPoint
from bicore.kernels import RBF, Kernel
from bicore.methods import Selector
from bicore.methods.registry import build_selector, greedy_selector
from bicore.networks.observe import observe
from bicore.runtime.context import Context
from experiments.problems import Problem

#: γ of the paper's RBF kernel.
GAMMA = 5e-4


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
    """What stands in for the network that is trained."""

    NETWORK = "the kernel of that network"
    RBF = "an RBF kernel"

    def kernel(self, problem: Problem, device: str) -> Kernel:
        kernel = RBF(GAMMA) if self is Proxy.RBF else problem.kernel()
        return Elsewhere(kernel, device) if device != "cpu" else kernel


#: The paper's λ, in its per-point form.
LAMBDA = 1e-3


@dataclass(frozen=True)
class FromTheFirst(Selector):
    """A selector that is given the first row to begin with."""

    selector: Selector

    @property
    def needs_model(self) -> bool:
        return self.selector.needs_model

    @property
    def needs_labels(self) -> bool:
        return self.selector.needs_labels

    @property
    def ordered(self) -> bool:
        return self.selector.ordered

    def select(self, data: Dataset, size: int | float | str, **options: Any) -> Coreset:
        return self.selector.select(data, size, **{**options, "initial": [0]})


@dataclass(frozen=True)
class OverEmbedding(Selector):
    """A selector whose points are what the current network makes of them in front of its last
    layer; or their directions alone.

    Its proxy tells apart the classes of the points it is given, and is told of no others.
    """

    selector: Selector
    directions: bool = False

    needs_model = True
    needs_labels = True

    def select(
        self,
        data: Dataset,
        size: int | float | str,
        *,
        context: Context | None = None,
        **options: Any,
    ) -> Coreset:
        assert context is not None
        embedding = observe(context.model, data.x).embedding.double().cpu().numpy()
        if self.directions:
            embedding = embedding / np.maximum(
                np.linalg.norm(embedding, axis=1, keepdims=True), np.finfo(float).tiny
            )
        seen = Dataset(embedding, data.y, data.sample_weight, data.ids)
        return self.selector.select(seen, size, **on_the_host().keywords, **options)


class Noisy(nn.Module):
    """A network whose dropout cannot be switched off."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def train(self, mode: bool = True) -> Noisy:
        super().train(True)
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


class Picker(ABC):
    """How a row chooses its points."""

    #: Whether its proxy has a λ; squared errors have the library's own regulariser.
    penalised = False

    @property
    def kept(self) -> str:
        """Which weights a memory keeps."""
        return "uniform"

    @abstractmethod
    def selector(self, problem: Problem, device: str, penalty: float = LAMBDA) -> Selector:
        """The selector on this problem; ``penalty`` is the λ of its proxy."""

    def place(self, device: str) -> str:
        """Where a selection runs: a network is looked at where it lies."""
        return device


@dataclass(frozen=True)
class Named(Picker):
    """A selector of the library by its word; with gradients scaled to length 1, or given the first
    row to begin with, where the authors' code does so."""

    word: str
    scaled: bool = False
    from_the_first: bool = False

    def selector(self, problem: Problem, device: str, penalty: float = LAMBDA) -> Selector:
        options = {"normalise": True} if self.scaled else {}
        selector = build_selector(self.word, **options)
        return FromTheFirst(selector) if self.from_the_first else selector


@dataclass(frozen=True)
class ByKernel(Picker):
    """The paper's coreset: cross-entropy with a kernel as the proxy. By default candidates are
    drawn anew for each point, and weights are binary; ``balanced`` takes classes in turn."""

    proxy: Proxy = Proxy.NETWORK
    all_candidates: bool = False
    weighted: bool = False
    balanced: bool = False

    penalised = True

    @property
    def kept(self) -> str:
        return "learned" if self.weighted else "uniform"

    def selector(self, problem: Problem, device: str, penalty: float = LAMBDA) -> Selector:
        return greedy_selector(
            kernel=self.proxy.kernel(problem, device),
            loss="cross-entropy",
            inner_reg=PerPoint(penalty),
            candidates=None if self.all_candidates else problem.candidates,
            first="random",
            weighting="final" if self.weighted else "uniform",
            quotas="balanced" if self.balanced else None,
        )

    def place(self, device: str) -> str:
        """The host (see :mod:`experiments.proxies`)."""
        return "cpu"


@dataclass(frozen=True)
class BySquaredErrors(Picker):
    """A coreset by squared errors, as the library has it unless told otherwise."""

    def selector(self, problem: Problem, device: str, penalty: float = LAMBDA) -> Selector:
        return greedy_selector(kernel=Proxy.NETWORK.kernel(problem, device))

    def place(self, device: str) -> str:
        """The host."""
        return "cpu"


@dataclass(frozen=True)
class ByEmbedding(Picker):
    """A coreset by squared errors over what the network makes of the points."""

    def selector(self, problem: Problem, device: str, penalty: float = LAMBDA) -> Selector:
        return OverEmbedding(greedy_selector(kernel="linear"))


@dataclass(frozen=True)
class ByDirections(Picker):
    """A coreset by cross-entropy over the directions of what the network makes of the points."""

    penalised = True

    def selector(self, problem: Problem, device: str, penalty: float = LAMBDA) -> Selector:
        selector = greedy_selector(
            kernel="linear",
            loss="cross-entropy",
            inner_reg=PerPoint(penalty),
            candidates=problem.candidates,
            first="random",
            weighting="uniform",
        )
        return OverEmbedding(selector, directions=True)


UNIFORM = Named("uniform")
CORESET = ByKernel()
RBF_CORESET = ByKernel(Proxy.RBF)
WEIGHTED_CORESET = ByKernel(weighted=True)
BALANCED_CORESET = ByKernel(balanced=True)
SQUARED_CORESET = BySquaredErrors()


def on_the_host() -> Context:
    """One thread, and no network."""
    return Context(runtime=Runtime("cpu", threads=1, progress=False))


def context_of(place: str, model: nn.Module | None = None) -> Context:
    """One thread there, and the network that may be looked at."""
    return Context(model, Runtime(place, threads=1, progress=False), classes=range(10))

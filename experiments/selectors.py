"""The selector of every row of the tables, by its word, and the network it may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from bicore import BilevelSelector, Context, Coreset, Dataset, PerPoint, Runtime, Selector
from bicore.networks.observe import observe
from bicore.selectors import as_selector
from experiments.proxies import proxy

#: The paper's λ, in its per-point form, and its candidates a step.
LAMBDA = 1e-3
CANDIDATES = {"PermMNIST": 200, "SplitMNIST": 200, "SplitCIFAR-10": 600}


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
        seen = Dataset(embedding, data.y, data.weight, data.ids)
        runtime = Runtime("cpu", threads=1, progress=False)
        return self.selector.select(seen, size, context=Context(runtime=runtime), **options)


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


def penalised(word: str | None) -> bool:
    """Whether a row's proxy has a λ; squared errors have the library's own regulariser."""
    return (
        word is not None
        and word.startswith("coreset")
        and word not in ("coreset-squared", "coreset-embedding")
    )


def selector_of(
    word: str, dataset: str, device: str, penalty: float = LAMBDA, **options: Any
) -> Selector:
    """The selector of a row. The proxy of a coreset is the kernel of a network, an RBF or an
    embedding; ``penalty`` is its λ."""
    if not word.startswith("coreset"):
        return as_selector(word, **options)
    if word == "coreset-embedding":
        return OverEmbedding(BilevelSelector(kernel="linear"))
    kernel = "linear" if word == "coreset-directions" else proxy(dataset, word, device)
    if word == "coreset-squared":
        return BilevelSelector(kernel=kernel)
    candidates = None if word == "coreset-all" else CANDIDATES[dataset]
    weights = "final" if word == "coreset-weighted" else "binary"
    selector = BilevelSelector(
        kernel=kernel,
        loss="cross-entropy",
        inner_reg=PerPoint(penalty),
        candidates=candidates,
        first="random",
        weights=weights,
    )
    return OverEmbedding(selector, directions=True) if word == "coreset-directions" else selector


def context_of(selector: Selector | None, model: nn.Module | None, device: str) -> Context:
    """Selections by a kernel run on the host (see :mod:`experiments.proxies`), those that look at a
    network where it lies."""
    place = "cpu" if isinstance(selector, BilevelSelector) else device
    return Context(model, Runtime(place, threads=1, progress=False), classes=range(10))

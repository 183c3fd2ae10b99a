"""Selectors that cover the data: k-means++ centres and greedy k-center, over any space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.errors import unknown_name
from bicore.kernels.operators import KernelOperator
from bicore.picking import lowest, step_rng
from bicore.selectors.baselines.base import Growth, Job, PlainSelector
from bicore.selectors.baselines.spaces import as_space, squared_distances


@dataclass(frozen=True)
class OverSpace(PlainSelector):
    """What rules over a space share. ``over``: "features", "embedding", "gradients", "predictions",
    a Space or a Kernel."""

    over: Any = "features"

    def __post_init__(self) -> None:
        as_space(self.over)

    @property
    def needs_labels(self) -> bool:
        return as_space(self.over).needs_labels

    @property
    def needs_model(self) -> bool:
        return as_space(self.over).needs_model


@dataclass(frozen=True)
class KMeansPlusPlus(OverSpace):
    """The centres of k-means++ (Arthur and Vassilvitskii 2007): each is drawn with probability ∝
    weight × squared distance to the nearest centre so far, the first ∝ weight. Where every distance
    is zero, among the rest at random.

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.array([[0.0], [0.0], [0.0], [9.0]])
    >>> sorted(x[KMeansPlusPlus().select(Dataset(x), 2).indices, 0].tolist())
    [0.0, 9.0]
    """

    @property
    def name(self) -> str:
        return f"k-means++ over {as_space(self.over).name}"

    def _grow(self, job: Job, growth: Growth) -> None:
        nearest = _Nearest(as_space(self.over).operator(job, centre=True), growth.order)
        weights = job.weights.cpu().numpy()
        while growth.wants():
            chances = np.where(
                growth.open, weights * (nearest.distances() if growth.order else 1.0), 0.0
            )
            if chances.sum() == 0:
                chances = growth.open.astype(float)
            heap = np.cumsum(chances)
            drawn = step_rng(job.seed, len(growth.order)).random() * heap[-1]
            place = min(
                int(np.searchsorted(heap, drawn, side="right")), int(np.flatnonzero(chances)[-1])
            )
            growth.take(place)
            nearest.add(place)


@dataclass(frozen=True)
class KCenter(OverSpace):
    """Greedy k-center (Gonzalez 1985; the active-learning "core-set" of Sener and Savarese 2018):
    always the point farthest from those chosen, which is within a factor 2 of the smallest possible
    covering radius.

    ``first``: "random" draws the first point, "central" takes the one nearest the mean.
    ``objectives`` hold the radius.

    Examples
    --------
    >>> from bicore import Dataset
    >>> KCenter(first="central").select(Dataset([[0.0], [4.0], [5.0], [11.0]]), 3).indices.tolist()
    [2, 3, 0]
    """

    first: str = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first not in ("random", "central"):
            raise unknown_name("first", self.first, ("random", "central"))

    @property
    def name(self) -> str:
        return f"k-center over {as_space(self.over).name}"

    def _grow(self, job: Job, growth: Growth) -> None:
        operator = as_space(self.over).operator(job, centre=True)
        nearest = _Nearest(operator, growth.order)
        identity = np.arange(len(job.data))
        while growth.wants():
            if growth.order:
                scores = -nearest.distances()
            elif self.first == "central":
                scores = _to_mean(operator, job.weights)
            else:
                scores = np.random.default_rng(job.seed).permutation(len(job.data)).astype(float)
            place = lowest(np.where(growth.open, scores, np.inf), identity)
            nearest.add(place)
            growth.take(place, float(np.sqrt(nearest.distances().max())))


class _Nearest:
    """The squared distance of every point to the nearest one chosen."""

    def __init__(self, operator: KernelOperator, chosen: list[int]) -> None:
        self.operator = operator
        self.norms = operator.diagonal()
        self.squared = torch.full_like(self.norms, torch.inf)
        for place in chosen:
            self.add(place)

    def add(self, place: int) -> None:
        index = torch.tensor([place], device=self.norms.device)
        torch.minimum(
            self.squared,
            squared_distances(self.operator, self.norms, index)[:, 0],
            out=self.squared,
        )

    def distances(self) -> np.ndarray[Any, Any]:
        return self.squared.double().cpu().numpy()


def _to_mean(operator: KernelOperator, weights: Tensor) -> np.ndarray[Any, Any]:
    """Squared distance of every point to the weighted mean, up to a constant."""
    share = (weights / weights.sum()).to(operator.like)
    return np.asarray(
        (operator.diagonal() - 2 * operator.matmul(share[:, None])[:, 0]).double().cpu().numpy()
    )

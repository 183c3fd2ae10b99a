"""Selectors that cover the data: k-means++ centres and greedy k-center, over any space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import unknown_name
from bicore.kernels.operators import KernelOperator
from bicore.picking import lowest, step_rng
from bicore.selectors.baselines.base import Growth, Job, PlainSelector
from bicore.selectors.baselines.spaces import Space, as_space, squared_distances

FIRST_POINTS = ("random", "central")


@dataclass(frozen=True)
class OverSpace(PlainSelector):
    """What rules over a space share.

    ``over`` is "features", "embedding", "gradients", "predictions", a Space or a Kernel.
    """

    over: Any = "features"

    def __post_init__(self) -> None:
        as_space(self.over)

    @property
    def _space(self) -> Space:
        return as_space(self.over)

    @property
    def needs_labels(self) -> bool:
        return self._space.needs_labels

    @property
    def needs_model(self) -> bool:
        return self._space.needs_model


@dataclass(frozen=True)
class KMeansPlusPlus(OverSpace):
    """The centres of k-means++ (Arthur and Vassilvitskii 2007), drawn by squared distance.

    Each point is drawn with probability ∝ weight × squared distance to the nearest one so far, the
    first ∝ weight; where every distance is zero, among the rest at random. Use it for a spread that
    follows the density of the data: outliers are drawn, but not first of all.

    Parameters
    ----------
    over : str, Space or Kernel
        Where distances are measured: "features", "embedding", "gradients", "predictions", a Space
        or a Kernel.

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.array([[0.0], [0.0], [0.0], [9.0]])
    >>> sorted(x[KMeansPlusPlus().select(Dataset(x), 2).indices, 0].tolist())
    [0.0, 9.0]
    """

    @property
    def name(self) -> str:
        return f"k-means++ over {self._space.name}"

    def _grow(self, job: Job, growth: Growth) -> None:
        nearest = _Nearest(self._space.operator(job, centre=True), growth.order)
        weights = job.weights.cpu().numpy()
        while growth.wants():
            powers = weights * nearest.squared_distances() if growth.order else weights
            chances = np.where(growth.open, powers, 0.0)
            if chances.sum() == 0:
                chances = growth.open.astype(float)
            place = _drawn(chances, step_rng(job.seed, len(growth.order)))
            growth.take(place)
            nearest.add(place)


def _drawn(chances: Array, rng: np.random.Generator) -> int:
    """A place with probability ∝ its chance; rounding at the far end cannot leave the places."""
    cumulative = np.cumsum(chances)
    drawn = rng.random() * cumulative[-1]
    last = np.flatnonzero(chances)[-1]
    return min(int(np.searchsorted(cumulative, drawn, side="right")), int(last))


@dataclass(frozen=True)
class KCenter(OverSpace):
    """Greedy k-center: always the point farthest from those chosen (Gonzalez 1985).

    The radius that remains is within a factor 2 of the smallest possible. It is the "core-set" of
    active learning (Sener and Savarese 2018). Use it where no point may be far from a chosen one;
    it takes outliers first. ``objectives`` hold the radius.

    Parameters
    ----------
    over : str, Space or Kernel
        Where distances are measured: "features", "embedding", "gradients", "predictions", a Space
        or a Kernel.
    first : str, optional
        "random" draws the first point, "central" takes the one nearest the mean.

    Examples
    --------
    >>> from bicore import Dataset
    >>> KCenter(first="central").select(Dataset([[0.0], [4.0], [5.0], [11.0]]), 3).indices.tolist()
    [2, 3, 0]
    """

    first: str = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first not in FIRST_POINTS:
            raise unknown_name("first", self.first, FIRST_POINTS)

    @property
    def name(self) -> str:
        return f"k-center over {self._space.name}"

    def _grow(self, job: Job, growth: Growth) -> None:
        operator = self._space.operator(job, centre=True)
        nearest = _Nearest(operator, growth.order)
        identity = np.arange(len(job.data))
        while growth.wants():
            if growth.order:
                scores = -nearest.squared_distances()
            else:
                scores = self._first_scores(operator, job)
            place = lowest(np.where(growth.open, scores, np.inf), identity)
            nearest.add(place)
            growth.take(place, float(np.sqrt(nearest.squared_distances().max())))

    def _first_scores(self, operator: KernelOperator, job: Job) -> Array:
        """The lowest is taken first."""
        if self.first == "central":
            return _to_mean(operator, job.weights)
        return np.random.default_rng(job.seed).permutation(len(job.data)).astype(float)


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
        own = squared_distances(self.operator, self.norms, index)[:, 0]
        torch.minimum(self.squared, own, out=self.squared)

    def squared_distances(self) -> Array:
        return np.asarray(self.squared.double().cpu().numpy())


def _to_mean(operator: KernelOperator, weights: Tensor) -> Array:
    """Squared distance of every point to the weighted mean, up to a constant."""
    share = (weights / weights.sum()).to(operator.like)
    towards = operator.matmul(share[:, None])[:, 0]
    return np.asarray((operator.diagonal() - 2 * towards).double().cpu().numpy())

"""Selectors whose points, averaged, match the mean of the data: herding and gradient matching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import unknown_name
from bicore.kernels.operators import KernelOperator
from bicore.picking import lowest
from bicore.selectors.baselines.base import Growth, Job
from bicore.selectors.baselines.cover import OverSpace
from bicore.selectors.baselines.sparse_sums import FrankWolfe, OrthogonalPursuit


@dataclass(frozen=True)
class Herding(OverSpace):
    """Herding as iCaRL does it (Rebuffi et al. 2017, algorithm 4): exemplars with a class's mean.

    The k-th exemplar of a class is the point x that brings the mean of the exemplars nearest the
    mean μ of the class: it minimises ‖μ − (φ(x) + Σ_{j<k} φ(p_j))/k‖. Classes take turns, so that
    every prefix is balanced; averages are not scaled to length 1 again. Use it for a memory whose
    classes are told apart by their means.

    Parameters
    ----------
    over : str, Space or Kernel
        The space φ: "embedding", which is iCaRL's, "features", "gradients", "predictions", a Space
        or a Kernel.
    per_class : bool, optional
        Herd every class towards its own mean (needs labels), or all points towards the mean of all.
    normalise : bool, optional
        Scale points to length 1 first.

    Examples
    --------
    >>> from bicore import Dataset
    >>> herding = Herding("features", per_class=False, normalise=False)
    >>> herding.select(Dataset([[0.0], [1.0], [5.0]]), 2).indices.tolist()
    [1, 2]
    """

    over: Any = "embedding"
    per_class: bool = True
    normalise: bool = True

    @property
    def name(self) -> str:
        grouped = " per class" if self.per_class else ""
        return f"herding over {self._space.name}{grouped}"

    @property
    def needs_labels(self) -> bool:
        return self.per_class or self._space.needs_labels

    def _grow(self, job: Job, growth: Growth) -> None:
        codes = job.classes().values if self.per_class else _one_group(job)
        # Against a mean of the points only their differences count, unless they are rescaled.
        operator = self._space.operator(job, self.normalise, centre=not self.normalise)
        herd(operator, codes, job.weights, growth)


@dataclass(frozen=True)
class GradientMatching(OverSpace):
    """A Hilbert coreset (Campbell and Broderick 2019): points whose gradients sum to the data's.

    It minimises ‖Σ_i v_i g_i − Σ_{k in S} w_k g_k‖ in the space ``over``, all classes together. Use
    it to train on the coreset with nearly the steps that all the data would give.

    Parameters
    ----------
    over : str, Space or Kernel
        The space of the g_i: "gradients" of the last layer, "embedding", "features", "predictions",
        a Space or a Kernel.
    weighting : str, optional
        Where the weights w_k come from. "equal": all are 1, by herding towards the mean gradient
        (the paper's baseline; its code also scaled gradients to length 1: ``normalise=True``).
        "pursuit": orthogonal matching pursuit, the weights >= 0 fitted anew after every point
        (GRAD-MATCH). "frank-wolfe": steps with exact line search on {w >= 0, Σ w_i‖g_i‖ =
        Σ v_i‖g_i‖}. With the last two, weights sum to about n (use ``normalised()``) and
        ``objectives`` hold ‖difference‖²/‖Σ v_i g_i‖².
    normalise : bool, optional
        Scale gradients to length 1 first.

    Examples
    --------
    >>> from bicore import Dataset
    >>> data = Dataset(np.repeat(np.eye(2), [3, 5], axis=0))
    >>> picked = GradientMatching("features", weighting="pursuit").select(data, 2)
    >>> picked.indices.tolist(), picked.weights.round(6).tolist()
    ([3, 0], [5.0, 3.0])
    """

    over: Any = "gradients"
    weighting: str = "equal"
    normalise: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weighting not in WEIGHTINGS:
            raise unknown_name("weighting", self.weighting, WEIGHTINGS)

    @property
    def name(self) -> str:
        how = "" if self.weighting == "equal" else f", {self.weighting}"
        return f"gradient matching over {self._space.name}{how}"

    def _grow(self, job: Job, growth: Growth) -> None:
        WEIGHTINGS[self.weighting](self._space.operator(job, self.normalise), job, growth)


def _equally(operator: KernelOperator, job: Job, growth: Growth) -> None:
    herd(operator, _one_group(job), job.weights, growth)


def _by_pursuit(operator: KernelOperator, job: Job, growth: Growth) -> None:
    OrthogonalPursuit(operator, job.weights, job.size + 1).run(growth)


def _by_frank_wolfe(operator: KernelOperator, job: Job, growth: Growth) -> None:
    FrankWolfe(operator, job.weights, job.size + 1).run(growth)


#: Where the weights of gradient matching come from.
WEIGHTINGS: dict[str, Callable[[KernelOperator, Job, Growth], None]] = {
    "equal": _equally,
    "pursuit": _by_pursuit,
    "frank-wolfe": _by_frank_wolfe,
}


def _one_group(job: Job) -> Array:
    return np.zeros(len(job.data), dtype=np.int64)


def herd(operator: KernelOperator, codes: Array, weights: Tensor, growth: Growth) -> None:
    """Take points by turns of the groups, each bringing the mean chosen nearest the group's own."""
    towards_mean = _towards_means(operator, codes, weights)
    squares = operator.diagonal().double().cpu().numpy()
    towards_chosen = np.zeros(len(codes))  # ⟨φ(x), Σ_j φ(p_j)⟩, p_j chosen of the group of x
    counts = np.zeros(int(codes.max()) + 1, dtype=np.int64)

    def count_in(place: int) -> None:
        index = torch.tensor([place], device=operator.like.device)
        column = operator.columns(index)[:, 0].double().cpu().numpy()
        own = codes == codes[place]
        towards_chosen[own] += column[own]
        counts[codes[place]] += 1

    for place in growth.order:
        count_in(place)
    for group in _turns(codes, counts, growth):
        places = np.flatnonzero(growth.open & (codes == group))
        k = counts[group] + 1
        # ‖μ − (φ(x) + Σ_j φ(p_j))/k‖² without the terms that are the same for every x
        scores = (2 * towards_chosen[places] + squares[places]) / k**2
        scores = scores - 2 * towards_mean[places] / k
        place = int(places[lowest(scores, places)])
        count_in(place)
        growth.take(place)


def _turns(codes: Array, counts: Array, growth: Growth) -> Iterator[int]:
    """The group whose turn it is: of those with points left, the one that has the fewest chosen."""
    while growth.wants():
        left = np.unique(codes[growth.open])
        yield int(left[np.argmin(counts[left])])


def _towards_means(operator: KernelOperator, codes: Array, weights: Tensor) -> Array:
    """⟨φ(x_i), μ_c⟩ for every point i and the weighted mean μ_c of its own group c."""
    index = torch.from_numpy(codes).to(weights.device)
    totals = weights.new_zeros(int(codes.max()) + 1).index_add_(0, index, weights)
    shares = weights.new_zeros(len(codes), len(totals))
    everyone = torch.arange(len(codes), device=index.device)
    # a group of weight zero, which only points given at the start can form, has no mean
    shares[everyone, index] = weights / totals[index].clamp_min(1e-300)
    means = operator.matmul(shares.to(operator.like))
    return np.asarray(means.gather(1, index[:, None])[:, 0].double().cpu().numpy())

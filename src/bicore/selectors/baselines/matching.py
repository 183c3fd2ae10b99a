"""Selectors whose points, averaged, match the mean of the data: herding and gradient matching, over
any space."""

from __future__ import annotations

from collections.abc import Iterator
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
from bicore.selectors.baselines.spaces import as_space
from bicore.selectors.baselines.sparse_sums import FrankWolfe, OrthogonalPursuit


@dataclass(frozen=True)
class Herding(OverSpace):
    """Herding as iCaRL does it (Rebuffi et al. 2017, algorithm 4), in the space of points scaled to
    length 1.

    The k-th exemplar of a class is the point x that brings the mean of the exemplars nearest the
    mean μ of the class: it minimises ‖μ − (φ(x) + Σ_{j<k} φ(p_j))/k‖. Classes take turns, so that
    every prefix is balanced; averages are not scaled to length 1 again.

    Parameters
    ----------
    over : the space; "embedding" is iCaRL's. per_class : herd every class towards its own mean
    (needs labels), or all points towards the mean of all. normalise : scale points to length 1.

    Examples
    --------
    >>> from bicore import Dataset
    >>> Herding("features", per_class=False, normalise=False).select(Dataset([[0.0], [1.0], [5.0]]), 2).indices.tolist()
    [1, 2]
    """

    over: Any = "embedding"
    per_class: bool = True
    normalise: bool = True

    @property
    def name(self) -> str:
        return f"herding over {as_space(self.over).name}" + (" per class" if self.per_class else "")

    @property
    def needs_labels(self) -> bool:
        return self.per_class or as_space(self.over).needs_labels

    def _grow(self, job: Job, growth: Growth) -> None:
        codes = job.classes().values if self.per_class else np.zeros(len(job.data), dtype=np.int64)
        herd(
            as_space(self.over).operator(job, self.normalise, centre=not self.normalise),
            codes,
            job.weights,
            growth,
        )


@dataclass(frozen=True)
class GradientMatching(OverSpace):
    """A Hilbert coreset (Campbell and Broderick 2019): weighted points whose gradients sum to that
    of the data, all classes together. It minimises ‖Σ_i v_i g_i − Σ_{k in S} w_k g_k‖ in the space
    ``over``.

    Parameters
    ----------
    weights : "equal", "pursuit" or "frank-wolfe"
        Equal weights: herding towards the mean gradient (the paper's baseline; its code also scaled
        gradients to length 1: ``normalise=True``). "pursuit": orthogonal matching pursuit, the
        weights >= 0 fitted anew after every point (GRAD-MATCH). "frank-wolfe": steps with exact
        line search on {w >= 0, Σ w_i‖g_i‖ = Σ v_i‖g_i‖}.
    normalise : scale gradients to length 1.

    ``objectives`` hold ‖difference‖²/‖Σ v_i g_i‖² for the weighted forms. Their weights sum to
    about n: use ``normalised()``.
    """

    over: Any = "gradients"
    weights: str = "equal"
    normalise: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in ("equal", "pursuit", "frank-wolfe"):
            raise unknown_name("weights", self.weights, ("equal", "pursuit", "frank-wolfe"))

    @property
    def name(self) -> str:
        how = "" if self.weights == "equal" else f", {self.weights}"
        return f"gradient matching over {as_space(self.over).name}{how}"

    def _grow(self, job: Job, growth: Growth) -> None:
        operator = as_space(self.over).operator(job, self.normalise)
        if self.weights == "equal":
            herd(operator, np.zeros(len(job.data), dtype=np.int64), job.weights, growth)
        elif self.weights == "pursuit":
            OrthogonalPursuit(operator, job.weights, job.size + 1).run(growth)
        else:
            FrankWolfe(operator, job.weights, job.size + 1).run(growth)


def herd(operator: KernelOperator, codes: Array, weights: Tensor, growth: Growth) -> None:
    """Take points by turns of the groups, each bringing its group's mean of chosen points nearest
    the group's mean."""
    pull = _towards_means(operator, codes, weights)
    norms = operator.diagonal().double().cpu().numpy()
    chosen = np.zeros(len(codes))  # ⟨φ(x), Σ_j φ(p_j)⟩ over the points chosen of the same group
    counts = np.zeros(int(codes.max()) + 1, dtype=np.int64)

    def note(place: int) -> None:
        column = (
            operator.columns(torch.tensor([place], device=operator.like.device))[:, 0]
            .double()
            .cpu()
            .numpy()
        )
        own = codes == codes[place]
        chosen[own] += column[own]
        counts[codes[place]] += 1

    for place in growth.order:
        note(place)
    for group in _turns(codes, counts, growth):
        places = np.flatnonzero(growth.open & (codes == group))
        k = counts[group] + 1
        scores = (2 * chosen[places] + norms[places]) / k**2 - 2 * pull[places] / k
        place = int(places[lowest(scores, places)])
        note(place)
        growth.take(place)


def _turns(codes: Array, counts: Array, growth: Growth) -> Iterator[int]:
    """The group whose turn it is: of those with points left, the one that has the fewest chosen."""
    while growth.wants():
        left = np.unique(codes[growth.open])
        yield int(left[np.argmin(counts[left])])


def _towards_means(operator: KernelOperator, codes: Array, weights: Tensor) -> Array:
    """⟨φ(x_i), μ_c⟩ for every point i and the weighted mean μ_c of its own group c."""
    index = torch.from_numpy(codes).to(weights.device)
    totals = torch.zeros(
        int(codes.max()) + 1, dtype=weights.dtype, device=weights.device
    ).index_add_(0, index, weights)
    shares = torch.zeros(len(codes), len(totals), dtype=weights.dtype, device=weights.device)
    shares[torch.arange(len(codes), device=index.device), index] = weights / totals[
        index
    ].clamp_min(1e-300)
    means = operator.matmul(shares.to(operator.like))
    return np.asarray(means.gather(1, index[:, None])[:, 0].double().cpu().numpy())

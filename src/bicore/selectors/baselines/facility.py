"""Facility location over any space, with the exact gain of every point at every step.

CRAIG is one of its forms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError
from bicore.kernels.operators import BLOCK_BYTES, KernelOperator, parts
from bicore.picking import lowest, whole_number
from bicore.selectors.baselines.base import Growth, Job
from bicore.selectors.baselines.cover import OverSpace
from bicore.selectors.baselines.spaces import squared_distances

#: Tells the draw of the rows summed over from other draws of the same seed.
DRAW = 0xFAC
#: Numbers that a distance passes through on the way to a gain, all of which are held in a block.
COPIES = 4
#: The distances are stored where this many copies of them fit into memory: they and a block.
ROOM = 1.5


@dataclass(frozen=True)
class FacilityLocation(OverSpace):
    """Facility location: points to which all the others are near on average.

    Greedy maximisation of Σ_i v_i max_{j in S} (D − ‖x_i − x_j‖), D the largest distance of all;
    greedy reaches at least 1 − 1/e of the best. Use it for representatives: unlike k-center it
    passes outliers over.

    CRAIG (Mirzasoleiman et al. 2020) is ``FacilityLocation(over="gradients", per_class=True,
    counted=True)``, with one greedy run over all classes where the original gives each class a
    budget of its own.

    The gain of every point is exact at every step: when a point joins, only the rows it serves
    better than before are visited, n/k of them at step k, so that all steps together cost a few
    passes over the distances instead of one each. ``objectives`` hold the weighted mean distance to
    the nearest chosen point (at most D).

    Parameters
    ----------
    over : str, Space or Kernel
        Where distances are measured: "features", "embedding", "gradients", "predictions", a Space
        or a Kernel.
    per_class : bool, optional
        Count a point as covered by points of its own class only.
    counted : bool, optional
        Give each chosen point the weight of the points that are nearest to it; default: 1.
    sample : int, optional
        Gains are summed over this many rows drawn at random, of every class its share; all rows
        stay candidates, and what is reported (``objectives``, weights) is of all rows. Default: the
        sum over all, which looks at every pair.

    Examples
    --------
    >>> from bicore import Dataset
    >>> data = Dataset([[0.0], [1.0], [2.0], [9.0], [10.0]])
    >>> FacilityLocation().select(data, 2).indices.tolist()
    [2, 3]
    >>> FacilityLocation(counted=True).select(data, 2).weights.tolist()
    [3.0, 2.0]
    """

    per_class: bool = False
    counted: bool = False
    sample: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample is not None:
            words = (
                f"sample={self.sample!r} is not a whole number >= 1; give rows, or None for all."
            )
            whole_number(self.sample, 1, words)

    @property
    def name(self) -> str:
        grouped = " per class" if self.per_class else ""
        return f"facility location over {self._space.name}{grouped}"

    @property
    def needs_labels(self) -> bool:
        return self.per_class or self._space.needs_labels

    def _grow(self, job: Job, growth: Growth) -> None:
        codes = job.classes().values if self.per_class else None
        mean_weight = _mean_weight(job) if self.counted else 1.0
        distances = _Distances(
            self._space.operator(job, centre=True),
            None if codes is None else torch.from_numpy(codes).to(job.like.device),
            self._summed(job, codes),
            job.context.runtime.memory_bytes(),
        )
        coverage = _Coverage(distances, job.weights)
        for place in growth.order:
            coverage.add(place)
        identity = np.arange(len(job.data))
        try:
            while growth.wants():
                scores = np.where(growth.open, -coverage.gains.cpu().numpy(), np.inf)
                place = lowest(scores, identity)
                coverage.add(place)
                growth.take(place, coverage.mean())
        finally:
            if self.counted:
                _count(growth, coverage.served(len(growth.order)) * mean_weight)

    def _summed(self, job: Job, codes: Array | None) -> Array:
        """The rows over which gains are summed: all, or some drawn among the ids, by class."""
        count = len(job.data)
        if self.sample is None or self.sample >= count:
            return np.arange(count)
        groups = np.zeros(count, dtype=np.int64) if codes is None else codes
        order = np.random.default_rng((job.seed, DRAW)).permutation(count)
        parts = [order[groups[order] == group] for group in np.unique(groups)]
        share = self.sample / count
        return np.sort(np.concatenate([part[: math.ceil(share * len(part))] for part in parts]))


def _mean_weight(job: Job) -> float:
    """Of the data; refused where the weight of all rows is more than a number can hold."""
    weights = job.data.weights
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        raise InputError(
            f"weight sums to more than {np.finfo(np.float64).max:.3g}, and so would the counts of "
            "counted=True; scale weight down."
        )
    return float(total / len(weights))


def _count(growth: Growth, counts: Array) -> None:
    """Weigh the points by whom they serve; one that serves nobody, such as a duplicate, leaves."""
    serving = counts > 0
    growth.weights = counts[serving]
    growth.order = [place for place, kept in zip(growth.order, serving, strict=True) if kept]
    growth.objectives = growth.objectives[: len(growth.order)]


class _Distances:
    """Rows of the distance matrix that are summed over; other classes are at infinity.

    Stored where the memory limit allows, else computed again.
    """

    def __init__(
        self, operator: KernelOperator, codes: Tensor | None, summed: Array, memory: int
    ) -> None:
        self.operator = operator
        self.codes = codes
        self.norms = operator.diagonal()
        self.count = len(self.norms)
        self.summed = torch.from_numpy(summed).to(self.norms.device)
        self.place_of = torch.full_like(self.norms, -1, dtype=torch.long)
        self.place_of[self.summed] = torch.arange(len(summed), device=self.norms.device)
        self.block = max(1, BLOCK_BYTES // (COPIES * 8 * self.count))
        self.stored: Tensor | None = None
        if ROOM * len(summed) * self.count * self.norms.element_size() <= memory:
            self.stored = self.norms.new_empty(len(summed), self.count)
        self.largest = 0.0
        for part in self.parts():
            rows = self._computed(part)
            self.largest = max(self.largest, float(torch.nan_to_num(rows, posinf=0.0).max()))
            if self.stored is not None:
                self.stored[self.place_of[part]] = rows

    def parts(self) -> Iterator[Tensor]:
        """The rows that are summed over, a block at a time."""
        return parts(self.summed, self.block)

    def rows(self, index: Tensor) -> Tensor:
        """The distances of some of those points to all, a row each."""
        return self._computed(index) if self.stored is None else self.stored[self.place_of[index]]

    def of(self, place: int) -> Tensor:
        """The distances of any point to all."""
        index = torch.tensor([place], device=self.norms.device)
        known = self.stored is not None and int(self.place_of[place]) >= 0
        return (self.rows(index) if known else self._computed(index))[0]

    def _computed(self, index: Tensor) -> Tensor:
        distances = squared_distances(self.operator, self.norms, index).T.sqrt()
        if self.codes is not None:
            distances.masked_fill_(self.codes[index][:, None] != self.codes, torch.inf)
        return distances


class _Coverage:
    """How far each point is from the nearest chosen one, and what each candidate would gain.

    The gain of a candidate is by how much it would lower the weighted sum of those distances over
    the rows that are summed. ``owner`` holds the number of the chosen point that serves a point, −1
    where none does.
    """

    def __init__(self, distances: _Distances, weights: Tensor) -> None:
        self.distances = distances
        self.weights = weights.to(distances.norms)
        self.nearest = torch.full_like(distances.norms, distances.largest)
        self.owner = torch.full_like(distances.norms, -1, dtype=torch.long)
        self.size = 0
        self.gains = torch.zeros_like(distances.norms, dtype=torch.float64)
        self.counts = distances.place_of >= 0
        for part in distances.parts():
            self._credit(part, torch.zeros_like(self.nearest[part]), +1)

    def _credit(self, part: Tensor, floor: Tensor, sign: int) -> None:
        """Add ± v_i (nearest_i − clamp(d_ij, floor_i, nearest_i)) to the gain of every candidate j.

        The sum goes over the rows i of ``part``.
        """
        ceiling = self.nearest[part]
        within = torch.clamp(self.distances.rows(part), floor[:, None], ceiling[:, None])
        weights = self.weights[part]
        self.gains.add_((weights @ ceiling - weights @ within).double(), alpha=sign)

    def add(self, place: int) -> None:
        """Take a point in; of the rows summed over, only those it serves better are visited."""
        own = self.distances.of(place)
        better = (own < self.nearest) | ((self.owner < 0) & torch.isfinite(own))
        visited = torch.nonzero(self.counts & (own < self.nearest))[:, 0]
        for part in parts(visited, self.distances.block):
            self._credit(part, own[part], -1)
        # Only now, so that a point that was not taken to the end serves nobody.
        self.owner[better] = self.size
        self.size += 1
        self.nearest = torch.minimum(self.nearest, own)

    def mean(self) -> float:
        """The weighted mean distance to the nearest chosen point."""
        return float((self.weights * self.nearest).sum() / self.weights.sum())

    def served(self, size: int) -> Array:
        """The summed weight of the points that each of the first ``size`` chosen ones serves.

        Points that none serves count for nobody.
        """
        known = self.owner >= 0
        totals = torch.zeros(self.size, dtype=torch.float64, device=self.nearest.device)
        totals.index_add_(0, self.owner[known], self.weights[known].double())
        return np.asarray(totals[:size].cpu().numpy())

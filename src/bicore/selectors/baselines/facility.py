"""Facility location over any space, with the exact gain of every point at every step; CRAIG is one
of its forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.errors import unknown_name
from bicore.kernels.operators import BLOCK_BYTES, KernelOperator, parts
from bicore.picking import lowest
from bicore.selectors.baselines.base import Growth, Job
from bicore.selectors.baselines.cover import OverSpace
from bicore.selectors.baselines.spaces import as_space, squared_distances


@dataclass(frozen=True)
class FacilityLocation(OverSpace):
    """Facility location: greedy maximisation of Σ_i v_i max_{j in S} (D − ‖x_i − x_j‖), D the
    largest distance of all.

    CRAIG (Mirzasoleiman et al. 2020) is ``FacilityLocation(over="gradients", per_class=True,
    weights="counts")``, with one greedy run over all classes where the original gives each class a
    budget of its own.

    Parameters
    ----------
    per_class : count a point as covered by points of its own class only. weights : "binary", or
    "counts": each chosen point weighs as much as the points that are nearest to it.

    The gain of every point is exact at every step: when a point joins, only the rows it serves
    better than before are visited, n/k of them at step k, so that all steps together cost a few
    passes over the distances instead of one each. ``objectives`` hold the weighted mean distance to
    the nearest chosen point (at most D).

    Examples
    --------
    >>> from bicore import Dataset
    >>> FacilityLocation().select(Dataset([[0.0], [1.0], [2.0], [9.0], [10.0]]), 2).indices.tolist()
    [2, 3]
    """

    per_class: bool = False
    weights: str = "binary"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in ("binary", "counts"):
            raise unknown_name("weights", self.weights, ("binary", "counts"))

    @property
    def name(self) -> str:
        return f"facility location over {as_space(self.over).name}" + (
            " per class" if self.per_class else ""
        )

    @property
    def needs_labels(self) -> bool:
        return self.per_class or as_space(self.over).needs_labels

    def _grow(self, job: Job, growth: Growth) -> None:
        codes = (
            torch.from_numpy(job.classes().values).to(job.like.device) if self.per_class else None
        )
        distances = _Distances(
            as_space(self.over).operator(job, centre=True),
            codes,
            job.context.runtime.memory_bytes(),
        )
        coverage = _Coverage(distances, job.weights)
        identity = np.arange(len(job.data))
        for place in growth.order:
            coverage.add(place)
        try:
            while growth.wants():
                scores = np.where(growth.open, -coverage.gains.cpu().numpy(), np.inf)
                place = lowest(scores, identity)
                coverage.add(place)
                growth.take(place, coverage.mean())
        finally:
            if self.weights == "counts":
                counts = coverage.served(len(growth.order)) * float(job.data.weights.mean())
                # a point that serves nobody, such as a duplicate, leaves
                growth.weights = counts[counts > 0]
                growth.order = [
                    place for place, count in zip(growth.order, counts, strict=True) if count > 0
                ]
                growth.objectives = growth.objectives[: len(growth.order)]


class _Distances:
    """Columns of the distance matrix: stored where the memory limit allows, else computed again;
    other classes are at infinity."""

    def __init__(self, operator: KernelOperator, codes: Tensor | None, memory: int) -> None:
        self.operator = operator
        self.codes = codes
        self.norms = operator.diagonal()
        self.count = len(self.norms)
        self.block = max(1, BLOCK_BYTES // (8 * self.count))
        self.stored: Tensor | None = None
        if 1.5 * self.count**2 * self.norms.element_size() <= memory:
            self.stored = torch.empty(
                self.count, self.count, dtype=self.norms.dtype, device=self.norms.device
            )
        self.largest = 0.0
        for part in self.parts():
            rows = self._computed(part)
            self.largest = max(self.largest, float(torch.nan_to_num(rows, posinf=0.0).max()))
            if self.stored is not None:
                self.stored[part] = rows

    def parts(self) -> Iterator[Tensor]:
        """All points, a block at a time."""
        return parts(torch.arange(self.count, device=self.norms.device), self.block)

    def rows(self, index: Tensor) -> Tensor:
        """The distances of the points of ``index`` to all, a row each."""
        return self._computed(index) if self.stored is None else self.stored[index]

    def _computed(self, index: Tensor) -> Tensor:
        distances = squared_distances(self.operator, self.norms, index).T.sqrt()
        if self.codes is not None:
            distances.masked_fill_(self.codes[index][:, None] != self.codes, torch.inf)
        return distances


class _Coverage:
    """How far each point is from the nearest chosen one, and by how much each candidate would lower
    the weighted sum of that."""

    def __init__(self, distances: _Distances, weights: Tensor) -> None:
        self.distances = distances
        self.weights = weights.to(distances.norms)
        self.nearest = torch.full_like(distances.norms, distances.largest)
        self.owner = torch.full(
            (distances.count,), -1, dtype=torch.long, device=distances.norms.device
        )
        self.size = 0
        self.gains = torch.zeros(
            distances.count, dtype=torch.float64, device=distances.norms.device
        )
        for part in distances.parts():
            self._credit(part, torch.zeros_like(self.nearest[part]), +1)

    def _credit(self, part: Tensor, floor: Tensor, sign: int) -> None:
        """Add ± v_i (nearest_i − clamp(d_ij, floor_i, nearest_i)) of the rows of ``part`` to the
        gain of every candidate j."""
        ceiling = self.nearest[part]
        served = torch.clamp(self.distances.rows(part), floor[:, None], ceiling[:, None])
        weights = self.weights[part]
        self.gains.add_((weights @ ceiling - weights @ served).double(), alpha=sign)

    def add(self, place: int) -> None:
        own = self.distances.rows(torch.tensor([place], device=self.nearest.device))[0]
        better = (own < self.nearest) | ((self.owner < 0) & torch.isfinite(own))
        self.owner[better] = self.size
        self.size += 1
        for part in parts(torch.nonzero(own < self.nearest)[:, 0], self.distances.block):
            self._credit(part, own[part], -1)
        self.nearest = torch.minimum(self.nearest, own)

    def mean(self) -> float:
        return float((self.weights * self.nearest).sum() / self.weights.sum())

    def served(self, size: int) -> np.ndarray[Any, Any]:
        """The summed weight of the points each chosen point serves; points that none serves count
        for nobody."""
        known = self.owner >= 0
        totals = torch.zeros(self.size, dtype=torch.float64, device=self.nearest.device)
        totals.index_add_(0, self.owner[known], self.weights[known].double())
        return np.asarray(totals[:size].cpu().numpy())

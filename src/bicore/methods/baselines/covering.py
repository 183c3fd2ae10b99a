"""Baselines that cover the data: k-means++, k-center, facility location and k-medoids.

Each takes a space or a kernel, which gives the distances.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bicore._deprecated import renamed_fields
from bicore.arguments import step_rng
from bicore.data import Array
from bicore.errors import InputError, check_integer
from bicore.kernels.operators import BLOCK_BYTES, KernelOperator, parts
from bicore.methods.baselines.base import (
    SHARES,
    Job,
    PartialSelection,
    PerClassRule,
    squared_distances_to,
)
from bicore.runtime.clock import checkpoint, without_time_limit

#: Stream number of the draw of the summed rows, different from other draws of the seed.
DRAW = 0xFAC
#: Copies of a block of distances that exist at the same time.
COPIES = 4
#: Distances are stored if this many times their size fits the memory limit.
ROOM = 1.5
#: Minimum relative decrease of an exchange, and the maximum number of sweeps.
LEAST_GAIN, SWEEPS = 1e-9, 2


@dataclass(frozen=True)
class KMeansPlusPlus(PerClassRule):
    """The centres of k-means++ (Arthur and Vassilvitskii 2007), drawn by squared distance.

    Each point is drawn with probability ∝ weight × squared distance to the nearest point so far,
    the first ∝ weight. If all distances are zero, all remaining points are equally likely. Use it
    for a spread that follows the density of the data.

    Parameters
    ----------
    over : str, Space or Kernel
        Space of the distances: "features", "embedding", "gradients", "predictions", a Space
        or a Kernel.
    per_class : bool or str, optional
        "proportional" or "balanced" runs the rule within each class, with as many points as its
        share of the rows, or the same number for each. Targets are divided into quantiles.

    Examples
    --------
    >>> from bicore import Dataset
    >>> x = np.array([[0.0], [0.0], [0.0], [9.0]])
    >>> sorted(x[KMeansPlusPlus().select(Dataset(x), 2).indices, 0].tolist())
    [0.0, 9.0]
    """

    rule_name = "k-means++"
    all_pairs = False

    def _apply(self, job: Job, selection: PartialSelection) -> None:
        nearest = _Nearest(self.space.operator(job, centre=True), selection.order)
        weights = job.weights.cpu().numpy()
        while selection.needs_more():
            powers = weights * nearest.squared_distances() if selection.order else weights
            chances = np.where(selection.open, powers, 0.0)
            if chances.sum() == 0:
                chances = selection.open.astype(float)
            rng = step_rng(job.seed, len(selection.order))
            place = int(rng.choice(len(chances), p=chances / chances.sum()))
            selection.take(place)
            nearest.add(place)


@dataclass(frozen=True)
class KCenter(PerClassRule):
    """Greedy k-center: always the point farthest from those chosen (Gonzalez 1985).

    The radius is within a factor 2 of the smallest possible. It is the "core-set" of active
    learning (Sener and Savarese 2018). Use it if no point may be far from a chosen one; it takes
    outliers first. ``objectives`` hold the radius.

    Parameters
    ----------
    over : str, Space or Kernel
        Space of the distances: "features", "embedding", "gradients", "predictions", a Space
        or a Kernel.
    per_class : bool or str, optional
        "proportional" or "balanced" runs the rule within each class, with as many points as its
        share of the rows, or the same number for each. Targets are divided into quantiles.

    Examples
    --------
    >>> from bicore import Dataset
    >>> data = Dataset([[0.0], [4.0], [5.0], [11.0]])
    >>> KCenter().select(data, 3, initial=[2]).indices.tolist()
    [2, 3, 0]
    """

    rule_name = "k-center"
    all_pairs = False

    def _apply(self, job: Job, selection: PartialSelection) -> None:
        nearest = _Nearest(self.space.operator(job, centre=True), selection.order)
        while selection.needs_more():
            scores = nearest.squared_distances()
            if not selection.order:
                scores = -np.random.default_rng(job.seed).permutation(len(job.data)).astype(float)
            place = selection.best(scores)
            nearest.add(place)
            selection.take(place, float(np.sqrt(nearest.squared_distances().max())))


class _Nearest:
    """Squared distance of every point to the nearest chosen one."""

    def __init__(self, operator: KernelOperator, chosen: list[int]) -> None:
        self.operator = operator
        self.norms = operator.diagonal()
        self.squared = torch.full_like(self.norms, torch.inf)
        for place in chosen:
            self.add(place)

    def add(self, place: int) -> None:
        index = torch.tensor([place], device=self.norms.device)
        own = squared_distances_to(self.operator, self.norms, index)[:, 0]
        torch.minimum(self.squared, own, out=self.squared)

    def squared_distances(self) -> Array:
        return np.asarray(self.squared.double().cpu().numpy())


@renamed_fields(counted="cluster_weights")
@dataclass(frozen=True)
class FacilityLocation(PerClassRule):
    """Facility location: points with a small mean distance to all other points.

    Greedy maximisation of Σ_i v_i max_{j in S} (D − ‖x_i − x_j‖), where D is the largest distance.
    Greedy selection reaches at least 1 − 1/e of the maximum. Use it for representative rows: unlike
    k-center it ignores outliers.

    CRAIG (Mirzasoleiman et al. 2020) is ``FacilityLocation(over="gradients", per_class=True,
    cluster_weights=True)``, with one greedy run over all classes; the original gives each class its
    own budget.

    The gain of every point is exact at every step. When a point joins, only rows that are nearer to
    it than to earlier points are visited, n/k of them at step k. All steps together cost a few
    passes over the distances. ``objectives`` hold the weighted mean distance to the nearest chosen
    point (at most D).

    Parameters
    ----------
    over : str, Space or Kernel
        Space of the distances: "features", "embedding", "gradients", "predictions", a Space
        or a Kernel.
    per_class : bool or str, optional
        True counts a row as covered by points of its own class only. "proportional" or "balanced"
        runs the rule within each class, with as many points as its share of the rows, or the same
        number for each; targets are divided into quantiles.
    cluster_weights : bool, optional
        Whether each chosen row gets the total weight of the rows nearest to it; default: 1.
    sample : int, optional
        Number of rows over which gains are summed, drawn at random within classes; default: all
        rows. All rows stay candidates of the greedy steps, and ``objectives`` and weights refer to
        all rows.
    exchange : bool, optional
        Whether chosen points are then exchanged for others while that lowers the mean distance
        (FasterPAM, Schubert and Rousseeuw 2021). A prefix is then not the answer for a smaller
        size.

    Examples
    --------
    >>> from bicore import Dataset
    >>> data = Dataset([[0.0], [1.0], [2.0], [9.0], [10.0]])
    >>> FacilityLocation().select(data, 2).indices.tolist()
    [2, 3]
    >>> FacilityLocation(cluster_weights=True).select(data, 2).weights.tolist()
    [3.0, 2.0]
    """

    per_class: bool | str = False
    cluster_weights: bool = False
    sample: int | None = None
    exchange: bool = field(default=False, kw_only=True, metadata={"added": True})

    rule_name = "facility location"
    knows_classes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample is not None:
            check_integer("sample", self.sample, fix="or None for all rows")
        if self.cluster_weights and self.per_class in SHARES:
            raise InputError("cluster_weights=True needs per_class=True or False.")

    @property
    def name(self) -> str:
        return super().name.replace(self.rule_name, "k-medoids") if self.exchange else super().name

    @property
    def ordered(self) -> bool:
        return not self.exchange and super().ordered

    def _apply(self, job: Job, selection: PartialSelection) -> None:
        codes = job.classes().values if self.per_class is True else None
        with np.errstate(over="ignore"):
            mean_weight = float(job.data.weights.sum() / len(job.data))
        if self.cluster_weights and not math.isfinite(mean_weight):
            raise InputError(
                "cluster_weights=True: the sum of sample_weight overflows; scale it down."
            )
        distances = _Distances(
            self.space.operator(job, centre=True),
            None if codes is None else torch.from_numpy(codes).to(job.like.device),
            self._rows_to_sum(job, codes),
            job.context.runtime.memory_bytes(),
        )
        coverage = _Coverage(distances, job.weights)
        for place in selection.order:
            coverage.add(place)
        given = len(selection.order)
        try:
            while selection.needs_more():
                place = selection.best(coverage.gains.cpu().numpy())
                coverage.add(place)
                selection.take(place, coverage.mean())
            if self.exchange and len(selection.order) > given:
                _exchange_points(coverage, selection, given)
        finally:
            if self.cluster_weights:
                _weight_by_nearest(
                    selection, coverage.weights_of_nearest(selection.order) * mean_weight
                )

    def _rows_to_sum(self, job: Job, codes: Array | None) -> Array:
        """Return the rows over which gains are summed: all, or a sample of every class."""
        count = len(job.data)
        if self.sample is None or self.sample >= count:
            return np.arange(count)
        groups = np.zeros(count, dtype=np.int64) if codes is None else codes
        order = np.random.default_rng((job.seed, DRAW)).permutation(count)
        parts = [order[groups[order] == group] for group in np.unique(groups)]
        share = self.sample / count
        return np.sort(np.concatenate([part[: math.ceil(share * len(part))] for part in parts]))


def _weight_by_nearest(selection: PartialSelection, counts: Array) -> None:
    """Weight points by the rows nearest to them; drop points without any, such as duplicates."""
    serving = counts > 0
    selection.weights = counts[serving]
    selection.order = [place for place, kept in zip(selection.order, serving, strict=True) if kept]
    selection.objectives = selection.objectives[: len(selection.order)]


class _Distances:
    """Rows of the distance matrix for the gains; distances to other classes are infinite.

    They are stored if the memory limit allows, otherwise computed again.
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
        room = ROOM * len(summed) * self.count * self.norms.element_size() <= memory
        stored = self.norms.new_empty(len(summed) if room else 0, self.count)
        self.largest = 0.0
        for part in self.parts():
            rows = self.rows(part)
            self.largest = max(self.largest, float(torch.nan_to_num(rows, posinf=0.0).max()))
            if room:
                stored[self.place_of[part]] = rows
        self.stored = stored if room else None

    def parts(self) -> Iterator[Tensor]:
        """Yield the rows for the gains, a block at a time."""
        return parts(self.summed, self.block)

    def of(self, place: int) -> Tensor:
        """Return the distances of a point to all points."""
        return self.rows(torch.tensor([place], device=self.norms.device))[0]

    def rows(self, index: Tensor) -> Tensor:
        """Return the distances of some points to all points."""
        if self.stored is not None and bool((self.place_of[index] >= 0).all()):
            return self.stored[self.place_of[index]]
        distances = squared_distances_to(self.operator, self.norms, index).T.sqrt()
        if self.codes is not None:
            distances.masked_fill_(self.codes[index][:, None] != self.codes, torch.inf)
        return distances


class _Coverage:
    """Distance of each point to the nearest chosen one, and the gain of each candidate.

    The gain is the decrease of the weighted sum of distances over the summed rows.
    """

    def __init__(self, distances: _Distances, weights: Tensor) -> None:
        self.distances = distances
        self.weights = weights.to(distances.norms)
        self.nearest = torch.full_like(distances.norms, distances.largest)
        self.gains = torch.zeros_like(distances.norms, dtype=torch.float64)
        self.counts = distances.place_of >= 0
        for part in distances.parts():
            self._add_gains(part, torch.zeros_like(self.nearest[part]), +1)

    def _add_gains(self, part: Tensor, floor: Tensor, sign: int) -> None:
        """Add ± v_i (nearest_i − clamp(d_ij, floor_i, nearest_i)) to the gain of every candidate j.

        The sum goes over the rows i of ``part``.
        """
        ceiling = self.nearest[part]
        within = torch.clamp(self.distances.rows(part), floor[:, None], ceiling[:, None])
        weights = self.weights[part]
        self.gains.add_((weights @ ceiling - weights @ within).double(), alpha=sign)

    def add(self, place: int) -> None:
        """Add a point; only summed rows that are nearer to it than before are read."""
        own = self.distances.of(place)
        visited = torch.nonzero(self.counts & (own < self.nearest))[:, 0]
        for part in parts(visited, self.distances.block):
            self._add_gains(part, own[part], -1)
        self.nearest = torch.minimum(self.nearest, own)

    def mean(self) -> float:
        """Return the weighted mean distance to the nearest chosen point."""
        return float((self.weights * self.nearest).sum() / self.weights.sum())

    def weights_of_nearest(self, chosen: Sequence[int]) -> Array:
        """Assign the rows to some points; return the total weight of the rows nearest to each."""
        nearest = torch.full_like(self.nearest, torch.inf)
        owner = torch.full_like(nearest, -1, dtype=torch.long)
        for number, place in enumerate(chosen):
            with without_time_limit():  # an ended selection needs weights too
                own = self.distances.of(place)
            owner[own < nearest] = number
            nearest = torch.minimum(own, nearest)
        self.nearest = nearest.clamp(max=self.distances.largest)
        known = owner >= 0  # rows of other classes are at infinity
        return np.bincount(
            owner[known].cpu().numpy(), self.weights[known].double().cpu().numpy(), len(chosen)
        )


class _Medoids:
    """Chosen points, and the sum of distances that an exchange of one of them lowers.

    ``own`` has a row of distances for each chosen point, at most D, and a row of ∞ at the end. Of
    its columns, ``nearest`` and ``second`` are the two smallest entries, ``owner`` the row of the
    first.
    """

    def __init__(self, coverage: _Coverage, chosen: Sequence[int], fixed: int) -> None:
        self.distances = coverage.distances
        self.weights = coverage.weights.double() * coverage.counts
        self.fixed = fixed
        columns = [self._column(place) for place in chosen]
        self.own = torch.stack([*columns, torch.full_like(columns[0], torch.inf)])
        ranked, owners = self.own.topk(2, dim=0, largest=False)
        self.nearest, self.second, self.owner = ranked[0], ranked[1], owners[0]

    def _column(self, place: int) -> Tensor:
        return self.distances.of(place).clamp(max=self.distances.largest)

    def exchange(self, joining: int) -> int | None:
        """Make the best exchange with ``joining``; return the index that leaves, or None."""
        column = self._column(joining)
        nearer = torch.minimum(column, self.nearest)
        gain = self.weights @ (self.nearest - nearer).double()
        rises = self.weights * (torch.minimum(column, self.second) - nearer)
        losses = rises.new_zeros(len(self.own)).index_add_(0, self.owner, rises)
        losses[: self.fixed] = losses[-1] = torch.inf
        leaving = int(losses.argmin())
        if gain - losses[leaving] <= LEAST_GAIN * (self.weights @ self.nearest.double()):
            return None
        last = self.own[leaving].clone()
        self.own[leaving] = column
        changed = (last <= self.second) | (column < self.second)
        ranked, owners = self.own[:, changed].topk(2, dim=0, largest=False)
        self.nearest[changed], self.second[changed] = ranked
        self.owner[changed] = owners[0]
        return leaving


def _exchange_points(coverage: _Coverage, selection: PartialSelection, fixed: int) -> None:
    """Exchange points except the initial ones while that lowers the sum of distances."""
    medoids = _Medoids(coverage, selection.order, fixed)
    try:
        for _ in range(SWEEPS):
            before = list(selection.order)
            for place in np.flatnonzero(selection.open & coverage.counts.cpu().numpy()).tolist():
                checkpoint()
                leaving = medoids.exchange(place)
                if leaving is not None:
                    selection.exchange(leaving, place)
            if selection.order == before:
                break
    finally:
        coverage.weights_of_nearest(selection.order)
        selection.objectives[-1] = coverage.mean()

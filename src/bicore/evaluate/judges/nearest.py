"""Nearest neighbours, a weight counting as so many copies of a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from bicore.evaluate.judges.base import Judge, in_parts
from bicore.evaluate.judges.sample import Sample
from bicore.evaluate.judges.tuning import Scaling, apart, best, goals, plain, scaling
from bicore.kernels.distances import squared_distances

#: How many neighbours are tried.
GRID = (1, 2, 3, 5, 8, 12, 20, 35, 60, 100)
#: How many there are without rows to tell by: beside the one point of a class, a second neighbour
#: would be wrong; targets are averaged.
FIRST = {True: 1, False: 3}
#: Test points whose neighbours are looked for at a time.
ROWS = 1000
#: By which share of itself a distance may be wrong.
DISTANCE_SHARE = 1e-9


@dataclass(frozen=True)
class NearestJudge(Judge):
    """Nearest neighbours.

    With rows of the pool to tune by, their number is that of the smallest squared error on them,
    and so is whether columns are scaled one by one or all together. A point of weight w counts as
    w neighbours, in fractions too.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool.

    Examples
    --------
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> NearestJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    rows: Sample | None = field(default=None, compare=False, repr=False)
    name = "knn"

    def tuned_by(self, rows: Sample) -> NearestJudge:
        return replace(self, rows=plain(rows))

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        tested = plain(Sample(test.x, test.y, torch.ones(len(test)))).x
        found = [self._predicted(plain(sample), tested, outputs) for sample in selections]
        return [one.to(test.x.device) for one in found]

    def _predicted(self, sample: Sample, x: Tensor, outputs: int) -> Tensor:
        chosen = Scaling.COLUMNS, FIRST[sample.classification]
        if self.rows is not None:
            points, rows = apart(sample, self.rows)
            counts = [count for count in GRID if count <= len(points)]
            if counts:
                settings = [
                    (how, one) for how in (Scaling.COLUMNS, Scaling.WHOLE) for one in counts
                ]
                asked = _Neighbours(points, self.rows, rows.x, outputs)
                chosen = best(settings, rows, outputs, lambda one: asked.said(*one).numpy())
        return _Neighbours(sample, self.rows or sample, x, outputs).said(*chosen)


class _Neighbours:
    """The points of a selection by their distance from others, after each scaling."""

    def __init__(self, sample: Sample, by: Sample, asked: Tensor, outputs: int) -> None:
        self.sample = sample
        self.by = by
        self.asked = asked
        self.goal = torch.from_numpy(goals(sample, outputs))
        self.near: dict[Scaling, list[Tensor]] = {}

    def said(self, how: Scaling, count: int) -> Tensor:
        """The mean over so many neighbours of every point asked for."""
        if how not in self.near:  # one order serves every count
            scaled = scaling(self.by, how)
            own = scaled(self.sample.x)
            self.near[how] = [_nearest(part, own) for part in in_parts(scaled(self.asked), ROWS)]
        weight = self.sample.weight
        return torch.cat(
            [_mean_of_nearest(part, self.goal, weight, count) for part in self.near[how]]
        )


def _nearest(a: Tensor, b: Tensor) -> Tensor:
    """For each row of a the rows of b, nearest first; of equals the first."""
    return squared_distances(a, b, DISTANCE_SHARE).argsort(stable=True, dim=1)


def _mean_of_nearest(near: Tensor, goal: Tensor, weight: Tensor, count: int) -> Tensor:
    """The mean over neighbours, nearest first, until their weights add up to the count."""
    own = weight[near]
    before = own.cumsum(1) - own
    taken = torch.minimum(own, (count - before).clamp_min(0))
    shares = taken / taken.sum(1, keepdim=True)
    return shares.new_zeros(len(near), len(goal)).scatter_(1, near, shares) @ goal

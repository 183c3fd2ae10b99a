"""Nearest neighbours, a weight counting as so many copies of a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bicore.comparison.judges.base import Judge, in_parts
from bicore.comparison.judges.sample import Sample
from bicore.comparison.judges.table import prepared
from bicore.comparison.judges.tuning import enough
from bicore.kernels.distances import squared_distances

#: How many neighbours are tried.
GRID = (1, 2, 3, 5, 8, 12, 20, 35, 60, 100)
#: How many there are where points are too few to tell: beside the one point of a class, a second
#: neighbour would be wrong; targets are averaged.
DEFAULT_CLASSES = 1
DEFAULT_TARGETS = 3
#: Test points whose neighbours are looked for at a time.
ROWS = 1000
#: By which share of itself a distance may be wrong.
DISTANCE_SHARE = 1e-9


@dataclass(frozen=True)
class NearestJudge(Judge):
    """Nearest neighbours on scaled columns.

    Their number is that of the smallest squared error over the selection's own points, each left
    out in turn. A point of weight w counts as w neighbours, in fractions too.

    Examples
    --------
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> NearestJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name = "knn"

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        return [_predicted(sample, test.x, outputs).to(test.x.device) for sample in selections]


def _predicted(sample: Sample, x: Tensor, outputs: int) -> Tensor:
    sample, tested = prepared(sample, x, scales=True)
    goal = F.one_hot(sample.y, outputs).double() if sample.classification else sample.y
    count = _tuned(sample, goal)
    parts = in_parts(torch.from_numpy(tested), ROWS)
    return torch.cat(
        [_mean_of_nearest(_nearest(part, sample.x), goal, sample.weight, count) for part in parts]
    )


def _nearest(a: Tensor, b: Tensor) -> Tensor:
    """For each row of a the rows of b, nearest first; of equals the first."""
    return squared_distances(a, b, DISTANCE_SHARE).argsort(stable=True, dim=1)


def _tuned(sample: Sample, goal: Tensor) -> int:
    if not enough(sample):
        return DEFAULT_CLASSES if sample.classification else DEFAULT_TARGETS
    near = _nearest(sample.x, sample.x)
    own = torch.arange(len(near))[:, None]
    others = near[near != own].reshape(len(near), -1)
    errors = [
        float(sample.weight @ (found - goal).square().sum(1))
        for count in GRID
        if count < len(sample)
        for found in [_mean_of_nearest(others, goal, sample.weight, count)]
    ]
    return GRID[int(np.argmin(errors))]


def _mean_of_nearest(near: Tensor, goal: Tensor, weight: Tensor, count: int) -> Tensor:
    """The mean over neighbours, nearest first, until their weights add up to the count."""
    own = weight[near]
    before = own.cumsum(1) - own
    taken = torch.minimum(own, (count - before).clamp_min(0))
    shares = taken / taken.sum(1, keepdim=True)
    return shares.new_zeros(len(near), len(goal)).scatter_(1, near, shares) @ goal

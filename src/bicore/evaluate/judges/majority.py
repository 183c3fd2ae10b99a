"""What anybody can say who has seen no features: the majority class, or the mean target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from bicore.evaluate.judges.base import Judge
from bicore.evaluate.judges.sample import Sample


@dataclass(frozen=True)
class MajorityJudge(Judge):
    """The majority class of a selection, or the mean of its targets, whatever the point.

    Examples
    --------
    >>> import torch
    >>> points = Sample(torch.zeros(4, 1), torch.tensor([0, 1, 1, 1]), torch.ones(4))
    >>> MajorityJudge().scores([points], points, outputs=2, seed=0)
    [0.75]
    """

    name = "majority"

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        found = []
        for sample in selections:
            goal = F.one_hot(sample.y, outputs) if sample.classification else sample.y
            weight = sample.weight.double()
            mean = (weight / weight.sum()) @ goal.double()
            found.append(mean.expand(len(test), outputs))
        return found

"""Who gains and who loses: the share of each class that is found, beside random rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.evaluate.statistics import CONFIDENCE, finite, t_quantile

#: Decimals of a share in the file; a page shows three.
DECIMALS = 4


@dataclass(frozen=True)
class ClassScore:
    """The share of a class that is found, by the chosen rows and by as many random ones.

    ``gap`` is the mean difference over the tests of the class, ``half`` half the width of its 95%
    interval.
    """

    code: int
    chosen: float
    random: float
    gap: float
    half: float

    def as_json(self) -> dict[str, Any]:
        """Numbers by name; None where there is no interval."""
        half = finite(self.half)
        return {
            "code": self.code,
            "chosen": round(self.chosen, DECIMALS),
            "random": round(self.random, DECIMALS),
            "gap": round(self.gap, DECIMALS),
            "half": None if half is None else round(half, DECIMALS),
        }


def class_scores(chosen: Array, random: Array) -> list[ClassScore]:
    """Of shares (tests, classes), in pairs; nan where a test has no row of a class."""
    pairs = zip(chosen.T, random.T, strict=True)
    return [
        _class_score(code, ours[~np.isnan(ours)], theirs[~np.isnan(theirs)])
        for code, (ours, theirs) in enumerate(pairs)
        if not np.isnan(ours).all()
    ]


def _class_score(code: int, chosen: Array, random: Array) -> ClassScore:
    gaps = chosen - random
    half = math.inf
    if len(gaps) > 1:
        width = t_quantile(0.5 + CONFIDENCE / 2, len(gaps))
        half = width * float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    return ClassScore(code, float(chosen.mean()), float(random.mean()), float(gaps.mean()), half)

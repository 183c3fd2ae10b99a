"""What the judge of an appraisal says beyond the one number: of the first picks, and by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.evaluate.equivalence import Curve, Equivalent, Worth
from bicore.evaluate.worth import Appraisal
from bicore.report.pages.by_class import ClassScore, class_scores

#: The first picks are judged at halves of the size, so often and down to so many rows.
HALVES, FEWEST = 4, 3


@dataclass(frozen=True)
class Prefix:
    """The first picks beside as many random rows: scores over the cuts, and what they are worth."""

    size: int
    score: float
    spread: float
    random: float
    random_spread: float
    worth: Equivalent

    def as_json(self) -> dict[str, Any]:
        """Numbers by name."""
        numbers = ("size", "score", "spread", "random", "random_spread")
        values = vars(self)
        return {**{name: values[name] for name in numbers}, "worth": self.worth.ends()}


@dataclass(frozen=True)
class Judged:
    """What the chosen rows are worth, their first ones too, and who gains and loses by them."""

    worth: Worth
    prefixes: tuple[Prefix, ...]
    by_class: tuple[ClassScore, ...]


def further_fits(appraisal: Appraisal) -> int:
    """How often :func:`judged` trains the judge beside what the worth takes."""
    return len(appraisal.splits) * 2 * (len(prefix_sizes(appraisal.size)) + 1)


def prefix_sizes(size: int) -> list[int]:
    """The sizes below the whole one at which the first picks are judged, largest first."""
    halves = [round(size / 2**step) for step in range(1, HALVES + 1)]
    return [one for one in dict.fromkeys(halves) if FEWEST <= one < size]


def judged(appraisal: Appraisal) -> Judged:
    """All that a page says of an appraisal; the worth itself is found if it was not yet."""
    found = appraisal.worth()
    scores = {size: _scores(appraisal, size) for size in prefix_sizes(appraisal.size)}
    curve = {size: random for size, (_, random) in scores.items()}
    curve |= {size: _known(appraisal, size) for size in found.baselines[0].sizes}
    prefixes = [
        Prefix(
            size,
            float(chosen.mean()),
            float(chosen.std(ddof=1)),
            float(random.mean()),
            float(random.std(ddof=1)),
            Curve(chosen, appraisal.has_test, curve).equivalent("uniform", size),
        )
        for size, (chosen, random) in scores.items()
    ]
    return Judged(found, tuple(reversed(prefixes)), tuple(_by_class(appraisal)))


def _known(appraisal: Appraisal, size: int) -> Array:
    """Random scores that the search for the worth has made."""
    return np.array([appraisal.known["uniform", size, cut.seed] for cut in appraisal.splits])


def _scores(appraisal: Appraisal, size: int) -> tuple[Array, Array]:
    """Of the first picks and of random rows, a number a cut."""
    chosen, random = [], []
    for cut in appraisal.splits:
        picked = appraisal.picked(cut)
        first = picked.indices[:size]  # fewer where the whole coreset is smaller
        drawn = appraisal.random("uniform", size, cut)
        chosen.append(appraisal.score(cut, first, np.ones(len(first))))
        random.append(appraisal.score(cut, drawn, np.ones(size)))
    return np.array(chosen), np.array(random)


def _by_class(appraisal: Appraisal) -> list[ClassScore]:
    """None for targets."""
    if not appraisal.classification:
        return []
    chosen, random = [], []
    for cut in appraisal.splits:
        picked = appraisal.picked(cut).normalised()
        places = appraisal.random("uniform", appraisal.size, cut)
        chosen.append(appraisal.recalls(cut, picked.indices, picked.weights))
        random.append(appraisal.recalls(cut, places, np.ones(len(places))))
    return class_scores(np.array(chosen), np.array(random))

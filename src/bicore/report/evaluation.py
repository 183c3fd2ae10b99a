"""Scores of an appraisal that a page shows: of the first picks, and by class."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.evaluate.equivalence import Curve, Equivalent, Worth
from bicore.evaluate.statistics import finite, half_width
from bicore.evaluate.worth import Appraisal

#: The first picks are evaluated at halves of the size: how often, and the fewest rows.
HALVES, FEWEST = 4, 3
#: Decimals of a recall in the file; a page shows three.
DECIMALS = 4


@dataclass(frozen=True)
class ClassScore:
    """The recall of a class by the chosen rows and by as many random ones.

    ``gap`` is the mean difference over the tests with rows of the class, ``half`` half the width of
    its 95% interval.
    """

    code: int
    chosen: float
    random: float
    gap: float
    half: float

    def as_json(self) -> dict[str, Any]:
        """Numbers by name; None without an interval."""
        values = {name: finite(value) for name, value in asdict(self).items()}
        return {name: None if one is None else round(one, DECIMALS) for name, one in values.items()}


def class_scores(chosen: Array, random: Array) -> list[ClassScore]:
    """Scores from paired recalls (tests, classes); nan for a test without rows of a class."""
    found = []
    for code, (ours, theirs) in enumerate(zip(chosen.T, random.T, strict=True)):
        ours, theirs = ours[~np.isnan(ours)], theirs[~np.isnan(theirs)]
        if len(ours):
            gaps = ours - theirs
            chosen_mean, random_mean, gap = (float(one.mean()) for one in (ours, theirs, gaps))
            found.append(ClassScore(code, chosen_mean, random_mean, gap, half_width(gaps)))
    return found


@dataclass(frozen=True)
class Prefix:
    """Scores of the first picks and of as many random rows over the splits, and their worth."""

    size: int
    score: float
    spread: float
    random: float
    random_spread: float
    worth: Equivalent

    def as_json(self) -> dict[str, Any]:
        """Numbers by name."""
        return {**vars(self), "worth": self.worth.ends()}


@dataclass(frozen=True)
class Judged:
    """The worth of the chosen rows and of the first ones, and the scores by class."""

    worth: Worth
    prefixes: tuple[Prefix, ...]
    by_class: tuple[ClassScore, ...]


def further_fits(appraisal: Appraisal) -> int:
    """The number of fits by :func:`judged` in addition to those of the worth."""
    return len(appraisal.splits) * 2 * (len(prefix_sizes(appraisal.size)) + 1)


def prefix_sizes(size: int) -> list[int]:
    """The sizes at which the first picks are evaluated, largest first."""
    halves = [round(size / 2**step) for step in range(1, HALVES + 1)]
    return [one for one in dict.fromkeys(halves) if FEWEST <= one < size]


def judged(appraisal: Appraisal) -> Judged:
    """Find the worth, if it is not known yet, and evaluate the first picks and the classes."""
    found = appraisal.worth()
    scores = {size: _scores(appraisal, size) for size in prefix_sizes(appraisal.size)}
    curve = {size: random for size, (_, random) in scores.items()}
    for size in found.baselines[0].sizes:
        known = [appraisal.known["uniform", size, split.seed] for split in appraisal.splits]
        curve[size] = np.array(known)
    prefixes = [
        Prefix(
            size,
            float(chosen.mean()),
            float(chosen.std(ddof=1)),
            float(random.mean()),
            float(random.std(ddof=1)),
            Curve(chosen, appraisal.has_test, curve).equivalent("uniform", size),
        )
        for size, (chosen, random) in sorted(scores.items())
    ]
    return Judged(found, tuple(prefixes), tuple(_by_class(appraisal)))


def _scores(appraisal: Appraisal, size: int) -> tuple[Array, Array]:
    """Scores of the first picks and of random rows, one per split."""
    pairs = []
    for split in appraisal.splits:
        first = appraisal.picked(split).indices[:size]  # fewer if the coreset is smaller
        both = first, appraisal.random("uniform", size, split)
        pairs.append([appraisal.score(split, rows, np.ones(len(rows))) for rows in both])
    chosen, random = np.array(pairs).T
    return chosen, random


def _by_class(appraisal: Appraisal) -> list[ClassScore]:
    """Empty for targets."""
    if not appraisal.classification:
        return []
    chosen, random = [], []
    for split in appraisal.splits:
        picked = appraisal.picked(split).normalised()
        drawn = appraisal.random("uniform", appraisal.size, split)
        chosen.append(appraisal.recalls(split, picked.indices, picked.weights))
        random.append(appraisal.recalls(split, drawn, np.ones(len(drawn))))
    return class_scores(np.array(chosen), np.array(random))

"""Summaries of rows: means with standard errors, the best method, and significant differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.evaluate.records import Row

#: Two-sided confidence of the paired interval, and the power at which a difference counts as
#: detectable.
CONFIDENCE = 0.95
POWER = 0.8


@dataclass(frozen=True)
class Entry:
    """One method at one size.

    Parameters
    ----------
    method : str
        The name of the method.
    size, seeds : int
        The number of points requested, and the number of seeds.
    mean, error : float
        The mean score over seeds, and its standard error (nan for one seed).
    seconds, model_seconds : float
        Mean time of one selection, and of training the model that the method needs.
    gap : float
        How much worse the mean is than that of the best method, over the seeds both have.
    interval : float
        Half the width of the gap's 95% interval.
    best, tied : bool
        Whether it has the best mean, and if not, whether there is no significant difference to
        the best (the gap's 95% interval includes zero).
    complete : bool
        Whether it has all seeds that others have; otherwise it is neither best nor tied.

    Examples
    --------
    >>> rows = [Row("a", 10, seed, 0.8 + seed / 100, 0.1) for seed in range(3)]
    >>> entry = summarise(rows, ["a"], [10]).of("a", 10)
    >>> round(entry.mean, 2), round(entry.error, 4), entry.best
    (0.81, 0.0058, True)
    """

    method: str
    size: int
    seeds: int
    mean: float
    error: float
    seconds: float
    model_seconds: float
    gap: float
    interval: float
    best: bool
    tied: bool
    complete: bool = True

    def as_json(self) -> dict[str, Any]:
        """The fields for a JSON file, which has neither nan nor infinity.

        Returns
        -------
        dict
            By name; None for a number that is not finite.
        """
        numbers = ("mean", "error", "seconds", "model_seconds", "gap", "interval")
        values = vars(self)
        return {**values, **{name: finite(values[name]) for name in numbers}}


@dataclass(frozen=True)
class Summary:
    """Entries of all sizes, and the smallest detectable differences.

    Parameters
    ----------
    entries : tuple of Entry
        By size, then in the order of the methods.
    detectable : dict
        For each size the smallest difference that the seeds could detect (nan with fewer than two).

    Examples
    --------
    >>> rows = [Row("a", 10, seed, 0.8, 0.1) for seed in range(3)]
    >>> summarise(rows, ["a"], [10]).of("b", 10) is None
    True
    """

    entries: tuple[Entry, ...]
    detectable: dict[int, float]

    def of(self, method: str, size: int) -> Entry | None:
        """The entry of a method at a size.

        Parameters
        ----------
        method : str
            The name of the method.
        size : int
            The number of points requested.

        Returns
        -------
        Entry or None
            None if there is no row.
        """
        return next(
            (entry for entry in self.entries if (entry.method, entry.size) == (method, size)), None
        )


def summarise(
    rows: Iterable[Row], methods: Sequence[str], sizes: Sequence[int], larger: bool = True
) -> Summary:
    """Means, errors and differences, paired by seed.

    Methods are compared within seeds, for which pools and trainings are the same.

    Parameters
    ----------
    rows : iterable of Row
        Rows of other methods and sizes are ignored.
    methods : sequence of str
        The methods, in the order of the entries.
    sizes : sequence of int
        The sizes.
    larger : bool
        Whether larger scores are better.

    Returns
    -------
    Summary
        An entry for every method and size that has a row.

    Examples
    --------
    >>> scores = {"ours": [0.90, 0.85, 0.88], "uniform": [0.80, 0.76, 0.77]}
    >>> rows = [
    ...     Row(method, 10, seed, score, 0.1)
    ...     for method, series in scores.items()
    ...     for seed, score in enumerate(series)
    ... ]
    >>> summary = summarise(rows, list(scores), [10])
    >>> summary.of("ours", 10).best, summary.of("uniform", 10).tied
    (True, False)
    """
    table: dict[tuple[str, int], dict[int, Row]] = {}
    for row in rows:
        table.setdefault((row.method, row.size), {})[row.seed] = row
    entries: list[Entry] = []
    detectable: dict[int, float] = {}
    for size in sizes:
        present = {method: table[method, size] for method in methods if (method, size) in table}
        if present:
            found, detectable[size] = _of_size(present, size, 1 if larger else -1)
            entries += found
    return Summary(tuple(entries), detectable)


def _of_size(present: dict[str, dict[int, Row]], size: int, sign: int) -> tuple[list[Entry], float]:
    """The entries of one size, and the smallest difference the seeds could detect.

    Only methods with all seeds can be best or tied: means over different seeds do not compare.
    """
    most = max(present.values(), key=len)
    complete = [method for method, own in present.items() if set(own) == set(most)]
    scores = {name: [row.accuracy for row in own.values()] for name, own in present.items()}
    best = max(complete, key=lambda method: sign * np.mean(scores[method]))
    entries, spreads = [], []
    for method, own in present.items():
        gap, interval, spread = paired_difference(present[best], own)
        baseline = method in complete and method != best
        if baseline and np.isfinite(spread):
            spreads.append(spread)
        entry = Entry(
            method,
            size,
            len(own),
            float(np.mean(scores[method])),
            standard_error(scores[method]),
            float(np.mean([row.selection_seconds for row in own.values()])),
            float(np.mean([row.model_seconds for row in own.values()])),
            sign * gap,
            interval,
            best=method == best,
            tied=baseline and bool(sign * gap - interval <= 0),
            complete=method in complete,
        )
        entries.append(entry)
    found = smallest_detectable(float(np.median(spreads)), len(most)) if spreads else float("nan")
    return entries, found


def standard_error(values: Sequence[float] | Array) -> float:
    """The standard error of a mean; nan for one value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def half_width(differences: Sequence[float] | Array) -> float:
    """Half the width of the 95% interval of a mean; infinite for one value."""
    if len(differences) < 2:
        return float("inf")
    return t_quantile(0.5 + CONFIDENCE / 2, len(differences)) * standard_error(differences)


def paired_difference(first: dict[int, Row], second: dict[int, Row]) -> tuple[float, float, float]:
    """First minus second, over the seeds that both have.

    Parameters
    ----------
    first, second : dict
        Rows by seed.

    Returns
    -------
    mean, half_width, spread : float
        The mean of the differences, half the width of its 95% interval, and their standard
        deviation.

    Examples
    --------
    >>> first = {seed: Row("a", 10, seed, 0.8 + seed / 10, 0.1) for seed in range(2)}
    >>> second = {seed: Row("b", 10, seed, 0.7, 0.1) for seed in range(2)}
    >>> mean, half_width, spread = paired_difference(first, second)
    >>> round(mean, 3), round(spread, 4)
    (0.15, 0.0707)
    """
    common = sorted(set(first) & set(second))
    differences = np.array([first[seed].accuracy - second[seed].accuracy for seed in common])
    mean = float(differences.mean()) if common else float("nan")
    spread = float(differences.std(ddof=1)) if len(common) > 1 else float("nan")
    return mean, half_width(differences), spread


def smallest_detectable(spread: float, seeds: int) -> float:
    """The paired difference that a number of seeds detects with a probability of about 80%.

    Parameters
    ----------
    spread : float
        The standard deviation of the differences.
    seeds : int
        The number of seeds.

    Returns
    -------
    float
        The difference at 95% confidence; nan with fewer than two seeds.

    Examples
    --------
    >>> round(smallest_detectable(0.03, 10), 4)
    0.0298
    """
    if seeds < 2:
        return float("nan")
    # the mean must exceed the interval's bound in most experiments
    bound = t_quantile(0.5 + CONFIDENCE / 2, seeds) + t_quantile(POWER, seeds)
    return bound * spread / float(np.sqrt(seeds))


def scored(rows: Iterable[Row], judge: str, measure: str) -> list[Row]:
    """The rows with another model's or another metric's number as their score.

    Parameters
    ----------
    rows : iterable of Row
        Rows without that number are left out.
    judge, measure : str
        The model's name and the metric's key.

    Returns
    -------
    list of Row
        Copies.

    Examples
    --------
    >>> row = Row("a", 10, 0, 0.8, 0.1, measures={"knn": {"balanced_accuracy": 0.7}})
    >>> [one.accuracy for one in scored([row], "knn", "balanced_accuracy")]
    [0.7]
    """
    return [
        replace(row, accuracy=row.measures[judge][measure])
        for row in rows
        if measure in row.measures.get(judge, {})
    ]


def finite(value: float) -> float | None:
    """The number, or None if JSON cannot hold it."""
    return value if math.isfinite(value) else None


@cache
def t_quantile(level: float, seeds: int) -> float:
    """Quantile of Student's distribution for the mean of a number of seeds."""
    from scipy.stats import t  # here: importing bicore stays light

    return float(t.ppf(level, seeds - 1))

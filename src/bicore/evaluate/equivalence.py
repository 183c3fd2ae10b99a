"""How many random rows score as much as the chosen ones: a curve of random scores, read backwards.

A size belongs to the interval where a paired test at 95% does not tell its random scores from those
of the chosen rows. The three lines of that test (the mean difference and the two ends of its
interval) fall as random samples grow; each is made monotone and crosses zero at one of the three
numbers that are reported. Nothing is drawn: the same scores give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.evaluate.records import Row
from bicore.evaluate.statistics import CONFIDENCE, finite, t_quantile
from bicore.numerics.monotone import falling

#: Neighbouring sizes at which random samples may be judged differ by this factor: a line between
#: them in the logarithm of the size then misses a curve a − b/√n by less than one row in a hundred.
RATIO = math.sqrt(2)
#: So many sizes are passed over at a time while the way to the crossing is long.
STRIDE = 2
#: The smallest random sample that is judged, as a share of the chosen rows: below it they are of so
#: little use that nobody asks of how little.
SMALLEST = 0.25


class Verdict(StrEnum):
    """What the interval says about the size itself.

    Examples
    --------
    >>> Verdict.ENOUGH.value
    'random is enough here'
    """

    #: The interval includes the size.
    ENOUGH = "random is enough here"
    #: It lies above the size.
    MORE = "worth more than random"
    #: It lies below the size.
    LESS = "random is better here"


@dataclass(frozen=True)
class Equivalent:
    """The random rows of one kind that score as much as the chosen ones.

    Parameters
    ----------
    rival : str
        How the random rows are drawn: "uniform" or "class-balanced".
    size : int
        How many rows were chosen.
    rows : float
        How many random rows have the same mean score; ``inf`` where the chosen ones score more than
        the largest random sample, 0 where they score less than the smallest.
    low, high : float
        The 95% interval, with the same meaning of ``inf`` and 0.
    sizes : tuple of int
        The sizes at which random samples were judged.
    means, spreads : tuple of float
        Their mean scores over seeds, and the standard deviations.

    Examples
    --------
    >>> found = Equivalent("uniform", 50, 480, 410, 560, (50, 800), (0.8, 0.95), (0.02, 0.01))
    >>> found.verdict
    <Verdict.MORE: 'worth more than random'>
    >>> print(found)
    480 random ones (410–560)
    """

    rival: str
    size: int
    rows: float
    low: float
    high: float
    sizes: tuple[int, ...]
    means: tuple[float, ...]
    spreads: tuple[float, ...]

    @property
    def verdict(self) -> Verdict:
        """Whether the interval includes the size, lies above it, or below."""
        if self.low > self.size:
            return Verdict.MORE
        return Verdict.LESS if self.high < self.size else Verdict.ENOUGH

    @property
    def beyond(self) -> bool:
        """Whether the chosen rows score more than the largest random sample."""
        return math.isinf(self.rows)

    def __str__(self) -> str:
        kind = "random" if self.rival == "uniform" else self.rival
        return f"{self._told(self.rows)} {kind} ones ({self._interval()})"

    def short(self) -> str:
        """The rows as a cell of a table has them.

        Returns
        -------
        str
            A number, or that it is above the largest or below the smallest size judged.
        """
        if self.beyond:
            return f">{self.sizes[-1]}"
        return f"{self.rows:.0f}" if self.rows else f"<{self.sizes[0]}"

    def _told(self, rows: float) -> str:
        if math.isinf(rows):
            return f"at least {self.sizes[-1]}"
        return f"{rows:.0f}" if rows else f"at most {self.sizes[0]}"

    def _interval(self) -> str:
        if math.isinf(self.low) or not self.high:  # one end says it all
            return "95% sure"
        if self.low and math.isfinite(self.high):
            return f"{self.low:.0f}–{self.high:.0f}"
        low = f"{self.low:.0f}" if self.low else f"{self.sizes[0]} or fewer"
        high = f"{self.high:.0f}" if math.isfinite(self.high) else f"{self.sizes[-1]} or more"
        return f"{low} to {high}"

    def ends(self) -> dict[str, Any]:
        """The rows, their interval and the verdict for a JSON file, which knows no infinity.

        Returns
        -------
        dict
            By name; None stands for more than the largest of ``sizes``, 0 for fewer than the
            smallest.
        """
        numbers = {"rows": self.rows, "low": self.low, "high": self.high}
        return {name: finite(value) for name, value in numbers.items()} | {
            "verdict": self.verdict.value
        }

    def as_dict(self) -> dict[str, Any]:
        """All of it for a JSON file.

        Returns
        -------
        dict
            What :meth:`ends` gives, and the curve.
        """
        return {
            "rival": self.rival,
            **self.ends(),
            "sizes": list(self.sizes),
            "means": list(self.means),
            "spreads": list(self.spreads),
        }


@dataclass
class Curve:
    """Random scores at some sizes beside those of the chosen rows, seed by seed.

    Parameters
    ----------
    chosen : array (seeds,)
        Scores of the chosen rows.
    one : bool
        Whether the chosen rows are the same in every seed. One set of rows is compared with one
        random sample, whose scores scatter; a set a seed by its mean with the mean of as many.
    scores : dict
        For each size an array (seeds,) of random scores.

    Examples
    --------
    >>> chosen = np.array([0.9, 0.92, 0.91])
    >>> curve = Curve(chosen, scores={50: chosen - 0.1, 100: chosen, 200: chosen + 0.05})
    >>> curve.crossings()
    (100.0, 100.0, 100.0)
    """

    chosen: Array
    one: bool = False
    scores: dict[int, Array] = field(default_factory=dict)

    def lines(self, size: int) -> tuple[float, float, float]:
        """The mean difference to the chosen rows between the ends of its 95% interval.

        Parameters
        ----------
        size : int
            One that was judged.

        Returns
        -------
        low, mean, high : float
            Chosen less random.
        """
        differences = self.chosen - self.scores[size]
        seeds = len(differences)
        scale = math.sqrt(1 + 1 / seeds) if self.one else math.sqrt(1 / seeds)
        width = t_quantile(0.5 + CONFIDENCE / 2, seeds) * float(differences.std(ddof=1)) * scale
        mean = float(differences.mean())
        return mean - width, mean, mean + width

    def crossings(self) -> tuple[float, float, float]:
        """Where each of the lines, made monotone, crosses zero.

        Returns
        -------
        low, rows, high : float
            Sizes; 0 where a line is below zero from the start, ``inf`` where it never gets there.
        """
        sizes = sorted(self.scores)
        low, mean, high = (
            falling(np.array(line)) for line in zip(*map(self.lines, sizes), strict=True)
        )
        first = _first(sizes, mean)
        last = _last(sizes, mean)
        middle = math.sqrt(first * last) if math.isfinite(last) else last
        return _first(sizes, low), middle, _last(sizes, high)

    def equivalent(self, rival: str, size: int) -> Equivalent:
        """What the curve says.

        Parameters
        ----------
        rival : str
            How the random rows were drawn.
        size : int
            How many rows were chosen.

        Returns
        -------
        Equivalent
            In whole rows.
        """
        sizes = sorted(self.scores)
        low, rows, high = (
            round(value) if math.isfinite(value) else value for value in self.crossings()
        )
        return Equivalent(
            rival,
            size,
            rows,
            low,
            high,
            tuple(sizes),
            tuple(float(self.scores[one].mean()) for one in sizes),
            tuple(float(self.scores[one].std(ddof=1)) for one in sizes),
        )


def _first(sizes: Sequence[int], line: Array) -> float:
    """The smallest size at which a falling line is not above zero."""
    if line[0] < 0:
        return 0.0
    if line[-1] > 0:
        return math.inf
    place = int(np.argmax(line <= 0))
    return float(sizes[0]) if place == 0 else _between(sizes, line, place)


def _last(sizes: Sequence[int], line: Array) -> float:
    """The largest size at which a falling line is not below zero."""
    if line[0] < 0:
        return 0.0
    if line[-1] > 0:
        return math.inf
    if line[-1] == 0:
        return float(sizes[-1])
    return _between(sizes, line, int(np.argmax(line < 0)))


def _between(sizes: Sequence[int], line: Array, place: int) -> float:
    """Where the line from the place before to this one is zero, over the logarithm of the size."""
    before, after = line[place - 1], line[place]
    share = before / (before - after)
    return float(sizes[place - 1] * (sizes[place] / sizes[place - 1]) ** share)


def judged_sizes(size: int, most: int) -> list[int]:
    """The sizes at which random samples may be judged: a geometric series through the size.

    Parameters
    ----------
    size : int
        How many rows were chosen.
    most : int
        The largest random sample.

    Returns
    -------
    list of int
        From a quarter of the size to ``most``.

    Examples
    --------
    >>> judged_sizes(8, 40)
    [2, 3, 4, 6, 8, 11, 16, 23, 32, 40]
    """
    steps = math.ceil(math.log(1 / SMALLEST, RATIO) - 1e-9)
    down = {max(1, round(size / RATIO**step)) for step in range(steps + 1)}
    up = {round(size * RATIO**step) for step in range(math.ceil(math.log(most / size, RATIO)))}
    return sorted(number for number in down | up | {most} if number <= most)


def search(
    size: int,
    most: int,
    chosen: Array,
    random: Callable[[int], Array],
    *,
    rival: str = "uniform",
    one: bool = False,
) -> Equivalent:
    """The random rows that score as much as the chosen ones, judging few sizes.

    From the size itself in strides until random samples clearly score more (and less), then between
    the strides wherever one of the three crossings lies.

    Parameters
    ----------
    size : int
        How many rows were chosen.
    most : int
        The largest random sample.
    chosen : array (seeds,)
        Scores of the chosen rows.
    random : callable
        Gives the scores (seeds,) of random samples of a size.
    rival : str
        How they are drawn.
    one : bool
        Whether the chosen rows are the same in every seed; see :class:`Curve`.

    Returns
    -------
    Equivalent
        With the sizes that were judged.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(scale=0.005, size=10)
    >>> chosen = 0.9 + noise  # what 100 random rows would score
    >>> search(25, 2000, chosen, lambda rows: 1 - 1 / np.sqrt(rows) + noise).rows
    100
    """
    sizes = judged_sizes(size, most)
    curve = Curve(chosen, one)

    def judge(place: int) -> tuple[float, float, float]:
        if sizes[place] not in curve.scores:
            curve.scores[sizes[place]] = random(sizes[place])
        return curve.lines(sizes[place])

    place = start = sizes.index(size)
    while judge(place)[2] >= 0 and place < len(sizes) - 1:
        place = min(place + STRIDE, len(sizes) - 1)
    place = start
    while judge(place)[0] <= 0 and place > 0:
        place = max(place - STRIDE, 0)
    gap = _open_gap(curve, sizes)
    while gap is not None:
        judge(gap)
        gap = _open_gap(curve, sizes)
    return curve.equivalent(rival, size)


def _open_gap(curve: Curve, sizes: Sequence[int]) -> int | None:
    """The middle of two judged places between which a crossing lies and others were passed over."""
    places = [place for place, size in enumerate(sizes) if size in curve.scores]
    for crossing in curve.crossings():
        for before, after in pairwise(places):
            if after - before > 1 and sizes[before] <= crossing <= sizes[after]:
                return (before + after) // 2
    return None


def worth_of_rows(
    rows: Iterable[Row], methods: Sequence[str], sizes: Sequence[int], rival: str = "uniform"
) -> dict[tuple[str, int], Equivalent]:
    """What each method's selections are worth, by the random rows of the same comparison.

    Nothing is judged anew: the curve is that of the sizes compared, so that what lies beyond them
    is only known to do so.

    Parameters
    ----------
    rows : iterable of Row
        Of a comparison that had the rival among its methods.
    methods : sequence of str
        Which methods.
    sizes : sequence of int
        Which sizes.
    rival : str
        The method that draws at random.

    Returns
    -------
    dict
        By method and size, where the method and the rival have the same two seeds or more; empty
        where the rival was not compared, or at one size only.

    Examples
    --------
    >>> scores = {("uniform", 10): 0.6, ("uniform", 40): 0.8, ("ours", 10): 0.7}
    >>> rows = [
    ...     Row(method, size, seed, score + seed / 100, 0.1)
    ...     for (method, size), score in scores.items()
    ...     for seed in range(3)
    ... ]
    >>> worth_of_rows(rows, ["ours"], [10, 40])["ours", 10].rows
    20
    """
    table: dict[tuple[str, int], dict[int, float]] = {}
    for row in rows:
        table.setdefault((row.method, row.size), {})[row.seed] = row.accuracy
    random = {size: table[rival, size] for size in sizes if (rival, size) in table}
    found: dict[tuple[str, int], Equivalent] = {}
    for method in methods:
        for size in sizes:
            curve = _recorded(table.get((method, size), {}), random)
            if method != rival and curve is not None:
                found[method, size] = curve.equivalent(rival, size)
    return found


def _recorded(
    chosen: Mapping[int, float], random: Mapping[int, Mapping[int, float]]
) -> Curve | None:
    """A curve of the seeds that a method has in common with the rival at every size."""
    common = sorted(set(chosen).intersection(*random.values()))
    if len(random) < 2 or len(common) < 2:
        return None
    scores = {size: np.array([own[seed] for seed in common]) for size, own in random.items()}
    return Curve(np.array([chosen[seed] for seed in common]), scores=scores)

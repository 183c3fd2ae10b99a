"""The number of random rows that score as much as the chosen ones, from a learning curve.

A size belongs to the interval if a paired test at 95% finds no significant difference between its
random scores and those of the chosen rows. The mean difference and both ends of its interval fall
as random samples grow. Each of the three lines is made monotone, and its zero is one of the three
numbers reported. Nothing is drawn: the same scores give the same answer.
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
from bicore.evaluate.statistics import finite, half_width

#: Neighbouring sizes of random samples differ by this factor: linear interpolation in log(size)
#: then misses a curve a − b/√n by less than one row in a hundred.
RATIO = math.sqrt(2)
#: The number of sizes per step while the crossing is far away.
STRIDE = 2
#: The smallest random sample, as a share of the chosen rows.
SMALLEST = 0.25


class Verdict(StrEnum):
    """Where the interval lies relative to the number of chosen rows.

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
    """The random rows of one baseline that score as much as the chosen ones.

    Parameters
    ----------
    baseline : str
        How the random rows are drawn: "uniform" or "class-balanced".
    size : int
        The number of chosen rows.
    rows : float
        The number of random rows with the same mean score; ``inf`` if the chosen ones score more
        than the largest random sample, 0 if they score less than the smallest.
    low, high : float
        The 95% interval, with the same meaning of ``inf`` and 0.
    sizes : tuple of int
        The sizes of the random samples that were evaluated.
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

    baseline: str
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
        kind = "random" if self.baseline == "uniform" else self.baseline
        rows = self._describe(self.rows, "at least {}", "at most {}")
        return f"{rows} {kind} ones ({self._interval()})"

    def short(self) -> str:
        """The rows for a cell of a table.

        Returns
        -------
        str
            A number, or that it is above the largest or below the smallest size evaluated.
        """
        return self._describe(self.rows, ">{}", "<{}")

    def _describe(self, rows: float, above: str, below: str) -> str:
        if math.isinf(rows):
            return above.format(self.sizes[-1])
        return f"{rows:.0f}" if rows else below.format(self.sizes[0])

    def _interval(self) -> str:
        if math.isinf(self.low) or not self.high:  # one end says it all
            return "95% sure"
        ends = [self._describe(end, "{} or more", "{} or fewer") for end in (self.low, self.high)]
        return ("–" if self.low and math.isfinite(self.high) else " to ").join(ends)

    def ends(self) -> dict[str, Any]:
        """The rows, their interval and the verdict for a JSON file, which has no infinity.

        Returns
        -------
        dict
            By name; None for more than the largest of ``sizes``, 0 for fewer than the smallest.
        """
        numbers = {name: finite(getattr(self, name)) for name in ("rows", "low", "high")}
        return {**numbers, "verdict": self.verdict.value}

    def as_dict(self) -> dict[str, Any]:
        """All fields for a JSON file.

        Returns
        -------
        dict
            The entries of :meth:`ends`, and the curve.
        """
        curve = {name: list(getattr(self, name)) for name in ("sizes", "means", "spreads")}
        return {"baseline": self.baseline, **self.ends(), **curve}


@dataclass(frozen=True)
class Worth:
    """The number of random rows that score as much as the chosen ones.

    ``str`` gives a sentence. Its interval is at 95%: a size is in it if a paired test over the
    seeds finds no significant difference between its random rows and the chosen ones.

    Parameters
    ----------
    size : int
        The number of chosen rows.
    baselines : tuple of Equivalent
        The random rows: drawn uniformly, and for classes also evenly from each class.
    score, spread : float
        Mean score of the chosen rows over seeds, and its standard deviation.
    metric : str
        "accuracy" or "R²".
    judge : str
        The evaluation model.
    seeds : int
        The number of repetitions.
    tested : str
        The test data, in words.
    fits : int
        How often the evaluation model was trained.

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> found = bicore.worth(x, np.sin(3 * x[:, 0]), 20, kernel="rbf", seeds=4)
    >>> found.size, found.low <= found.rows <= found.high
    (20, True)
    """

    size: int
    baselines: tuple[Equivalent, ...]
    score: float
    spread: float
    metric: str
    judge: str
    seeds: int
    tested: str
    fits: int

    @property
    def rows(self) -> float:
        """Uniform random rows with the same mean score; ``inf`` if no random sample has it."""
        return self.baselines[0].rows

    @property
    def low(self) -> float:
        """The lower end of its interval."""
        return self.baselines[0].low

    @property
    def high(self) -> float:
        """The upper end of its interval."""
        return self.baselines[0].high

    @property
    def verdict(self) -> Verdict:
        """LESS if uniform rows are better; MORE if the chosen rows beat every baseline."""
        found = [one.verdict for one in self.baselines]
        if found[0] is Verdict.LESS:
            return Verdict.LESS
        return Verdict.MORE if set(found) == {Verdict.MORE} else Verdict.ENOUGH

    @property
    def only_balanced_is_enough(self) -> bool:
        """Whether rows drawn evenly from the classes are enough, and uniform ones are not."""
        return self.verdict is Verdict.ENOUGH and self.baselines[0].verdict is Verdict.MORE

    def __str__(self) -> str:
        words = f"{self.size} rows are worth {' and '.join(map(str, self.baselines))}"
        if self.verdict is Verdict.MORE:
            return words
        evenly = ", drawn evenly from the classes" if self.only_balanced_is_enough else ""
        return f"{words}: {self.verdict}{evenly}"

    def how(self) -> str:
        """How the answer was found.

        Returns
        -------
        str
            A sentence: the evaluation model, its score and the test data.
        """
        return (
            f"{self.metric} {self.score:.4f} of the {self.judge} model {self.tested}; intervals at "
            f"95%, {self.fits} fits"
        )

    def as_dict(self) -> dict[str, Any]:
        """All fields for a JSON file.

        Returns
        -------
        dict
            Numbers by name, and the sentence; None for more than any random sample.
        """
        return {
            **vars(self),
            "sentence": str(self),
            **self.baselines[0].ends(),
            "verdict": self.verdict.value,
            "baselines": [one.as_dict() for one in self.baselines],
        }


@dataclass
class Curve:
    """Random scores at some sizes, paired by seed with those of the chosen rows.

    Parameters
    ----------
    chosen : array (seeds,)
        Scores of the chosen rows.
    one : bool
        Whether the chosen rows are the same in every seed. One set of rows is compared with one
        random sample, whose scores scatter; a set per seed by its mean with the mean of as many.
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
            One of ``scores``.

        Returns
        -------
        low, mean, high : float
            Chosen minus random.
        """
        differences = self.chosen - self.scores[size]
        # an interval for one more random sample instead of the mean
        width = half_width(differences) * (math.sqrt(len(differences) + 1) if self.one else 1)
        mean = float(differences.mean())
        return mean - width, mean, mean + width

    def crossings(self) -> tuple[float, float, float]:
        """The sizes at which the lines, made monotone, cross zero.

        Returns
        -------
        low, rows, high : float
            Sizes; 0 if a line is below zero from the start, ``inf`` if it stays above.
        """
        from sklearn.isotonic import isotonic_regression

        sizes = sorted(self.scores)
        low, mean, high = (
            isotonic_regression(line, increasing=False)
            for line in zip(*map(self.lines, sizes), strict=True)
        )
        first, last = _first(sizes, mean), _last(sizes, mean)
        middle = math.sqrt(first * last) if math.isfinite(last) else last
        return _first(sizes, low), middle, _last(sizes, high)

    def equivalent(self, baseline: str, size: int) -> Equivalent:
        """The number of random rows that the curve gives.

        Parameters
        ----------
        baseline : str
            How the random rows were drawn.
        size : int
            The number of chosen rows.

        Returns
        -------
        Equivalent
            In whole rows.
        """
        sizes = sorted(self.scores)
        low, rows, high = (
            round(value) if math.isfinite(value) else value for value in self.crossings()
        )
        means = tuple(float(self.scores[one].mean()) for one in sizes)
        spreads = tuple(float(self.scores[one].std(ddof=1)) for one in sizes)
        return Equivalent(baseline, size, rows, low, high, tuple(sizes), means, spreads)


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


def random_sizes(size: int, most: int) -> list[int]:
    """Possible sizes of random samples: a geometric series through the number of chosen rows.

    Parameters
    ----------
    size : int
        The number of chosen rows.
    most : int
        The largest random sample.

    Returns
    -------
    list of int
        From a quarter of the size to ``most``.

    Examples
    --------
    >>> random_sizes(8, 40)
    [2, 3, 4, 6, 8, 11, 16, 23, 32, 40]
    """
    down = math.ceil(math.log(1 / SMALLEST, RATIO) - 1e-9)
    up = math.ceil(math.log(most / size, RATIO))
    found = {most} | {max(1, round(size / RATIO**step)) for step in range(1 - up, down + 1)}
    return sorted(number for number in found if number <= most)


def search(
    size: int,
    most: int,
    chosen: Array,
    random: Callable[[int], Array],
    *,
    baseline: str = "uniform",
    one: bool = False,
) -> Equivalent:
    """Find the random rows that score as much as the chosen ones, with few evaluations.

    The search starts at the size itself and steps until random samples clearly score more (and
    less). It then fills in sizes between the steps wherever one of the three crossings lies.

    Parameters
    ----------
    size : int
        The number of chosen rows.
    most : int
        The largest random sample.
    chosen : array (seeds,)
        Scores of the chosen rows.
    random : callable
        Gives the scores (seeds,) of random samples of a size.
    baseline : str
        How they are drawn.
    one : bool
        Whether the chosen rows are the same in every seed; see :class:`Curve`.

    Returns
    -------
    Equivalent
        With the sizes that were evaluated.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(scale=0.005, size=10)
    >>> chosen = 0.9 + noise  # the score of 100 random rows
    >>> search(25, 2000, chosen, lambda rows: 1 - 1 / np.sqrt(rows) + noise).rows
    100
    """
    sizes = random_sizes(size, most)
    curve = Curve(chosen, one)

    def lines(place: int) -> tuple[float, float, float]:
        if sizes[place] not in curve.scores:
            curve.scores[sizes[place]] = random(sizes[place])
        return curve.lines(sizes[place])

    place = start = sizes.index(size)
    while lines(place)[2] >= 0 and place < len(sizes) - 1:
        place = min(place + STRIDE, len(sizes) - 1)
    place = start
    while lines(place)[0] <= 0 and place > 0:
        place = max(place - STRIDE, 0)
    while (gap := _open_gap(curve, sizes)) is not None:
        lines(gap)
    return curve.equivalent(baseline, size)


def _open_gap(curve: Curve, sizes: Sequence[int]) -> int | None:
    """The middle between two evaluated places that enclose a crossing and a skipped place."""
    places = [place for place, size in enumerate(sizes) if size in curve.scores]
    for crossing in curve.crossings():
        for before, after in pairwise(places):
            if after - before > 1 and sizes[before] <= crossing <= sizes[after]:
                return (before + after) // 2
    return None


def worth_of_rows(
    rows: Iterable[Row], methods: Sequence[str], sizes: Sequence[int], baseline: str = "uniform"
) -> dict[tuple[str, int], Equivalent]:
    """The worth of each method's selections, from the random rows of the same comparison.

    Nothing is evaluated again: the curve has the sizes compared, so a worth beyond the largest is
    only known to be so.

    Parameters
    ----------
    rows : iterable of Row
        Rows of a comparison that includes the baseline.
    methods : sequence of str
        The methods.
    sizes : sequence of int
        The sizes.
    baseline : str
        The method that draws at random.

    Returns
    -------
    dict
        By method and size, if the method and the baseline share at least two seeds; empty if the
        baseline was not compared, or at one size only.

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
    random = {size: table[baseline, size] for size in sizes if (baseline, size) in table}
    found: dict[tuple[str, int], Equivalent] = {}
    for method in methods:
        for size in sizes:
            curve = _curve_of(table.get((method, size), {}), random)
            if method != baseline and curve is not None:
                found[method, size] = curve.equivalent(baseline, size)
    return found


def _curve_of(
    chosen: Mapping[int, float], random: Mapping[int, Mapping[int, float]]
) -> Curve | None:
    """A curve of the seeds that a method shares with the baseline at every size."""
    common = sorted(set(chosen).intersection(*random.values()))
    if len(random) < 2 or len(common) < 2:
        return None
    scores = {size: np.array([own[seed] for seed in common]) for size, own in random.items()}
    return Curve(np.array([chosen[seed] for seed in common]), scores=scores)

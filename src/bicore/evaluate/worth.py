"""The worth of chosen rows: the number of random rows with the same test score.

With a test set the chosen rows themselves are evaluated. Without one they cannot be, because every
row was seen during the selection. The selection is then repeated on splits of the data, each time
without the rows that are tested on.

The number comes from a learning curve of random rows. A size belongs to the interval if a paired
test at 95% finds no significant difference between its random scores and those of the chosen rows.
The mean difference and both ends of its interval fall as random samples grow. Each of the three
lines is made monotone, and its zero is one of the three numbers reported.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise, product
from numbers import Real
from typing import Any, Literal, Unpack

import numpy as np

from bicore import notebook
from bicore._deprecated import renamed_keywords, renamed_methods
from bicore.api import SelectorOptions, changed_options, list_options, with_signature_of
from bicore.arguments import as_seed, as_size, read_initial
from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.defaults import MAX_ROWS, SEEDS
from bicore.errors import InputError, LargeDataWarning, check_integer, check_name
from bicore.evaluate.models import Judge, as_judge, draw_tuning_rows
from bicore.evaluate.pools import TEST_SHARE, Split, as_source, make_pools
from bicore.evaluate.records import Result, finite, half_width
from bicore.methods.base import Selector, require_complete
from bicore.methods.baselines.simple import ClassBalanced, Uniform
from bicore.methods.large import human_seconds, make_feasible
from bicore.methods.registry import METHODS, as_selector, build_selector
from bicore.runtime.clock import Clock, ProgressLine
from bicore.runtime.context import Runtime
from bicore.sources.base import Source
from bicore.types import Labels, Numbers, RandomState, Rows, Weights

#: The random baselines, with the random stream of each; pools use 0 and 1.
BASELINES: dict[str, tuple[int, Selector]] = {
    "uniform": (2, Uniform()),
    "class-balanced": (3, ClassBalanced()),
}
#: The strongest simple method, to compare with at the same size.
SIMPLE = "facility-location-per-class"
RANDOM = "random"
#: Why a selection that ended early is refused.
NOT_EVALUATED = "its rows were not evaluated"
#: Name of the chosen rows among the scored ones.
CHOSEN = "chosen"
#: Ratio of neighbouring sizes of random samples: linear interpolation in log(size) then misses a
#: curve a − b/√n by less than one row in a hundred.
RATIO = math.sqrt(2)
#: Sizes per step while the crossing is far away.
STRIDE = 2
#: The smallest random sample, as a share of the chosen rows.
SMALLEST = 0.25


class Verdict(StrEnum):
    """The position of the interval relative to the number of chosen rows."""

    #: The interval includes the size.
    ENOUGH = "random is enough here"
    #: It lies above the size.
    MORE = "worth more than random"
    #: It lies below the size.
    LESS = "random is better here"


@dataclass(frozen=True)
class Equivalent:
    """The number of rows of one baseline that score as much as the chosen ones."""

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

    @property
    def unbounded(self) -> bool:
        """Whether the interval has neither a lower nor an upper end, so that nothing is known."""
        return not self.low and math.isinf(self.high)

    @property
    def words(self) -> str:
        """The name of the baseline in a sentence."""
        return _as_words(self.baseline)

    def __str__(self) -> str:
        rows = self._describe(self.rows)
        kind = f"{self.words} ones" if self.baseline in BASELINES else f"of {self.words}"
        return f"{rows} {kind} ({self._interval()})"

    def short(self) -> str:
        """Return the rows for a cell of a table."""
        return self._describe(self.rows, ">{}", "<{}")

    def _describe(self, rows: float, above: str = "{} or more", below: str = "{} or fewer") -> str:
        if math.isinf(rows):
            return above.format(self.sizes[-1])
        return f"{rows:.0f}" if rows else below.format(self.sizes[0])

    def _interval(self) -> str:
        if math.isinf(self.low) or not self.high:  # one end suffices
            return "95% sure"
        if not self.low:
            return f"{self._describe(self.low)} to {self._describe(self.high)}"
        if math.isinf(self.high):
            return f"at least {self.low:.0f}"
        return f"{self.low:.0f}–{self.high:.0f}"

    def ends(self) -> dict[str, Any]:
        """Return the rows, their interval and the verdict for JSON, which has no infinity."""
        numbers = {name: finite(getattr(self, name)) for name in ("rows", "low", "high")}
        return {**numbers, "verdict": self.verdict.value}

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        curve = {name: list(getattr(self, name)) for name in ("sizes", "means", "spreads")}
        return {"baseline": self.baseline, **self.ends(), **curve}


@dataclass(frozen=True)
class Simple:
    """A simple method compared with the chosen rows at the same size."""

    method: str
    score: float
    spread: float
    low: float
    high: float

    @property
    def enough(self) -> bool:
        """Whether the chosen rows do not score significantly more."""
        return self.low <= 0

    def __str__(self) -> str:
        return f"{_as_words(self.method)} is enough here"


def _as_words(method: str) -> str:
    """Return "random" for ``uniform``, the name of other random rows, else without dashes."""
    if method in BASELINES:
        return "random" if method == "uniform" else method
    return method if method.endswith("design") else method.replace("-", " ")


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
        Numbers of random rows: drawn uniformly, and for classes also evenly from each class; or the
        rows of the reference method.
    score, spread : float
        Mean score of the chosen rows over seeds, and its standard deviation.
    metric : str
        "accuracy" or "R²".
    judge : str
        The evaluation model.
    seeds : int
        The number of repetitions.
    tested : str
        Description of the test data.
    fits : int
        Number of fits of the evaluation model.
    simple : Simple, optional
        Facility location per class at the same size; None if it is the selection method, or if
        ``reference`` is given.

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
    simple: Simple | None = None

    def _repr_html_(self) -> str:
        """Return a card for notebooks."""
        facts = {one.words: f"{one.short()} ({one.verdict.value})" for one in self.baselines}
        facts |= {self.metric: f"{self.score:.4g} ± {self.spread:.2g}", "fits": str(self.fits)}
        return notebook.as_html(str(self), facts, np.zeros(0), {}, 0)

    @property
    def rows(self) -> float:
        """Number of random rows with the same mean score; ``inf`` if none is enough."""
        return self.baselines[0].rows

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.baselines[0].low

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.baselines[0].high

    @property
    def verdict(self) -> Verdict:
        """LESS if random rows are better; MORE if the chosen rows beat every baseline."""
        found = [one.verdict for one in self.baselines]
        if found[0] is Verdict.LESS:
            return Verdict.LESS
        return Verdict.MORE if set(found) == {Verdict.MORE} else Verdict.ENOUGH

    @property
    def conclusion(self) -> str:
        """Why the selection is not needed, or the answer is unknown; empty if it is needed."""
        if self.verdict is not Verdict.MORE:
            first = next(one for one in self.baselines if one.verdict is not Verdict.MORE)
            if first.unbounded:
                return "more seeds or test rows are needed for an answer"
            if first is not self.baselines[0]:
                return f"{first.words} sampling is enough here"
            return self.verdict.value.replace("random", first.words)
        return str(self.simple) if self.simple is not None and self.simple.enough else ""

    def __str__(self) -> str:
        words = f"{self.size} rows are worth {' and '.join(map(str, self.baselines))}"
        return f"{words}: {self.conclusion}" if self.conclusion else words

    def how(self) -> str:
        """Describe how the number was found.

        Returns
        -------
        str
            A sentence: the evaluation model, its score and the test data.
        """
        words = f"{self.metric} {self.score:.4f} of the {self.judge} model {self.tested}"
        words += f"; 95% intervals, {self.fits} fits"
        if self.conclusion.endswith("enough here"):
            words += '; "enough": the selected rows are not significantly better'
        if len(self.baselines) > 1 and self.baselines[1].low > self.rows:
            lower = "class-balanced samples score lower than random ones, so more rows are needed"
            words += f"; {lower}"
        return words

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON.

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
            "simple": None if self.simple is None else vars(self.simple),
        }


@dataclass
class Curve:
    """Random scores at some sizes, paired by seed with those of the chosen rows."""

    chosen: Array
    one: bool = False
    scores: dict[int, Array] = field(default_factory=dict)

    def lines(self, size: int) -> tuple[float, float, float]:
        """Return the mean difference to the chosen rows and the ends of its 95% interval."""
        differences = self.chosen - self.scores[size]
        # an interval for one more random sample instead of the mean
        width = half_width(differences) * (math.sqrt(len(differences) + 1) if self.one else 1)
        mean = float(differences.mean())
        return mean - width, mean, mean + width

    def crossings(self) -> tuple[float, float, float]:
        """Return the sizes at which the lines, made monotone, cross zero."""
        from sklearn.isotonic import isotonic_regression

        sizes = sorted(self.scores)
        low, mean, high = (
            isotonic_regression(line, increasing=False)
            for line in zip(*map(self.lines, sizes), strict=True)
        )
        first, last = _crossing(sizes, mean, "left"), _crossing(sizes, mean, "right")
        middle = math.sqrt(first * last) if math.isfinite(last) else last
        return _crossing(sizes, low, "left"), middle, _crossing(sizes, high, "right")

    def equivalent(self, baseline: str, size: int) -> Equivalent:
        """Return the number of random rows given by the curve."""
        sizes = sorted(self.scores)
        low, rows, high = (round(one) if math.isfinite(one) else one for one in self.crossings())
        means = tuple(float(self.scores[one].mean()) for one in sizes)
        spreads = tuple(float(self.scores[one].std(ddof=1)) for one in sizes)
        return Equivalent(baseline, size, rows, low, high, tuple(sizes), means, spreads)


def _crossing(sizes: Sequence[int], line: Array, side: Literal["left", "right"]) -> float:
    """Return the first size at which a falling line is not above zero, or the last at which it
    is not below."""
    if line[0] < 0:
        return 0.0
    if line[-1] > 0:
        return math.inf
    place = int(np.searchsorted(-line, 0.0, side))
    if place in (0, len(line)):
        return float(sizes[min(place, len(line) - 1)])
    before, after = line[place - 1 : place + 1]
    ratio = sizes[place] / sizes[place - 1]  # linear in the logarithm of the size
    return float(sizes[place - 1] * ratio ** (before / (before - after)))


def random_sizes(size: int, most: int) -> list[int]:
    """Return possible sizes of random samples: a geometric series through the number of chosen
    rows."""
    down = math.ceil(math.log(1 / SMALLEST, RATIO) - 1e-9)
    up = math.ceil(math.log(most / size, RATIO))
    found = {most} | {max(1, round(size / RATIO**step)) for step in range(1 - up, down + 1)}
    return sorted(number for number in found if number <= most)


def search(
    size: int,
    most: int,
    chosen: Array,
    random: Callable[[int], Array],
    baseline: str = "uniform",
    one: bool = False,
) -> Equivalent:
    """Find the number of random rows that score as much as the chosen ones, with few evaluations.

    The search starts at the size itself and steps until random samples clearly score more (and
    less). It then fills in sizes between the steps wherever one of the three crossings lies.
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
    while (gap := _middle_of_gap(curve, sizes)) is not None:
        lines(gap)
    return curve.equivalent(baseline, size)


def _middle_of_gap(curve: Curve, sizes: Sequence[int]) -> int | None:
    """Return the middle between two evaluated places that enclose a crossing and a skipped
    place."""
    places = [place for place, size in enumerate(sizes) if size in curve.scores]
    for crossing in curve.crossings():
        for before, after in pairwise(places):
            if after - before > 1 and sizes[before] <= crossing <= sizes[after]:
                return (before + after) // 2
    return None


def worth_of_results(
    results: Iterable[Result],
    methods: Sequence[str],
    sizes: Sequence[int],
    baseline: str = "uniform",
) -> dict[tuple[str, int], Equivalent]:
    """Return the worth of each method's selections, from the comparison's random rows.

    Nothing is evaluated again. The curve has only the compared sizes, so a worth beyond the
    largest of them has no number.
    """
    table: dict[tuple[str, int], dict[int, float]] = {}
    for one in results:
        table.setdefault((one.method, one.size), {})[one.seed] = one.score
    random = {size: table[baseline, size] for size in sizes if (baseline, size) in table}
    found: dict[tuple[str, int], Equivalent] = {}
    for method, size in product(methods, sizes) if len(random) > 1 else ():
        chosen = table.get((method, size), {})
        seeds = sorted(set(chosen).intersection(*random.values()))  # seeds with all sizes
        if method != baseline and len(seeds) > 1:
            scores = {one: np.array([own[k] for k in seeds]) for one, own in random.items()}
            curve = Curve(np.array([chosen[k] for k in seeds]), scores=scores)
            found[method, size] = curve.equivalent(baseline, size)
    return found


DEFAULT_JUDGE = "logistic"
#: Training steps of an evaluation model that is a network.
STEPS = 1000
#: First seeds are below this, because scikit-learn refuses seeds from 2**32 on.
SEED_LIMIT = 2**31
#: Random samples that a search usually evaluates per baseline: the median on three data sets, for 3
#: and 10 repetitions.
TYPICAL_SIZES = 7


@dataclass(frozen=True)
class Cost:
    """The expected cost of finding a worth."""

    fits: int
    selections: int
    seconds: float

    def __str__(self) -> str:
        plural = "" if self.selections == 1 else "s"
        more = f" and {self.selections} selection{plural}" if self.selections else ""
        return f"about {self.fits} fits{more}, about {human_seconds(self.seconds)}"


@renamed_methods(picked="select_rows", drawn="draw_rows")
class Appraisal:
    """Estimate the cost of a worth, then find it; :func:`worth` is the short form.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets), row by row; or a :class:`Dataset`, a path or a built-in
        name as x. If the scale of a source is "standard", each split scales features by the mean
        and variance of its pool.
    chosen : Coreset, sequence of int, int or float
        Selected rows, or the number or fraction of rows to select.
    test : tuple or Dataset, optional
        Rows (x, y) that the selection did not see. Required for plain row numbers, because a
        selection by an unknown method cannot be repeated.
    judge : str or Judge, optional
        The evaluation model: a name of ``bicore.evaluate.models.JUDGES``, or an object; by default
        logistic regression, ridge regression for targets.
    seeds, random_state : int, Generator, RandomState or None
        The number of repetitions, and the seed of the first.
    max_rows : int
        Size of the largest random sample.
    sample_weight : array, optional
        Weights of the rows in the selection; random draws skip rows of weight 0.
    runtime : Runtime, optional
        Device, progress, and the limits of each selection.
    method : str or Selector
        The selection method, as in :func:`bicore.select`; one that needs no model.
    exact : bool
        Use all rows, as in :func:`bicore.select`.
    reference : str or Selector
        Baseline in whose rows the worth is counted: "random", or a method such as
        "facility-location-per-class". With "random", the answer also says if facility location per
        class is as good at the same size.
    columns, target, labels : optional
        For files and tables: columns to use as features, the column to predict, a file of labels.
    kernel, loss, outer_loss, inner_reg, task, classes, smooth_labels, prior, intercept : optional
        The kernel model that rows are selected for, as in :class:`bicore.BilevelSelector`; the
        evaluation model has the same task.
    inner, linear, optimiser : optional
        Solvers of the kernel model, as in :class:`bicore.BilevelSelector`.
    weighting, rule, strategy, candidates, first, quotas : optional
        The search, as in :class:`bicore.BilevelSelector`.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> method = BilevelSelector("rbf")
    >>> appraisal = Appraisal(x, x[:, 0] > 0, 10, judge="knn", seeds=3, method=method)
    >>> appraisal.cost().selections
    3
    >>> appraisal.worth().size
    10
    """

    @renamed_keywords(most="max_rows", data="x")
    @list_options(SelectorOptions)
    def __init__(
        self,
        x: Rows | Dataset | Source,
        y: Labels | None = None,
        chosen: Coreset | Sequence[int] | int | float | str | None = None,
        *,
        test: tuple[Numbers, Labels] | Dataset | None = None,
        judge: str | Judge | None = None,
        seeds: int = SEEDS,
        random_state: RandomState = 0,
        max_rows: int = MAX_ROWS,
        sample_weight: Weights | None = None,
        runtime: Runtime | None = None,
        method: str | Selector = "bilevel",
        exact: bool = False,
        reference: str | Selector = RANDOM,
        columns: str | Sequence[str] | None = None,
        target: str | None = None,
        labels: Labels | os.PathLike[str] | None = None,
        **options: Unpack[SelectorOptions],
    ) -> None:
        if isinstance(y, (Real, Coreset)):
            fix = "give the chosen rows as chosen=…"
            raise InputError(f"y={y!r} is not an array of labels; {fix}.")
        check_integer("seeds", seeds, 2)
        first = as_seed(random_state) % SEED_LIMIT
        check_integer("max_rows", max_rows)
        opening = {"columns": columns, "target": target, "labels": labels}
        source = as_source(x, y, sample_weight, runtime, **opening)
        data = source.data
        own = Dataset(*test) if isinstance(test, (tuple, list)) else test
        held_out = None if own is not None else max(1, round(TEST_SHARE * len(data)))
        task = options.pop("task", "auto")  # labels are read once, also for the method
        self.pools = make_pools(source, own, task, None, len(data), held_out)
        self.has_test = own is not None
        self.runtime = runtime or Runtime()
        judge = DEFAULT_JUDGE if judge is None else judge
        self.judge = judge if isinstance(judge, Judge) else as_judge(judge, STEPS)
        self.judge.check(tuple(data.x.shape[1:]), self.pools.outputs)
        self.selector = build_selector(method, **changed_options(options))
        self.exact = exact
        self.coreset, self.size = _read_chosen(chosen, data, self.has_test, self.selector)
        numbers = range(first, first + seeds)
        self.splits = [self.pools.split(one, self.has_test, self.has_test) for one in numbers]
        self.max_rows = self._largest(max_rows)
        #: The selector of the reference, or of facility location per class.
        self.reference = as_selector(SIMPLE)
        self.baselines = list(BASELINES)[: 2 if self.classification else 1]
        #: Whether facility location per class is evaluated at the same size.
        self.compares_simple = reference == RANDOM and self.selector != self.reference
        if reference != RANDOM:
            self.reference = _as_reference(reference)
            self.baselines = [reference if isinstance(reference, str) else reference.name]
        self.selections: dict[int, Coreset] = {}
        self.orders: dict[tuple[str, int, int], Array] = {}
        self.known: dict[tuple[str, int, int], float] = {}
        self.line: ProgressLine | None = None

    @property
    def classification(self) -> bool:
        """Whether the labels are classes."""
        return self.pools.classification

    def _largest(self, max_rows: int) -> int:
        """Return the size of the largest random sample; rows of weight 0 are not drawn."""
        pools = [split.pool for split in self.splits]
        drawable = min(int((one.data.weights[one.places] > 0).sum()) for one in pools)
        if self.size > drawable:
            other = "" if self.has_test else ", or give test=(x, y) (--test FILE)"
            fix = f"choose fewer rows{other}"
            wrong = f"only {drawable} can be drawn without the test rows"
            raise InputError(f"{self.size} rows are chosen, but {wrong}; {fix}.")
        if max_rows < self.size:
            rule = f"max_rows must be at least {self.size}, the number of chosen rows"
            raise InputError(f"{rule}; got {max_rows}.")
        return min(max_rows, drawable)

    def cost(self) -> Cost:
        """Estimate the cost from a timed fit, and a first selection if necessary.

        Returns
        -------
        Cost
            The cost of all the work; :meth:`worth` does not repeat what was done here.
        """
        first, second = self.splits[:2]
        self._score(self.baselines[0], self.size, first)  # the first call loads libraries
        clock = Clock()
        self._score(self.baselines[0], min(2 * self.size, self.max_rows), second)  # a typical size
        fitting, clock = clock.seconds, Clock()
        selections = int(self.coreset is None) if self.has_test else len(self.splits)
        if selections:
            self._select(first, self.runtime)
        fits = self._expected_fits
        return Cost(fits, selections, selections * clock.seconds + fits * fitting)

    @property
    def _expected_fits(self) -> int:
        """Fits of a usual search."""
        own = 2 if self.compares_simple else 1
        return len(self.splits) * (own + len(self.baselines) * TYPICAL_SIZES)

    def worth(self) -> Worth:
        """Find the worth with as few fits as possible.

        Returns
        -------
        Worth
            The answer.
        """
        progress, fits = self.runtime.progress, self._expected_fits
        with ProgressLine(progress, Clock(), fits, "evaluating") as self.line:
            chosen = self._scores(CHOSEN, self.size)
            simple = self._compare_simple(chosen) if self.compares_simple else None
            given = (self.size, self.max_rows, chosen)
            baselines = tuple(
                search(*given, partial(self._scores, name), name, self.has_test)
                for name in self.baselines
            )
        return Worth(
            self.size,
            baselines,
            float(chosen.mean()),
            float(chosen.std(ddof=1)),
            "accuracy" if self.classification else "R²",
            self.judge.title(self.classification),
            len(self.splits),
            self._describe_test(),
            len(self.known),
            simple,
        )

    def _compare_simple(self, chosen: Array) -> Simple:
        scores = self._scores(SIMPLE, self.size)
        low, _, high = Curve(chosen, self.has_test, {self.size: scores}).lines(self.size)
        return Simple(SIMPLE, float(scores.mean()), float(scores.std(ddof=1)), low, high)

    def _describe_test(self) -> str:
        count, split = len(self.splits), self.splits[0]
        if self.has_test:
            return f"on the {len(split.test)} test rows, drawn with replacement {count} times"
        others = f"the selection repeated on the other {len(split.pool)}"
        return f"on {count} splits, each with {len(split.test)} rows held out and {others}"

    def select_rows(self, split: Split) -> Coreset:
        """Return the chosen rows of a split; they are selected at the first call.

        Parameters
        ----------
        split : Split
            One of ``splits``.

        Returns
        -------
        Coreset
            Its indices are places in the pool of the split.
        """
        if self.has_test and self.coreset is not None:
            return self.coreset
        return self._select(split, replace(self.runtime, progress=False))

    def _select(self, split: Split, runtime: Runtime) -> Coreset:
        """Select once per split; with a test set all splits have the same pool."""
        seed = self.splits[0].seed if self.has_test else split.seed
        if seed not in self.selections:
            pool = split.pool[:]
            selector, notes = make_feasible(self.selector, pool, self.exact)
            for note in () if self.selections else notes:  # all pools are equally large
                warnings.warn(note, LargeDataWarning, stacklevel=2)
            found = selector.select(pool, self.size, random_state=seed, runtime=runtime)
            self.selections[seed] = require_complete(found, NOT_EVALUATED)
        return self.selections[seed]

    def draw_rows(self, name: str, size: int, split: Split) -> Array:
        """Draw rows of a baseline; a larger random sample of a split contains the smaller ones.

        Parameters
        ----------
        name : str
            "uniform", "class-balanced", or the reference method.
        size : int
            The number of rows, at most ``max_rows``.
        split : Split
            One of ``splits``.

        Returns
        -------
        array of int
            Places in the split's pool.
        """
        random = name in BASELINES
        if not random and self.has_test:
            split = self.splits[0]  # all have the same pool
        key = name, split.seed, self.max_rows if random else size
        if key not in self.orders:
            self.orders[key] = (self._draw if random else self._select_reference)(name, size, split)
        return self.orders[key][:size]

    def _draw(self, name: str, size: int, split: Split) -> Array:
        stream, selector = BASELINES[name]
        data, places = split.pool.data, split.pool.places
        assert data.y is not None
        rows = Dataset(np.zeros((len(places), 1)), data.y[places], data.weights[places])
        rng = np.random.default_rng((split.seed, stream))
        return selector.select(rows, self.max_rows, random_state=rng).indices

    def _select_reference(self, name: str, size: int, split: Split) -> Array:
        pool = split.pool[:]
        selector, _ = make_feasible(self.reference, pool, exact=False)
        quiet = replace(self.runtime, progress=False)
        found = selector.select(pool, size, random_state=split.seed, runtime=quiet)
        return require_complete(found, NOT_EVALUATED).indices

    def _scores(self, name: str, size: int) -> Array:
        """Return the scores of the chosen rows or of a baseline on all splits."""
        return np.array([self._score(name, size, split) for split in self.splits])

    def _score(self, name: str, size: int, split: Split) -> float:
        """Return one of these scores, computed at the first call."""
        key = name, size, split.seed
        if key not in self.known:
            if name == CHOSEN:
                picked = self.select_rows(split).normalise()
                self.known[key] = self.score(split, picked.indices, picked.weights)
            else:
                rows = self.draw_rows(name, size, split)
                self.known[key] = self.score(split, rows, np.ones(len(rows)))
            if self.line is not None:
                self.line.total = max(self.line.total, len(self.known))
                self.line.update(len(self.known), objective=float("nan"))
        return self.known[key]

    def score(self, split: Split, places: Array, weights: Array) -> float:
        """Return the score of the evaluation model after training on some rows of a pool.

        Parameters
        ----------
        split : Split
            One of ``splits``.
        places : array of int
            The rows of its pool.
        weights : array of float
            Their weights.

        Returns
        -------
        float
            Accuracy, or R².
        """
        judge, arguments = self._prepare(split, places, weights)
        return judge.scores(*arguments)[0]

    def recalls(self, split: Split, places: Array, weights: Array) -> Array:
        """Return the recall of each class after training on some rows of a pool.

        Parameters
        ----------
        split : Split
            One of ``splits``.
        places : array of int
            The rows of its pool.
        weights : array of float
            Their weights.

        Returns
        -------
        array (classes,)
            NaN for a class without test rows.
        """
        judge, arguments = self._prepare(split, places, weights)
        return np.array(judge.measures(*arguments)[0].by_class, dtype=np.float64)

    def _prepare(self, split: Split, places: Array, weights: Array) -> tuple[Judge, Any]:
        """Return the tuned model, and the arguments of its scores and metrics."""
        chosen = split.pool[places].with_columns(sample_weight=weights)
        some = split.pool[draw_tuning_rows(len(split.pool), split.seed)]
        points, test, tuning = (
            self.pools.sample(rows, self.runtime.torch_device)
            for rows in (chosen, split.test[:], some)
        )
        return self.judge.tune(tuning), ([points], test, self.pools.outputs, split.seed)


def _as_reference(reference: str | Selector) -> Selector:
    if not isinstance(reference, Selector):
        check_name("reference", reference, (RANDOM, *METHODS))
    selector = as_selector(reference)
    if selector.needs_model:
        fix = f"use 'random' or a method without one, such as {SIMPLE!r}"
        raise InputError(f"reference={reference!r} needs a trained network; {fix}.")
    return selector


def _read_chosen(
    chosen: Any, data: Dataset, has_test: bool, selector: Selector
) -> tuple[Coreset | None, int]:
    """Return the chosen rows and their number; None and the number for a size."""
    if chosen is None:
        raise InputError("chosen is missing; give the chosen rows, or how many to select.")
    if isinstance(chosen, str) and chosen == "auto":
        fix = "give a number of rows, or the coreset of an earlier selection"
        raise InputError(f"chosen='auto' (--size auto) is not supported; {fix}.")
    if isinstance(chosen, (Real, str)):
        return None, as_size(chosen, len(data), "chosen", "a coreset")
    start = read_initial(chosen, data, len(data), "chosen", continues=False)
    if not start.points:
        raise InputError("chosen has no rows; give at least one.")
    if has_test:
        return start.coreset or Coreset(np.array(start.points)), len(start.points)
    if start.coreset is None:
        raise InputError(
            "chosen has row numbers, and without a test set the selection must be repeated on "
            "other rows; give test=(x, y), or a size and the options of select."
        )
    method = start.coreset.provenance.method
    if method not in ("", selector.name):
        wrong = f"without a test set the selection would be repeated by {selector.name!r}"
        fix = "give the same method and options, or test=(x, y)"
        raise InputError(f"chosen was selected by {method!r}, and {wrong}; {fix}.")
    return start.coreset, len(start.points)


@renamed_keywords(most="max_rows", data="x")
@with_signature_of(Appraisal)
def worth(**given: Any) -> Worth:
    """Estimate how many random rows give the same test score as the chosen ones.

    With ``test`` the chosen rows are compared with random ones, once per seed, on test rows drawn
    with replacement: the interval holds the sizes at which one random sample may score the same.
    Without it each seed holds out a quarter of the rows, selects again from the others with the
    same options and tests on the held-out rows: the interval is that of the mean over such splits,
    and each seed costs a selection. Random samples are prefixes of one random order per seed; only
    sizes near the crossing are evaluated.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets), row by row; or a :class:`Dataset`, a path or a built-in
        name as x.
    chosen : Coreset, sequence of int, int or float
        Selected rows, or the number or fraction of rows to select.
    test : tuple or Dataset, optional
        Rows (x, y) that the selection did not see. Required for plain row numbers, because a
        selection by an unknown method cannot be repeated.
    judge : str or Judge, optional
        The evaluation model: a name of ``bicore.evaluate.models.JUDGES``, or an object; by default
        logistic regression, ridge regression for targets.
    seeds, random_state : int, Generator, RandomState or None
        The number of repetitions, and the seed of the first.
    max_rows : int
        Size of the largest random sample.
    sample_weight : array, optional
        Weights of the rows in the selection; random draws skip rows of weight 0.
    runtime : Runtime, optional
        Device, progress, and the limits of each selection.
    method : str or Selector
        The selection method, as in :func:`bicore.select`; one that needs no model.
    exact : bool
        Use all rows, as in :func:`bicore.select`.
    reference : str or Selector
        Baseline in whose rows the worth is counted: "random", or a method such as
        "facility-location-per-class". With "random", the answer also says if facility location per
        class is as good at the same size.
    columns, target, labels : optional
        For files and tables: columns to use as features, the column to predict, a file of labels.
    kernel, loss, outer_loss, inner_reg, task, classes, smooth_labels, prior, intercept : optional
        The kernel model that rows are selected for, as in :class:`bicore.BilevelSelector`; the
        evaluation model has the same task.
    inner, linear, optimiser : optional
        Solvers of the kernel model, as in :class:`bicore.BilevelSelector`.
    weighting, rule, strategy, candidates, first, quotas : optional
        The search, as in :class:`bicore.BilevelSelector`.

    Returns
    -------
    Worth
        Its ``str`` is a sentence.

    Raises
    ------
    InputError
        If an argument is invalid.

    Examples
    --------
    >>> import bicore
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = x[:, 0] > 0
    >>> test = (x[150:], y[150:])
    >>> found = bicore.worth(x[:150], y[:150], range(10), test=test, judge="ridge", seeds=4)
    >>> found.verdict.value  # the first rows are as good as random ones
    'random is enough here'
    """
    return Appraisal(**given).worth()

"""Judging chosen rows beside random ones, on rows that nobody chose from.

With a test set the rows as they were chosen are judged. Without one they cannot be: every row was
seen when they were chosen. The selection is then repeated on cuts of the data, from the rows that a
cut does not test on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from numbers import Real
from typing import Any

import numpy as np
from torch import Tensor

from bicore.coreset import Coreset, Status
from bicore.data import Array, Dataset, Targets, read_targets
from bicore.errors import InputError, LargeDataWarning, as_option
from bicore.evaluate.answer import Price, Worth
from bicore.evaluate.equivalence import Equivalent, search
from bicore.evaluate.judges import Judge, Sample, as_judge, as_sample
from bicore.evaluate.judges.tuning import drawn
from bicore.evaluate.pools import TEST_SHARE, labels_of
from bicore.picking import as_size, as_start, whole_number
from bicore.runtime import Clock, Context, ProgressLine, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.baselines.pointwise import ClassBalanced, Uniform
from bicore.selectors.large import Large, decided, trivial
from bicore.selectors.registry import as_selector
from bicore.sources.base import scaling

#: Who judges where nobody says.
DEFAULT_JUDGE = "logistic"
#: Training steps of a judge that is a network.
STEPS = 1000
SEEDS = 10
#: No larger random sample is judged unless asked for: a kernel judge's matrix of it fits a small
#: machine.
MOST = 10_000
#: What the search usually judges for each rival, and the factor up to which sizes usually go: a
#: price is an estimate before the work, and these are what a few runs on digits took.
TYPICAL_SIZES, TYPICAL_FACTOR = 5, 4
#: What each seed draws has a generator of its own: (seed, purpose).
CUT, RESAMPLE, UNIFORM, BALANCED = range(4)


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of data, taken only when they are asked for: cuts of one data set share it."""

    data: Dataset
    places: Array
    #: Gives the map of the features: it looks at a whole pool, so it waits until it is needed.
    scale: Callable[[], Callable[[Array], Array]] | None = None

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, places: Any) -> Dataset:
        taken = self.data[self.places[places]]
        x = taken.x if self.scale is None else self.scale()(taken.x)
        return Dataset(x, taken.y, taken.weight)  # ids are places among these rows


@dataclass(frozen=True, eq=False)
class Cut:
    """One seed: rows to choose and draw from, and rows to test on."""

    seed: int
    pool: Rows
    test: Rows


class Appraisal:
    """One worth before, while and after it is found; see :func:`worth` for its parameters.

    Parameters
    ----------
    data : Dataset
        With labels or targets.
    chosen : Coreset, sequence of int, int or float
        The rows, or how many.
    test : Dataset, optional
        Rows that the choice did not see.
    judge : str or Judge, optional
        The model that is trained.
    seeds, seed : int
        How many repetitions, and the first one's number.
    most : int
        The largest random sample.
    task : str
        How labels are read.
    runtime : Runtime, optional
        Device and limits.
    standardise : bool
        Whether each cut scales features by the numbers of the rows it does not test on.
    keep : array of bool, optional
        Columns that scaling leaves alone.
    method : str or Selector
        What selects.
    large : "approximate" or "exact"
        As :func:`bicore.select` has it.
    **options
        Parameters of the method.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> appraisal = Appraisal(Dataset(x, x[:, 0] > 0), 10, judge="knn", seeds=3, kernel="rbf")
    >>> appraisal.price().selections
    3
    >>> appraisal.worth().size
    10
    """

    def __init__(
        self,
        data: Dataset,
        chosen: Any,
        *,
        test: Dataset | None = None,
        judge: str | Judge | None = None,
        seeds: int = SEEDS,
        seed: int = 0,
        most: int = MOST,
        task: str = "auto",
        runtime: Runtime | None = None,
        standardise: bool = False,
        keep: Array | None = None,
        method: str | Selector = "bilevel",
        large: str = "approximate",
        **options: Any,
    ) -> None:
        whole_number(seeds, 2, f"seeds={seeds!r} gives no interval; give a whole number >= 2.")
        whole_number(seed, 0, f"seed={seed!r} is not a whole number >= 0.")
        self.targets = _targets(data, task)
        self.data = data.with_columns(y=self.targets.values)
        self.test = None if test is None else _coded(test, data, self.targets)
        self.runtime = runtime or Runtime()
        self.judge = _judge(judge)
        self.judge.check(tuple(data.x.shape[1:]), self.targets.outputs)
        self.selector = as_selector(method, **options)
        self.large = as_option("large", large, Large)
        self.seeds = range(seed, seed + seeds)
        self.standardise, self.keep = standardise, keep
        self.coreset = _finished(chosen, data, self.test, self.selector)
        self.size = as_size(_wanted(chosen), len(data)) if self.coreset is None else len(chosen)
        self.cuts = [self._cut(one) for one in self.seeds]
        drawable = [int((cut.pool.data.weights[cut.pool.places] > 0).sum()) for cut in self.cuts]
        self.most = _largest(most, self.size, min(drawable), self.test is not None)
        self.rivals = _rivals(self.classification)
        self.selections: dict[int, Coreset] = {}
        self.orders: dict[tuple[str, int], Array] = {}
        self.known: dict[tuple[str, int, int], float] = {}
        self.line: ProgressLine | None = None

    @property
    def classification(self) -> bool:
        """Whether the labels are classes."""
        return self.targets.classes is not None

    def price(self) -> Price:
        """What it is expected to take; three fits are timed, and a first selection if need be.

        Returns
        -------
        Price
            All of the work; what was done to know it is not done again.
        """
        first, second = self.cuts[:2]
        self._random("uniform", self.size, first)  # what is only loaded once is not timed
        larger = min(TYPICAL_FACTOR * self.size, self.most)
        times = []
        for size in (self.size, larger):
            clock = Clock()
            self._random("uniform", size, second)
            times.append(clock.seconds)
        selections = len(self.cuts) if self.test is None else int(self.coreset is None)
        selecting = selections * self._selection_seconds() if selections else 0.0
        random = len(self.rivals) * TYPICAL_SIZES * len(self.cuts)
        seconds = selecting + len(self.cuts) * times[0] + random * sum(times) / 2
        return Price(len(self.cuts) + random, selections, seconds)

    def _selection_seconds(self) -> float:
        """Of one selection: as long as the one that is there took, or the first one."""
        if self.coreset is not None and self.coreset.provenance.seconds:
            return self.coreset.provenance.seconds
        clock = Clock()
        self._selected(self.cuts[0], self.runtime)
        return clock.seconds

    def worth(self) -> Worth:
        """Judge what is needed, and no more.

        Returns
        -------
        Worth
            The answer.
        """
        expected = len(self.cuts) * (1 + len(self.rivals) * TYPICAL_SIZES)
        with ProgressLine(self.runtime, Clock(), expected, "judging") as self.line:
            chosen = np.array([self._chosen(cut) for cut in self.cuts])
            rivals = tuple(self._equivalent(name, chosen) for name in self.rivals)
        return Worth(
            self.size,
            rivals,
            float(chosen.mean()),
            float(chosen.std(ddof=1)),
            "accuracy" if self.classification else "R²",
            self.judge.title(self.classification),
            len(self.cuts),
            self._tested(),
            len(self.known),
        )

    def _equivalent(self, name: str, chosen: Array) -> Equivalent:
        def random(size: int) -> Array:
            return np.array([self._random(name, size, cut) for cut in self.cuts])

        return search(self.size, self.most, chosen, random, rival=name, one=self.test is not None)

    def _tested(self) -> str:
        rows = len(self.cuts[0].test)
        if self.test is not None:
            return f"on the {rows} test rows, drawn anew with replacement {len(self.cuts)} times"
        return (
            f"on {len(self.cuts)} cuts, each with {rows} rows held out and the selection repeated "
            f"on the other {len(self.cuts[0].pool)}"
        )

    def _cut(self, seed: int) -> Cut:
        """Test rows of a test set are drawn with replacement, as other ones might have come."""
        every = np.arange(len(self.data))
        if self.test is not None:
            rng = np.random.default_rng((seed, RESAMPLE))
            drawn = rng.integers(len(self.test), size=len(self.test))
            return Cut(seed, Rows(self.data, every), Rows(self.test, drawn))
        order = np.random.default_rng((seed, CUT)).permutation(every)
        held_out = max(1, round(TEST_SHARE * len(order)))
        pool = order[held_out:]
        scale = cache(partial(_scaling, self.data, pool, self.keep)) if self.standardise else None
        return Cut(seed, Rows(self.data, pool, scale), Rows(self.data, order[:held_out], scale))

    def picked(self, cut: Cut) -> Coreset:
        """The chosen rows of a cut, selected when first asked for.

        Parameters
        ----------
        cut : Cut
            One of ``cuts``.

        Returns
        -------
        Coreset
            Of places in the cut's pool.
        """
        if self.test is not None and self.coreset is not None:
            return self.coreset
        return self._selected(cut, replace(self.runtime, progress=False))

    def _chosen(self, cut: Cut) -> float:
        picked = self.picked(cut).normalised()
        return self._score(("chosen", len(picked), cut.seed), cut, picked.indices, picked.weights)

    def _selected(self, cut: Cut, runtime: Runtime) -> Coreset:
        """Once a cut; with a test set all of them have the same rows to choose from."""
        seed = self.seeds[0] if self.test is not None else cut.seed
        if seed not in self.selections:
            pool = cut.pool[:]
            context = Context(runtime=runtime)
            if not self.selections:
                self._decide(pool, context)
            found = self.selector.select(pool, self.size, rng=seed, context=context)
            if found.status is Status.INTERRUPTED:
                raise KeyboardInterrupt  # a part of a selection is not what was to be judged
            self.selections[seed] = found
        return self.selections[seed]

    def _decide(self, pool: Dataset, context: Context) -> None:
        """Before the first selection: what stands in for too much work does so in every cut."""
        if trivial(pool, None, context.runtime):
            return
        decision = decided(self.selector, pool, self.size, None, context, self.large)
        self.selector = decision.selector
        for note in decision.notes:
            warnings.warn(note, LargeDataWarning, stacklevel=2)

    def random(self, name: str, size: int, cut: Cut) -> Array:
        """The first rows in one random order a seed: a larger sample holds the smaller ones.

        Parameters
        ----------
        name : str
            How they are drawn: one of ``rivals``.
        size : int
            How many, at most ``most``.
        cut : Cut
            One of ``cuts``.

        Returns
        -------
        array of int
            Places in the cut's pool.
        """
        if (name, cut.seed) not in self.orders:
            purpose, selector = self.rivals[name]
            rows = Dataset(
                np.zeros((len(cut.pool), 1)),
                self.data[cut.pool.places].y,
                self.data.weights[cut.pool.places],
            )
            rng = np.random.default_rng((cut.seed, purpose))
            self.orders[name, cut.seed] = selector.select(rows, self.most, rng=rng).indices
        return self.orders[name, cut.seed][:size]

    def _random(self, name: str, size: int, cut: Cut) -> float:
        return self._score((name, size, cut.seed), cut, self.random(name, size, cut), np.ones(size))

    def predicted(self, cut: Cut, places: Array, weights: Array) -> tuple[Tensor, Sample]:
        """What the judge says of the rows that a cut tests on, trained on some of its pool.

        Parameters
        ----------
        cut : Cut
            One of ``cuts``.
        places : array of int
            The rows of its pool.
        weights : array of float
            Their weights.

        Returns
        -------
        said : Tensor (n, outputs)
            A number a class, of which the largest counts, or targets.
        test : Sample
            The rows tested on.
        """
        judge, points, test = self._stage(cut, places, weights)
        return judge.predictions([points], test, self.targets.outputs, cut.seed)[0], test

    def score(self, cut: Cut, places: Array, weights: Array) -> float:
        """The judge's score on a cut, trained on some rows of its pool.

        Parameters
        ----------
        cut : Cut
            One of ``cuts``.
        places : array of int
            The rows of its pool.
        weights : array of float
            Their weights.

        Returns
        -------
        float
            Accuracy, or R².
        """
        judge, points, test = self._stage(cut, places, weights)
        return judge.scores([points], test, self.targets.outputs, cut.seed)[0]

    def _stage(self, cut: Cut, places: Array, weights: Array) -> tuple[Judge, Sample, Sample]:
        """The judge, what it is trained on, and what it is tested on."""
        points = self._sample(cut.pool[places].with_columns(weight=weights))
        return self.judge.tuned_by(self._rows(cut)), points, self._sample(cut.test[:])

    def _score(self, key: tuple[str, int, int], cut: Cut, places: Array, weights: Array) -> float:
        if key not in self.known:
            self.known[key] = self.score(cut, places, weights)
            if self.line is not None:
                self.line.total = max(self.line.total, len(self.known))
                self.line.update(len(self.known), objective=float("nan"))
        return self.known[key]

    def _rows(self, cut: Cut) -> Sample:
        """Rows of the pool that the judge is tuned by."""
        return self._sample(cut.pool[drawn(len(cut.pool), cut.seed)])

    def _sample(self, data: Dataset) -> Sample:
        labels = labels_of(data, self.classification)
        device = self.runtime.torch_device
        return as_sample(data.x, labels, data.weights, device, self.classification)


def _scaling(data: Dataset, pool: Array, keep: Array | None) -> Callable[[Array], Array]:
    return scaling(data.x[pool], keep)


def _targets(data: Dataset, task: str) -> Targets:
    if data.y is None:
        raise InputError("y is missing; a judge trains and tests on labels or targets.")
    targets = read_targets(data.y, task)
    if targets.classes is not None and len(targets.classes) < 2:
        raise InputError(
            f"y holds a single class, {targets.classes[0]!r}; a judge needs at least two."
        )
    return targets


def _coded(test: Dataset, data: Dataset, targets: Targets) -> Dataset:
    """The test set with labels read as those of the data."""
    if test.y is None:
        raise InputError("test holds no labels; give a tuple (x, y), or a Dataset with both.")
    if test.x.shape[1:] != data.x.shape[1:]:
        raise InputError(
            f"test has rows of shape {test.x.shape[1:]} and x has {data.x.shape[1:]}; give the "
            "same features."
        )
    values = read_targets(test.y, targets.task, targets.classes).values
    if values.shape[1:] != targets.values.shape[1:]:
        raise InputError(
            f"test has targets of shape {values.shape[1:]} a row and y has "
            f"{targets.values.shape[1:]}; give the same targets."
        )
    return test.with_columns(y=values)


def _judge(judge: str | Judge | None) -> Judge:
    return judge if isinstance(judge, Judge) else as_judge(judge or DEFAULT_JUDGE, STEPS)


def _wanted(chosen: Any) -> Any:
    if chosen is None:
        raise InputError("chosen is missing; give the chosen rows, or how many to select.")
    if chosen == "auto":
        raise InputError(
            "chosen='auto' leaves the size open; select with size='auto' first, and give the "
            "coreset."
        )
    return chosen


def _finished(
    chosen: Any, data: Dataset, test: Dataset | None, selector: Selector
) -> Coreset | None:
    """The chosen rows where they are given; None for a size."""
    if chosen is None or isinstance(chosen, (Real, str)):
        return None
    start = as_start(chosen, data, len(data), "chosen", continues=False)
    if not start.points:
        raise InputError("chosen holds no rows; give at least one.")
    if test is not None:
        return start.coreset or Coreset(np.array(start.points))
    if start.coreset is None:
        raise InputError(
            "chosen holds row numbers, and without a test set the selection must be repeated on "
            "other rows; give test=(x, y), or a size and the options of select."
        )
    if start.coreset.provenance.method not in ("", selector.name):
        raise InputError(
            f"chosen was selected by {start.coreset.provenance.method!r}, and without a test set "
            f"it would be repeated by {selector.name!r}; give the same method and options, or "
            "test=(x, y)."
        )
    return start.coreset


def _largest(most: int, size: int, drawable: int, tested: bool) -> int:
    """The largest random sample, once it is known that there is room for one."""
    whole_number(most, 1, f"most={most!r} is not a whole number >= 1.")
    if size > drawable:
        mend = "choose fewer rows" if tested else "choose fewer rows, or give test=(x, y)"
        raise InputError(
            f"{size} rows are chosen, and {drawable} can be drawn from beside those tested on; "
            f"{mend}."
        )
    if most < size:
        raise InputError(f"most={most} is below the {size} rows chosen; give at least {size}.")
    return min(most, drawable)


def _rivals(classification: bool) -> dict[str, tuple[int, Selector]]:
    """Ways to draw at random: the purpose of their generator, and the selector."""
    ways: dict[str, tuple[int, Selector]] = {"uniform": (UNIFORM, Uniform())}
    if classification:
        ways["class-balanced"] = (BALANCED, ClassBalanced())
    return ways

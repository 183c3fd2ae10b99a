"""The worth of chosen rows: how many random rows give the same test score.

With a test set the chosen rows themselves are evaluated. Without one they cannot be, because every
row was seen during the selection. The selection is then repeated on splits of the data, each time
without the rows that are tested on.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from bicore.api import refuse_unread
from bicore.coreset import Coreset, Status
from bicore.data import Array, Dataset
from bicore.errors import InputError, LargeDataWarning, as_option
from bicore.evaluate.equivalence import Equivalent, Worth, search
from bicore.evaluate.model import Judge
from bicore.evaluate.models import as_judge
from bicore.evaluate.pools import TEST_SHARE, Pools, Split, check_shapes, code_labels, read_labels
from bicore.evaluate.samples import draw_tuning_rows
from bicore.picking import as_size, as_start, whole_number
from bicore.runtime import Clock, Context, ProgressLine, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.baselines.pointwise import ClassBalanced, Uniform
from bicore.selectors.large import Large, decided, human_seconds
from bicore.selectors.registry import as_selector
from bicore.sources.base import Source

DEFAULT_JUDGE = "logistic"
#: Training steps of an evaluation model that is a network.
STEPS = 1000
SEEDS = 10
#: The default limit of random samples: the kernel matrix of such a sample fits a small machine.
MOST = 10_000
#: Random samples that a search usually evaluates per baseline, and the usual ratio of the largest
#: one to the size; measured on digits, for estimates of the cost.
TYPICAL_SIZES, TYPICAL_FACTOR = 5, 4
#: The random baselines, and the stream of each one's generator; pools use 0 and 1.
BASELINES: dict[str, tuple[int, Selector]] = {
    "uniform": (2, Uniform()),
    "class-balanced": (3, ClassBalanced()),
}


@dataclass(frozen=True)
class Cost:
    """The expected cost of finding a worth.

    Parameters
    ----------
    fits, selections : int
        The numbers of trainings of the evaluation model, and of selections.
    seconds : float
        Time of all of them.

    Examples
    --------
    >>> print(Cost(fits=150, selections=10, seconds=12.3))
    about 150 fits and 10 selections, some 12 s
    """

    fits: int
    selections: int
    seconds: float

    def __str__(self) -> str:
        plural = "" if self.selections == 1 else "s"
        more = f" and {self.selections} selection{plural}" if self.selections else ""
        return f"about {self.fits} fits{more}, some {human_seconds(self.seconds)}"


class Appraisal:
    """The search for a worth, with its cost beforehand; :func:`worth` is the short form.

    Parameters
    ----------
    data : Dataset
        With labels or targets.
    chosen : Coreset, sequence of int, int or float
        The rows, or how many.
    test : Dataset, optional
        Rows that the selection did not see.
    judge : str or Judge, optional
        The evaluation model.
    seeds, seed : int
        The number of repetitions, and the seed of the first.
    most : int
        The largest random sample.
    task : str
        How labels are read.
    runtime : Runtime, optional
        Device and limits.
    standardise : bool
        Whether each split scales features by the mean and variance of its pool.
    keep : array of bool, optional
        Columns that scaling leaves alone.
    method : str or Selector
        The selection method.
    large : "approximate" or "exact"
        See :func:`bicore.select`.
    **options
        Parameters of the method.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> appraisal = Appraisal(Dataset(x, x[:, 0] > 0), 10, judge="knn", seeds=3, kernel="rbf")
    >>> appraisal.cost().selections
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
        whole_number(seeds, 2, f"seeds must be a whole number of at least 2; got {seeds!r}.")
        whole_number(seed, 0, f"seed must be a whole number of at least 0; got {seed!r}.")
        whole_number(most, 1, f"most must be a whole number of at least 1; got {most!r}.")
        self.pools = _make_pools(data, test, task, standardise, keep)
        self.has_test = test is not None
        self.runtime = runtime or Runtime()
        self.judge = judge if isinstance(judge, Judge) else as_judge(judge or DEFAULT_JUDGE, STEPS)
        self.judge.check(tuple(data.x.shape[1:]), self.pools.outputs)
        self.selector = as_selector(method, **options)
        self.large = as_option("large", large, Large)
        self.coreset = _given_coreset(chosen, data, self.has_test, self.selector)
        self.size = _size_of(chosen, len(data)) if self.coreset is None else len(chosen)
        numbers = range(seed, seed + seeds)
        self.splits = [self.pools.split(one, self.has_test, self.has_test) for one in numbers]
        self.most = self._largest(most)
        self.baselines = list(BASELINES)[: 2 if self.classification else 1]
        self.selections: dict[int, Coreset] = {}
        self.orders: dict[tuple[str, int], Array] = {}
        self.known: dict[tuple[str, int, int], float] = {}
        self.line: ProgressLine | None = None

    @property
    def classification(self) -> bool:
        """Whether the labels are classes."""
        return self.pools.classification

    def _largest(self, most: int) -> int:
        """The size of the largest random sample; rows of weight 0 are not drawn."""
        pools = [split.pool for split in self.splits]
        drawable = min(int((one.data.weights[one.places] > 0).sum()) for one in pools)
        if self.size > drawable:
            fix = "choose fewer rows" + ("" if self.has_test else ", or give test=(x, y)")
            raise InputError(
                f"{self.size} rows are chosen, but only {drawable} can be drawn without the test "
                f"rows; {fix}."
            )
        if most < self.size:
            raise InputError(f"most={most} must be at least {self.size}, the rows chosen.")
        return min(most, drawable)

    def cost(self) -> Cost:
        """Estimate the cost from three timed fits, and a first selection if necessary.

        Returns
        -------
        Cost
            The cost of all the work; :meth:`worth` does not repeat what was done here.
        """
        first, second = self.splits[:2]
        self._random_score("uniform", self.size, first)  # loads what is loaded once
        times = []
        for size in (self.size, min(TYPICAL_FACTOR * self.size, self.most)):
            clock = Clock()
            self._random_score("uniform", size, second)
            times.append(clock.seconds)
        selections = int(self.coreset is None) if self.has_test else len(self.splits)
        selecting = selections * self._selection_seconds() if selections else 0.0
        random = len(self.baselines) * TYPICAL_SIZES * len(self.splits)
        seconds = selecting + len(self.splits) * times[0] + random * sum(times) / 2
        return Cost(len(self.splits) + random, selections, seconds)

    def _selection_seconds(self) -> float:
        """Time of the given selection, or else of the first one."""
        if self.coreset is not None and self.coreset.provenance.seconds:
            return self.coreset.provenance.seconds
        clock = Clock()
        self._select(self.splits[0], self.runtime)
        return clock.seconds

    def worth(self) -> Worth:
        """Find the worth with as few fits as possible.

        Returns
        -------
        Worth
            The answer.
        """
        expected = len(self.splits) * (1 + len(self.baselines) * TYPICAL_SIZES)
        with ProgressLine(self.runtime, Clock(), expected, "judging") as self.line:
            chosen = np.array([self._chosen_score(split) for split in self.splits])
            baselines = tuple(self._equivalent(name, chosen) for name in self.baselines)
        return Worth(
            self.size,
            baselines,
            float(chosen.mean()),
            float(chosen.std(ddof=1)),
            "accuracy" if self.classification else "R²",
            self.judge.title(self.classification),
            len(self.splits),
            self._tested(),
            len(self.known),
        )

    def _equivalent(self, name: str, chosen: Array) -> Equivalent:
        def random(size: int) -> Array:
            return np.array([self._random_score(name, size, split) for split in self.splits])

        return search(self.size, self.most, chosen, random, baseline=name, one=self.has_test)

    def _tested(self) -> str:
        count, split = len(self.splits), self.splits[0]
        if self.has_test:
            return f"on the {len(split.test)} test rows, drawn with replacement {count} times"
        return (
            f"on {count} splits, each with {len(split.test)} rows held out and the selection "
            f"repeated on the other {len(split.pool)}"
        )

    def picked(self, split: Split) -> Coreset:
        """The chosen rows of a split, selected at the first call.

        Parameters
        ----------
        split : Split
            One of ``splits``.

        Returns
        -------
        Coreset
            Of places in the split's pool.
        """
        if self.has_test and self.coreset is not None:
            return self.coreset
        return self._select(split, replace(self.runtime, progress=False))

    def _select(self, split: Split, runtime: Runtime) -> Coreset:
        """Select once per split; with a test set all splits have the same pool."""
        seed = self.splits[0].seed if self.has_test else split.seed
        if seed not in self.selections:
            pool, context = split.pool[:], Context(runtime=runtime)
            if not self.selections:
                self._choose_approximation(pool, context)
            found = self.selector.select(pool, self.size, rng=seed, context=context)
            if found.status is Status.INTERRUPTED:
                raise KeyboardInterrupt  # a partial selection is not evaluated
            self.selections[seed] = found
        return self.selections[seed]

    def _choose_approximation(self, pool: Dataset, context: Context) -> None:
        """Before the first selection: an approximation for large data is used in every split."""
        decision = decided(self.selector, pool, self.large)
        self.selector = decision.selector
        for note in decision.notes:
            warnings.warn(note, LargeDataWarning, stacklevel=2)

    def random(self, name: str, size: int, split: Split) -> Array:
        """Random rows; a larger sample of a split contains the smaller ones.

        Parameters
        ----------
        name : str
            One of ``baselines``.
        size : int
            The number of rows, at most ``most``.
        split : Split
            One of ``splits``.

        Returns
        -------
        array of int
            Places in the split's pool.
        """
        key = name, split.seed
        if key not in self.orders:
            stream, selector = BASELINES[name]
            data, places = split.pool.data, split.pool.places
            assert data.y is not None
            rows = Dataset(np.zeros((len(places), 1)), data.y[places], data.weights[places])
            rng = np.random.default_rng((split.seed, stream))
            self.orders[key] = selector.select(rows, self.most, rng=rng).indices
        return self.orders[key][:size]

    def _chosen_score(self, split: Split) -> float:
        picked = self.picked(split).normalised()
        return self._cached_score("chosen", split, picked.indices, picked.weights)

    def _random_score(self, name: str, size: int, split: Split) -> float:
        return self._cached_score(name, split, self.random(name, size, split), np.ones(size))

    def _cached_score(self, name: str, split: Split, places: Array, weights: Array) -> float:
        key = name, len(places), split.seed
        if key not in self.known:
            self.known[key] = self.score(split, places, weights)
            if self.line is not None:
                self.line.total = max(self.line.total, len(self.known))
                self.line.update(len(self.known), objective=float("nan"))
        return self.known[key]

    def score(self, split: Split, places: Array, weights: Array) -> float:
        """The score of the evaluation model, trained on some rows of a pool.

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
        """The recall of each class by the evaluation model, trained on some rows of a pool.

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
            Not a number for a class without test rows.
        """
        judge, arguments = self._prepare(split, places, weights)
        return np.array(judge.measures(*arguments)[0].by_class, dtype=np.float64)

    def _prepare(self, split: Split, places: Array, weights: Array) -> tuple[Judge, Any]:
        """The tuned model, and the arguments of its scores and metrics."""
        chosen = split.pool[places].with_columns(weight=weights)
        some = split.pool[draw_tuning_rows(len(split.pool), split.seed)]
        points, test, tuning = (
            self.pools.sample(rows, self.runtime.torch_device)
            for rows in (chosen, split.test[:], some)
        )
        return self.judge.tuned_by(tuning), ([points], test, self.pools.outputs, split.seed)


def _make_pools(
    data: Dataset, test: Dataset | None, task: str, standardise: bool, keep: Array | None
) -> Pools:
    """All rows and a test set, or splits that hold out a quarter."""
    source = Source("data", data, keep=keep)
    targets = read_labels(source, task)
    if test is not None:
        check_shapes("features", test.x, data.x)
        test = code_labels(test, targets)
        return Pools(source, len(data), test, len(test), False, targets)
    held_out = max(1, round(TEST_SHARE * len(data)))
    return Pools(source, len(data) - held_out, None, held_out, standardise, targets)


def _size_of(chosen: Any, rows: int) -> int:
    if chosen is None:
        raise InputError("chosen is missing; give the chosen rows, or how many to select.")
    if chosen == "auto":
        raise InputError(
            "chosen='auto' sets no size; select with size='auto' first, and give the coreset."
        )
    return as_size(chosen, rows)


def _given_coreset(
    chosen: Any, data: Dataset, has_test: bool, selector: Selector
) -> Coreset | None:
    """The chosen rows; None if a size was given."""
    if chosen is None or isinstance(chosen, (Real, str)):
        return None
    start = as_start(chosen, data, len(data), "chosen", continues=False)
    if not start.points:
        raise InputError("chosen has no rows; give at least one.")
    if has_test:
        return start.coreset or Coreset(np.array(start.points))
    if start.coreset is None:
        raise InputError(
            "chosen has row numbers, and without a test set the selection must be repeated on "
            "other rows; give test=(x, y), or a size and the options of select."
        )
    method = start.coreset.provenance.method
    if method not in ("", selector.name):
        raise InputError(
            f"chosen was selected by {method!r}, and without a test set the selection would be "
            f"repeated by {selector.name!r}; give the same method and options, or test=(x, y)."
        )
    return start.coreset


def worth(
    x: Any,
    y: Any = None,
    chosen: Coreset | Sequence[int] | int | float | None = None,
    *,
    test: tuple[Any, Any] | Dataset | None = None,
    judge: str | Judge | None = None,
    seeds: int = SEEDS,
    seed: int = 0,
    most: int = MOST,
    weight: Any = None,
    task: str = "auto",
    runtime: Runtime | None = None,
    method: str | Selector = "bilevel",
    large: str = "approximate",
    **options: Any,
) -> Worth:
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
        Features and labels (or targets), row by row; or a :class:`Dataset` as x.
    chosen : Coreset, sequence of int, int or float
        The chosen rows; or how many to select, a count or a fraction.
    test : tuple or Dataset, optional
        Rows (x, y) that the selection did not see. Required for plain row numbers, because a
        selection by an unknown method cannot be repeated.
    judge : str or Judge, optional
        The evaluation model: a name of ``bicore.evaluate.JUDGES``, or an object; by default
        logistic regression, ridge regression for targets.
    seeds, seed : int
        The number of repetitions, and the seed of the first.
    most : int
        The largest random sample.
    weight : array, optional
        Weights of the rows in the selection; random draws skip rows of weight 0.
    task : "auto", "classification" or "regression"
        How labels are read.
    runtime : Runtime, optional
        Device, progress, and the limits of each selection.
    method : str or Selector
        The selection method, as in :func:`bicore.select`; one that needs no model.
    large : "approximate" or "exact"
        See :func:`bicore.select`.
    **options
        Parameters of the method: kernel, loss and so on.

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
    refuse_unread(x)
    if not isinstance(x, Dataset):
        x = Dataset(x, y, weight)
    elif chosen is None:
        chosen = y  # worth(data, 50)
    elif y is not None or weight is not None:
        raise InputError("x is a Dataset with its own labels and weights; omit y and weight.")
    return Appraisal(
        x,
        chosen,
        test=Dataset(*test) if isinstance(test, (tuple, list)) else test,
        judge=judge,
        seeds=seeds,
        seed=seed,
        most=most,
        task=task,
        runtime=runtime,
        method=method,
        large=large,
        **options,
    ).worth()

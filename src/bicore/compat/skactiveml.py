"""A query strategy as scikit-activeml has them: which points of a pool to label next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bicore import active
from bicore.data import Array, Dataset, Task, joined
from bicore.errors import InputError
from bicore.runtime import Context, Runtime
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.reconstruction import Reconstruction

try:
    from skactiveml.base import SingleAnnotatorPoolQueryStrategy
    from skactiveml.utils import MISSING_LABEL, is_labeled
except ImportError:
    MISSING_LABEL = np.nan

    class SingleAnnotatorPoolQueryStrategy:  # type: ignore[no-redef]
        """Stands where scikit-activeml is not installed, so that the module can be read."""

        def __init__(self, **_: Any) -> None:
            raise InputError(
                "CoresetQuery needs scikit-activeml: pip install 'bicore[skactiveml]' (or take "
                "bicore.active.query)."
            )


__all__ = ["CoresetQuery"]

#: Labels of fewer classes leave nothing to guess from.
CLASSES = 2


class CoresetQuery(SingleAnnotatorPoolQueryStrategy):  # type: ignore[misc]
    """Ask for the points that, fitted with the labelled ones, predict the whole pool best.

    :func:`bicore.active.query` in scikit-activeml's words. While labels show fewer than two classes
    there is nothing to guess from, and the points are chosen from which the others are best
    reconstructed.

    Parameters
    ----------
    selector : BilevelSelector, optional
        Kernel, loss and regulariser; with ``task="regression"`` labels are targets.
    missing_label : scalar or str
        What stands for a missing label.
    random_state : int or RandomState, optional
        Of whatever is drawn.
    runtime : Runtime, optional
        Device and limits.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> strategy = CoresetQuery(BilevelSelector("rbf", inner_reg=0.1))  # doctest: +SKIP
    >>> rows = strategy.query(X, y, batch_size=10)  # doctest: +SKIP
    """

    def __init__(
        self,
        selector: BilevelSelector | None = None,
        missing_label: Any = MISSING_LABEL,
        random_state: Any = None,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(missing_label=missing_label, random_state=random_state)
        self.selector = selector
        self.runtime = runtime

    def query(
        self,
        X: Any,
        y: Any,
        candidates: Any = None,
        batch_size: int = 1,
        return_utilities: bool = False,
    ) -> Any:
        """Choose the points to label next.

        Parameters
        ----------
        X : array (n, …)
            All points, with and without labels.
        y : array (n,)
            Labels; ``missing_label`` where there is none.
        candidates : array, optional
            Rows of X, or points, that may be asked for; default: all without a label.
        batch_size : int
            How many.
        return_utilities : bool
            Whether what each candidate was worth before every choice is returned too.

        Returns
        -------
        query_indices : array of int (batch_size,)
            Rows of X, or of ``candidates`` where those are points.
        utilities : array (batch_size, n)
            With ``return_utilities``: how much a little weight on each candidate would have lowered
            the objective; NaN for what could not be asked for. The largest is the one that a
            selector with the gradient rule takes.
        """
        X, y, candidates, batch_size, return_utilities = self._validate_data(
            X, y, candidates, batch_size, return_utilities, reset=True
        )
        pool, mapping = self._transform_candidates(candidates, X, y)
        known = is_labeled(y, missing_label=self.missing_label_)
        chooser = self.selector or BilevelSelector()
        asked = _Asked(
            X[known],
            _labels(y[known], chooser.task),
            pool,
            chooser,
            int(self.random_state_.randint(2**31 - 1)),
            Context(runtime=self.runtime or Runtime()),
        )
        places = asked.places(int(batch_size))
        rows = places if mapping is None else mapping[places]
        if not return_utilities:
            return rows
        worth = np.full((len(rows), len(pool) if mapping is None else len(X)), np.nan)
        worth[:, slice(None) if mapping is None else mapping] = asked.utilities(places)
        return rows, worth


def _labels(y: Array, task: Task) -> Array:
    """Targets as they are, classes as codes: missing labels make floats of whole numbers."""
    if task is Task.REGRESSION:
        return np.asarray(y, dtype=np.float64)
    codes: Array = np.unique(y, return_inverse=True)[1]
    return codes


@dataclass(frozen=True, eq=False)
class _Asked:
    """One query: what is labelled, the pool, and who chooses."""

    x: Array
    y: Array
    pool: Array
    selector: BilevelSelector
    seed: int
    context: Context

    @cached_property
    def guessed(self) -> bool:
        """Whether the labels are enough to guess those of the pool."""
        regression = self.selector.task is Task.REGRESSION
        return len(np.unique(self.y)) >= (1 if regression else CLASSES)

    @cached_property
    def both(self) -> Dataset:
        """The labelled points, then the pool with the labels that are guessed for it; without
        labels where there are none to guess from."""
        numbers = np.arange(len(self.x), len(self.x) + len(self.pool))
        labels = guesses = None
        if self.guessed:
            labels = self.y
            guesses = self.selector.predict(
                Dataset(self.x, labels), self.pool, seed=self.seed, context=self.context
            )
        pool = Dataset(self.pool, guesses, ids=numbers)
        return joined(Dataset(self.x, labels), pool) if len(self.x) else pool

    def places(self, batch: int) -> Array:
        """Of the pool, in the order of selection."""
        labelled = len(self.x)
        if self.guessed:
            return active.query(
                self.x,
                self.y,
                self.pool,
                batch,
                pseudo_labels=np.asarray(self.both.y)[labelled:],
                selector=self.selector,
                seed=self.seed,
                runtime=self.context.runtime,
            ).indices
        first = list(range(labelled))
        found = self._without_labels.select(
            self.both, labelled + batch, initial=first, rng=self.seed, context=self.context
        )
        return found.indices[labelled:] - labelled

    @property
    def _without_labels(self) -> Reconstruction:
        return Reconstruction(kernel=self.selector.kernel, inner_reg=self.selector.inner_reg)

    def utilities(self, places: Array) -> Array:
        """What every point of the pool was worth before each choice; NaN once it is chosen."""
        labelled = len(self.x)
        chooser, data = self.selector, self.both
        if not self.guessed:
            chooser, data, _ = self._without_labels.judged_by(self.both)
        worth = np.empty((len(places), len(self.pool)))
        for step in range(len(places)):
            chosen = [*range(labelled), *(labelled + places[:step])]
            found = chooser.influence(data, chosen, seed=self.seed, context=self.context)
            worth[step] = found[labelled:]
            worth[step, places[:step]] = np.nan
        return worth

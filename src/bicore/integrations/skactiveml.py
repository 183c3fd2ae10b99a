"""scikit-activeml: a query strategy that selects by bilevel optimisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from bicore._deprecated import renamed_keywords
from bicore.active import join_pool, query_by_variance, select_new
from bicore.data import Array, Dataset, Task
from bicore.errors import InputError
from bicore.integrations import missing_base
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.registry import as_selector
from bicore.methods.variants import Reconstruction
from bicore.runtime.context import Runtime
from bicore.types import Label, Matrix, Numbers, RandomState

try:
    from skactiveml.base import SingleAnnotatorPoolQueryStrategy
    from skactiveml.utils import MISSING_LABEL, is_labeled
except ImportError:
    MISSING_LABEL = np.nan
    SingleAnnotatorPoolQueryStrategy = missing_base(
        "CoresetQuery needs scikit-activeml: pip install 'bicore[skactiveml]' (or use "
        "bicore.active.query)."
    )

__all__ = ["CoresetQuery", "VarianceQuery"]


class CoresetQuery(SingleAnnotatorPoolQueryStrategy):  # type: ignore[misc]
    """Query the rows that, fitted with the labelled ones, predict the whole pool best.

    It is :func:`bicore.active.query` as a strategy of scikit-activeml. With labels of fewer than
    two classes, it selects the rows from which the others are best reconstructed.

    Parameters
    ----------
    selector : BilevelSelector, optional
        Kernel, loss and regularisation; with ``task="regression"`` labels are targets.
    missing_label : scalar or str
        The value of a missing label.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.
    runtime : Runtime, optional
        Device and limits.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> strategy = CoresetQuery(BilevelSelector("rbf", inner_reg=0.1))  # doctest: +SKIP
    >>> rows = strategy.query(X, y, batch_size=10)  # doctest: +SKIP
    """

    @renamed_keywords()
    def __init__(
        self,
        selector: BilevelSelector | None = None,
        missing_label: Label | None = MISSING_LABEL,
        random_state: RandomState = None,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(missing_label=missing_label, random_state=random_state)
        self.selector = selector
        self.runtime = runtime

    def query(
        self,
        X: Matrix,
        y: Numbers,
        candidates: Numbers | None = None,
        batch_size: int = 1,
        return_utilities: bool = False,
    ) -> Any:
        """Select the rows to label next.

        Parameters
        ----------
        X : array (n, …)
            All rows, with and without labels.
        y : array (n,)
            Labels; ``missing_label`` for rows without one.
        candidates : array, optional
            Row numbers of X, or an array of rows, to select from; default: all without a label.
        batch_size : int
            Number of rows.
        return_utilities : bool
            Whether to return the utility of each candidate before every choice as well.

        Returns
        -------
        query_indices : array of int (batch_size,)
            Row numbers of X, or of ``candidates`` if these are an array of rows.
        utilities : array (batch_size, n)
            With ``return_utilities``: the decrease of the objective for a little weight on each
            candidate; NaN for other rows. A selector with the gradient rule takes the largest.
        """
        x, labels, candidates, batch_size, return_utilities = self._validate_data(
            X, y, candidates, batch_size, return_utilities, reset=True
        )
        pool, mapping = self._transform_candidates(candidates, x, labels)
        if not len(pool):
            fix = f"by missing_label={self.missing_label!r}, or give candidates="
            wrong = f"all {len(labels)} rows have a label already"
            raise InputError(f"{wrong}. Mark rows without a label {fix}.")
        known = is_labeled(labels, missing_label=self.missing_label_)
        places, utilities = self._select(x[known], labels[known], pool, int(batch_size))
        rows = places if mapping is None else mapping[places]
        if not return_utilities:
            return rows
        found = np.full((len(rows), len(pool) if mapping is None else len(x)), np.nan)
        found[:, slice(None) if mapping is None else mapping] = utilities()
        return rows, found

    def _select(self, x: Array, y: Array, pool: Array, count: int) -> tuple[Array, Any]:
        """Return places in the pool, and a function for the utilities of the pool."""
        selector = self.selector or BilevelSelector("ntk", intercept=0.0, exact=True)
        selector = selector.fill_as_paper()
        more = self._draw_options()
        regression = selector.task is Task.REGRESSION
        # missing labels turn integers into floats, so classes are codes
        labels = y.astype(np.float64) if regression else np.unique(y, return_inverse=True)[1]
        if len(np.unique(labels)) >= (1 if regression else 2):
            guesses = selector.predict(Dataset(x, labels), pool, **more)
            data = join_pool(x, labels, pool, guesses)
            places = select_new(selector, data, len(x), count, **more).indices
        else:
            reconstruction = Reconstruction(kernel=selector.kernel, inner_reg=selector.inner_reg)
            data = join_pool(x, None, pool, None)
            places = select_new(reconstruction, data, len(x), count, **more).indices
            selector, data, _ = reconstruction.as_bilevel(data)

        def utilities() -> Array:
            values = np.empty((count, len(pool)))
            for step in range(count):
                chosen = [*range(len(x)), *(len(x) + places[:step])]
                values[step] = selector.influence(data, chosen, **more)[len(x) :]
                values[step, places[:step]] = np.nan
            return values

        return places, utilities

    def _draw_options(self) -> dict[str, Any]:
        """Draw the seed of a selection; return it with the runtime, as keywords."""
        seed = int(self.random_state_.randint(2**31 - 1))
        return {"random_state": seed, "runtime": self.runtime}


class VarianceQuery(CoresetQuery):
    """Query the rows that most lower the variance of predictions where a head is unsure.

    It is :func:`bicore.active.query_by_variance` as a strategy of scikit-activeml. With labels of
    fewer than two classes, the method "k-medoids" selects the rows.

    Parameters
    ----------
    missing_label : scalar or str
        The value of a missing label.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.
    runtime : Runtime, optional
        Device and limits.

    Examples
    --------
    >>> strategy = VarianceQuery(missing_label="")  # doctest: +SKIP
    >>> rows = strategy.query(X, y, batch_size=10)  # doctest: +SKIP
    """

    @renamed_keywords()
    def __init__(
        self,
        missing_label: Label | None = MISSING_LABEL,
        random_state: RandomState = None,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(None, missing_label, random_state, runtime)

    def _select(self, x: Array, y: Array, pool: Array, count: int) -> tuple[Array, Any]:
        more = self._draw_options()
        labels = np.unique(y, return_inverse=True)[1]
        if len(np.unique(labels)) < 2:
            data, selector = join_pool(x, None, pool, None), as_selector("k-medoids")
            places = select_new(selector, data, len(x), count, **more).indices
        else:
            places = query_by_variance(x, labels, pool, count, **more).indices
        return places, _no_utilities


def _no_utilities() -> Array:
    raise InputError("return_utilities=True is not supported by VarianceQuery; leave it out.")

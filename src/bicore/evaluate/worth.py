"""What chosen rows are worth, in one call: how many random ones score the same on other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bicore.api import refuse_unread
from bicore.coreset import Coreset
from bicore.data import Dataset
from bicore.errors import InputError
from bicore.evaluate.answer import Worth
from bicore.evaluate.appraisal import MOST, SEEDS, Appraisal
from bicore.evaluate.judges import Judge
from bicore.runtime import Runtime
from bicore.selectors.base import Selector


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
    """How many random rows give the same test score as the chosen ones, with an interval.

    With ``test`` the rows that were chosen are judged beside random ones, once a seed, on test rows
    drawn anew with replacement: the interval holds the sizes at which one random sample may score
    the same. Without it each seed holds out a quarter of the rows, selects again from the others
    with the same options and judges on what was held out: the interval is that of the mean over
    such cuts, and the price that of a selection a seed. Random samples are prefixes of one random
    order a seed; only sizes near the crossing are judged.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets), row by row; or a :class:`Dataset` as x.
    chosen : Coreset, sequence of int, int or float
        The chosen rows; or how many to select, a count or a fraction.
    test : tuple or Dataset, optional
        Rows (x, y) that the selection did not see. Row numbers alone need it: how they were chosen
        is not known, and cannot be repeated.
    judge : str or Judge, optional
        The model trained on the rows: a name of ``bicore.evaluate.JUDGES``, or a judge; by
        default logistic regression, ridge regression for targets.
    seeds, seed : int
        How many repetitions, and the number of the first.
    most : int
        The largest random sample that is judged.
    weight : array, optional
        How much each row counts in the selection; random draws pass over rows of weight 0.
    task : "auto", "classification" or "regression"
        How labels are read.
    runtime : Runtime, optional
        Device, progress, and the limits of each selection.
    method : str or Selector
        What selects, as :func:`bicore.select` has it; one that needs no model.
    large : "approximate" or "exact"
        As :func:`bicore.select` has it.
    **options
        Parameters of the method: kernel, loss and so on.

    Returns
    -------
    Worth
        Its ``str`` is the sentence.

    Raises
    ------
    InputError
        Where the request cannot be right; the message names the mend.

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
    if isinstance(x, Dataset):
        data = x
        if chosen is None:
            chosen = y  # worth(data, 50)
        elif y is not None or weight is not None:
            raise InputError(
                "x is a Dataset and carries its own labels and weights; leave y and weight out."
            )
    else:
        data = Dataset(x, y, weight)
    if isinstance(test, (tuple, list)):
        test = Dataset(*test)
    appraisal = Appraisal(
        data,
        chosen,
        test=test,
        judge=judge,
        seeds=seeds,
        seed=seed,
        most=most,
        task=task,
        runtime=runtime,
        method=method,
        large=large,
        **options,
    )
    return appraisal.worth()

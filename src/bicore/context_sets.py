"""Contexts for models that read their training rows at prediction time, such as TabPFN."""

from __future__ import annotations

from typing import Any, cast

from bicore.data import Array, Dataset
from bicore.errors import check_integer
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.registry import as_selector
from bicore.runtime import Runtime

#: Options whose defaults differ from those of :func:`bicore.select`.
DEFAULTS = {"strategy": "greedy", "smooth_labels": False}


def contexts(
    x: Any,
    y: Any,
    size: int,
    n_contexts: int = 8,
    *,
    random_state: Any = 0,
    runtime: Runtime | None = None,
    **options: Any,
) -> list[Array]:
    """Select several small sets of rows whose averaged predictions are best.

    Each context is selected against the errors that the earlier ones leave. A row is in a second
    context only if too few others are left.

    Parameters
    ----------
    x, y : array
        Features and labels (or targets), row by row.
    size : int
        Number of rows of each context.
    n_contexts : int
        Number of contexts.
    random_state : int or numpy.random.Generator
        Seed for all random draws.
    runtime : Runtime, optional
        Device and limits.
    **options
        Parameters of :class:`bicore.BilevelSelector`; the loss must be the squared error. The
        defaults are ``strategy="greedy"``, because contexts with exchanges were slower and no
        better, and ``smooth_labels=False``, because a context without noisy labels makes a model
        overconfident.

    Returns
    -------
    list of array
        Row numbers of each context, in the order of selection. The first one is the answer of
        :func:`bicore.select` with the same options; a shorter list is a prefix of a longer one.

    Raises
    ------
    InputError
        If there are more contexts, or more rows in one, than rows of x.

    Examples
    --------
    >>> import numpy as np
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(60, 3))
    >>> found = bicore.contexts(x, x[:, 0] > 0, size=5, n_contexts=3)
    >>> [len(rows) for rows in found]
    [5, 5, 5]
    """
    data = Dataset(x, y)
    check_integer("size", size, most=len(data))
    check_integer("n_contexts", n_contexts, most=len(data), fix="use at most one per row")
    selector = cast(BilevelSelector, as_selector("bilevel", **{**DEFAULTS, **options}))
    return selector.select_contexts(
        data, size, n_contexts, random_state=random_state, runtime=runtime
    )

"""Contexts for models that read their training rows at prediction time, such as TabPFN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from bicore._deprecated import renamed_keywords
from bicore.bilevel.problem import Regulariser
from bicore.bilevel.rules import Rule
from bicore.bilevel.strategies.base import Strategy
from bicore.data import Array, Dataset
from bicore.errors import check_integer
from bicore.kernels.base import Kernel
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.registry import build_selector, parameters_of
from bicore.picking import Relative
from bicore.runtime.context import Runtime
from bicore.types import Labels, Matrix


@renamed_keywords()
def contexts(
    x: Matrix,
    y: Labels,
    size: int,
    n_contexts: int = 8,
    *,
    random_state: int | np.random.Generator | None = 0,
    runtime: Runtime | None = None,
    kernel: str | Kernel | Callable[..., Any] = "auto",
    inner_reg: str | float | Regulariser | Relative = "auto",
    prior: str = "data",
    intercept: float | str = "auto",
    task: str = "auto",
    rule: str | Rule = "auto",
    strategy: str | Strategy = "greedy",
    smooth_labels: bool | str = False,
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
    kernel, inner_reg, prior, intercept, task, rule : optional
        The kernel model that rows are selected for and the rule, as in
        :func:`bicore.select`.
    strategy : str or Strategy
        The search; contexts with exchanges were slower and no better than greedy ones.
    smooth_labels : bool or "auto"
        As in :func:`bicore.select`; a context without noisy labels makes a model overconfident.

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
    check_integer("n_contexts", n_contexts, most=len(data), fix="at most one per row")
    given = locals()
    options = {name: given[name] for name in parameters_of("bilevel") if name in given}
    selector = cast(BilevelSelector, build_selector("bilevel", **options))
    return selector.select_contexts(
        data, size, n_contexts, random_state=random_state, runtime=runtime
    )

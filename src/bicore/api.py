"""The one-liners: arrays in, an answer out. Strings are looked up here and nowhere deeper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import InputError, unknown_name
from bicore.runtime import Context, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.registry import as_selector


def select(
    x: Any,
    y: Any = None,
    size: int | float | str = 100,
    *,
    weight: Any = None,
    outer: tuple[Any, ...] | Dataset | None = None,
    initial: Coreset | Sequence[int] = (),
    seed: int | np.random.Generator = 0,
    runtime: Runtime | None = None,
    method: str | Selector = "bilevel",
    model: Any = None,
    **options: Any,
) -> Coreset:
    """Choose the ``size`` points of (x, y) that train a model almost as well as all of them.

    Parameters
    ----------
    x, y : features and labels (or targets), row by row; or a :class:`Dataset` as x. size : how many
    points, or a fraction of the rows; "auto" for the fewest within ``tolerance`` of the full model
    (bilevel). weight : how much each row counts in the objective. outer : a separate set (x, y) or
    (x, y, weight) on which the objective is measured. initial : points or a coreset to continue.
    seed : of whatever is drawn at random. runtime : device, precision, memory, threads, progress,
    time limit. method : a method's name (``bicore.selectors.METHODS``: "bilevel", "uniform",
    "k-center-embedding", "icarl", …) or a selector. model : the current network, for methods that
    look at one.
    **options : parameters of the method; of :class:`BilevelSelector`: kernel, loss, inner_reg, weights, rule, candidates, …

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> bicore.select(x, x[:, 0] > 0, size=5, kernel="rbf").indices.shape
    (5,)
    """
    selector = _selector(options) if method == "bilevel" else as_selector(method, **options)
    if isinstance(x, Dataset) and isinstance(y, (int, float, np.integer, np.floating)):
        y, size = None, y  # select(data, 100)
    data = _dataset(x, y, weight)
    context = Context(model, runtime or Runtime())
    return selector.select(
        data, size, outer=_outer(outer), initial=initial, rng=seed, context=context
    )


def reweight(
    x: Any,
    y: Any = None,
    indices: Sequence[int] = (),
    *,
    weight: Any = None,
    outer: tuple[Any, ...] | Dataset | None = None,
    start: Any = None,
    seed: int = 0,
    runtime: Runtime | None = None,
    **options: Any,
) -> Coreset:
    """Learn weights for points chosen by any means; ``reweight(data, indices=…)`` and ``reweight(x,
    y, indices)`` both work."""
    selector = _selector(options)
    context = Context(runtime=runtime or Runtime())
    if isinstance(x, Dataset) and y is not None and not len(indices):
        y, indices = None, y
    return selector.reweight(
        _dataset(x, y, weight),
        indices,
        outer=_outer(outer),
        start=start,
        seed=seed,
        context=context,
    )


def influence(
    x: Any,
    y: Any = None,
    coreset: Coreset | Sequence[int] = (),
    *,
    weight: Any = None,
    outer: tuple[Any, ...] | Dataset | None = None,
    seed: int = 0,
    runtime: Runtime | None = None,
    **options: Any,
) -> Array:
    """How much a little more weight on each point would lower the outer objective of the model
    fitted on ``coreset``."""
    selector = _selector(options)
    if isinstance(x, Dataset) and y is not None and not len(coreset):
        y, coreset = None, y
    context = Context(runtime=runtime or Runtime())
    return selector.influence(
        _dataset(x, y, weight), coreset, outer=_outer(outer), seed=seed, context=context
    )


def _selector(options: dict[str, Any]) -> BilevelSelector:
    known = {field.name for field in fields(BilevelSelector)}
    for name in options:
        if name not in known:
            raise unknown_name("the option", name, known)
    return BilevelSelector(**options)


def _dataset(x: Any, y: Any, weight: Any) -> Dataset:
    if not isinstance(x, Dataset):
        return Dataset(x, y, weight)
    if y is not None or weight is not None:
        raise InputError(
            "x is a Dataset and carries its own labels and weights; leave y and weight out, or "
            "build another Dataset."
        )
    return x


def _outer(outer: tuple[Any, ...] | Dataset | None) -> Dataset | None:
    if outer is None or isinstance(outer, Dataset):
        return outer
    if not isinstance(outer, (tuple, list)) or len(outer) not in (2, 3):
        raise InputError(
            "outer is not a separate set; give a tuple (x, y) or (x, y, weight), or a Dataset."
        )
    return Dataset(*outer)

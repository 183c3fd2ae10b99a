"""Batch active learning: select the points of a pool to label next.

After Borsos, Tagliasacchi and Krause 2020: the coreset begins with the labelled points, a model
predicts labels for the pool, and the points are selected that, fitted together with the labelled
ones, predict all points best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bicore.coreset import Coreset, ended
from bicore.data import Array, Dataset, as_features, as_labels, joined
from bicore.errors import InputError, check_integer, check_type
from bicore.kernels.classical import Nystrom
from bicore.kernels.scaling import Averaged, Transformation
from bicore.methods.bilevel import BilevelSelector
from bicore.runtime import Context, Runtime


def query(
    x_labelled: Any,
    y_labelled: Any,
    x_pool: Any,
    batch_size: int,
    *,
    pseudo_labels: Any = None,
    selector: BilevelSelector | None = None,
    landmarks: int | None = None,
    augmentations: Sequence[Transformation] = (),
    random_state: int = 0,
    runtime: Runtime | None = None,
) -> Coreset:
    """Select the points of a pool to label next.

    Parameters
    ----------
    x_labelled, y_labelled : array
        The labelled points, at least one of each of two classes.
    x_pool : array
        The points without labels.
    batch_size : int
        Number of points to label next.
    pseudo_labels : array or callable, optional
        A label for each point of the pool, or a function of ``x_pool`` that returns them
        (``model.predict``). Default: predictions of a kernel model fitted on the labelled points.
    selector : BilevelSelector, optional
        Kernel, loss and regularisation.
    landmarks : int, optional
        Number of points for Nyström features of the kernel: for pools of more than some ten
        thousand points.
    augmentations : sequence of callable
        Transformations of a point, such as ``bicore.kernels.shifts(1)``; the kernel is averaged
        over them.
    random_state : int
        Seed for all random draws.
    runtime : Runtime, optional
        Device and limits.

    Returns
    -------
    Coreset
        Its ``indices`` are rows of ``x_pool`` in the order of selection.

    Raises
    ------
    InputError
        If the arrays do not match, or only one class is labelled.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> query(x[:6], y[:6], x[6:], 3, selector=BilevelSelector("rbf", inner_reg=0.1)).indices.shape
    (3,)
    """
    labelled = as_features(x_labelled, "x_labelled")
    pool = as_features(x_pool, "x_pool")
    known = _as_column(y_labelled, len(labelled), "y_labelled")
    if labelled.shape[1:] != pool.shape[1:]:
        raise InputError(
            f"rows of x_labelled have shape {labelled.shape[1:]} and rows of x_pool "
            f"{pool.shape[1:]}; they must match."
        )
    wanted = check_integer("batch_size", batch_size, most=len(pool))
    chooser = _with_kernel(selector or BilevelSelector(), landmarks, augmentations, random_state)
    context = Context(runtime=runtime or Runtime())
    if pseudo_labels is not None:
        given = pseudo_labels(pool) if callable(pseudo_labels) else pseudo_labels
        guesses = _as_column(given, len(pool), "pseudo_labels")
    elif known.dtype.kind != "f" and len(np.unique(known)) < 2:
        raise InputError("y_labelled has a single class; label more, or give pseudo_labels.")
    else:
        guesses = chooser.predict(
            Dataset(labelled, known), pool, random_state=random_state, context=context
        )
    both = join_pool(labelled, known, pool, guesses)
    begun = list(range(len(labelled)))
    coreset = chooser.select(
        both, len(begun) + wanted, initial=begun, random_state=random_state, context=context
    )
    return _part_in_pool(coreset, len(labelled), len(pool), wanted)


def join_pool(x: Array, y: Array | None, pool: Array, guesses: Array | None) -> Dataset:
    """The labelled points, then the pool with the labels predicted for it."""
    numbers = np.arange(len(x), len(x) + len(pool))
    second = Dataset(pool, guesses, ids=numbers)
    return joined(Dataset(x, y), second) if len(x) else second


def _part_in_pool(coreset: Coreset, labelled: int, pool: int, wanted: int) -> Coreset:
    """The part of a coreset of both that lies in the pool, with rows counted from its start."""
    new = coreset.indices >= labelled
    rows = coreset.indices[new] - labelled
    message = coreset.message
    if not coreset.status.whole:
        message = ended(coreset.status, len(rows), wanted)
    begun = coreset.provenance.empty_objective
    if len(coreset.objectives) >= labelled:
        begun = float(coreset.objectives[labelled - 1])
    part = replace(
        coreset,
        indices=rows,
        weights=coreset.weights[new],
        ids=rows,
        objectives=coreset.objectives[new],
        message=message,
    )
    # fingerprint and configuration are those of both parts together
    changes = {"rows": pool, "empty_objective": begun, "fingerprint": None, "configuration": None}
    return part.annotated({"method": "bilevel query", **changes}, labelled=labelled)


def _with_kernel(
    selector: BilevelSelector,
    landmarks: int | None,
    augmentations: Sequence[Transformation],
    seed: int,
) -> BilevelSelector:
    check_type("selector", selector, BilevelSelector, "a BilevelSelector")
    kernel = selector.kernel
    if landmarks is not None:
        kernel = Nystrom(kernel, landmarks, seed)
    if augmentations:
        kernel = Averaged(kernel, tuple(augmentations))
    return replace(selector, kernel=kernel)


def _as_column(values: Any, count: int, name: str) -> Array:
    """Labels or targets; a single column lies flat."""
    try:
        found = as_labels(values, count)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found

"""Batch active learning: which points of a pool to label next, by bilevel selection on guessed
labels.

After Borsos, Tagliasacchi and Krause 2020: the labelled points are in the coreset already, the pool
has the labels that a model guesses, and the points that join are those that, fitted with the
labelled ones, predict all of it best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bicore.coreset import Coreset, ended
from bicore.data import Array, Dataset, as_features, as_labels, joined
from bicore.errors import InputError
from bicore.kernels.classical import Nystrom
from bicore.kernels.scaling import Averaged, Transformation
from bicore.picking import whole_number
from bicore.runtime import Context, Runtime
from bicore.selectors.bilevel import BilevelSelector


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
    seed: int = 0,
    runtime: Runtime | None = None,
) -> Coreset:
    """Choose the points of a pool to label next.

    Parameters
    ----------
    x_labelled, y_labelled : array
        What is labelled so far, at least one point of two classes.
    x_pool : array
        The points without labels.
    batch_size : int
        How many to label next.
    pseudo_labels : array or callable, optional
        A guess for every point of the pool, or a function of ``x_pool`` that gives them
        (``model.predict``). Default: the proxy's own guess, a kernel model fitted on the labelled
        points.
    selector : BilevelSelector, optional
        Kernel, loss and regulariser.
    landmarks : int, optional
        See the kernel through Nyström features of so many points: for pools of more than some ten
        thousands.
    augmentations : sequence of callable
        Transformations a point is seen through, such as ``bicore.kernels.shifts(1)``; the kernel of
        their mean is used.
    seed : int
        Of whatever is drawn.
    runtime : Runtime, optional
        Device and limits.

    Returns
    -------
    Coreset
        Whose ``indices`` are rows of ``x_pool`` in the order of selection.

    Raises
    ------
    InputError
        Where the arrays do not fit each other, or one class only is labelled.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> query(x[:6], y[:6], x[6:], 3, selector=BilevelSelector("rbf", inner_reg=0.1)).indices.shape
    (3,)
    """
    labelled = as_features(x_labelled, "x_labelled")
    pool = as_features(x_pool, "x_pool")
    known = _column(y_labelled, len(labelled), "y_labelled", "x_labelled")
    if labelled.shape[1:] != pool.shape[1:]:
        raise InputError(
            f"x_labelled has rows of shape {labelled.shape[1:]} and x_pool of {pool.shape[1:]}; "
            "they must match."
        )
    words = (
        f"batch_size={batch_size!r} is outside 1 … {len(pool)}, the size of the pool; give a whole "
        "number."
    )
    if whole_number(batch_size, 1, words) > len(pool):
        raise InputError(words)
    chooser = _with_kernel(selector or BilevelSelector(), landmarks, augmentations, seed)
    context = Context(runtime=runtime or Runtime())
    guessed = _guesses(pseudo_labels, chooser, labelled, known, pool, context, seed)
    count = len(labelled)
    numbers = np.arange(count, count + len(pool))
    both = joined(Dataset(labelled, known), Dataset(pool, guessed, ids=numbers))
    wanted = count + int(batch_size)
    first = list(range(count))
    coreset = chooser.select(both, wanted, initial=first, rng=seed, context=context)
    return _of_the_pool(coreset, count, len(pool), int(batch_size))


def _of_the_pool(coreset: Coreset, labelled: int, pool: int, wanted: int) -> Coreset:
    """The part of a coreset of both that lies in the pool, with rows counted from its start."""
    new = coreset.indices >= labelled
    rows = coreset.indices[new] - labelled
    message = coreset.message
    if not coreset.status.whole:
        message = ended(coreset.status, len(rows), wanted)
    begun = coreset.provenance.empty_objective
    if len(coreset.objectives) >= labelled:
        begun = float(coreset.objectives[labelled - 1])
    story = replace(
        coreset.provenance,
        method="bilevel query",
        rows=pool,
        empty_objective=begun,
        fingerprint=None,  # this and the next are of both parts together
        configuration=None,
    )
    return Coreset(
        rows,
        coreset.weights[new],
        rows,
        coreset.objectives[new],
        coreset.status,
        message,
        story,
        {**coreset.details, "labelled": labelled},
    )


def _with_kernel(
    selector: BilevelSelector,
    landmarks: int | None,
    augmentations: Sequence[Transformation],
    seed: int,
) -> BilevelSelector:
    if not isinstance(selector, BilevelSelector):
        raise InputError(
            f"selector={selector!r} is no BilevelSelector; other methods select from the pool by "
            "themselves."
        )
    kernel = selector.kernel
    if landmarks is not None:
        kernel = Nystrom(kernel, landmarks, seed)
    if augmentations:
        kernel = Averaged(kernel, tuple(augmentations))
    return replace(selector, kernel=kernel)


def _guesses(
    given: Any,
    selector: BilevelSelector,
    x: Array,
    y: Array,
    pool: Array,
    context: Context,
    seed: int,
) -> Array:
    """Labels of the pool, of the kind of ``y``."""
    if given is None:
        if y.dtype.kind != "f" and len(np.unique(y)) < 2:
            raise InputError(
                "y_labelled holds a single class, which leaves nothing to guess; label more, or "
                "give pseudo_labels."
            )
        return selector.predict(Dataset(x, y), pool, seed=seed, context=context)
    guessed = _column(
        given(pool) if callable(given) else given, len(pool), "pseudo_labels", "x_pool"
    )
    if guessed.dtype.kind == "f" and y.dtype.kind != "f":
        raise InputError(
            "pseudo_labels holds floats and y_labelled classes; give one class a row (argmax of "
            "probabilities)."
        )
    if "U" in (guessed.dtype.kind, y.dtype.kind) and guessed.dtype.kind != y.dtype.kind:
        raise InputError(
            f"pseudo_labels holds {guessed.dtype} and y_labelled {y.dtype}; use one kind of label "
            "throughout."
        )
    return guessed


def _column(values: Any, count: int, name: str, rows: str) -> Array:
    """Labels or targets; a single column lies flat."""
    given = 1 if np.ndim(values) == 0 else len(values)
    if np.ndim(values) == 0 or given != count:
        raise InputError(f"{name} has {given} rows and {rows} {count}; give one for each.")
    found = as_labels(values, count)
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found

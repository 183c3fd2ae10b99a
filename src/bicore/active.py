"""Batch active learning: which points of a pool to label next, by bilevel selection on guessed
labels.

After Borsos, Tagliasacchi and Krause 2020: the labelled points are in the coreset already, the pool
has the labels that a model guesses, and the points that join are those that, fitted with the
labelled ones, predict all of it best.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from bicore.coreset import Coreset
from bicore.data import Array, Dataset, as_features, as_labels, joined
from bicore.errors import InputError
from bicore.kernels.averaged import Averaged, Transformation
from bicore.kernels.classical import Nystrom
from bicore.runtime import Context, Runtime
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.names import as_kernel


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
    """The ``batch_size`` points of the pool to label next; ``indices`` are rows of ``x_pool`` in
    the order of selection.

    Parameters
    ----------
    x_labelled, y_labelled : what is labelled so far, at least one point of two classes. x_pool :
    the points without labels. pseudo_labels : a guess for every point of the pool, or a function of
    ``x_pool`` that gives them (``model.predict``). Default:
        the proxy's own guess, a kernel model fitted on the labelled points.
    selector : kernel, loss and regulariser; default: ``BilevelSelector()``. landmarks : see the
    kernel through Nyström features of so many points: for pools of more than some ten thousands.
    augmentations : transformations a point is seen through, such as ``bicore.kernels.shifts(1)``;
    the kernel of their mean is used.
    """
    labelled = as_features(x_labelled, "x_labelled")
    pool = as_features(x_pool, "x_pool")
    known = _column(y_labelled, len(labelled), "y_labelled", "x_labelled")
    if labelled.shape[1:] != pool.shape[1:]:
        raise InputError(
            f"x_labelled has rows of shape {labelled.shape[1:]} and x_pool of {pool.shape[1:]}; "
            "they must match."
        )
    if not isinstance(batch_size, Integral) or not 1 <= batch_size <= len(pool):
        raise InputError(
            f"batch_size={batch_size!r} is outside 1 … {len(pool)}, the size of the pool; give a "
            "whole number."
        )
    chooser = _with_kernel(selector or BilevelSelector(), landmarks, augmentations, seed)
    context = Context(runtime=runtime or Runtime())
    guessed = _guesses(pseudo_labels, chooser, labelled, known, pool, context, seed)
    count = len(labelled)
    both = joined(
        Dataset(labelled, known), Dataset(pool, guessed, ids=np.arange(count, count + len(pool)))
    )
    coreset = chooser.select(
        both, count + int(batch_size), initial=list(range(count)), rng=seed, context=context
    )
    new = coreset.indices >= count
    rows = coreset.indices[new] - count
    begun = (
        float(coreset.objectives[count - 1])
        if len(coreset.objectives) >= count
        else coreset.info["empty_objective"]
    )
    info = {
        **coreset.info,
        "labelled": count,
        "n": len(pool),
        "method": "bilevel query",
        "empty_objective": begun,
    }
    for stale in ("fingerprint", "configuration"):  # they are of both parts together
        info.pop(stale, None)
    status = re.sub(
        r"after \d+ of \d+ points", f"after {len(rows)} of {batch_size} points", coreset.status
    )
    return Coreset(rows, coreset.weights[new], rows, coreset.objectives[new], status, info)


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
    kernel = as_kernel(selector.kernel)
    if landmarks is not None:
        kernel = Nystrom(kernel, landmarks, seed)
    return replace(
        selector, kernel=Averaged(kernel, tuple(augmentations)) if augmentations else kernel
    )


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

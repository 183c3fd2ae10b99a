"""Batch active learning: which points of a pool to label next, by bilevel selection on guessed labels.

After Borsos, Tagliasacchi and Krause 2020: the labelled points are in the coreset already, the pool has the labels that a model
guesses, and the points that join are those that, fitted with the labelled ones, predict all of it best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bicore.coreset import Coreset
from bicore.data import Array, Dataset, as_features, as_labels
from bicore.errors import InputError
from bicore.kernels.averaged import Averaged, Transformation
from bicore.kernels.classical import Nystrom
from bicore.runtime import Context, Runtime
from bicore.selection.bilevel import BilevelSelector
from bicore.selection.names import as_kernel


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
    """The ``batch_size`` points of the pool to label next; ``indices`` are rows of ``x_pool`` in the order of selection.

    Parameters
    ----------
    x_labelled, y_labelled : what is labelled so far, at least one point of two classes.
    x_pool : the points without labels.
    pseudo_labels : a guess for every point of the pool, or a function of ``x_pool`` that gives them (``model.predict``). Default:
        the proxy's own guess, a kernel model fitted on the labelled points.
    selector : kernel, loss and regulariser; default: ``BilevelSelector()``.
    landmarks : see the kernel through Nyström features of so many points: for pools of more than some ten thousands.
    augmentations : transformations a point is seen through, such as ``bicore.kernels.shifts(1)``; the kernel of their mean is used.
    """
    labelled, pool = as_features(x_labelled, "x_labelled"), as_features(x_pool, "x_pool")
    known = as_labels(y_labelled, len(labelled))
    if labelled.shape[1:] != pool.shape[1:]:
        raise InputError(f"x_labelled has rows of shape {labelled.shape[1:]} and x_pool of {pool.shape[1:]}; they must match.")
    if not 1 <= batch_size <= len(pool):
        raise InputError(f"batch_size={batch_size} is outside 1 … {len(pool)}, the size of the pool.")
    chooser = _with_kernel(selector or BilevelSelector(), landmarks, augmentations, seed)
    context = Context(runtime=runtime or Runtime())
    guessed = _guesses(pseudo_labels, chooser, labelled, known, pool, context, seed)
    both = Dataset(np.concatenate([labelled, pool]), np.concatenate([known, guessed]))
    start = list(range(len(labelled)))
    coreset = chooser.select(both, len(start) + int(batch_size), initial=start, rng=seed, context=context)
    new = coreset.indices >= len(start)
    rows = coreset.indices[new] - len(start)
    info = {**coreset.info, "labelled": len(start), "n": len(pool), "method": "bilevel query"}
    for stale in ("fingerprint", "configuration"):  # they are of both parts together
        info.pop(stale, None)
    return Coreset(rows, coreset.weights[new], rows, coreset.objectives[new], coreset.status, info)


def _with_kernel(
    selector: BilevelSelector, landmarks: int | None, augmentations: Sequence[Transformation], seed: int
) -> BilevelSelector:
    if not isinstance(selector, BilevelSelector):
        raise InputError(f"selector={selector!r} is no BilevelSelector; other methods select from the pool by themselves.")
    kernel = as_kernel(selector.kernel)
    if landmarks is not None:
        kernel = Nystrom(kernel, landmarks, seed)
    return replace(selector, kernel=Averaged(kernel, tuple(augmentations)) if augmentations else kernel)


def _guesses(given: Any, selector: BilevelSelector, x: Array, y: Array, pool: Array, context: Context, seed: int) -> Array:
    """Labels of the pool, of the kind of ``y``."""
    if given is None:
        return selector.predict(Dataset(x, y), pool, seed=seed, context=context)
    values = given(pool) if isinstance(given, Callable) else given  # type: ignore[arg-type]
    guessed = as_labels(values, len(pool))
    if guessed.dtype.kind == "f" and y.dtype.kind in "iub":
        raise InputError("pseudo_labels holds floats and y_labelled classes; give one class a row (argmax of probabilities).")
    return guessed

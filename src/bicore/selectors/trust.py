"""Wrong labels: leave out what a model that never saw a point's label would label otherwise."""

from __future__ import annotations

import numpy as np

from bicore.data import Dataset, read_targets
from bicore.errors import InputError
from bicore.picking import as_seed, in_id_order, whole_number
from bicore.runtime import Context
from bicore.selectors.bilevel import BilevelSelector


def trusted(
    data: Dataset,
    selector: BilevelSelector | None = None,
    folds: int = 5,
    *,
    rng: int | np.random.Generator = 0,
    context: Context | None = None,
) -> Dataset:
    """The data with weight 0 on every point whose label a model of the other folds denies.

    Such points are neither selected nor counted in the objective. What the proxy gets wrong by
    itself goes with them: use it where labels are worse than the proxy. Costs ``folds`` fits of all
    points.

    Parameters
    ----------
    data : Dataset
        With class labels.
    selector : BilevelSelector, optional
        Kernel, loss and regulariser of the proxy.
    folds : int
        How often the data are cut.
    rng : int or numpy.random.Generator
        Of the cut.
    context : Context, optional
        Device and limits.

    Returns
    -------
    Dataset
        The same rows with other weights.

    Raises
    ------
    InputError
        Where there are no class labels, or the proxy agrees with none.

    Examples
    --------
    >>> x = np.r_[np.linspace(0, 1, 20), np.linspace(5, 6, 20)][:, None]
    >>> y = np.repeat([0, 1], 20)
    >>> y[3] = 1
    >>> kept = trusted(Dataset(x, y), BilevelSelector(kernel="rbf", inner_reg=0.1))
    >>> np.flatnonzero(kept.weights == 0).tolist()
    [3]
    """
    chooser = selector or BilevelSelector()
    if not isinstance(chooser, BilevelSelector):
        raise InputError(
            f"selector={chooser!r} is no BilevelSelector; give one with the kernel and loss of the "
            "proxy."
        )
    if chooser.kernel.precomputed:
        raise InputError("a precomputed matrix cannot be cut into folds; give x and a kernel.")
    known = None if chooser.classes is None else np.asarray(chooser.classes)
    if data.y is None or read_targets(data.y, chooser.task, known).classes is None:
        raise InputError(
            "trusted compares class labels, and data has none; give y with integers, strings or "
            "booleans."
        )
    counted = np.flatnonzero(data.weights > 0)
    words = (
        f"folds={folds!r} is outside 2 … {len(counted)}, the number of points; give how often the "
        "data are cut."
    )
    if whole_number(folds, 2, words) > len(counted):
        raise InputError(words)
    labels = data.y.reshape(len(data))
    whole = chooser.for_classes(
        np.unique(labels).tolist() if chooser.classes is None else chooser.classes
    )
    by_id = in_id_order(counted, data.ids)
    whole = whole.settled(data, len(counted))  # one kernel for all folds
    weights = np.array(data.weights, dtype=np.float64)
    seed = as_seed(rng)
    for part in np.array_split(np.random.default_rng(seed).permutation(by_id), folds):
        rest = by_id[~np.isin(by_id, part)]
        guesses = whole.predict(data[rest], data.x[part], seed=seed, context=context)
        weights[part[guesses != labels[part]]] = 0
    if not (weights > 0).any():
        raise InputError(
            "the proxy agrees with no label; use another kernel, or a larger inner_reg."
        )
    return Dataset(data.x, data.y, weights, data.ids)

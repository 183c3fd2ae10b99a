"""Whether a selection can tell how strongly a model should be held back, and by which points."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bicore.comparison.judges.sample import Sample
from bicore.data import Array

#: Points that it takes in all, and of each class present on average: of fewer, what is left out
#: says little, and linear models of ten columns were led to follow every label.
FEWEST = 20
EACH = 2
#: Parts of a selection, each predicted by a model of the others.
FOLDS = 3
#: Tuning looks at no more points than this, evenly spaced; it needs a fit for every value tried.
MOST = 500


def enough(sample: Sample) -> bool:
    """Whether a model of these points can be tuned by them.

    Parameters
    ----------
    sample : Sample
        The points.

    Returns
    -------
    bool
        Whether there are twenty of them, and of classes two at least, with two points each on
        average.

    Examples
    --------
    >>> x, labels = torch.zeros(30, 1), torch.arange(30)
    >>> [enough(Sample(x, labels % count, torch.ones(30))) for count in (1, 15, 16)]
    [False, True, False]
    """
    if len(sample) < FEWEST or not sample.classification:
        return len(sample) >= FEWEST
    classes = len(np.unique(sample.y.cpu().numpy()))
    return classes > 1 and len(sample) >= EACH * classes


def few(count: int, device: torch.device) -> Tensor:
    """The places of the points that tuning looks at.

    Parameters
    ----------
    count : int
        How many there are.
    device : torch.device
        Where they are.

    Returns
    -------
    Tensor
        All of them, or 500 spread over all.

    Examples
    --------
    >>> few(1000, torch.device("cpu"))[:3].tolist()
    [0, 2, 4]
    """
    return torch.arange(0, count, max(1, -(-count // MOST)), device=device)


def folds(labels: Array, seed: int) -> Array:
    """Parts of a selection that have equally many points of each class, as far as that goes.

    Parameters
    ----------
    labels : array (n,)
        Class codes.
    seed : int
        Of the draw.

    Returns
    -------
    array (n,)
        The number of each point's part, from 0.

    Examples
    --------
    >>> sorted(folds(np.array([7, 7, 7]), seed=0).tolist())
    [0, 1, 2]
    """
    order = np.random.default_rng((seed, len(labels))).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    parts = np.empty(len(labels), dtype=np.int64)
    parts[order] = np.arange(len(labels)) % FOLDS
    return parts

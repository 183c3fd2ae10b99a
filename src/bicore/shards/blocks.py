"""Rows in blocks: what all work on parts does to them first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError
from bicore.moments.features import FeatureMap

#: Numbers of a block on the host, 4 MB of float32: smaller ones cost more calls than they save.
BLOCK = 2**20
#: Numbers of a block on a device: 256 MB of float32, enough to keep a card busy.
DEVICE_BLOCK = 2**26


def exact_features(x: Array, map: FeatureMap) -> Array:
    """Features of rows in float64: lengths are taken in that precision.

    Parameters
    ----------
    x : array (n, …)
        Rows as they are stored.
    map : FeatureMap
        A settled one.

    Returns
    -------
    array (n, p)
        The same on every engine, to the last digits.

    Examples
    --------
    >>> from bicore.moments.features import Rows
    >>> x = np.array([[3.0, 4.0]], dtype=np.float16)
    >>> exact_features(x, Rows().unit().fit(x))
    array([[0.6, 0.8]])
    """
    found: Array = map.exact(torch.from_numpy(single(x))).numpy()
    return found


def single(x: Array) -> Array:
    """Float16 as float32, others as a copy: a map of a file is not writable, and torch asks it."""
    return x.astype(np.float32) if x.dtype == np.float16 else np.array(x)


def converted(x: Array) -> Iterator[tuple[slice, Tensor]]:
    """Rows block by block, float16 as float32: each block is there until the next one.

    All are written to one place: memory that is new to the process costs five times what the
    conversion does. NumPy converts float16 ten times as fast as torch does on a processor.

    Parameters
    ----------
    x : array (n, …)
        Rows as they are stored.

    Yields
    ------
    tuple of slice and Tensor
        Which rows, and these.
    """
    dtype = np.float32 if x.dtype == np.float16 else x.dtype
    size = max(1, min(len(x), BLOCK // row_size(x)))
    place = np.empty((size, *x.shape[1:]), dtype=dtype)
    for rows in slices(len(x), row_size(x), BLOCK):
        own = place[: rows.stop - rows.start]
        np.copyto(own, x[rows])
        yield rows, torch.from_numpy(own)


def row_size(x: Any) -> int:
    return max(1, int(np.prod(x.shape[1:])))


def slices(count: int, numbers: int, block: int) -> Iterator[slice]:
    """Some rows at a time."""
    size = max(1, block // numbers)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def codes_of(y: Any, classes: Array) -> Array:
    """Places of labels among the classes, which are in order."""
    labels = np.asarray(y).reshape(-1)
    if _are_places(labels, classes):
        return np.array(labels)  # of its own: a map of a file is not writable
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    strange = np.flatnonzero(classes[codes] != labels)
    if len(strange):
        raise InputError(
            f"y holds the class {labels[strange[0]]!r}, which the first pass did not see: the "
            "source has changed; select again."
        )
    return np.asarray(codes)


def _are_places(labels: Array, classes: Array) -> bool:
    """Whether labels are 0, 1, 2, …: they need not be looked up then, in every pass."""
    if labels.dtype != np.int64 or classes.dtype.kind != "i" or not len(labels):
        return False
    ordered = np.array_equal(classes, np.arange(len(classes)))
    return bool(ordered and labels.min() >= 0 and labels.max() < len(classes))

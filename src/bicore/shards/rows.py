"""Rows of a source as a data set: loaded if they fit the memory limit, else read when needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from bicore.data import Array, Dataset, as_features
from bicore.errors import InputError
from bicore.runtime import Runtime, checkpoint
from bicore.shards.source import ShardSource
from bicore.shards.sources.checking import checked

#: Bytes of one number once loaded, and copies of the rows that a selection holds.
NUMBER, COPIES = 8, 2


class LazyRows:
    """The features of a source as an array that reads rows when they are indexed."""

    def __init__(self, source: ShardSource) -> None:
        self.source = source
        self.shape = (source.rows, *source.shape)
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        wanted = np.arange(len(self))[rows]
        order = np.argsort(wanted, kind="stable")
        places = wanted[order]
        found = []
        for part in self.source.parts:
            low, high = np.searchsorted(places, (part.start, part.stop))
            if low < high:
                checkpoint()
                chunk = self.source.read(part).x
                found.append(as_features(chunk[places[low:high] - part.start], "x"))
        gathered = np.concatenate(found) if found else np.zeros((0, *self.shape[1:]))
        result: Array = np.empty_like(gathered)
        result[order] = gathered
        return result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read all rows."""
        return np.asarray(self[:], dtype=dtype)

    def reshape(self, *shape: int) -> Array:
        """Read all rows in another shape."""
        return np.asarray(self).reshape(*shape)

    def fingerprint(self) -> str:
        """Digest the source; the rows are not all read."""
        return self.source.fingerprint()


def fits(source: ShardSource, runtime: Runtime) -> bool:
    """Whether all rows of a source fit the memory limit."""
    numbers = source.rows * int(np.prod(source.shape))
    return numbers * NUMBER * COPIES <= runtime.memory_bytes()


def rows_of(source: ShardSource, runtime: Runtime) -> Dataset:
    """Read a source as a data set.

    Labels and weights are always loaded, and every row is checked. Features that do not fit the
    memory limit are read again when a selection asks for them.
    """
    loaded = fits(source, runtime)
    x, y, weight = [], [], []
    for part in source.parts:
        checkpoint(part.start / max(source.rows, 1))
        chunk, _ = checked(source.read(part), part)
        if loaded:
            x.append(as_features(chunk.x, "x") if len(chunk) else chunk.x)
        if chunk.y is not None:
            y.append(chunk.y)
        if chunk.weight is not None:
            weight.append(chunk.weight)
    labels = np.concatenate(y) if y else None
    weights = np.concatenate(weight) if weight else None
    if loaded:
        return Dataset(np.concatenate(x), labels, weights)
    if labels is None:
        raise InputError(
            f"{source.name} has no labels and does not fit the memory limit; give labels "
            "(target=…, labels=…) or raise Runtime(memory=…)."
        )
    columns = Dataset(np.zeros((source.rows, 1)), labels, weights)
    return columns.with_columns(x=LazyRows(source))  # type: ignore[arg-type]  # read on demand

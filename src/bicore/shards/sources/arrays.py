"""Arrays in memory, or maps of files."""

from __future__ import annotations

from typing import Any

import numpy as np

from bicore.data import Array, as_labels
from bicore.errors import InputError
from bicore.shards.source import Chunk, Part, ShardSource
from bicore.shards.sources import sampling
from bicore.shards.sources.gathered import equal_parts, need_part_rows
from bicore.shards.sources.maps import followed, recipe
from bicore.shards.sources.values import as_floats, as_stored_labels, need_labels, need_numbers

#: 32 MB of float16 at 256 columns: large enough that a product is worth its start, small beside any
#: limit on memory.
PART_ROWS = 65536
_COLUMNS = ("x", "y", "weight")


class ArrayShards(ShardSource):
    """Rows of arrays that are in memory already, or mapped from files.

    Another process gets a copy of what is in memory, and maps files anew.

    Parameters
    ----------
    x : array (n, …)
        Features; whole numbers are converted part by part.
    y : array (n,) or (n, targets), optional
        Labels or targets.
    weight : array (n,), optional
        How much each row counts.
    part_rows : int
        Rows that are read together.
    name : str
        What reports call it.

    Examples
    --------
    >>> import numpy as np
    >>> source = ArrayShards(np.zeros((10, 3), dtype=np.float16), np.arange(10), part_rows=4)
    >>> [part.count for part in source.parts], source.shape
    ([4, 4, 2], (3,))
    >>> source.read(source.parts[2]).y.tolist()
    [8, 9]
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self,
        x: Any,
        y: Any = None,
        weight: Any = None,
        part_rows: int = PART_ROWS,
        name: str = "arrays",
    ) -> None:
        self.x = _features(x)
        self.y = None if y is None else _labels(y, len(self.x))
        self.weight = None if weight is None else _weights(weight, len(self.x))
        self.part_rows = need_part_rows(part_rows)
        self._name = name

    def __getstate__(self) -> dict[str, Any]:
        columns = {name: recipe(getattr(self, name)) for name in _COLUMNS}
        return {**self.__dict__, **columns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        columns = {name: followed(state[name]) for name in _COLUMNS}
        self.__dict__.update({**state, **columns})

    @property
    def name(self) -> str:
        return self._name

    @property
    def parts(self) -> tuple[Part, ...]:
        return equal_parts(len(self.x), self.part_rows, self._name)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    @property
    def labelled(self) -> bool:
        return self.y is not None

    def read(self, part: Part) -> Chunk:
        rows = slice(part.start, part.stop)
        return Chunk(
            as_floats(self.x[rows]),
            None if self.y is None else as_stored_labels(self.y[rows]),
            None if self.weight is None else as_floats(self.weight[rows]),
        )

    def fingerprint(self) -> str:
        return sampling.of_columns("arrays", (self.x, self.y, self.weight))


def _features(x: Any) -> Array:
    array: Array = np.asanyarray(x)
    need_numbers(array.dtype, "x")
    if array.ndim < 1 or array.size == 0:
        raise InputError(
            f"x has shape {array.shape}; at least one row and one column are needed, rows first."
        )
    return array[:, None] if array.ndim == 1 else array


def _labels(y: Any, rows: int) -> Array:
    array: Array = np.asanyarray(y)
    if array.dtype.kind == "O":
        array = as_labels(y, rows)
    need_labels(array.dtype, "y")
    if array.ndim < 1 or len(array) != rows:
        raise InputError(
            f"y has shape {array.shape} and x has {rows} rows; they must have the same length, "
            "row by row."
        )
    return array


def _weights(weight: Any, rows: int) -> Array:
    array: Array = np.asanyarray(weight)
    need_numbers(array.dtype, "weight")
    if array.shape != (rows,):
        raise InputError(
            f"weight has shape {array.shape}; one number for each of the {rows} rows is needed."
        )
    return array

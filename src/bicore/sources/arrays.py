"""Arrays in memory, or mapped from files, as a source in parts."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from bicore.data import Array, as_labels
from bicore.errors import InputError, check_integer
from bicore.sources.parts import (
    PART_ROWS,
    Chunk,
    KnownShards,
    Part,
    Shard,
    check_labels,
    check_numbers,
    digest_columns,
    kind_of,
    make_chunk,
)

#: The mode of a map whose changes stay in this process; other processes would not see them.
_PRIVATE = "c"


class ArrayShards(KnownShards):
    """Rows of arrays in memory, or mapped from files.

    Another process gets a copy of arrays in memory, and maps files anew.

    Parameters
    ----------
    x : array (n, …)
        Features; integers are converted part by part.
    y : array (n,) or (n, targets), optional
        Labels or targets.
    weight : array (n,), optional
        Weight of each row.
    part_rows : int
        Rows that are read together.
    name : str
        Name of the source in reports.

    Examples
    --------
    >>> import numpy as np
    >>> source = ArrayShards(np.zeros((10, 3), dtype=np.float16), np.arange(10), part_rows=4)
    >>> [part.count for part in source.parts], source.shape
    ([4, 4, 2], (3,))
    >>> source.read(source.parts[2]).y.tolist()
    [8, 9]
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        weight: Any = None,
        part_rows: int = PART_ROWS,
        name: str = "arrays",
    ) -> None:
        super().__init__(name)
        self.part_rows = check_integer("part_rows", part_rows)
        rows = _as_rows(x)
        #: Features, labels and weights.
        self.columns: tuple[Array | None, ...] = (
            rows,
            None if y is None else _as_labels(y, len(rows)),
            None if weight is None else _as_weights(weight, len(rows)),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "columns": tuple(map(_pack, self.columns))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "columns": tuple(map(_unpack, state["columns"]))})

    def _look(self) -> list[Shard]:
        x, y, _ = self.columns
        assert x is not None
        label = None if y is None else (kind_of(y.dtype), y.shape[1:])
        return [Shard(self.name, len(x), x.shape[1:], kind_of(x.dtype), label)]

    def read(self, part: Part) -> Chunk:
        rows = slice(part.start, part.stop)
        x, y, weight = (None if column is None else column[rows] for column in self.columns)
        assert x is not None
        return make_chunk(x, None if y is None else np.asarray(y), weight)

    def fingerprint(self) -> str:
        return digest_columns("arrays", self.columns)


def _as_rows(x: Any) -> Array:
    array: Array = np.asanyarray(x)
    check_numbers(array.dtype, "x")
    if array.ndim < 1 or array.size == 0:
        raise InputError(
            f"x has shape {array.shape}; at least one row and one column are needed, rows first."
        )
    return array[:, None] if array.ndim == 1 else array


def _as_labels(y: Any, rows: int) -> Array:
    array: Array = np.asanyarray(y)
    if array.dtype.kind == "O":
        array = as_labels(y, rows)
    check_labels(array.dtype, "y")
    if array.ndim < 1 or len(array) != rows:
        raise InputError(f"y has shape {array.shape} and x has {rows} rows; give one label a row.")
    return array


def _as_weights(weight: Any, rows: int) -> Array:
    array: Array = np.asanyarray(weight)
    check_numbers(array.dtype, "weight")
    if array.shape != (rows,):
        raise InputError(
            f"weight has shape {array.shape}; give one number for each of {rows} rows."
        )
    return array


def _pack(column: Array | None) -> Any:
    """A column for another process: the place of a map in its file, else the column itself."""
    whole: Any = column
    while whole is not None and getattr(whole, "_mmap", None) is None:
        whole = getattr(whole, "base", None)
    if column is None or whole is None or whole.filename is None or whole.mode == _PRIVATE:
        return column
    # NumPy begins a map at the last boundary of pages before its first value.
    begin = whole.offset - whole.offset % mmap.ALLOCATIONGRANULARITY
    first = np.frombuffer(whole._mmap, dtype=np.uint8).ctypes.data
    offset = begin + column.ctypes.data - first
    return str(whole.filename), offset, column.dtype, column.shape, column.strides


def _unpack(packed: Any) -> Array | None:
    """The inverse of :func:`_pack`."""
    if not isinstance(packed, tuple):
        return packed  # type: ignore[no-any-return]
    path, offset, dtype, shape, strides = packed
    whole = np.memmap(path, dtype=np.uint8, mode="r")
    return np.ndarray(shape, dtype, whole.data, offset, strides)

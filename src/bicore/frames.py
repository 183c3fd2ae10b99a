"""Tables and columns of other libraries: lists as rows of a matrix, rows taken in an order.

No library is imported for it; whoever hands over its table has it. Arrow's columns are read where
they lie, without Python lists.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bicore.errors import InputError

Array = npt.NDArray[Any]

#: Libraries whose columns are Arrow's.
_OF_ARROW = ("polars", "pyarrow")


def arrow(needs: str = "Parquet") -> Any:
    """pyarrow, or how to get it."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise InputError(f"{needs} needs pyarrow: pip install 'bicore[tables]'.") from error
    return pyarrow


def plain(kind: Any) -> Any:
    """The type that an extension type (a matrix of fixed size) is stored as."""
    return getattr(kind, "storage_type", kind)


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    types = arrow().types
    kind = plain(kind)
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def dense(chunk: Any, shape: tuple[int, ...] | None, first: int, place: str) -> Array:
    """Lists (of lists) of an Arrow array as an array; NaN where a list or a value is missing.

    ``shape`` is that of a row where it is known; ``first`` is the row of the first list, and
    ``place`` where it lies, for errors.
    """
    chunk = getattr(chunk, "storage", chunk)
    if not is_list(chunk.type):
        if arrow().types.is_boolean(chunk.type):
            chunk = chunk.cast("uint8")
        return np.asarray(chunk.to_numpy(zero_copy_only=False))
    there = chunk.drop_null() if chunk.null_count else chunk
    length = shape[0] if shape else _length(there)
    _refuse_ragged(chunk, length, first, place)
    inner = dense(there.flatten(), shape[1:] if shape else None, first, place)
    rows = inner.reshape(len(there), length, *inner.shape[1:])
    if not chunk.null_count:
        return rows
    full = np.full((len(chunk), *rows.shape[1:]), np.nan, dtype=_float_for(rows.dtype))
    full[chunk.is_valid().to_numpy(zero_copy_only=False)] = rows
    return full


def _float_for(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The shortest that holds such numbers and NaN."""
    return dtype if dtype.kind == "f" else np.result_type(dtype, np.float32)


def _length(lists: Any) -> int:
    fixed = getattr(lists.type, "list_size", None)
    if fixed is not None:
        return int(fixed)
    return int(lists.value_lengths()[0].as_py()) if len(lists) else 0


def _refuse_ragged(chunk: Any, length: int, first: int, place: str) -> None:
    lengths = chunk.value_lengths().fill_null(length).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != length)
    if len(wrong):
        raise InputError(
            f"{place}: row {first + wrong[0]} holds a list of {lengths[wrong[0]]} values where "
            f"others have {length}; all rows must have the same length."
        )


def arrow_lists(value: Any, name: str) -> Array | None:
    """A column of lists that Arrow holds, as a matrix of the numbers it is stored in; else None.

    Arrow's own, those of polars and of pandas with Arrow's types; a table may have it as its only
    column.
    """
    column = _only_column(value)
    held = _library(column) in _OF_ARROW or hasattr(_dtype(column), "pyarrow_dtype")
    streamed = hasattr(column, "__arrow_c_stream__")
    if not held or not (streamed or hasattr(column, "__arrow_c_array__")):
        return None
    try:
        found = arrow("a column of lists").chunked_array(column if streamed else [column])
    except (InputError, TypeError, ValueError):  # no pyarrow, or a table
        return None
    return _of_chunks(found, name) if is_list(found.type) else None


def _only_column(value: Any) -> Any:
    """The column of a table of polars or Arrow that has one; anything else as it is."""
    if tuple(getattr(value, "shape", ()))[1:] != (1,) or _library(value) not in _OF_ARROW:
        return value
    return value.to_series(0) if hasattr(value, "to_series") else value.column(0)


def _dtype(column: Any) -> Any:
    return getattr(column, "dtype", None)


def _of_chunks(column: Any, name: str) -> Array:
    """The rows of all chunks; a single one is not copied."""
    pieces = []
    before = 0
    shape = None
    for chunk in column.chunks:
        pieces.append(dense(chunk, shape, before, name))
        shape = pieces[0].shape[1:]
        before += len(chunk)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def stacked(column: Array, name: str) -> Array | None:
    """A column of objects that are lists or arrays as a matrix; None where they are not."""
    values = column.ravel()
    if column.ndim > 2 or column.size != len(column) or not len(values) or not _has_rows(values[0]):
        return None
    lengths = [len(value) if _has_rows(value) else -1 for value in values]
    wrong = next((row for row, length in enumerate(lengths) if length != lengths[0]), None)
    if wrong is not None:
        what = f"a list of {lengths[wrong]} values" if lengths[wrong] >= 0 else f"{values[wrong]!r}"
        raise InputError(
            f"{name}: row {wrong} holds {what} where others have {lengths[0]} values; all rows "
            "must have the same length."
        )
    return np.stack([np.asarray(value) for value in values])


def _has_rows(value: Any) -> bool:
    return hasattr(value, "__len__") and not hasattr(value, "encode") and not hasattr(value, "keys")


def taken(table: Any, rows: Any) -> Any:
    """Some rows of an array, a frame or a data set, in this order, as the same kind of thing."""
    ways = _WAYS.get(_library(table))
    if ways is not None:
        return ways[0](table, rows)
    if hasattr(table, "tocsr"):
        return table.tocsr()[rows]  # not every form of a sparse matrix can be asked for rows
    return table[rows] if hasattr(table, "shape") else np.asarray(table)[rows]


def with_column(table: Any, name: str, values: Array) -> Any:
    """The table with another column.

    Raises
    ------
    InputError
        Where it is no table that is known, or has such a column already.
    """
    ways = _WAYS.get(_library(table))
    names = getattr(table, "column_names", getattr(table, "columns", None))
    if ways is None or names is None:
        raise InputError(
            f"a {type(table).__name__} has no columns; give a datasets.Dataset, a pandas or polars "
            "frame or an Arrow table, or index an array with the coreset."
        )
    if name in list(names):
        raise InputError(
            f"the table has a column {name!r} already; give the weights another name "
            "(weight='coreset_weight'), or none (weight=None)."
        )
    return ways[1](table, name, values)


def _library(table: Any) -> str:
    return type(table).__module__.partition(".")[0]


def _polars_series(name: str, values: Array) -> Any:
    return sys.modules["polars"].Series(name, values)


#: How rows are taken from what a library calls a table, and how a column is added.
_WAYS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, str, Array], Any]]] = {
    "datasets": (
        lambda table, rows: table.select(rows),
        lambda table, name, values: table.add_column(name, values),
    ),
    "pandas": (
        lambda table, rows: table.iloc[rows],
        lambda table, name, values: table.assign(**{name: values}),
    ),
    "polars": (
        lambda table, rows: table[rows],
        lambda table, name, values: table.with_columns(_polars_series(name, values)),
    ),
    "pyarrow": (
        lambda table, rows: table.take(rows),
        lambda table, name, values: table.append_column(name, [values]),
    ),
}

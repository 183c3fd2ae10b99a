"""Tables of other libraries: read columns of lists, take rows and add columns.

None of these libraries is imported here unless it is needed. Arrow columns are read in place.
"""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from bicore.errors import InputError, import_extra

Array = npt.NDArray[Any]

#: Libraries whose columns are Arrow's.
_OF_ARROW = ("polars", "pyarrow")


def arrow(needs: str = "Parquet") -> Any:
    """Import pyarrow, or raise an error with the install command."""
    pyarrow = import_extra("pyarrow", f"{needs} needs pyarrow", "'bicore[tables]'")
    import_module("pyarrow.compute")
    return pyarrow


def is_frame(value: Any) -> bool:
    """Return whether this is a table of pandas, polars or Arrow."""
    names = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}
    refuse_hidden(value, "x")
    return type(value).__name__ == names.get(_library(value))


def refuse_hidden(value: Any, name: str) -> None:
    """Refuse masked values, which NumPy would unmask, and lazy frames."""
    if np.ma.is_masked(value):
        raise InputError(f"{name} has masked values; fill them, or drop these rows.")
    if type(value).__name__ == "LazyFrame":
        raise InputError(f"{name} is a LazyFrame, which holds no rows yet; give {name}.collect().")


def is_dask(value: Any) -> bool:
    """Whether this is a lazy collection.

    xarray has the same method for arrays in memory, where it returns None.
    """
    return hasattr(value, "__dask_graph__") and value.__dask_graph__() is not None


def storage_type(kind: Any) -> Any:
    """Return the storage type of an Arrow extension type, such as a matrix of fixed size."""
    return getattr(kind, "storage_type", kind)


def is_list(kind: Any) -> bool:
    """Whether an Arrow type holds lists."""
    types = arrow().types
    kind = storage_type(kind)
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def list_to_array(chunk: Any, shape: tuple[int, ...] | None, first: int, place: str) -> Array:
    """Convert lists (of lists) of an Arrow array to an array; a missing list or value is NaN.

    ``shape`` is the shape of a row, if known. ``first`` (the row number of the first list) and
    ``place`` (the file and the column) are for errors.
    """
    chunk = getattr(chunk, "storage", chunk)
    if not is_list(chunk.type):
        if arrow().types.is_boolean(chunk.type):
            chunk = chunk.cast("uint8")
        return np.asarray(chunk.to_numpy(zero_copy_only=False))
    there = chunk.drop_null() if chunk.null_count else chunk
    length = shape[0] if shape else _length(there)
    lengths = chunk.value_lengths().fill_null(length).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != length)
    if len(wrong):
        raise _unequal(place, first + wrong[0], f"a list of {lengths[wrong[0]]} values", length)
    inner = list_to_array(there.flatten(), shape[1:] if shape else None, first, place)
    rows = inner.reshape(len(there), length, *inner.shape[1:])
    if not chunk.null_count:
        return rows
    kind = rows.dtype if rows.dtype.kind == "f" else np.result_type(rows.dtype, np.float32)
    full = np.full((len(chunk), *rows.shape[1:]), np.nan, dtype=kind)
    full[chunk.is_valid().to_numpy(zero_copy_only=False)] = rows
    return full


def _unequal(place: str, row: int, held: str, length: int) -> InputError:
    others = f"others have {length} values"
    return InputError(f"{place}: row {row} holds {held} and {others}; give rows of one length.")


def _length(lists: Any) -> int:
    fixed = getattr(lists.type, "list_size", None)
    if fixed is not None:
        return int(fixed)
    return int(lists.value_lengths()[0].as_py()) if len(lists) else 0


def row_shape(column: Any, place: str) -> tuple[int, ...] | None:
    """Return the shape of the first list of an Arrow column; None without lists."""
    for chunk in column.chunks:
        there = chunk.drop_null()
        if len(there):
            return tuple(list_to_array(there.slice(0, 1), None, 0, place).shape[1:])
    return None


def dense_column(column: Any, shape: tuple[int, ...] | None, first: int, place: str) -> Array:
    """Convert an Arrow column of numbers or lists to an array; see :func:`list_to_array`."""
    starts = accumulate(map(len, column.chunks), initial=first)
    pairs = zip(column.chunks, starts, strict=False)
    pieces = [list_to_array(chunk, shape, start, place) for chunk, start in pairs]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def arrow_lists(value: Any, name: str) -> Array | None:
    """Convert a column of Arrow lists to a matrix; return None for other values.

    The column is one of pyarrow, of polars, or of pandas with an Arrow type, or a table with such a
    column only.
    """
    column = value
    if tuple(getattr(value, "shape", ()))[1:] == (1,) and _library(value) in _OF_ARROW:
        column = value.to_series(0) if hasattr(value, "to_series") else value.column(0)
    dtype = getattr(column, "dtype", None)
    held = _library(column) in _OF_ARROW or hasattr(dtype, "pyarrow_dtype")
    streamed = hasattr(column, "__arrow_c_stream__")
    if not held or not (streamed or hasattr(column, "__arrow_c_array__")):
        return None
    try:
        found = arrow("a column of lists").chunked_array(column if streamed else [column])
    except (InputError, TypeError, ValueError):  # no pyarrow, or a table
        return None
    if not is_list(found.type):
        return None
    return dense_column(found, row_shape(found, name), 0, name)


def stack_column(column: Array, name: str) -> Array | None:
    """Stack a column of lists or arrays into a matrix; return None for other objects."""
    values = column.ravel()
    if column.ndim > 2 or column.size != len(column) or not len(values) or not _has_rows(values[0]):
        return None
    lengths = [len(value) if _has_rows(value) else -1 for value in values]
    wrong = next((row for row, length in enumerate(lengths) if length != lengths[0]), None)
    if wrong is not None:
        what = f"a list of {lengths[wrong]} values" if lengths[wrong] >= 0 else f"{values[wrong]!r}"
        raise _unequal(name, wrong, what, lengths[0])
    return np.stack([np.asarray(value) for value in values])


def _has_rows(value: Any) -> bool:
    return hasattr(value, "__len__") and not hasattr(value, "encode") and not hasattr(value, "keys")


def take_rows(table: Any, rows: Any) -> Any:
    """Return rows of an array, a frame or a data set, in this order and of the same type."""
    match _library(table):
        case "datasets":
            return table.select(rows)
        case "pandas":
            return table.iloc[rows]
        case "pyarrow":
            return table.take(rows)
    if hasattr(table, "tocsr"):
        return table.tocsr()[rows]  # not every sparse format supports row indices
    return table[rows] if hasattr(table, "shape") else np.asarray(table)[rows]


def with_column(table: Any, name: str, values: Array) -> Any:
    """Return the table with another column."""
    names = getattr(table, "column_names", getattr(table, "columns", None))
    library = _library(table)
    if library not in ("datasets", "pandas", "polars", "pyarrow") or names is None:
        fix = "give a datasets.Dataset, a frame or an Arrow table, or index with the coreset"
        raise InputError(f"a {type(table).__name__} has no columns; {fix}.")
    if name in list(names):
        fix = "give weights another name (weight='coreset_weight'), or none (weight=None)"
        raise InputError(f"the table has a column {name!r} already; {fix}.")
    match library:
        case "datasets":
            return table.add_column(name, values)
        case "pandas":
            return table.assign(**{name: values})
        case "polars":
            return table.with_columns(sys.modules["polars"].Series(name, values))
    return table.append_column(name, [values])


def _library(table: Any) -> str:
    return type(table).__module__.partition(".")[0]

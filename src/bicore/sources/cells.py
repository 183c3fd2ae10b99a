"""Cells of one column of pyarrow's, as arrays of NumPy.

:func:`clean` comes first: it makes every missing cell a null and trims text. The other functions
expect its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.frames import arrow, dense, is_list, plain

#: Words for a missing value, in lower case.
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
#: Cells that are tried before all cells of a column are.
TRIED = 100
#: Cells whose values are counted at a time.
_COUNTED = 4096


class Cells(Sequence[Any]):
    """A column for display: one Python value for each row."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: Any) -> Any:
        # A slice copies nothing, where an index may join all chunks of text.
        return listed(self.column[row : row + 1])[0]


def listed(column: Any) -> list[Any]:
    """Python values of a column; a date beyond Python's years is text."""
    if not hasattr(column, "to_pylist"):
        return list(column)
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        found = column.cast("string").to_pylist()
    return found


def take(column: Any, rows: Array) -> Any:
    """Some rows of a column."""
    if hasattr(column, "take"):
        return column.take(arrow().array(rows))
    return [column[row] for row in rows.tolist()]


def typed(cells: Sequence[Any]) -> Any:
    """Python values as an array of one type; as text if they have several."""
    pyarrow = arrow("a table")
    try:
        return pyarrow.array(cells, from_pandas=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
        return as_text(cells)


def as_text(cells: Sequence[Any]) -> Any:
    """Python values as an array of text."""
    return arrow().array([None if cell is None else str(cell) for cell in cells], "string")


def join(pieces: Sequence[Any]) -> Any:
    """Arrays below each other: one type if they can have one, else text."""
    pyarrow = arrow()
    flat = [chunk for one in pieces for chunk in getattr(one, "chunks", [one])]
    kinds = {one.type for one in flat if not pyarrow.types.is_null(one.type)}
    if kinds == {pyarrow.int64(), pyarrow.float64()}:
        kinds = {pyarrow.float64()}
    if len(kinds) > 1:
        return pyarrow.chunked_array([as_text(listed(one)) for one in flat], "string")
    kind = next(iter(kinds), pyarrow.string())
    return pyarrow.chunked_array([one.cast(kind) for one in flat], kind)


def clean(column: Any, words: Sequence[str] = ()) -> Any:
    """A column in which every missing cell is null and text is trimmed.

    ``words`` are further words for a missing value. Types are simplified: extensions and
    dictionaries become their values.
    """
    pyarrow = arrow("a table")
    if not hasattr(column, "chunks"):
        column = pyarrow.chunked_array([typed(column)])
    column = _simplified(column)
    compute = pyarrow.compute
    if pyarrow.types.is_floating(column.type):
        return compute.if_else(compute.is_nan(column), pyarrow.scalar(None, column.type), column)
    if kind_of(column) != "text":
        return column
    known = pyarrow.array([*MISSING, *(word.strip().lower() for word in words)], column.type)
    return pyarrow.chunked_array([_clean_text(one, known) for one in column.chunks], column.type)


def _clean_text(chunk: Any, known: Any) -> Any:
    """Text without spaces around it and words for missing; not copied if it has none of them."""
    pyarrow = arrow()
    compute = pyarrow.compute
    trimmed = compute.utf8_trim_whitespace(chunk)
    gone = compute.is_in(compute.utf8_lower(trimmed), value_set=known)
    if compute.any(gone).as_py():
        return compute.if_else(gone, pyarrow.scalar(None, chunk.type), trimmed)
    return chunk if trimmed.equals(chunk) else trimmed


def _simplified(column: Any) -> Any:
    """The column without an extension, dictionary, view or null type."""
    pyarrow = arrow()
    kind = plain(column.type)
    if kind != column.type:
        column = pyarrow.chunked_array([chunk.storage for chunk in column.chunks], kind)
    if pyarrow.types.is_dictionary(kind):
        return _simplified(column.cast(kind.value_type))
    if str(kind) == "string_view":  # pyarrow has no test for it before version 16
        return column.cast(pyarrow.large_string())
    return column.cast(pyarrow.string()) if pyarrow.types.is_null(kind) else column


def kind_of(column: Any) -> str:
    """A word for what a column holds."""
    types, kind = arrow().types, column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_boolean(kind):
        return "booleans"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "numbers"
    if types.is_duration(kind):
        return "durations"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "dates"
    if types.is_time(kind):
        return "times"
    return "lists" if is_list(kind) else "values of a kind that is not read"


def missing(column: Any) -> Array:
    """Which cells are null."""
    return as_numpy(column.is_null())


def sample(column: Any) -> Any:
    """Up to a hundred cells, spread over the column, without the nulls."""
    places = np.linspace(0, len(column) - 1, min(TRIED, len(column))).astype(np.int64)
    pieces = [column.slice(place, 1) for place in places.tolist()]
    chunks = [chunk for piece in pieces for chunk in piece.chunks]
    return arrow().chunked_array(chunks, column.type).drop_null()


def floats(column: Any) -> Array:
    """Numbers as float64, NaN where one is missing; durations are seconds."""
    scale = 1.0
    if kind_of(column) == "durations":
        column, scale = column.cast(arrow().duration("us"), safe=False).cast("int64"), 1e6
    found = as_numpy(column.cast("float64", safe=False).fill_null(np.nan))
    return np.array(found, dtype=np.float64) / scale


def moments(column: Any) -> Array:
    """Dates or times of day as microseconds since 1970, NaT where one is missing."""
    pyarrow = arrow()
    unit = pyarrow.timestamp("us", getattr(column.type, "tz", None))
    if kind_of(column) == "times":
        unit = pyarrow.time64("us")
    whole = column.cast(unit, safe=False).cast("int64")
    found = as_numpy(whole.fill_null(0)).astype("datetime64[us]")
    found[missing(column)] = np.datetime64("NaT")
    return found


def vectors(column: Any) -> Array | None:
    """Lists of numbers as rows, NaN where one is missing; None if their lengths differ."""
    filled = [chunk for chunk in column.chunks if len(chunk) > chunk.null_count]
    types = arrow().types
    inner = column.type.value_type
    if not filled or not (types.is_integer(inner) or types.is_floating(inner)):
        return None
    try:
        width = dense(filled[0].drop_null().slice(0, 1), None, 0, "").shape[1:]
        pieces = [dense(chunk, width, 0, "") for chunk in column.chunks]
    except InputError:  # a row of another length
        return None
    return np.concatenate(pieces).astype(np.float64) if width[0] else None


@dataclass(frozen=True, eq=False)
class Texts:
    """Text with each value once: cell i is ``values[codes[i]]``; a missing one has code -1."""

    codes: Array
    values: tuple[str, ...]

    def look_up(self, values: Array, missing: Any) -> Array:
        """One entry for each cell, given one for each value."""
        return np.append(values, np.array([missing], dtype=values.dtype))[self.codes]


def count_values(column: Any, most: int) -> int:
    """How many different values there are; counting ends above ``most``."""
    seen: set[str] = set()
    for start in range(0, len(column), _COUNTED):
        seen.update(_as_words(column.slice(start, _COUNTED)).unique().drop_null().to_pylist())
        if len(seen) > most:
            break
    return len(seen)


def texts(column: Any) -> Texts:
    """Cells as text, whatever their type; values are sorted."""
    column = _as_words(column)
    encoded = column.dictionary_encode().unify_dictionaries()
    if not encoded.num_chunks:
        return Texts(np.zeros(0, np.int64), ())
    values = np.array(encoded.chunk(0).dictionary.to_pylist(), dtype=object)
    order = np.argsort(values)
    places = np.empty(len(values) + 1, np.int64)
    places[order], places[-1] = np.arange(len(values)), -1
    codes = [as_numpy(chunk.indices.fill_null(-1)) for chunk in encoded.chunks]
    return Texts(places[np.concatenate(codes)], tuple(values[order]))


def _as_words(column: Any) -> Any:
    """The column as text; booleans as Python writes them."""
    if kind_of(column) == "text":
        return column
    if kind_of(column) == "booleans":
        return arrow().compute.if_else(column, "True", "False")
    return arrow().chunked_array([as_text(listed(column))])


def as_numpy(column: Any) -> Array:
    """A column or one of its chunks as an array."""
    chunked = hasattr(column, "num_chunks")
    return np.asarray(column.to_numpy() if chunked else column.to_numpy(zero_copy_only=False))

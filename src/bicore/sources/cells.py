"""Columns of pyarrow: cleaned, and read as numbers, times, vectors or text.

:func:`clean` comes first: it makes every missing cell a null and trims text. The other functions
expect its result.

Text is read as numbers with a decimal point, a decimal comma or commas at thousands, also with a
currency or a percent sign; and as times: 2013-01-05 and 2013/1/5 with or without a time (after a T
or a space, with or without a zone), 5.1.2013, 1/5/2013 if some row shows which number is the month,
and 17:30.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.frames import arrow, dense_column, is_list, row_shape, storage_type

#: Words for a missing value, in lower case.
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
#: Number of cells of a column tried first.
TRIED = 100


class Cells(Sequence[Any]):
    """A column for display: one Python value for each row."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: Any) -> Any:
        # A slice makes no copy; an index may join all chunks of text.
        return to_list(self.column[row : row + 1])[0]


def to_list(column: Any) -> list[Any]:
    """Convert a column to Python values; a date beyond Python's years becomes text."""
    try:
        return list(column.to_pylist() if hasattr(column, "to_pylist") else column)
    except (ValueError, OverflowError):
        return list(column.cast("string").to_pylist())


def take(column: Any, rows: Array) -> Any:
    """Return some rows of a column."""
    if hasattr(column, "take"):
        return column.take(arrow().array(rows))
    return [column[row] for row in rows.tolist()]


def as_array(cells: Sequence[Any]) -> Any:
    """Convert Python values to an Arrow array; values of several types become text."""
    pyarrow = arrow("a table")
    if hasattr(cells, "null_count"):  # already an array of pyarrow
        return cells
    try:
        return pyarrow.array(cells, from_pandas=True)
    except (TypeError, ValueError, NotImplementedError, OverflowError):
        return as_text(cells)


def as_text(cells: Sequence[Any]) -> Any:
    """Convert Python values to an array of text."""
    return arrow().array([None if cell is None else str(cell) for cell in cells], "string")


def join(pieces: Sequence[Any]) -> Any:
    """Concatenate arrays; arrays of incompatible types become text."""
    pyarrow = arrow()
    flat = [chunk for one in pieces for chunk in getattr(one, "chunks", [one])]
    kinds = {one.type for one in flat if not pyarrow.types.is_null(one.type)}
    if kinds == {pyarrow.int64(), pyarrow.float64()}:
        kinds = {pyarrow.float64()}
    if len(kinds) > 1:
        return pyarrow.chunked_array([as_text(to_list(one)) for one in flat], "string")
    kind = next(iter(kinds), pyarrow.string())
    cast = [one if one.type == kind else one.cast(kind, safe=False) for one in flat]
    return pyarrow.chunked_array(cast, kind)


def clean(column: Any, words: Sequence[str] = ()) -> Any:
    """Return the column with every missing cell as null and text trimmed.

    ``words`` are further words for a missing value. Extensions and dictionaries become their
    values.
    """
    pyarrow = arrow("a table")
    compute = pyarrow.compute
    if not hasattr(column, "chunks"):
        column = pyarrow.chunked_array([as_array(column)])
    column = _simplify(column)
    gone = column.is_null()
    if pyarrow.types.is_floating(column.type):
        gone = compute.is_nan(column)
    elif cells_of(column) == "text":
        known = pyarrow.array([*MISSING, *(word.strip().lower() for word in words)], column.type)
        column = compute.utf8_trim_whitespace(column)
        gone = compute.is_in(compute.utf8_lower(column), value_set=known)
    if not compute.any(gone).as_py():
        return column
    return compute.if_else(gone, pyarrow.scalar(None, column.type), column)


def _simplify(column: Any) -> Any:
    """Return the column without extension, dictionary, view or null type."""
    pyarrow = arrow()
    kind = storage_type(column.type)
    if kind != column.type:
        column = pyarrow.chunked_array([chunk.storage for chunk in column.chunks], kind)
    if pyarrow.types.is_dictionary(kind):
        return _simplify(column.cast(kind.value_type))
    if str(kind) == "string_view":  # pyarrow has no test for it before version 16
        return column.cast(pyarrow.large_string())
    return column.cast(pyarrow.string()) if pyarrow.types.is_null(kind) else column


def cells_of(column: Any) -> str:
    """Name the kind of cells of a column."""
    types, kind = arrow().types, column.type
    kinds = {
        "text": types.is_string(kind) or types.is_large_string(kind),
        "booleans": types.is_boolean(kind),
        "numbers": types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
        "durations": types.is_duration(kind),
        "dates": types.is_timestamp(kind) or types.is_date(kind),
        "times": types.is_time(kind),
        "lists": is_list(kind),
    }
    return next((word for word, true in kinds.items() if true), "values of an unsupported type")


def is_missing(column: Any) -> Array:
    """Return a mask of the null cells."""
    return as_numpy(column.is_null())


def as_numpy(column: Any) -> Array:
    """Convert a column or a chunk of it to an array."""
    chunked = hasattr(column, "num_chunks")
    return np.asarray(column.to_numpy() if chunked else column.to_numpy(zero_copy_only=False))


def _sample(column: Any) -> Any:
    """Return up to a hundred cells, spread over the column, without nulls, in one chunk.

    pyarrow compiles a pattern again for every chunk.
    """
    places = np.linspace(0, len(column) - 1, min(TRIED, len(column))).astype(np.int64)
    chunks = [chunk for place in places.tolist() for chunk in column[place : place + 1].chunks]
    together = arrow().chunked_array(chunks, column.type).combine_chunks()
    return arrow().chunked_array([together], column.type).drop_null()


def vectors(column: Any) -> Array | None:
    """Return lists of numbers as rows, NaN for missing ones; None unless all have one length."""
    types = arrow().types
    inner = column.type.value_type if cells_of(column) == "lists" else None
    if inner is None or not (types.is_integer(inner) or types.is_floating(inner)):
        return None
    width = row_shape(column, "")
    try:
        return dense_column(column, width, 0, "").astype(np.float64) if width and width[0] else None
    except InputError:  # a row of another length
        return None


def find_values(column: Any) -> tuple[str, ...]:
    """Return the distinct cells as text, sorted."""
    return tuple(sorted(_as_words(column).unique().drop_null().to_pylist()))


def find_places(column: Any, values: Sequence[str]) -> Array:
    """Return the index of each cell among some values; -1 if missing or unknown."""
    words = _as_words(column)
    known = arrow().array(values, words.type)
    return as_numpy(arrow().compute.index_in(words, value_set=known).fill_null(-1))


def count_values(column: Any) -> int:
    """Return the number of distinct values."""
    return int(arrow().compute.count_distinct(_as_words(column)).as_py())


def _as_words(column: Any) -> Any:
    """Return the column as text; booleans as Python writes them."""
    if cells_of(column) == "text":
        return column
    if cells_of(column) == "booleans":
        return arrow().compute.if_else(column, "True", "False")
    return arrow().chunked_array([as_text(to_list(column))])


class Numerals(StrEnum):
    """The notation of the numbers of a column."""

    POINT = "point"
    COMMA = "comma"
    THOUSANDS = "thousands"


_EXPONENT = r"(?:[eE][+-]?\d+)?"
_NUMBERS = {
    Numerals.POINT: rf"^[+-]?(?:(?:\d[\d_]*\.?\d*|\.\d+){_EXPONENT}|(?i:inf|infinity))$",
    # 3,14 and 1.234,5
    Numerals.COMMA: rf"^[+-]?(?:\d{{1,3}}(?:\.\d{{3}})+|\d+)(?:,\d+)?{_EXPONENT}$",
    # 1,001 and 12,345.6
    Numerals.THOUSANDS: rf"^[+-]?(?:[1-9]\d{{0,2}}(?:,\d{{3}})+|\d+)(?:\.\d*)?{_EXPONENT}$",
}
#: Currencies and the percent sign, before or after a number, are removed.
_UNITS = ((r"^([+-]?)[$€£¥] ?([+-]?)", r"\1\2"), (r" ?[%$€£¥]$", ""))
#: Characters of a number that pyarrow does not read.
_PLAIN = ((r"^\+", ""), ("_", ""))
_REWRITES = {
    Numerals.POINT: _PLAIN,
    Numerals.COMMA: ((r"\.", ""), (",", "."), *_PLAIN),
    Numerals.THOUSANDS: ((",", ""), *_PLAIN),
}
#: A column of numbers may have one other cell in this many.
STRAY = 100


def find_numerals(column: Any, decimal: str | None, tolerant: bool = False) -> list[Numerals]:
    """Return the notations in which cells can be read as numbers: none, one, or two if commas are
    ambiguous.

    ``tolerant`` allows one stray cell in a hundred.
    """
    if cells_of(column) in ("numbers", "durations"):
        return [Numerals.POINT]
    some = _sample(column) if cells_of(column) == "text" else ()
    if not len(some) or 2 * max(_count_numbers(some).values()) < len(some):
        return []
    if _cast(column) is not None:
        return [Numerals.POINT]
    there = len(column) - column.null_count
    counts = _count_numbers(column)
    most = max(counts.values())
    if most < there - (there // STRAY if tolerant else 0):
        return []
    ways = [way for way, count in counts.items() if count == most]
    if Numerals.POINT in ways:
        return [Numerals.POINT]
    wanted = {"comma": Numerals.COMMA, "point": Numerals.THOUSANDS}.get(decimal or "")
    return [wanted] if wanted in ways else ways


def read_numbers(column: Any, written: Numerals = Numerals.POINT) -> Array:
    """Read cells as float64; NaN if missing or no number; durations are in seconds."""
    kind = cells_of(column)
    if kind == "text":
        plain_numbers = _cast(column) if written == Numerals.POINT else None
        if plain_numbers is None:
            bare = _matching(_rewrite(column, _UNITS), written)
            plain_numbers = _rewrite(bare, _REWRITES[written])
        column = plain_numbers
    elif kind == "durations":
        whole = column.cast(arrow().duration("us"), safe=False).cast("int64")
        column = arrow().compute.divide(whole.cast("float64", safe=False), 1e6)
    elif kind != "numbers":
        return np.full(len(column), np.nan)
    return np.array(as_numpy(column.cast("float64", safe=False).fill_null(np.nan)))


def _cast(text: Any) -> Any:
    """Convert text to float64 if every cell is a plain number, else None; faster than a pattern."""
    try:
        return text.cast("float64")
    except arrow().ArrowInvalid:
        return None


def _count_numbers(text: Any) -> dict[Numerals, int]:
    bare = _rewrite(text, _UNITS)
    return {way: len(text) - _matching(bare, way).null_count for way in Numerals}


def _matching(bare: Any, way: Numerals) -> Any:
    pyarrow = arrow()
    fits = pyarrow.compute.match_substring_regex(bare, _NUMBERS[way])
    return pyarrow.compute.if_else(fits, bare, pyarrow.scalar(None, bare.type))


def _rewrite(text: Any, rules: tuple[tuple[str, str], ...]) -> Any:
    for pattern, new in rules:
        text = arrow().compute.replace_substring_regex(text, pattern=pattern, replacement=new)
    return text


_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
_HALF = r"(?:\s?(?P<half>[AaPp][Mm]))?"
_REST = rf"(?:[T ]\s?{_CLOCK}{_HALF}\s?(?:UTC|(?P<zone>Z|[+-]\d{{2}}:?\d{{2}}))?)?"
_TIMES = {
    "ymd": rf"^(?P<y>\d{{4}})[-/](?P<m>\d{{1,2}})[-/](?P<d>\d{{1,2}}){_REST}$",
    "dmy": rf"^(?P<d>\d{{1,2}})\.(?P<m>\d{{1,2}})\.(?P<y>\d{{4}}){_REST}$",
    "dmy/": rf"^(?P<d>\d{{1,2}})/(?P<m>\d{{1,2}})/(?P<y>\d{{4}}){_REST}$",
    "mdy/": rf"^(?P<m>\d{{1,2}})/(?P<d>\d{{1,2}})/(?P<y>\d{{4}}){_REST}$",
    "clock": rf"^(?P<y>)(?P<m>)(?P<d>){_CLOCK}{_HALF}(?P<zone>)$",
}
#: Parts of a time, and their default values.
_PARTS = {"y": "1970", "m": "1", "d": "1", "hour": "0", "minute": "0", "second": "0"}
_PARTS |= {"part": "0", "half": "", "zone": "Z"}


def find_times(column: Any) -> tuple[Array, str | None] | None:
    """Read cells as times and return the format of text; None without a unique format."""
    if cells_of(column) != "text":
        found = read_times(column, None)
        return None if found is None else (found, None)
    some = _sample(column)
    forms = [form for form in _TIMES if len(some) and read_times(some, form) is not None]
    parsed = {form: read_times(column, form) for form in forms}
    fits = [(times, form) for form, times in parsed.items() if times is not None]
    return fits[0] if len(fits) == 1 else None


def read_times(column: Any, form: str | None) -> Array | None:
    """Read cells as microseconds since 1970, NaT for missing ones; None if a cell has another
    format."""
    kind, types = cells_of(column), arrow()
    if kind == "text" and form is not None:
        return _parse_times(column, form)
    if kind == "times":
        return _moments(column.cast(types.time64("us"), safe=False))
    if kind != "dates":
        return None
    zone = getattr(column.type, "tz", None)
    return _moments(column.cast(types.timestamp("us", zone), safe=False))


def _moments(column: Any) -> Array:
    found = as_numpy(column.cast("int64").fill_null(0)).astype("datetime64[us]")
    found[is_missing(column)] = np.datetime64("NaT")
    return found


def _parse_times(text: Any, form: str) -> Array | None:
    pyarrow = arrow()
    compute, join = pyarrow.compute, pyarrow.compute.binary_join_element_wise
    match = compute.extract_regex(text, pattern=_TIMES[form])
    if match.null_count > text.null_count:
        return None
    found = {}
    for name, default in _PARTS.items():
        cells = compute.struct_field(match, name).cast("string")
        found[name] = compute.if_else(compute.equal(cells, ""), default, cells)
    year, month, day, hour, minute, second = (
        compute.utf8_lpad(found[name], 2, "0") for name in list(_PARTS)[:6]
    )
    part = compute.utf8_slice_codeunits(found["part"], 0, 6)
    clock = join(hour, minute, second, ":")
    whole = join(join(year, month, day, "-"), "T", clock, ".", part, found["zone"], "")
    try:
        moments = _moments(whole.cast(pyarrow.timestamp("us", "UTC")))
    except pyarrow.ArrowInvalid:  # the 31st of June
        return None
    half = as_numpy(compute.utf8_lower(found["half"]).fill_null(""))
    hours = as_numpy(hour.cast("int64").fill_null(1))
    if ((half != "") & ((hours < 1) | (hours > 12))).any():
        return None
    later = 12 * ((half == "pm") & (hours < 12)) - 12 * ((half == "am") & (hours == 12))
    return np.asarray(moments + later.astype("timedelta64[h]"))

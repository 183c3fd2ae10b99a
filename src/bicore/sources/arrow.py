"""Columns that pyarrow holds: compact, typed, and turned into NumPy's without a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.sources.cells import MISSING, Cells, Coded, ListCells, as_integers, coded
from bicore.sources.reading import Reading

#: Distinct texts that are tried one by one where pyarrow cannot read a column as numbers.
_TRIED = 100


def arrow() -> Any:
    """The package pyarrow, with what computes on columns."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise InputError(
            "tables are read by pyarrow, which is not installed: pip install 'bicore[tables]'."
        ) from error
    return pyarrow


class ArrowCells(Cells):
    """Cells of one column; this class knows nothing of what they hold."""

    kind = "values of a kind that is not read"

    def __init__(self, column: Any) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def missing(self) -> Array:
        return _numpy(self.column.is_null())

    def listed(self) -> list[Any]:
        found: list[Any] = self.column.to_pylist()
        return found

    def at(self, rows: Array) -> Cells:
        return type(self)(self.column.take(arrow().array(rows)))

    def __getitem__(self, row: int) -> Any:
        # a slice copies nothing, where taking a row may put all chunks of text together
        return type(self)(self.column.slice(row, 1)).listed()[0]

    def followed(self, others: Cells) -> Cells:
        column = getattr(others, "column", None)
        if column is None or column.type != self.column.type:
            return super().followed(others)
        both = [*self.column.chunks, *column.chunks]
        return type(self)(arrow().chunked_array(both, self.column.type))

    def texts(self) -> Coded:
        return coded([None if cell is None else str(cell) for cell in self.listed()])

    def some(self, count: int) -> list[str]:
        return [str(cell) for cell in type(self)(self.column.drop_null()[:count]).listed()]

    def distinct(self) -> int:
        return len({str(cell) for cell in self.column.drop_null().to_pylist()})


class TextCells(ArrowCells):
    """Text, of CSV or by its type."""

    kind = "text"

    def missing(self) -> Array:
        compute = arrow().compute
        words = compute.utf8_lower(compute.utf8_trim_whitespace(self.column))
        gone = compute.is_in(words, value_set=arrow().array(sorted(MISSING), words.type))
        return _numpy(gone) | _numpy(self.column.is_null())

    def some(self, count: int) -> list[str]:
        found: list[str] = []
        for start in range(0, len(self), max(count, 1)):
            part = ListCells(self.column[start : start + count].to_pylist())
            found += part.some(count)
            if len(found) >= count:
                break
        return found[:count]

    def distinct(self) -> int:
        values = TextCells(arrow().chunked_array([self.column.unique()]))
        return int((~values.missing()).sum())

    def texts(self) -> Coded:
        encoded = self.column.dictionary_encode().unify_dictionaries()
        if not encoded.num_chunks:
            return Coded(np.zeros(0, np.int64), ())
        known = coded(_or_none(encoded.chunk(0).dictionary.to_pylist()))
        codes = [_numpy(chunk.indices.fill_null(-1)) for chunk in encoded.chunks]
        places = np.append(known.codes, -1)
        return Coded(places[np.concatenate(codes)], known.values)

    def numbers(self) -> Array | None:
        pyarrow = arrow()
        gone = pyarrow.chunked_array([pyarrow.array(self.missing())])
        trimmed = pyarrow.compute.utf8_trim_whitespace(self.column)
        there = pyarrow.compute.if_else(gone, None, trimmed)
        try:
            return _floats(there.cast(pyarrow.float64()))
        except pyarrow.ArrowInvalid:
            return self._numbers_one_by_one()

    def _numbers_one_by_one(self) -> Array | None:
        """What Python reads and pyarrow does not, such as +1.5."""
        if ListCells(self.some(_TRIED)).numbers() is None:
            return None
        known = self.texts()
        values = ListCells(known.values).numbers()
        return None if values is None else known.mapped(values, np.nan)

    def integers(self) -> Array | None:
        if ListCells(self.some(_TRIED)).integers() is None:
            return None
        known = self.texts()
        values = ListCells(known.values).integers()
        return None if values is None else known.mapped(values, 0)


class NumberCells(ArrowCells):
    """Numbers by their type."""

    kind = "numbers"

    def missing(self) -> Array:
        return np.isnan(self.numbers())

    def numbers(self) -> Array:
        return _floats(self.column.cast("float64", safe=False))


class WholeCells(NumberCells):
    """Whole numbers by their type."""

    def missing(self) -> Array:
        return _numpy(self.column.is_null())

    def integers(self) -> Array | None:
        filled = self.column.fill_null(0)
        try:
            return _numpy(filled.cast("int64"))
        except arrow().ArrowInvalid:
            return as_integers(filled.to_pylist())


class TruthCells(ArrowCells):
    """True and false, which are categories."""

    kind = "booleans"


class SpanCells(NumberCells):
    """Lengths of time, in seconds."""

    def numbers(self) -> Array:
        micro = self.column.cast(arrow().duration("us"), safe=False).cast("int64")
        return _floats(micro.cast("float64", safe=False)) / 1e6


class TimeCells(ArrowCells):
    """Dates, with or without a time."""

    kind = "dates"

    def listed(self) -> list[Any]:
        try:
            return super().listed()
        except (ValueError, OverflowError):  # beyond the years that Python has
            return [
                None if gone else str(cell)
                for cell, gone in zip(self.times(), self.missing(), strict=True)
            ]

    def times(self) -> Array:
        """See the base class; a zone is passed over, the moment counts."""
        pyarrow = arrow()
        kind = pyarrow.timestamp("us", getattr(self.column.type, "tz", None))
        moments = self.column.cast(kind, safe=False).cast("int64")
        found = _numpy(moments.fill_null(0)).astype("datetime64[us]")
        found[self.missing()] = np.datetime64("NaT")
        return found


class ClockCells(TimeCells):
    """Times of a day."""

    kind = "times"
    clock = True

    def times(self) -> Array:
        pyarrow = arrow()
        wide = self.column.cast(pyarrow.time64("us"), safe=False).cast("int64")
        found = _numpy(wide.fill_null(0)).astype("datetime64[us]")
        found[self.missing()] = np.datetime64("NaT")
        return found


class VectorCells(ArrowCells):
    """Lists; of numbers and one length they are features."""

    kind = "lists that are not numbers of one length"

    def vectors(self) -> Array | None:
        pieces = [_rows_of(chunk) for chunk in self.column.chunks if len(chunk)]
        widths = {piece.shape[1] for piece in pieces if piece is not None}
        whole = [piece for piece in pieces if piece is not None]
        if len(whole) < len(pieces) or len(widths) != 1 or widths == {0}:
            return None
        return np.concatenate(whole)


def _rows_of(chunk: Any) -> Array | None:
    """Lists of numbers as rows; a list that is missing is a row of NaN."""
    compute, types = arrow().compute, arrow().types
    inner = chunk.type.value_type
    if not (types.is_integer(inner) or types.is_floating(inner)):
        return None
    there = chunk.drop_null()
    lengths = np.unique(_numpy(compute.list_value_length(there)))
    if len(lengths) != 1:
        return None
    values = _floats(there.flatten().cast("float64", safe=False))
    rows = np.full((len(chunk), int(lengths[0])), np.nan)
    rows[_numpy(chunk.is_valid())] = values.reshape(len(there), -1)
    return rows


def _types() -> list[tuple[Callable[[Any], bool], type[ArrowCells]]]:
    """What is read, and as what; the first line that fits."""
    types = arrow().types
    return [
        (types.is_boolean, TruthCells),
        (types.is_integer, WholeCells),
        (types.is_floating, NumberCells),
        (types.is_decimal, NumberCells),
        (types.is_string, TextCells),
        (types.is_large_string, TextCells),
        (types.is_timestamp, TimeCells),
        (types.is_date, TimeCells),
        (types.is_time, ClockCells),
        (types.is_duration, SpanCells),
        (types.is_list, VectorCells),
        (types.is_large_list, VectorCells),
        (types.is_fixed_size_list, VectorCells),
    ]


def cells_of(column: Any) -> Cells:
    """A column of pyarrow's by what it holds."""
    pyarrow = arrow()
    kind = column.type
    if hasattr(kind, "storage_type"):  # an extension, such as a matrix of fixed size
        kind = kind.storage_type
        column = pyarrow.chunked_array([chunk.storage for chunk in column.chunks], kind)
    if pyarrow.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    elif str(kind) == "string_view":  # which has no test of its own before pyarrow 16
        column = column.cast(pyarrow.large_string())
    elif pyarrow.types.is_null(kind):
        column = column.cast(pyarrow.string())
    found = next((made for fits, made in _types() if fits(column.type)), ArrowCells)
    return found(column)


def limited(batches: Iterable[Any], reading: Reading) -> Iterator[Any]:
    """Batches until there are rows enough; memory is counted as they come.

    Offsets and letters of a damaged file may be anything; they are looked at before they are used.
    """
    held = 0
    rows = 0
    for batch in batches:
        batch.validate(full=True)
        part = batch if reading.limit is None else batch.slice(0, reading.limit - rows)
        held += batch.nbytes
        rows += len(part)
        reading.allowance.need(held, f"the cells of the first {rows} rows")
        if len(part):
            yield part
        if rows == reading.limit:
            return


def _or_none(texts: list[str | None]) -> list[str | None]:
    gone = ListCells(texts).missing()
    return [None if lost else text for text, lost in zip(texts, gone, strict=True)]


def _floats(column: Any) -> Array:
    return np.array(_numpy(column.fill_null(np.nan)), dtype=np.float64)


def _numpy(column: Any) -> Array:
    chunked = hasattr(column, "num_chunks")
    return np.asarray(column.to_numpy() if chunked else column.to_numpy(zero_copy_only=False))

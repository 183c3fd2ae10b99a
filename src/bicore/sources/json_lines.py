"""A JSON object a line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bicore.errors import InputError
from bicore.sources.arrow import arrow
from bicore.sources.base import Source
from bicore.sources.failures import foreign
from bicore.sources.lines import json_rows, lines_of
from bicore.sources.reading import Reading
from bicore.sources.streams import opened
from bicore.sources.tables import table_of, table_source

#: Rows that are held as Python has them before pyarrow holds them.
_ROWS = 8192


def json_lines(path: Path, reading: Reading) -> Source:
    """Columns are the names of all objects; what one lacks is missing there."""
    with foreign(path, "file of JSON lines"), opened(path) as stream:
        lines = _counted(lines_of(stream, str(path)), reading)
        rows = itertools.islice(json_rows(lines, str(path)), reading.limit)
        parts = list(_parts(rows))
        names = dict.fromkeys(name for part in parts for name in part.columns)
        if not names:
            raise InputError(f"{path} holds no rows; give a JSON object a line.")
        table = arrow().table({name: _joined(name, parts) for name in names})
    return table_source(path.name, table_of(table), reading)


@dataclass(frozen=True)
class _Part:
    """Some rows as columns of pyarrow's."""

    rows: int
    columns: dict[str, Any]


def _counted(lines: Iterator[str], reading: Reading) -> Iterator[str]:
    """Lines as they come; what they become takes about as much as their text."""
    held = 0
    for number, line in enumerate(lines, 1):
        held += len(line)
        reading.allowance.need(held, f"the text of the first {number} rows")
        yield line


def _parts(rows: Iterator[dict[str, Any]]) -> Iterator[_Part]:
    while part := list(itertools.islice(rows, _ROWS)):
        names = dict.fromkeys(name for row in part for name in row)
        yield _Part(len(part), {name: _column([row.get(name) for row in part]) for name in names})


def _column(cells: list[Any]) -> Any:
    """Of one type where they have one, as text where not."""
    pyarrow = arrow()
    try:
        return pyarrow.array(cells)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
        return _text(cells)


def _text(cells: list[Any]) -> Any:
    return arrow().array([None if cell is None else str(cell) for cell in cells], "string")


def _joined(name: str, parts: list[_Part]) -> Any:
    """A column of all parts, whose types may differ."""
    pyarrow = arrow()
    pieces = [part.columns.get(name, pyarrow.nulls(part.rows)) for part in parts]
    types = pyarrow.types
    kinds = {piece.type for piece in pieces if not types.is_null(piece.type)}
    kind = next(iter(kinds), pyarrow.string())
    if kinds == {pyarrow.int64(), pyarrow.float64()}:
        kind = pyarrow.float64()
    elif len(kinds) > 1:
        return pyarrow.chunked_array([_text(piece.to_pylist()) for piece in pieces])
    return pyarrow.chunked_array([piece.cast(kind) for piece in pieces])

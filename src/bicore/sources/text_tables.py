"""CSV and JSON tables, from files and through pipes.

pyarrow parses CSV files block by block, and every cell stays the text it was: the package's own
rules say what columns become, and chosen rows are written as they were.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bicore.errors import InputError
from bicore.frames import arrow
from bicore.sources.base import Source
from bicore.sources.cells import join, typed
from bicore.sources.failures import foreign, unreadable
from bicore.sources.reading import Reading, limited, roles_of
from bicore.sources.streams import LONGEST, Unread, open_text
from bicore.sources.tables import Table, table_source

#: pyarrow's words for a row of too few or too many cells.
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
#: A first line that names the delimiter, as spreadsheets write it.
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*')
#: A header has no more columns than these.
MOST_COLUMNS = 100_000
#: Bytes that are parsed at a time; a row, or a header, is no longer.
BLOCK = 2**22
#: Rows that are held as Python values before pyarrow holds them.
_ROWS = 8192
_GAP = re.compile(r"[\s,]*")


def delimited(path: Path | None, reading: Reading, delimiter: str | None = None) -> Source:
    """A CSV file, or standard input without one; the delimiter is one of , ; tab and |."""
    pyarrow = arrow("a table")
    where = str(path or "standard input")
    with foreign(Path(where), "CSV file"), open_text(path, reading.encoding) as text:
        stream = io.BufferedReader(text.stream)  # type: ignore[type-var]
        head = stream.read(BLOCK)
        names, delimiter, length, lines = _header(head, where, delimiter)
        roles_of(where, names, reading)  # before all of it is read
        body = Unread(head[length:], stream)
        batches = list(limited(_batches(body, delimiter, len(names), lines, where), reading))
    if not batches:
        raise _no_rows(where)
    table = Table(names, pyarrow.Table.from_batches(batches).columns)
    return table_source(Path(where).name, table, reading, text.notes)


def tabbed(path: Path, reading: Reading) -> Source:
    """A file with tabs between its cells."""
    return delimited(path, reading, "\t")


def _header(head: bytes, where: str, delimiter: str | None) -> tuple[list[str], str, int, int]:
    """The names, the delimiter, and the bytes and lines that the header takes."""
    lines = head.splitlines(keepends=True)
    blank = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    named = _SEPARATOR.fullmatch(lines[blank].decode()) if blank < len(lines) else None
    if named:
        delimiter, blank = named[1], blank + 1
    if blank >= len(lines):
        raise _no_rows(where)
    delimiter = delimiter or delimiter_of(lines[blank].decode())
    csv.field_size_limit(LONGEST)
    reader = csv.reader((line.decode() for line in lines[blank:]), delimiter=delimiter)
    names = [name.strip() for name in next(reader)]
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{where} has {len(names)} columns, more than {MOST_COLUMNS}; store such wide rows of "
            "numbers in an .npz file."
        )
    taken = blank + reader.line_num
    return names, delimiter, sum(map(len, lines[:taken])), taken


def delimiter_of(header: str) -> str:
    """The character between the cells of a header."""
    return max(",;\t|", key=header.count)


def _batches(body: Unread, delimiter: str, width: int, lines: int, where: str) -> Iterator[Any]:
    """Rows as pyarrow's batches of text, one for each block of the file."""
    pyarrow = arrow()
    from pyarrow import csv as parsing

    names = [str(number) for number in range(width)]
    try:
        yield from parsing.open_csv(
            pyarrow.PythonFile(body, mode="r"),
            parsing.ReadOptions(use_threads=False, block_size=BLOCK, column_names=names),
            parsing.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            parsing.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string())),
        )
    except pyarrow.ArrowInvalid as error:
        raise _in_words(error, lines, where) from error


def _in_words(error: Exception, lines: int, where: str) -> Exception:
    """pyarrow's error in our words; ``lines`` are those of the header."""
    text = str(error)
    ragged = _RAGGED.search(text)
    if ragged:
        row, width, cells = map(int, ragged.groups())
        return InputError(
            f"{where}: line {lines + row} has {cells} cells and the header has {width}; the file "
            "may be truncated."
        )
    if "UTF8" in text:
        return InputError(
            f"{where} is not UTF-8 text throughout; save it as UTF-8 or name its encoding."
        )
    if "straddling" in text:
        return InputError(
            f"{where} has a row of more than {BLOCK >> 20} MB; a quote may not be closed."
        )
    return _no_rows(where) if "Empty CSV" in text else error


def _no_rows(where: str) -> InputError:
    return InputError(
        f"{where} holds no rows below its header; give a CSV file with a header line and at "
        "least one row."
    )


def json_table(path: Path, reading: Reading) -> Source:
    """One JSON object for each line, or in .json files one array of objects.

    The columns are the names of all objects; a value that an object lacks is missing.
    """
    with foreign(path, "JSON file"), open_text(path, reading.encoding) as text:
        lines = _counted(lines_of(text.stream, str(path)), reading)
        if ".json" in (suffix.lower() for suffix in path.suffixes):
            rows = _whole_rows("".join(lines), str(path))
        else:
            rows = json_rows(lines, str(path))
        parts = list(_parts(itertools.islice(rows, reading.limit)))
        names = list(dict.fromkeys(name for _, part in parts for name in part))
        if not names:
            raise InputError(f"{path} holds no rows; give one JSON object for each line.")
        nulls = arrow("a table").nulls
        columns = [join([part.get(name, nulls(rows)) for rows, part in parts]) for name in names]
    return table_source(path.name, Table(names, columns), reading, text.notes)


def _counted(lines: Iterator[str], reading: Reading) -> Iterator[str]:
    """Lines as they come; their columns take about as much memory as their text."""
    held = 0
    for number, line in enumerate(lines, 1):
        held += len(line)
        reading.allowance.need(held, f"the text of the first {number} rows")
        yield line


def _parts(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Some thousands of rows at a time as columns."""
    while part := list(itertools.islice(rows, _ROWS)):
        names = dict.fromkeys(name for row in part for name in row)
        yield len(part), {name: typed([row.get(name) for row in part]) for name in names}


def _whole_rows(text: str, where: str) -> Iterator[dict[str, Any]]:
    """Rows of an array of objects, decoded one after the other; or of JSON lines."""
    if not text.lstrip().startswith("["):
        yield from json_rows(iter(text.splitlines()), where)
        return
    place, number = text.index("[") + 1, 0
    decoder = json.JSONDecoder()
    while text[(place := _after_gap(text, place)) :][:1] != "]":
        number += 1
        try:
            row, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            row = None
        yield _object(row, f"{where}: element {number}")


def _after_gap(text: str, place: int) -> int:
    gap = _GAP.match(text, place)
    return place if gap is None else gap.end()


def _object(row: Any, where: str) -> dict[str, Any]:
    if not hasattr(row, "keys"):
        raise InputError(f"{where} is no JSON object; give one for each row.")
    found: dict[str, Any] = row
    return found


def json_rows(lines: Iterator[str], where: str) -> Iterator[dict[str, Any]]:
    """Rows of one JSON object for each line."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            yield _object(row, f"{where}: line {number}")


def lines_of(stream: IO[bytes], where: str, encoding: str = "utf-8") -> Iterator[str]:
    """Lines as they come."""
    text = io.TextIOWrapper(io.BufferedReader(stream), encoding=encoding, newline="")  # type: ignore[type-var]
    number = 0
    try:
        while line := text.readline(LONGEST):
            number += 1
            if len(line) == LONGEST or "\0" in line:
                raise InputError(
                    f"{where}: line {number} is no line of a table; give CSV with a header, or one "
                    "JSON object for each line."
                )
            yield line
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not {encoding} text after line {number} ({error.reason}); save or send it "
            "as UTF-8, or name its encoding."
        ) from error


def piped_rows(lines: Iterator[str], where: str) -> Iterator[dict[str, Any]]:
    """Rows of CSV or JSON lines as they come; the first line shows the format."""
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        return
    if first.lstrip().startswith("{"):
        yield from json_rows(itertools.chain([first], lines), where)
        return
    named = _SEPARATOR.fullmatch(first)
    if named:
        first = next(lines, "")
    delimiter = named[1] if named else delimiter_of(first)
    yield from _csv_rows(itertools.chain([first], lines), delimiter, where)


def _csv_rows(lines: Iterator[str], delimiter: str, where: str) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(LONGEST)
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        names = [name.strip() for name in next(reader)]
        if len(set(names)) != len(names):
            raise InputError(f"{where} has two columns of one name; rename one.")
        for row in reader:
            if row and len(row) != len(names):
                raise InputError(
                    f"{where}: line {reader.line_num} has {len(row)} cells and the header has "
                    f"{len(names)}; it may have been cut short."
                )
            if row:
                yield dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise unreadable(Path(where), "CSV text", error) from error

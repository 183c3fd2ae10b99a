"""CSV and its kin: cells with a delimiter between, below a header.

pyarrow parses, a block at a time, and every cell stays the text it was: what columns become is
settled by our own rules, and chosen rows are written as they stood.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bicore.errors import InputError
from bicore.sources.arrow import arrow, limited
from bicore.sources.base import Source
from bicore.sources.failures import foreign
from bicore.sources.lines import LONGEST, delimiter_of
from bicore.sources.reading import Reading, roles_of
from bicore.sources.streams import Unread, opened
from bicore.sources.tables import Table, table_of, table_source

#: Bytes that are looked at before a file is taken for text.
_LOOKED_AT = 4096
#: How pyarrow says that a row has too few or too many cells.
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
#: More columns than these are no header.
MOST_COLUMNS = 100_000


def delimited(path: Path | None, reading: Reading) -> Source:
    """A file, or standard input without one; the delimiter is found among , ; tab and |."""
    return _source(path, reading, None)


def tabbed(path: Path | None, reading: Reading) -> Source:
    """A file with tabs between its cells."""
    return _source(path, reading, "\t")


def _source(path: Path | None, reading: Reading, delimiter: str | None) -> Source:
    name = "standard input" if path is None else path.name
    table = _table(path, reading, delimiter, str(path or name))
    return table_source(name, table, reading)


def _table(path: Path | None, reading: Reading, delimiter: str | None, where: str) -> Table:
    pyarrow = arrow()
    with foreign(Path(where), "CSV file"), opened(path) as stream:
        head = stream.read(LONGEST)
        _refuse_other_files(head, where)
        names, delimiter, length, lines = _header(head, where, delimiter)
        roles_of(where, names, reading)  # before all of it is read
        body = Unread(head[length:], stream)
        batches = list(limited(_batches(body, delimiter, len(names), lines, where), reading))
    if not batches:
        raise _no_rows(where)
    return table_of(pyarrow.Table.from_batches(batches), names)


def _refuse_other_files(head: bytes, where: str) -> None:
    if b"\0" in head[:_LOOKED_AT] or head.startswith(b"PAR1"):
        raise InputError(f"{where} is not a text file; give a CSV file, or the right ending.")


def _header(head: bytes, where: str, delimiter: str | None) -> tuple[list[str], str, int, int]:
    """The names, the delimiter, and the bytes and lines that the header takes."""
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    before = len(head) - sum(map(len, lines))
    blank = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    if blank == len(lines):
        raise _no_rows(where)
    try:
        first = lines[blank].decode()
        delimiter = delimiter or delimiter_of(first)
        csv.field_size_limit(LONGEST)
        reader = csv.reader((line.decode() for line in lines[blank:]), delimiter=delimiter)
        names = [name.strip() for name in next(reader)]
    except UnicodeDecodeError as error:
        raise _not_utf8(where, f"{error.reason} in the header") from error
    taken = blank + reader.line_num
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{where} has {len(names)} columns, more than {MOST_COLUMNS}; store rows of so many "
            "numbers in an .npz file."
        )
    return names, delimiter, before + sum(map(len, lines[:taken])), taken


def _batches(body: Unread, delimiter: str, width: int, lines: int, where: str) -> Iterator[Any]:
    """Rows as pyarrow's batches of text, a block of the file each."""
    pyarrow = arrow()
    from pyarrow import csv as parsing

    names = [str(number) for number in range(width)]
    try:
        yield from parsing.open_csv(
            pyarrow.PythonFile(body, mode="r"),
            parsing.ReadOptions(use_threads=False, block_size=LONGEST, column_names=names),
            parsing.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            parsing.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string())),
        )
    except pyarrow.ArrowInvalid as error:
        raise _in_words(error, lines, where) from error


def _in_words(error: Exception, lines: int, where: str) -> Exception:
    """pyarrow's complaint as ours; ``lines`` are those of the header."""
    text = str(error)
    ragged = _RAGGED.search(text)
    if ragged:
        row, width, cells = map(int, ragged.groups())
        return InputError(
            f"{where}: line {lines + row} has {cells} cells and the header has {width}; the file "
            "may be truncated."
        )
    if "UTF8" in text:
        return _not_utf8(where, "below its header")
    if "straddling" in text:
        return InputError(
            f"{where} has a row of more than {LONGEST >> 20} MB; a quote may not be closed."
        )
    if "Empty CSV" in text:
        return _no_rows(where)
    return error


def _no_rows(where: str) -> InputError:
    return InputError(
        f"{where} holds no rows below its header; give a CSV file with a header line and at "
        "least one row."
    )


def _not_utf8(where: str, place: str) -> InputError:
    return InputError(
        f"{where} is not UTF-8 text ({place}); save it as UTF-8, or give the right ending."
    )

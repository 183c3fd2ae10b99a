"""CSV and JSON tables.

pyarrow parses CSV files block by block, and every cell stays the text it was: the package's own
rules say what columns become, and chosen rows are written as they were.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bicore.errors import InputError
from bicore.frames import arrow
from bicore.sources.cells import as_array
from bicore.sources.reading import CELL_COPIES, Reading, roles_of

#: Endings of compressed files, and pyarrow's names for them.
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zip": "zip"}
#: Bytes read to detect the encoding, and maximum length of a line, which also ends an open quote.
LONGEST = 2**24
#: Number of first bytes in which a null byte means that the file is not text.
_LOOKED_AT = 4096
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: pyarrow's message for a row with too few or too many cells.
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
#: A first line with the delimiter, as spreadsheets write it.
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*')
#: Maximum number of columns.
MOST_COLUMNS = 100_000
#: Bytes parsed at a time, and maximum length of a row.
BLOCK = 2**22
#: Number of rows collected as Python values before conversion.
_ROWS = 8192
#: Separators between the objects of a .json file.
_GAP = re.compile(r"[\s,]*")


@contextmanager
def open_text(path: Path | None, encoding: str | None, notes: list[str]) -> Iterator[IO[bytes]]:
    """Open a file, or standard input, as UTF-8; another encoding is noted."""
    where = "standard input" if path is None else str(path)
    with ExitStack() as stack:
        raw: Any = sys.stdin.buffer if path is None else _unpack(path, stack)
        head = raw.read(LONGEST)
        found = _find_encoding(head, where) if encoding is None else check_encoding(encoding)
        stream: Any = PrependedStream(head, raw)
        if found != "utf-8":
            pyarrow = arrow("a table")
            file = pyarrow.PythonFile(stream, mode="r")
            stream = PrependedStream(b"", pyarrow.transcoding_input_stream(file, found, "utf-8"))
        if encoding is None and not found.startswith("utf-8"):
            notes.append(f"{where} is read as {found} text")
        yield io.BufferedReader(stream)


def _unpack(path: Path, stack: ExitStack) -> Any:
    file: Any = stack.enter_context(path.open("rb"))
    way = PACKED.get(path.suffix.lower())
    if way is None:
        return file
    if way != "zip":
        return stack.enter_context(arrow("a packed table").CompressedInputStream(file, way))
    archive = stack.enter_context(zipfile.ZipFile(file))
    held = [one for one in archive.infolist() if not one.is_dir()]
    held = [one for one in held if not one.filename.startswith("__MACOSX")]
    if len(held) != 1:
        raise InputError(f"{path} holds {len(held)} files; give an archive of one table.")
    return stack.enter_context(archive.open(held[0]))


def check_encoding(name: str) -> str:
    """Return the codec of a name, or raise an error."""
    try:
        return codecs.lookup(name).name
    except LookupError as error:
        fix = "give a name such as utf-16 or latin-1"
        raise InputError(f"encoding={name!r} is not known; {fix}.") from error


def _find_encoding(head: bytes, where: str) -> str:
    """Detect the encoding: by byte order mark, UTF-8, Windows-1252 or Latin-1."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    if b"\0" in head[:_LOOKED_AT] or head.startswith(b"PAR1"):
        fix = "give a CSV file, the right extension or the encoding"
        raise InputError(f"{where} is not a text file; {fix}.")
    return next(name for name in ("utf-8", "cp1252", "latin-1") if _decodes(head, name))


def _decodes(head: bytes, name: str) -> bool:
    """Whether the bytes are text in this encoding; they may end within a character."""
    try:
        codecs.getincrementaldecoder(name)().decode(head, final=len(head) < LONGEST)
    except UnicodeDecodeError:
        return False
    return True


class PrependedStream(io.RawIOBase):
    """A stream with some bytes put back at its start."""

    def __init__(self, before: bytes, rest: IO[bytes]) -> None:
        self._before = before
        self._rest = rest

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, room: bytearray) -> int:  # type: ignore[override]  # as io calls it
        """Fill some bytes; 0 at the end."""
        if self._before:
            part, self._before = self._before[: len(room)], self._before[len(room) :]
        else:
            part = self._rest.read(len(room))
        room[: len(part)] = part
        return len(part)


def read_csv(
    path: Path | None, reading: Reading, notes: list[str], delimiter: str | None = None
) -> Iterator[Any]:
    """Read a CSV file, or standard input, as text; by default the delimiter is detected."""
    pyarrow = arrow("a table")
    from pyarrow import csv as parsing

    where = str(path or "standard input")
    with open_text(path, reading.encoding, notes) as stream:
        head = stream.read(BLOCK)
        lines = head.splitlines(keepends=True)
        names, reader, before = _header((line.decode() for line in lines), where, delimiter)
        roles_of(where, names, reading)  # before reading all of it
        taken = before + reader.line_num
        body = PrependedStream(head[sum(map(len, lines[:taken])) :], stream)
        try:
            yield from parsing.open_csv(
                pyarrow.PythonFile(body, mode="r"),
                parsing.ReadOptions(use_threads=False, block_size=BLOCK, column_names=names),
                parsing.ParseOptions(delimiter=reader.dialect.delimiter, newlines_in_values=True),
                parsing.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string())),
            )
        except pyarrow.ArrowInvalid as error:
            raise _csv_error(where, taken, str(error)) from error


def _header(lines: Iterator[str], where: str, delimiter: str | None) -> tuple[list[str], Any, int]:
    """Return the column names, a reader of all later lines, and the number of lines before.

    A first line may name the delimiter; by default the header shows it.
    """
    csv.field_size_limit(LONGEST)
    for before, line in enumerate(lines):
        named = _SEPARATOR.fullmatch(line)
        if named:
            delimiter = named[1]
        elif line.strip():
            delimiter = delimiter or max(",;\t|", key=line.count)
            reader = csv.reader(itertools.chain([line], lines), delimiter=delimiter)
            names = [name.strip() for name in next(reader)]
            if len(names) > MOST_COLUMNS:
                what = f"{where} has {len(names)} columns, more than {MOST_COLUMNS}"
                raise InputError(f"{what}; store such wide rows of numbers in an .npz file.")
            return names, reader, before
    raise no_rows_error(where)


def _csv_error(where: str, lines: int, words: str) -> Exception:
    """Convert pyarrow's error message; the header has ``lines`` lines."""
    ragged = _RAGGED.search(words)
    if ragged:
        row, width, cells = map(int, ragged.groups())
        counts = f"line {lines + row} has {cells} cell(s) and the header has {width}"
        return InputError(f"{where}: {counts}; complete the line, or delete it.")
    if "straddling" in words:
        return InputError(f"{where} has a row of {BLOCK >> 20} MB; a quote may not be closed.")
    return no_rows_error(where) if "Empty CSV" in words else ValueError(words)


def no_rows_error(where: str) -> InputError:
    """Return the error for a table without rows."""
    return InputError(f"{where} has no rows; give CSV with a header, or JSON lines.")


def read_json(path: Path, reading: Reading, notes: list[str]) -> Iterator[Any]:
    """Read one JSON object per line, or from .json files an array of objects."""
    pyarrow = arrow("a table")
    with open_text(path, reading.encoding, notes) as stream:
        lines = ".json" not in map(str.lower, path.suffixes)
        rows = _json_lines(stream, path) if lines else _json_elements(stream, path, reading)
        rows = itertools.islice(rows, reading.limit)
        while part := list(itertools.islice(rows, _ROWS)):
            names = list(dict.fromkeys(name for row in part for name in row))
            cells = [as_array([row.get(name) for row in part]) for name in names]
            yield pyarrow.RecordBatch.from_arrays(cells, names)


def _json_lines(stream: IO[bytes], path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows of one JSON object per line."""
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST), b""), 1):
        if line.strip():
            row = None
            with suppress(ValueError, RecursionError):
                row = json.loads(line)
            yield _as_object(row, f"{path}: line {number}")


def _json_elements(stream: IO[bytes], path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield rows of an array of objects, or of consecutive objects, decoded one at a time."""
    content = bytearray()
    while part := stream.read(LONGEST):  # a single call would reserve the whole limit
        content += part
        reading.allowance.require((CELL_COPIES + 2) * len(content), f"the text of {path}")
    text, decoder = content.decode(), json.JSONDecoder()
    place, end = (text.index("[") + 1, "]") if text.lstrip().startswith("[") else (0, "")
    for number in itertools.count(1):
        place = _GAP.match(text, place).end()  # type: ignore[union-attr]  # matches anything
        if text[place : place + 1] == end:
            return
        row = None
        with suppress(ValueError, RecursionError):
            row, place = decoder.raw_decode(text, place)
        yield _as_object(row, f"{path}: element {number}")


def _as_object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InputError(f"{where} is not a complete JSON object; give one for each row.")
    return row

"""Text a line at a time, and the rows of a JSON object a line or of CSV as it comes."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bicore.errors import InputError
from bicore.sources.failures import unreadable

#: Characters of a line beyond which it is no line of a table; a quote that is never closed ends
#: here too, before it takes all memory.
LONGEST = 2**24


def lines_of(stream: IO[bytes], where: str) -> Iterator[str]:
    """Lines as they come."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    number = 0
    try:
        while line := text.readline(LONGEST):
            number += 1
            if len(line) == LONGEST or "\0" in line:
                raise InputError(
                    f"{where}: line {number} is no line of a table; give CSV with a header, or a "
                    "JSON object a line."
                )
            yield line
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not UTF-8 text after line {number} ({error.reason}); save or send it as "
            "UTF-8."
        ) from error


def rows_of(lines: Iterator[str], where: str) -> Iterator[dict[str, Any]]:
    """Rows by the names of their columns; the first line tells which format it is."""
    first = next((line for line in lines if line.strip()), None)
    if first is not None:
        whole = itertools.chain([first], lines)
        json_lines = first.lstrip().startswith("{")
        yield from json_rows(whole, where) if json_lines else csv_rows(first, whole, where)


def delimiter_of(header: str) -> str:
    """What separates the cells of a header."""
    return max(",;\t|", key=header.count)


def csv_rows(first: str, lines: Iterator[str], where: str) -> Iterator[dict[str, Any]]:
    """Rows of CSV, whose header is the first line."""
    csv.field_size_limit(LONGEST)
    reader = csv.reader(lines, delimiter=delimiter_of(first))
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


def json_rows(lines: Iterator[str], where: str) -> Iterator[dict[str, Any]]:
    """Rows of JSON objects; lists and objects within them are refused."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            plain = {list, dict}.isdisjoint(map(type, row.values()))
        except (ValueError, AttributeError, RecursionError):
            plain = False
        if not plain:
            raise InputError(
                f"{where}: line {number} is no JSON object of numbers, text, truth values and "
                "nulls; send one a line."
            )
        yield row

"""A source as a stream: some rows at a time, of data that lie there whole or that come in a pipe.

What comes in a pipe is a table, CSV with a header or a JSON object a line. Never more of it is held
than the rows asked for: what its columns become is settled on its first rows and kept.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from bicore.data import Dataset
from bicore.errors import InputError, unknown_name
from bicore.sources.arrays import unreadable
from bicore.sources.base import SCALES, Scaling, Source, scaling
from bicore.sources.columns import Columns, Target, TargetKind, settled_columns, settled_target
from bicore.sources.tables import checked_names, delimiter_of

#: Rows, at the least, on which it is settled what columns become: fewer say little about means.
SETTLED_ON = 125
#: Characters of a line beyond which it is no line of a table; a quote that is never closed ends
#: here too, before it takes all memory.
LONGEST = 2**24
#: What messages call it.
PIPE = "standard input"


class Flow(ABC):
    """Rows one after the other."""

    name: str
    #: How many there are; None where nobody knows.
    rows: int | None = None

    @property
    @abstractmethod
    def notes(self) -> list[str]:
        """What is done to columns and values, once rows were taken."""

    @property
    def later(self) -> list[str]:
        """What came that nobody could know of when the notes were made."""
        return []

    @abstractmethod
    def take(self, count: int) -> Dataset | None:
        """The next rows, fewer than asked for at the end only; None after it."""

    def stored(self) -> dict[str, Any]:
        """What another process needs to read further rows alike, as JSON holds it."""
        return {}

    def resume(self, values: Mapping[str, Any], position: int, goes_on: bool) -> None:  # noqa: B027 (data that lie there whole need nothing)
        """Read as before, before any row is taken.

        Where ``goes_on``, the rows before ``position`` do not come again.
        """

    def fingerprint(self) -> str | None:
        """Of the data, where they lie there whole."""
        return None


class WholeFlow(Flow):
    """A source that was read, in its order."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.rows = len(source.data)
        self.position = 0

    @property
    def notes(self) -> list[str]:
        return list(self.source.notes)

    def take(self, count: int) -> Dataset | None:
        rows = self.source.data[self.position : self.position + count]
        self.position += len(rows)
        return rows if len(rows) else None

    def fingerprint(self) -> str | None:
        return self.source.data.fingerprint()


class PipedFlow(Flow):
    """A table that comes in a pipe.

    ``scale`` is "standard" or "none"; ``batch`` the rows that will be taken at a time.
    """

    name = PIPE

    def __init__(
        self,
        pipe: IO[bytes],
        target: str | None,
        scale: str | None = None,
        limit: int | None = None,
        batch: int = SETTLED_ON,
    ) -> None:
        if scale is not None and scale not in SCALES:
            raise unknown_name("scale", scale, SCALES)
        if limit is not None and limit < 1:
            raise InputError(f"limit={limit} is below 1; give a number of rows.")
        self.target = target
        self.standardise = scale != "none"
        self.limit = limit
        self.settled_on = max(SETTLED_ON, batch)
        self.position = 0
        self._rows = _rows_of(_lines(pipe))
        self._table: _Encoding | None = None

    @property
    def notes(self) -> list[str]:
        return [] if self._table is None else self._table.notes

    @property
    def later(self) -> list[str]:
        return [] if self._table is None else self._table.later

    def take(self, count: int) -> Dataset | None:
        if self.limit is not None:
            count = min(count, self.limit - self.position)
        if count < 1:
            return None
        if self._table is None:
            first = list(itertools.islice(self._rows, self.settled_on))
            if not first:
                raise InputError(
                    f"{PIPE} holds no rows; send CSV with a header, or a JSON object a line."
                )
            self._rows = itertools.chain(first, self._rows)
            self._table = _settled(first, self.target, self.standardise)
        rows = list(itertools.islice(self._rows, count))
        if not rows:
            return None
        assert self._table is not None
        encoded = self._table.encoded(rows, self.position)
        self.position += len(rows)
        return encoded

    def stored(self) -> dict[str, Any]:
        return {} if self._table is None else self._table.stored()

    def resume(self, values: Mapping[str, Any], position: int, goes_on: bool) -> None:
        if not values:
            raise InputError(
                f"the state is of a source that was read whole, and {PIPE} is read as it comes; "
                "give that source, or another --state folder."
            )
        self._table = _Encoding.restored(values)
        if self._table.target.name != self.target:
            raise InputError(
                f"--target {self.target}: the state holds a stream whose target was "
                f"{self._table.target.name}; give that, or another --state folder."
            )
        if (self._table.scaling is not None) != self.standardise:
            known = "standard" if self._table.scaling is not None else "none"
            raise InputError(
                f"the state holds a stream read with --scale {known}; use it, or another --state "
                "folder."
            )
        if goes_on:
            self.position = position
        else:  # the rows that come again are counted again
            self._table.columns.unknown.clear()


class _Encoding:
    """What was settled about a table: its columns, its target, and how it is scaled."""

    def __init__(
        self,
        names: list[str],
        complete: bool,
        columns: Columns,
        target: Target,
        scaling: Scaling | None,
        settled_on: int,
    ) -> None:
        self.names = names
        #: Whether every one of the first rows had all columns.
        self.complete = complete
        self.columns = columns
        self.target = target
        self.scaling = scaling
        self.settled_on = settled_on

    @property
    def notes(self) -> list[str]:
        how = "each numeric column scaled" if self.scaling is not None else "as they are"
        return [
            *self.columns.notes,
            f"features: {how}; settled by the first {self.settled_on} rows",
        ]

    @property
    def later(self) -> list[str]:
        return [
            f"column {name}: {count} cells of values that did not occur in the first "
            f"{self.settled_on} rows; no indicator is set for them"
            for name, count in sorted(self.columns.unknown.items())
        ]

    def encoded(self, rows: list[dict[str, Any]], start: int) -> Dataset:
        for number, row in enumerate(rows, start):
            self._check(row, number)
        cells = {name: [row.get(name) for row in rows] for name in self.names}
        y = self.target.encoded(cells[self.target.name], start)
        x = self.columns.encoded(cells)
        return Dataset(x if self.scaling is None else self.scaling(x), y)

    def _check(self, row: dict[str, Any], number: int) -> None:
        strange = [name for name in row if name not in self.names]
        if strange:
            raise InputError(
                f"{PIPE}: row {number} has a column {strange[0]!r}, which the first rows did not "
                f"have; the columns are {', '.join(self.names)}."
            )
        if self.complete and len(row) < len(self.names):
            lost = next(name for name in self.names if name not in row)
            raise InputError(
                f"{PIPE}: row {number} has no column {lost!r}, which all of the first rows had; "
                "send it empty, or as null, where there is no value."
            )

    def stored(self) -> dict[str, Any]:
        values = {
            "names": self.names,
            "complete": self.complete,
            "columns": self.columns.stored(),
            "target": [self.target.name, self.target.kind.name],
            "settled_on": self.settled_on,
            "unknown": dict(sorted(self.columns.unknown.items())),
        }
        if self.scaling is not None:
            values["mean"] = self.scaling.mean.ravel().tolist()
            values["spread"] = self.scaling.spread.ravel().tolist()
        return values

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> _Encoding:
        columns = Columns.restored(values["columns"])
        columns.unknown.update(Counter(values["unknown"]))
        name, kind = values["target"]
        scaled = None
        if "mean" in values:
            mean, spread = (np.array(values[one])[None] for one in ("mean", "spread"))
            scaled = Scaling(mean, spread, columns.indicators)
        target = Target(name, TargetKind[kind])
        names, complete = list(values["names"]), bool(values["complete"])
        return cls(names, complete, columns, target, scaled, values["settled_on"])


def _settled(rows: list[dict[str, Any]], target: str | None, standardise: bool) -> _Encoding:
    """What a table is by its first rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    wanted = checked_names(PIPE, names, target, None)
    cells = {name: [row.get(name) for row in rows] for name in names}
    goal = settled_target(wanted, cells.pop(wanted))
    columns = settled_columns(cells)
    scaled = scaling(columns.encoded(cells), columns.indicators) if standardise else None
    complete = all(len(row) == len(names) for row in rows)
    return _Encoding(names, complete, columns, goal, scaled, len(rows))


def _lines(pipe: IO[bytes]) -> Iterator[str]:
    """Lines as they come."""
    text = io.TextIOWrapper(pipe, encoding="utf-8-sig", newline="")
    number = 0
    try:
        while line := text.readline(LONGEST):
            number += 1
            if len(line) == LONGEST or "\0" in line:
                raise InputError(
                    f"{PIPE}: line {number} is no line of a table; give CSV with a header, or a "
                    "JSON object a line."
                )
            yield line
    except UnicodeDecodeError as error:
        raise InputError(
            f"{PIPE} is not UTF-8 text after line {number} ({error.reason}); send UTF-8."
        ) from error


def _rows_of(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Rows by the names of their columns; the first line tells which format it is."""
    first = next((line for line in lines if line.strip()), None)
    if first is not None:
        whole = itertools.chain([first], lines)
        json_lines = first.lstrip().startswith("{")
        yield from _json_rows(whole) if json_lines else _csv_rows(first, whole)


def _csv_rows(first: str, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(LONGEST)
    reader = csv.reader(lines, delimiter=delimiter_of(first))
    try:
        names = [name.strip() for name in next(reader)]
        if len(set(names)) != len(names):
            raise InputError(f"{PIPE} has two columns of one name; rename one.")
        for row in reader:
            if row and len(row) != len(names):
                raise InputError(
                    f"{PIPE}: line {reader.line_num} has {len(row)} cells and the header has "
                    f"{len(names)}; it may have been cut short."
                )
            if row:
                yield dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise unreadable(Path(PIPE), "CSV text", error) from error


def _json_rows(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            plain = {list, dict}.isdisjoint(map(type, row.values()))
        except (ValueError, AttributeError):
            plain = False
        if not plain:
            raise InputError(
                f"{PIPE}: line {number} is no JSON object of numbers, text, truth values and "
                "nulls; send one a line."
            )
        yield row

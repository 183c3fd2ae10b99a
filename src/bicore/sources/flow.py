"""A source as a stream: some rows at a time, of data that lie there whole or that come in a pipe.

What comes in a pipe is a table, CSV with a header or a JSON object a line. Never more of it is held
than the rows asked for: what its columns become is settled on its first rows and kept.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from bicore.data import Dataset
from bicore.errors import InputError, unknown_name
from bicore.sources.base import SCALES, Scaling, Source, scaling
from bicore.sources.cells import ListCells, missing
from bicore.sources.columns import Columns, settled_columns
from bicore.sources.lines import lines_of, rows_of
from bicore.sources.numerals import Numerals
from bicore.sources.reading import Reading, roles_of
from bicore.sources.target import Target, TargetKind, settled_target

#: Rows, at the least, on which it is settled what columns become: fewer say little about means.
SETTLED_ON = 125
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

    ``scale`` is "standard" or "none"; ``batch`` the rows that will be taken at a time; the other
    options are those of a :class:`Reading`.
    """

    name = PIPE

    def __init__(
        self,
        pipe: IO[bytes],
        target: str | None,
        scale: str | None = None,
        limit: int | None = None,
        batch: int = SETTLED_ON,
        **options: Any,
    ) -> None:
        if scale is not None and scale not in SCALES:
            raise unknown_name("scale", scale, SCALES)
        self.reading = Reading(target, limit=limit, **options)
        self.target = target
        self.standardise = scale != "none"
        self.limit = limit
        self.settled_on = max(SETTLED_ON, batch)
        self.position = 0
        self._rows = rows_of(lines_of(pipe, PIPE), PIPE)
        if self.reading.drop_missing_target:
            self._rows = (row for row in self._rows if not missing(row.get(target or "")))
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
            self._table = _settled(first, self.reading, self.standardise)
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
        cells = _cells(rows, self.names)
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
            "target": [self.target.name, self.target.kind.name, self.target.written.value],
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
        name, kind, *written = values["target"]
        scaled = None
        if "mean" in values:
            mean, spread = (np.array(values[one])[None] for one in ("mean", "spread"))
            scaled = Scaling(mean, spread, columns.kept)
        target = Target(name, TargetKind[kind], *map(Numerals, written))
        names, complete = list(values["names"]), bool(values["complete"])
        return cls(names, complete, columns, target, scaled, values["settled_on"])


def _settled(rows: list[dict[str, Any]], reading: Reading, standardise: bool) -> _Encoding:
    """What a table is by its first rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    roles = roles_of(PIPE, names, reading)
    if len(roles.targets) > 1:
        raise InputError(
            f"--target {reading.target} names several columns, and a pipe has one target; write "
            "the rows to a file."
        )
    cells = _cells(rows, names)
    goal = settled_target(roles.targets[0], cells[roles.targets[0]], reading.decimal)
    columns = settled_columns({name: cells[name] for name in roles.features}, reading.decimal)
    if roles.dropped:
        columns.notes.append(f"dropped columns: {', '.join(roles.dropped)}")
    scaled = scaling(columns.encoded(cells), columns.kept) if standardise else None
    complete = all(len(row) == len(names) for row in rows)
    return _Encoding(names, complete, columns, goal, scaled, len(rows))


def _cells(rows: list[dict[str, Any]], names: list[str]) -> dict[str, ListCells]:
    return {name: ListCells([row.get(name) for row in rows]) for name in names}

"""A source as a stream: some rows at a time, of loaded data or of a table that comes in a pipe.

A pipe holds CSV with a header, or one JSON object for each line. No more of it is held than the
rows asked for: columns are fitted on its first rows, and the fit is stored.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from bicore.data import Dataset
from bicore.errors import InputError, unknown_name
from bicore.sources.base import SCALES, Scaling, Source
from bicore.sources.cells import MISSING, Numerals
from bicore.sources.columns import Columns, Target, TargetKind
from bicore.sources.reading import Reading, name_list, roles_of
from bicore.sources.tables import fit_table
from bicore.sources.text_files import check_encoding, piped_rows, text_lines

#: Columns are fitted on at least so many rows: fewer say little about means.
FITTED_ON = 125
#: Its name in messages.
PIPE = "standard input"


class WholeFlow:
    """A loaded source, in its order."""

    #: Notes that came up after the first rows.
    later: tuple[str, ...] = ()

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.scale = source.scale
        self.rows: int | None = len(source.data)
        self.position = 0

    @property
    def notes(self) -> list[str]:
        """How columns and values are encoded."""
        return list(self.source.notes)

    def take(self, count: int) -> Dataset | None:
        """The next rows, fewer than asked for only at the end; None after it."""
        rows = self.source.data[self.position : self.position + count]
        self.position += len(rows)
        return rows if len(rows) else None

    def stored(self) -> dict[str, Any]:
        """Nothing: another process loads the same source."""
        return {}

    def resume(self, values: Mapping[str, Any], position: int, goes_on: bool) -> None:
        """Do nothing: loaded data begin at their first row."""

    def fingerprint(self) -> str | None:
        """Digest the data."""
        return self.source.data.fingerprint()


class PipedFlow:
    """A table that comes in a pipe.

    ``scale`` is "standard" or "none"; ``batch`` the rows that will be taken at a time; the other
    options are those of a :class:`Reading`.
    """

    name = PIPE
    rows: int | None = None

    def __init__(
        self,
        pipe: IO[bytes],
        target: str | None,
        scale: str | None = None,
        limit: int | None = None,
        batch: int = FITTED_ON,
        **options: Any,
    ) -> None:
        if scale is not None and scale not in SCALES:
            raise unknown_name("scale", scale, SCALES)
        self.reading = Reading(target, limit=limit, needs_target=True, **options)
        self.standardise = scale != "none"
        self.scale = "standard" if self.standardise else "none"
        self.fitted_on = max(FITTED_ON, batch)
        self.position = 0
        lines = text_lines(pipe, PIPE, check_encoding(self.reading.encoding or "utf-8-sig"))
        self._rows = piped_rows(lines, PIPE)
        if self.reading.drop_missing_target:
            words = {*MISSING, *map(str.lower, self.reading.missing_words)}
            self._rows = (row for row in self._rows if _has_value(row.get(target or ""), words))
        self._table: _Encoding | None = None

    @property
    def notes(self) -> list[str]:
        """How columns and values are encoded, once rows were taken."""
        return [] if self._table is None else self._table.notes

    @property
    def later(self) -> list[str]:
        """Notes on cells that came after the first rows."""
        return [] if self._table is None else self._table.later

    def take(self, count: int) -> Dataset | None:
        """The next rows, fewer than asked for only at the end; None after it."""
        if self.reading.limit is not None:
            count = min(count, self.reading.limit - self.position)
        if count < 1:
            return None
        if self._table is None:
            first = list(itertools.islice(self._rows, self.fitted_on))
            if not first:
                raise InputError(f"{PIPE} has no rows; send CSV with a header, or JSON lines.")
            self._rows = itertools.chain(first, self._rows)
            self._table = _fit(first, self.reading, self.standardise)
        rows = list(itertools.islice(self._rows, count))
        if not rows:
            return None
        encoded = self._table.encode(rows, self.position)
        self.position += len(rows)
        return encoded

    def stored(self) -> dict[str, Any]:
        """The fit as JSON, for another process that reads further rows."""
        return {} if self._table is None else self._table.to_json()

    def resume(self, values: Mapping[str, Any], position: int, goes_on: bool) -> None:
        """Use a stored fit; if ``goes_on``, the rows before ``position`` do not come again."""
        other = "give that, or another --state folder."
        if not values:
            raise InputError(f"the state holds a source that was loaded, not {PIPE}; {other}")
        self._table = _Encoding.from_json(values, self.reading.missing_words)
        target = self._table.target.name
        if target != self.reading.target:
            raise InputError(
                f"--target {self.reading.target}: the state holds a stream whose target was "
                f"{target}; {other}"
            )
        scaled = self._table.columns.scaling is not None
        if scaled != self.standardise:
            known = "standard" if scaled else "none"
            raise InputError(f"the state holds a stream read with --scale {known}; {other}")
        if goes_on:
            self.position = position
        else:  # the rows that come again are counted again
            self._table.columns.unknown.clear()

    def fingerprint(self) -> str | None:
        """None: the rows are not known before they come."""
        return None


Flow = WholeFlow | PipedFlow


@dataclass(frozen=True, eq=False)
class _Encoding:
    """The fit of a piped table."""

    names: list[str]
    #: Whether every one of the first rows had all columns.
    complete: bool
    columns: Columns
    target: Target
    fitted_on: int

    @property
    def notes(self) -> list[str]:
        how = "as they are" if self.columns.scaling is None else "each numeric column scaled"
        return [*self.columns.notes, f"features: {how}; fitted on the first {self.fitted_on} rows"]

    @property
    def later(self) -> list[str]:
        return [
            f"column {name}: {count} cells of values that did not occur in the first "
            f"{self.fitted_on} rows; no indicator is set for them"
            for name, count in sorted(self.columns.unknown.items())
            if count
        ]

    def encode(self, rows: list[dict[str, Any]], start: int) -> Dataset:
        for number, row in enumerate(rows, start):
            strange = next((name for name in row if name not in self.names), None)
            lost = next((name for name in self.names if name not in row), None)
            if strange is not None or (self.complete and lost is not None):
                words = f"a column {strange!r}" if strange is not None else f"no column {lost!r}"
                raise InputError(
                    f"{PIPE}: row {number} has {words}, unlike the first rows; the columns are "
                    f"{name_list(self.names)}: send a missing value empty, or as null."
                )
        columns = _columns(rows, self.names)
        y = self.target.encode(columns[self.target.name], start)
        return Dataset(self.columns.encode(columns, strict=True), y)

    def to_json(self) -> dict[str, Any]:
        columns, scaled = self.columns, self.columns.scaling
        values = {
            "names": self.names,
            "complete": self.complete,
            "columns": columns.to_json(),
            "target": [self.target.name, self.target.kind.name, self.target.written.value],
            "settled_on": self.fitted_on,
            "unknown": {name: count for name, count in sorted(columns.unknown.items()) if count},
        }
        if scaled is not None:
            values |= {
                "mean": scaled.mean.ravel().tolist(),
                "spread": scaled.spread.ravel().tolist(),
            }
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any], words: tuple[str, ...]) -> _Encoding:
        columns = Columns.from_json(values["columns"], words)
        columns.unknown.update(Counter(values["unknown"]))
        name, kind, *rest = values["target"]
        if "mean" in values:
            mean, spread = (np.array(values[one])[None] for one in ("mean", "spread"))
            columns = replace(columns, scaling=Scaling(mean, spread, columns.kept))
        target = Target(name, TargetKind[kind], Numerals(*rest or ["point"]), words)
        names, complete = list(values["names"]), bool(values["complete"])
        return cls(names, complete, columns, target, values["settled_on"])


def _fit(rows: list[dict[str, Any]], reading: Reading, standardise: bool) -> _Encoding:
    """Fit a table on its first rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    roles = roles_of(PIPE, names, reading)
    if len(roles.targets) > 1:
        raise InputError(
            f"--target {reading.target} names several columns, and a pipe has one target; write "
            "the rows to a file."
        )
    columns = _columns(rows, names)
    fitted = fit_table(roles, columns.__getitem__, reading, standardise, tolerant=False)
    complete = all(len(row) == len(names) for row in rows)
    assert isinstance(fitted.columns, Columns)
    return _Encoding(names, complete, fitted.columns, fitted.targets[0], len(rows))


def _columns(rows: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    return {name: [row.get(name) for row in rows] for name in names}


def _has_value(cell: Any, words: set[str]) -> bool:
    return cell is not None and str(cell).strip().lower() not in words

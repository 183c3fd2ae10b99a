"""A source as a stream: some rows at a time, of loaded data or of a table that comes in a pipe.

A pipe holds CSV with a header, or one JSON object for each line. No more of it is held than the
rows asked for: columns are fitted on its first rows, and the fit is stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import IO, Any, cast

import numpy as np

from bicore.data import Dataset
from bicore.errors import InputError
from bicore.sources.base import Scaling, Source, check_scale
from bicore.sources.cells import MISSING, Numerals
from bicore.sources.columns import Columns, Target, TargetKind
from bicore.sources.reading import Reading, name_list, roles_of
from bicore.sources.tables import Encoder, fit_table
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
        self.reading = Reading(target, limit=limit, needs_target=True, **options)
        self.standardise = check_scale(scale) != "none"
        self.scale = "standard" if self.standardise else "none"
        self.fitted_on = max(FITTED_ON, batch)
        self.position = 0
        lines = text_lines(pipe, PIPE, check_encoding(self.reading.encoding or "utf-8-sig"))
        self._rows = piped_rows(lines, PIPE)
        if self.reading.drop_missing_target:
            words = {*MISSING, *map(str.lower, self.reading.missing_words)}
            self._rows = (row for row in self._rows if _has_value(row.get(target or ""), words))
        self._encoder: Encoder | None = None
        #: The columns of the first rows, and whether each of these rows had all of them.
        self._names: list[str] = []
        self._complete = True

    @property
    def _columns(self) -> Columns:
        assert self._encoder is not None
        return cast(Columns, self._encoder.columns)

    @property
    def notes(self) -> list[str]:
        """How columns and values are encoded, once rows were taken."""
        if self._encoder is None:
            return []
        how = "each numeric column scaled" if self.standardise else "as they are"
        how = f"features: {how}; fitted on the first {self.fitted_on} rows"
        return [*self._encoder.notes, how]

    @property
    def later(self) -> list[str]:
        """Notes on cells that came after the first rows."""
        return [
            f"column {name}: {count} cells of values that did not occur in the first "
            f"{self.fitted_on} rows; no indicator is set for them"
            for name, count in sorted(self._columns.unknown.items() if self._encoder else ())
            if count
        ]

    def take(self, count: int) -> Dataset | None:
        """The next rows, fewer than asked for only at the end; None after it."""
        if self.reading.limit is not None:
            count = min(count, self.reading.limit - self.position)
        if count < 1:
            return None
        if self._encoder is None:
            first = list(itertools.islice(self._rows, self.fitted_on))
            if not first:
                raise InputError(f"{PIPE} has no rows; send CSV with a header, or JSON lines.")
            self._rows = itertools.chain(first, self._rows)
            self._fit(first)
        rows = list(itertools.islice(self._rows, count))
        encoded = self._encode(rows) if rows else None
        self.position += len(rows)
        return encoded

    def _fit(self, rows: list[dict[str, Any]]) -> None:
        """Fit the table on its first rows."""
        self._names = list(dict.fromkeys(name for row in rows for name in row))
        roles = roles_of(PIPE, self._names, self.reading)
        if len(roles.targets) > 1:
            several = f"--target {self.reading.target} names several columns"
            raise InputError(f"{several}, and a pipe has one; write the rows to a file.")
        columns = self._as_columns(rows)
        self._encoder = fit_table(
            roles, columns.__getitem__, self.reading, self.standardise, strict=True
        )
        self._complete = all(len(row) == len(self._names) for row in rows)
        self.fitted_on = len(rows)

    def _as_columns(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {name: [row.get(name) for row in rows] for name in self._names}

    def _encode(self, rows: list[dict[str, Any]]) -> Dataset:
        assert self._encoder is not None
        for number, row in enumerate(rows, self.position):
            strange = next((name for name in row if name not in self._names), None)
            lost = next((name for name in self._names if name not in row), None)
            if strange is not None or (self._complete and lost is not None):
                words = f"a column {strange!r}" if strange is not None else f"no column {lost!r}"
                known = f"the columns are {name_list(self._names)}"
                fix = "send a missing value empty, or as null"
                raise InputError(f"{PIPE}: row {number} has {words}, and {known}; {fix}.")
        columns = self._as_columns(rows)
        y = self._encoder.labels(columns, start=self.position)
        return Dataset(self._columns.encode(columns, strict=True), y)

    def stored(self) -> dict[str, Any]:
        """The fit as JSON, for another process that reads further rows."""
        if self._encoder is None:
            return {}
        columns, (target,) = self._columns, self._encoder.targets
        values = {
            "names": self._names,
            "complete": self._complete,
            "columns": columns.to_json(),
            "target": [target.name, target.kind.name, target.written.value],
            "settled_on": self.fitted_on,
            "unknown": {name: count for name, count in sorted(columns.unknown.items()) if count},
        }
        for name in ("mean", "spread") if columns.scaling is not None else ():
            values[name] = getattr(columns.scaling, name).ravel().tolist()
        return values

    def resume(self, values: Mapping[str, Any], position: int, goes_on: bool) -> None:
        """Use a stored fit; if ``goes_on``, the rows before ``position`` do not come again."""
        other = "give that, or another --state folder."
        if not values:
            raise InputError(f"the state holds a source that was loaded, not {PIPE}; {other}")
        name, kind, *written = values["target"]
        if name != self.reading.target:
            known = f"the state holds a stream whose target was {name}"
            raise InputError(f"--target {self.reading.target}: {known}; {other}")
        scaled = "mean" in values
        if scaled != self.standardise:
            known = "standard" if scaled else "none"
            raise InputError(f"the state holds a stream read with --scale {known}; {other}")
        words = self.reading.missing_words
        columns = Columns.from_json(values["columns"], words)
        if scaled:
            mean, spread = (np.array(values[one])[None] for one in ("mean", "spread"))
            columns = replace(columns, scaling=Scaling(mean, spread, columns.kept))
        target = Target(name, TargetKind[kind], Numerals(*written or ["point"]), words)
        self._encoder = Encoder(columns, (target,))
        self._names, self._complete = list(values["names"]), bool(values["complete"])
        self.fitted_on = values["settled_on"]
        if goes_on:  # else the rows come again, and are counted again
            self.position = position
            columns.unknown.update(values["unknown"])

    def fingerprint(self) -> str | None:
        """None: the rows are not known before they come."""
        return None


Flow = WholeFlow | PipedFlow


def _has_value(cell: Any, words: set[str]) -> bool:
    return cell is not None and str(cell).strip().lower() not in words

"""The column to predict: classes or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.frames import arrow
from bicore.sources.cells import as_numpy, clean, kind_of, listed, missing, texts
from bicore.sources.columns import ambiguous_comma, infer_times, number_ways, read_numbers
from bicore.sources.numerals import Numerals
from bicore.sources.reading import Allowance

#: Bytes of a character in NumPy's arrays of text, which are all as wide as the longest.
CHARACTER = 4
_WHOLE = r"^[+-]?\d[\d_]*$"


class TargetKind(StrEnum):
    """How the cells of a target are read."""

    WHOLE = "whole numbers, which are classes"
    NUMBERS = "numbers, which are targets"
    TEXT = "text, which is classes"


@dataclass(frozen=True)
class Target:
    """The column to predict."""

    name: str
    kind: TargetKind
    written: Numerals = Numerals.POINT

    def encode(
        self,
        column: Any,
        start: int = 0,
        allowance: Allowance | None = None,
        words: Sequence[str] = (),
    ) -> Array:
        """Labels or targets of some rows; ``start`` is the number of rows before them."""
        column = clean(column, words)
        lost = np.flatnonzero(missing(column))
        if len(lost):
            raise InputError(
                f"the target column {self.name!r} has no value in row {start + lost[0]} (and "
                f"{len(lost) - 1} more); fill those rows, or leave them out with "
                "--drop-missing-target."
            )
        if self.kind is TargetKind.TEXT:
            return self._texts(column, allowance)
        if self.kind is TargetKind.WHOLE:
            self._refuse_strange(column, ~_whole(column), start)
            return self._integers(column, start)
        found = read_numbers(column, self.written)
        self._refuse_strange(column, np.isnan(found), start)
        if not np.isfinite(found).all():
            row = int(np.argmin(np.isfinite(found)))
            raise InputError(
                f"the target column {self.name!r} is {found[row]} in row {start + row}; targets "
                "must be finite: leave the cell empty and give --drop-missing-target, or fix it."
            )
        return found

    def _texts(self, column: Any, allowance: Allowance | None) -> Array:
        known = texts(column)
        if allowance is not None:
            longest = max(map(len, known.values), default=0)
            allowance.need(len(column) * longest * CHARACTER, f"the target {self.name!r} as text")
        return np.array(known.values, dtype=np.str_)[known.codes]

    def _integers(self, column: Any, start: int) -> Array:
        compute = arrow().compute
        if kind_of(column) == "text":
            bare = compute.replace_substring_regex(column, pattern=r"^\+|_", replacement="")
        else:
            bare = column
        try:
            return as_numpy(bare.cast("int64"))
        except arrow().ArrowInvalid:
            limits = np.iinfo(np.int64)
            beyond = (not limits.min <= int(cell) <= limits.max for cell in listed(column))
            row = next(row for row, wrong in enumerate(beyond) if wrong)
        raise InputError(
            f"the target column {self.name!r} is {column[row]} in row {start + row}, beyond whole "
            "numbers of 64 bits; write classes as text (with a letter), or amounts with a decimal "
            "point."
        )

    def _refuse_strange(self, column: Any, unread: Array, start: int) -> None:
        """Refuse a cell of another kind than the first rows."""
        rows = np.flatnonzero(unread)
        if len(rows):
            cell = listed(column.slice(rows[0], 1))[0]
            raise InputError(
                f"the target column {self.name!r} is {cell!r} in row {start + rows[0]}, and its "
                f"first rows held {self.kind.value}; write targets with a decimal point and "
                "classes as text throughout."
            )


def fit_target(
    name: str, column: Any, decimal: str | None = None, words: Sequence[str] = ()
) -> Target:
    """Choose how to read a target by what it holds in some rows."""
    there = clean(column, words).drop_null()
    if len(there) and _whole(there).all():
        return Target(name, TargetKind.WHOLE)
    ways = number_ways(there, decimal)
    if len(ways) > 1:
        raise InputError(f"the target column {name!r} holds {ambiguous_comma(there)}.")
    if ways:
        return Target(name, TargetKind.NUMBERS, ways[0])
    if len(there) and infer_times(there) is not None:
        raise InputError(
            f"the target column {name!r} holds dates or times, such as {listed(there[:1])[0]}; "
            "predict a number of days or hours, or write classes as other text."
        )
    if kind_of(there) not in ("text", "booleans"):
        raise InputError(
            f"the target column {name!r} holds {kind_of(there)}; give numbers, text or booleans."
        )
    return Target(name, TargetKind.TEXT)


def _whole(column: Any) -> Array:
    """Which cells are integers by type, or are written as integers."""
    pyarrow = arrow()
    if kind_of(column) == "text":
        return as_numpy(pyarrow.compute.match_substring_regex(column, _WHOLE))
    return np.full(len(column), pyarrow.types.is_integer(column.type))

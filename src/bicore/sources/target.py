"""What the column to be predicted becomes: classes, or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.sources.cells import Cells, ListCells
from bicore.sources.columns import numbers_of, read_numbers, times_of
from bicore.sources.numerals import Numerals
from bicore.sources.reading import Allowance

#: Bytes of a character in NumPy's arrays of text, which are all as wide as the longest.
CHARACTER = 4


class TargetKind(StrEnum):
    """How the cells of a target are read."""

    WHOLE = "whole numbers, which are classes"
    NUMBERS = "numbers, which are targets"
    TEXT = "text, which is classes"


@dataclass(frozen=True)
class Target:
    """The column that is to be predicted."""

    name: str
    kind: TargetKind
    written: Numerals = Numerals.POINT

    def encoded(self, cells: Cells, start: int = 0, allowance: Allowance | None = None) -> Array:
        """Labels or targets of some rows; ``start`` is the number of rows before them."""
        lost = np.flatnonzero(cells.missing())
        if len(lost):
            raise InputError(
                f"the target column {self.name!r} has no value in row {start + lost[0]} (and "
                f"{len(lost) - 1} more); fill those rows, or leave them out with "
                "--drop-missing-target."
            )
        if self.kind is TargetKind.TEXT:
            return _texts(self.name, cells, allowance)
        if self.kind is TargetKind.WHOLE:
            found = cells.integers()
        else:
            found = read_numbers(cells, self.written)
        if found is None:
            raise self._strange(cells, start)
        self._refuse_unbounded(found, start)
        return found

    def _strange(self, cells: Cells, start: int) -> InputError:
        """The error for a cell that is not what the first rows held."""
        whole = self.kind is TargetKind.WHOLE
        for row, cell in enumerate(cells.listed(), start):
            one = ListCells([cell])
            if (one.integers() if whole else read_numbers(one, self.written)) is None:
                return InputError(
                    f"the target column {self.name!r} is {cell!r} in row {row}, and its first rows "
                    f"held {self.kind.value}; write targets with a decimal point and classes as "
                    "text throughout."
                )
        raise AssertionError("every cell can be read, and the column cannot")

    def _refuse_unbounded(self, found: Array, start: int) -> None:
        if found.dtype.kind == "O":
            limits = np.iinfo(np.int64)
            beyond = [not limits.min <= value <= limits.max for value in found.tolist()]
            row = int(np.argmax(beyond))
            raise InputError(
                f"the target column {self.name!r} is {found[row]} in row {start + row}, beyond "
                "whole numbers of 64 bits; write classes as text (with a letter), or amounts with "
                "a decimal point."
            )
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            row = int(np.argmin(np.isfinite(found)))
            raise InputError(
                f"the target column {self.name!r} is {found[row]} in row {start + row}; targets "
                "must be finite: leave the cell empty and give --drop-missing-target, or mend it."
            )


def settled_target(name: str, cells: Cells, decimal: str | None = None) -> Target:
    """How a target is read, by what it holds in some rows."""
    # Checked before it is read, for a column that lacks values may be anything.
    there = cells.at(np.flatnonzero(~cells.missing()))
    whole = there.integers() is not None
    ways = [Numerals.POINT] if whole else numbers_of(there, decimal)[1]
    if len(ways) > 1:
        raise InputError(
            f"the target column {name!r} holds numbers such as {there.some(1)[0].strip()}, whose "
            "comma may stand at thousands or before a fraction; say --decimal point or --decimal "
            "comma."
        )
    if ways:
        return Target(name, TargetKind.WHOLE if whole else TargetKind.NUMBERS, ways[0])
    if len(there) and times_of(there) is not None:
        raise InputError(
            f"the target column {name!r} holds dates or times, such as {there.some(1)[0]}; predict "
            "a number of them (days, hours), or write classes as other text."
        )
    if there.kind not in ("text", "booleans"):
        raise InputError(
            f"the target column {name!r} holds {there.kind}; give numbers, text or booleans."
        )
    return Target(name, TargetKind.TEXT)


def _texts(name: str, cells: Cells, allowance: Allowance | None) -> Array:
    known = cells.texts()
    values = [value.strip() for value in known.values]
    if allowance is not None:
        longest = max(map(len, values), default=0)
        allowance.need(len(cells) * longest * CHARACTER, f"the target {name!r} as text")
    return np.array(values, dtype=np.str_)[known.codes]

"""What the columns of a table become, settled on some rows and applied to any.

A table that lies there whole is settled on all of its rows; one that comes through a pipe on its
first ones, and what was settled is kept so that another process reads further rows alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import numpy as np

from bicore.data import Array
from bicore.errors import InputError

#: How people write that there is no value, in small letters.
MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
#: A text column of at most this many values, or this share of the rows, becomes indicators.
FEW_VALUES = 20
FEW_SHARE = 0.05


@dataclass(frozen=True)
class Column:
    """A column that serves as features: numbers, or an indicator for each of some values."""

    name: str
    #: What a missing number becomes.
    median: float = 0.0
    #: None of a column of numbers.
    values: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """How many features it becomes."""
        return 1 if self.values is None else len(self.values)

    def encoded(self, cells: list[Any], unknown: Counter[str]) -> Array:
        """Its features of some rows; cells of a value that is not known are counted."""
        if self.values is None:
            numbers = numbers_or_none(cells)
            if numbers is None:
                raise self._no_number(cells)
            return np.where(np.isnan(numbers), self.median, numbers)[:, None]
        place = {value: number for number, value in enumerate(self.values)}
        found = np.zeros((len(cells), len(place)))
        for row, cell in enumerate(cells):
            if missing(cell):
                continue
            where = place.get(str(cell))
            if where is None:
                unknown[self.name] += 1
            else:
                found[row, where] = 1.0
        return found

    def _no_number(self, cells: list[Any]) -> InputError:
        strange = next(cell for cell in cells if numbers_or_none([cell]) is None)
        return InputError(
            f"the column {self.name!r} held numbers in the first rows and now holds {strange!r}; "
            "leave the cell empty where there is no number, or begin with a larger --batch, in "
            "which such a cell occurs."
        )


@dataclass(frozen=True, eq=False)
class Columns:
    """What all columns of a table became, and in words.

    ``unknown`` counts the cells, by their column, whose value did not occur where this was settled.
    """

    features: tuple[Column, ...]
    notes: list[str]
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def indicators(self) -> Array:
        """Which features are indicators."""
        return np.array(
            [column.values is not None for column in self.features for _ in range(column.width)]
        )

    def encoded(self, cells: Mapping[str, list[Any]]) -> Array:
        """The features of some rows, given as a list of cells a column."""
        parts = [column.encoded(cells[column.name], self.unknown) for column in self.features]
        return np.hstack(parts)

    def stored(self) -> dict[str, Any]:
        """As JSON holds it."""
        features = [
            [column.name, column.median, None if column.values is None else list(column.values)]
            for column in self.features
        ]
        return {"features": features, "notes": list(self.notes)}

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`stored`."""
        features = tuple(
            Column(name, median, None if known is None else tuple(known))
            for name, median, known in values["features"]
        )
        return cls(features, list(values["notes"]))


def settled_columns(cells: Mapping[str, list[Any]]) -> Columns:
    """What each column becomes, by what it holds in some rows."""
    features: list[Column] = []
    kinds: dict[str, list[str]] = {"numeric": [], "categorical": [], "left out": []}
    for name, column in cells.items():
        numbers = numbers_or_none(column)
        if numbers is not None and not np.isnan(numbers).all():
            filled = int(np.isnan(numbers).sum())
            features.append(Column(name, float(np.nanmedian(numbers))))
            kinds["numeric"].append(name + (f" ({filled} missing → median)" if filled else ""))
            continue
        known = sorted({str(cell) for cell in column if not missing(cell)})
        if known and len(known) <= max(FEW_VALUES, FEW_SHARE * len(column)):
            features.append(Column(name, values=tuple(known)))
            kinds["categorical"].append(f"{name} ({len(known)} values)")
        else:
            kinds["left out"].append(f"{name} ({_why_left_out(known)})")
    if not features:
        raise InputError(
            "no column can serve as a feature: "
            f"{', '.join(kinds['left out'] or ['there is none'])}."
        )
    notes = [f"{kind} columns: {', '.join(names)}" for kind, names in kinds.items() if names]
    return Columns(tuple(features), notes)


def _why_left_out(known: list[str]) -> str:
    if not known:
        return "empty"
    if all(re.fullmatch(r"\s*-?\d+,\d+\s*", text) for text in known):
        return "numbers with decimal commas; write decimal points"
    return f"text, {len(known)} values"


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

    def encoded(self, cells: list[Any], start: int = 0) -> Array:
        """Labels or targets of some rows; ``start`` is the number of rows before them."""
        lost = [row for row, cell in enumerate(cells) if missing(cell)]
        if lost:
            raise InputError(
                f"the target column {self.name!r} has no value in row {start + lost[0]} (and "
                f"{len(lost) - 1} more); fill or drop those rows."
            )
        if self.kind is TargetKind.TEXT:
            return np.array([str(cell).strip() for cell in cells])
        fits = _whole_number if self.kind is TargetKind.WHOLE else _any_number
        wrong = [row for row, cell in enumerate(cells) if not fits(cell)]
        if wrong:
            raise InputError(
                f"the target column {self.name!r} is {cells[wrong[0]]!r} in row "
                f"{start + wrong[0]}, and its first rows held {self.kind.value}; write targets "
                "with a decimal point and classes as text throughout."
            )
        if self.kind is TargetKind.WHOLE:
            return np.array([int(cell) for cell in cells], dtype=np.int64)
        return np.array([float(cell) for cell in cells])


def settled_target(name: str, cells: list[Any]) -> Target:
    """How a target is read, by what it holds in some rows."""
    filled = [cell for cell in cells if not missing(cell)]
    if numbers_or_none(filled) is None:
        return Target(name, TargetKind.TEXT)
    whole = all(_whole(cell) for cell in filled)
    return Target(name, TargetKind.WHOLE if whole else TargetKind.NUMBERS)


def _any_number(cell: Any) -> bool:
    return numbers_or_none([cell]) is not None


def _whole_number(cell: Any) -> bool:
    return _any_number(cell) and _whole(cell)


def _whole(cell: Any) -> bool:
    """Whether a number was written as an integer."""
    if isinstance(cell, str):
        return not set(".en") & set(cell.lower())  # no fraction, no exponent, no infinity
    return isinstance(cell, int)


def missing(cell: Any) -> bool:
    """Whether a cell says that there is no value."""
    # Only NaN differs from itself.
    if cell is None or cell != cell:
        return True
    return isinstance(cell, str) and cell.strip().lower() in MISSING


def numbers_or_none(column: list[Any]) -> Array | None:
    """The column as floats with NaN where missing; None when a cell is no number."""
    try:
        return np.array([np.nan if missing(cell) else _number(cell) for cell in column])
    except (TypeError, ValueError):
        return None


def _number(cell: Any) -> float:
    if isinstance(cell, bool):
        raise TypeError("booleans are categories")
    return float(cell)

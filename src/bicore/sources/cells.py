"""The cells of one column, and what can be asked of them whatever they are kept in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array

#: How people write that there is no value, in small letters.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
#: Signs that a number written as text is no whole one: a fraction, an exponent, an infinity.
_NOT_WHOLE = frozenset(".en")
#: The largest label there is.
INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, eq=False)
class Coded:
    """Texts, each value once: cell i is ``values[codes[i]]``, or missing where its code is -1."""

    codes: Array
    values: tuple[str, ...]

    def placed(self, known: Sequence[str]) -> Array:
        """The cells' places among some values: -1 missing, -2 none of them."""
        place = {value: number for number, value in enumerate(known)}
        return self.mapped(np.array([place.get(one, -2) for one in self.values], np.int64), -1)

    def mapped(self, values: Array, missing: Any) -> Array:
        """What belongs to each cell, by what belongs to each value."""
        return np.append(values, np.array([missing], dtype=values.dtype))[self.codes]


class Cells(ABC):
    """The cells of one column."""

    #: What they are, in a word.
    kind = "text"
    #: Whether times among them are those of a day, without a date.
    clock = False

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def missing(self) -> Array:
        """Which of them say that there is no value."""

    @abstractmethod
    def listed(self) -> list[Any]:
        """As Python has them, to be written."""

    @abstractmethod
    def at(self, rows: Array) -> Cells:
        """Those of some rows."""

    def __getitem__(self, row: int) -> Any:
        """One of them as Python has it."""
        return self.at(np.array([row])).listed()[0]

    def followed(self, others: Cells) -> Cells:
        """These and others of the same column, in rows that follow."""
        return ListCells([*self.listed(), *others.listed()])

    @abstractmethod
    def texts(self) -> Coded:
        """Each as text."""

    @abstractmethod
    def some(self, count: int) -> list[str]:
        """The first few that are there, as text."""

    def distinct(self) -> int:
        """How many values there are."""
        return len(self.texts().values)

    def numbers(self) -> Array | None:
        """As floats, NaN where missing; None where one of them is no number."""
        return None

    def integers(self) -> Array | None:
        """As whole numbers, 0 where missing; None where one is written otherwise."""
        return None

    def times(self) -> Array | None:
        """Microseconds since 1970, NaT where missing; None where the column has no such type."""
        return None

    def vectors(self) -> Array | None:
        """A row of numbers each, NaN where missing; None where they are no lists of one length."""
        return None


class ListCells(Cells):
    """Cells as Python has them: text of CSV, values of JSON."""

    def __init__(self, cells: Sequence[Any]) -> None:
        self.cells = list(cells)

    def __len__(self) -> int:
        return len(self.cells)

    def missing(self) -> Array:
        return np.array([missing(cell) for cell in self.cells], dtype=bool)

    def listed(self) -> list[Any]:
        return self.cells

    def at(self, rows: Array) -> Cells:
        return ListCells([self.cells[row] for row in rows.tolist()])

    def texts(self) -> Coded:
        return coded([None if missing(cell) else str(cell) for cell in self.cells])

    def some(self, count: int) -> list[str]:
        return [str(cell) for cell in self.cells if not missing(cell)][:count]

    def numbers(self) -> Array | None:
        try:
            found = [np.nan if missing(cell) else _number(cell) for cell in self.cells]
        except (TypeError, ValueError, OverflowError):
            return None
        return np.array(found, dtype=np.float64)

    def integers(self) -> Array | None:
        if not all(missing(cell) or whole(cell) for cell in self.cells):
            return None
        return as_integers([0 if missing(cell) else int(cell) for cell in self.cells])


def coded(texts: Sequence[str | None]) -> Coded:
    """Texts with each value once, in order."""
    values = sorted({text for text in texts if text is not None})
    place: dict[str | None, int] = {value: number for number, value in enumerate(values)}
    return Coded(np.array([place.get(text, -1) for text in texts], np.int64), tuple(values))


def as_integers(values: Sequence[int]) -> Array:
    """Whole numbers; kept as Python's where one of them is too large for 64 bits."""
    small = all(INT64.min <= value <= INT64.max for value in values)
    return np.array(values, dtype=np.int64 if small else object)


def missing(cell: Any) -> bool:
    """Whether a cell says that there is no value."""
    # Only NaN differs from itself.
    if cell is None or cell != cell:
        return True
    return type(cell) is str and cell.strip().lower() in MISSING


def whole(cell: Any) -> bool:
    """Whether a number was written as an integer."""
    if type(cell) is not str:
        return type(cell) is int
    try:
        int(cell)
    except ValueError:
        return False
    return _NOT_WHOLE.isdisjoint(cell.lower())


def _number(cell: Any) -> float:
    if type(cell) is bool:
        raise TypeError("booleans are categories")
    return float(cell)

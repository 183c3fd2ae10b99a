"""How the columns of a table become features: fitted on some rows and applied to any.

A table in a file is fitted on all of its rows. A table that comes through a pipe is fitted on its
first rows, and the fit is stored so that another process reads further rows in the same way.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.sources import times
from bicore.sources.cells import (
    clean,
    count_values,
    floats,
    kind_of,
    listed,
    missing,
    moments,
    texts,
    vectors,
)
from bicore.sources.numerals import Numerals, find_ways, parse_numbers
from bicore.sources.reading import COPIES, NUMBER, Allowance

#: A text column of at most this many values, or this share of the rows, becomes indicators …
FEW_VALUES = 20
FEW_SHARE = 0.05
#: … unless it has more than the few and its indicators are more numbers than these (80 MB): 105
#: airports of 336,000 flights would be 35 million.
MOST_INDICATORS = 10_000_000
#: Names of columns that number rows, if their values do; R and pandas write empty ones.
_UNNAMED = re.compile(r"|unnamed: ?\d+|\.\.\.\d+", re.IGNORECASE)
_ROW_NAMES = re.compile(
    r"index|(?:.*_)?id|#|level_0|row|rows|row[ ._]?(?:index|names?|num|number|no)|row[ .]?id",
    re.IGNORECASE,
)
#: Fewer numbers than these rise by chance.
FEWEST_NUMBERED = 3


class Column(ABC):
    """A fitted column: one or more features."""

    name: str
    #: The word under which it is stored; see :data:`KINDS`.
    kind: ClassVar[str]

    @property
    @abstractmethod
    def kept(self) -> tuple[bool, ...]:
        """For each feature, whether scaling leaves it as it is."""

    @abstractmethod
    def encode(self, column: Any, strict: bool, unknown: Counter[str]) -> Array:
        """Features of some rows.

        ``strict`` refuses a cell of another kind, which is otherwise missing. Cells of an unknown
        category are counted in ``unknown``.
        """


@dataclass(frozen=True)
class Numbers(Column):
    """Numbers as they are; a missing one is the median."""

    name: str
    median: float
    written: Numerals = Numerals.POINT
    kind: ClassVar[str] = "numbers"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (False,)

    def encode(self, column: Any, strict: bool, unknown: Counter[str]) -> Array:
        found = read_numbers(column, self.written)
        if strict:
            _refuse_strange(self.name, column, np.isnan(found), "numbers")
        _refuse_infinite(self.name, found)
        return np.where(np.isnan(found), self.median, found)[:, None]


@dataclass(frozen=True)
class Indicators(Column):
    """An indicator for each value; a missing one has none set."""

    name: str
    values: tuple[str, ...]
    kind: ClassVar[str] = "indicators"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (True,) * len(self.values)

    def encode(self, column: Any, strict: bool, unknown: Counter[str]) -> Array:
        known = texts(column)
        place = {value: number for number, value in enumerate(self.values)}
        places = known.look_up(np.array([place.get(one, -2) for one in known.values], int), -1)
        unknown[self.name] += int((places == -2).sum())
        found = np.zeros((len(places), len(self.values)))
        rows = np.flatnonzero(places >= 0)
        found[rows, places[rows]] = 1.0
        return found


@dataclass(frozen=True)
class Frequencies(Column):
    """The logarithm of a value's share of the rows; a missing or unknown one is the rarest."""

    name: str
    shares: Mapping[str, float]
    kind: ClassVar[str] = "frequencies"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (False,)

    def encode(self, column: Any, strict: bool, unknown: Counter[str]) -> Array:
        known = texts(column)
        rarest = min(self.shares.values())
        shares = np.array([self.shares.get(value, rarest) for value in known.values])
        new = np.array([value not in self.shares for value in known.values], dtype=bool)
        unknown[self.name] += int(known.look_up(new, False).sum())
        return np.log(known.look_up(shares, rarest))[:, None]


@dataclass(frozen=True)
class Times(Column):
    """Days since 1970, and the place in the year, the week and the day as points of circles."""

    name: str
    #: Microseconds.
    median: float
    sort: times.Sort
    #: How text writes it; None for a column of dates or times.
    form: str | None
    kind: ClassVar[str] = "times"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (False, *(True, True) * len(times.CYCLES[self.sort]))

    def encode(self, column: Any, strict: bool, unknown: Counter[str]) -> Array:
        found = read_times(column, self.form)
        if found is None:
            wrong = [
                read_times(column.slice(row, 1), self.form) is None for row in range(len(column))
            ]
            _refuse_strange(self.name, column, np.array(wrong), self.sort)
            raise AssertionError("every cell is a time, and the column is not")
        whole = found.astype(np.int64)
        return times.features(np.where(np.isnat(found), int(self.median), whole), self.sort)


@dataclass(frozen=True)
class Vectors(Column):
    """Lists of numbers of one length; a missing number is the median of its place."""

    name: str
    medians: tuple[float, ...]
    kind: ClassVar[str] = "vectors"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (False,) * len(self.medians)

    def encode(self, column: Any, strict: bool, unknown: Counter[str]) -> Array:
        width = len(self.medians)
        gone = column.null_count == len(column)
        found = np.full((len(column), width), np.nan) if gone else None
        if not gone and kind_of(column) == "lists":
            found = vectors(column)
        if found is None or found.shape[1] != width:
            raise InputError(
                f"the column {self.name!r} must hold lists of {width} numbers; fix its rows, or "
                "exclude the column with --drop."
            )
        _refuse_infinite(self.name, found)
        return np.where(np.isnan(found), self.medians, found)


#: Kinds by the word under which they are stored.
KINDS: dict[str, type[Any]] = {
    one.kind: one for one in (Numbers, Indicators, Frequencies, Times, Vectors)
}


def _restore(stored: dict[str, Any] | list[Any]) -> Column:
    """A column from its fields, or from the list that version 0.2 stored."""
    if type(stored) is list:
        stored = _fields_of_list(*stored)
    fields = dict(stored)
    found: Column = KINDS[fields.pop("kind")](**fields)
    return found


def _fields_of_list(
    name: str, median: float, values: list[str] | None, kind: str = "", rest: Any = "point"
) -> dict[str, Any]:
    kind = kind or (Numbers.kind if values is None else Indicators.kind)
    fields = {"kind": kind, "name": name}
    if kind == Times.kind:
        return {**fields, "median": median, "sort": rest[0], "form": rest[1]}
    if kind == Numbers.kind:
        return {**fields, "median": median, "written": rest}
    if kind == Indicators.kind:
        return {**fields, "values": values}
    return {**fields, "shares" if kind == Frequencies.kind else "medians": rest}


@dataclass(frozen=True, eq=False)
class Columns:
    """The fitted columns of a table, with notes on all columns.

    ``unknown`` counts the cells of each column whose category did not occur in the fit.
    """

    features: tuple[Column, ...]
    notes: list[str]
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def kept(self) -> Array:
        """Which features scaling leaves as they are: indicators and places in cycles."""
        return np.array([kept for column in self.features for kept in column.kept], dtype=bool)

    def encode(
        self,
        table: Mapping[str, Any],
        allowance: Allowance | None = None,
        words: Iterable[str] = (),
        strict: bool = False,
    ) -> Array:
        """The features of some rows; ``words`` stand for a missing value."""
        widths = [len(column.kept) for column in self.features]
        rows = len(next(iter(table.values())))
        if allowance is not None:
            size = rows * sum(widths) * NUMBER * COPIES
            allowance.need(size, f"{rows} rows of {sum(widths)} features")
        x = np.empty((rows, sum(widths)))
        start = 0
        for column, width in zip(self.features, widths, strict=True):
            cells = clean(table[column.name], tuple(words))
            x[:, start : start + width] = column.encode(cells, strict, self.unknown)
            start += width
        return x

    def to_json(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        stored = [{"kind": one.kind, **vars(one)} for one in self.features]
        found: dict[str, Any] = json.loads(json.dumps({"features": stored, "notes": self.notes}))
        return found

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`."""
        return cls(tuple(map(_restore, values["features"])), list(values["notes"]))


def read_numbers(column: Any, written: Numerals = Numerals.POINT) -> Array:
    """Cells as numbers; NaN where one is missing or is no number."""
    kind = kind_of(column)
    if kind in ("numbers", "durations"):
        return floats(column)
    if kind == "text":
        return floats(parse_numbers(column, written))
    return np.full(len(column), np.nan)


def number_ways(column: Any, decimal: str | None, tolerant: bool = False) -> list[Numerals]:
    """The ways in which cells can be read as numbers: none, one, or two if ambiguous."""
    if kind_of(column) in ("numbers", "durations"):
        return [Numerals.POINT]
    return find_ways(column, decimal, tolerant) if kind_of(column) == "text" else []


def read_times(column: Any, form: str | None) -> Array | None:
    """Cells as times, NaT where missing; None if one is no time."""
    if form is not None and kind_of(column) == "text":
        return times.parse_times(column, form)
    return moments(column) if kind_of(column) in ("dates", "times") else None


def infer_times(column: Any) -> tuple[Array, times.Sort, str | None] | None:
    """Cells as times, what they are and the form of text; None if they are no times."""
    form = None
    if kind_of(column) == "text":
        found, form = times.infer_times(column) or (None, None)
    else:
        found = read_times(column, None)
    if found is None:
        return None
    clock = kind_of(column) == "times" or form == "clock"
    return found, times.sort_of(found, clock), form


#: Headings of the notes in their order.
_HEADINGS = ("numeric", "time", "list", "categorical", "frequency", "left out")
_COMMAS = {
    Numerals.POINT: "",
    Numerals.COMMA: "decimal commas",
    Numerals.THOUSANDS: "commas at thousands",
}


@dataclass(frozen=True)
class _Fit:
    """Columns in the course of being fitted, and notes on them by heading."""

    decimal: str | None
    named: bool
    tolerant: bool
    features: list[Column] = field(default_factory=list)
    words: dict[str, list[str]] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)

    def add(self, name: str, column: Any) -> None:
        """Fit the first kind that suits the column."""
        if column.null_count == len(column):
            heading, words = "left out", " (empty)"
        else:
            ways = (self._vectors, self._numbers, self._times, self._categories)
            heading, words = next(found for way in ways if (found := way(name, column)))
        self.words.setdefault(heading, []).append(f"{name or '(unnamed)'}{words}")

    def _vectors(self, name: str, column: Any) -> tuple[str, str] | None:
        if kind_of(column) != "lists":
            return None
        found = vectors(column)
        if found is None:
            return "left out", " (lists that are not numbers of one length)"
        self.features.append(Vectors(name, tuple(_median(place) for place in found.T)))
        return "list", f" ({found.shape[1]} numbers{_filled(np.isnan(found))})"

    def _numbers(self, name: str, column: Any) -> tuple[str, str] | None:
        ways = number_ways(column, self.decimal, self.tolerant)
        if not ways:
            return None
        if len(ways) > 1:
            return "left out", f" ({ambiguous_comma(column)})"
        found = read_numbers(column, ways[0])
        if not self.named and numbers_rows(name, found):
            return "left out", " (row numbers)"
        self._note_strays(name, column, np.isnan(found) & ~missing(column))
        self.features.append(Numbers(name, _median(found), ways[0]))
        told = [_COMMAS[ways[0]], _filled(np.isnan(found)).removeprefix(", ")]
        words = ", ".join(word for word in told if word)
        return "numeric", f" ({words})" if words else ""

    def _note_strays(self, name: str, column: Any, stray: Array) -> None:
        rows = np.flatnonzero(stray)
        if len(rows):
            there = len(column) - column.null_count
            self.strays.append(
                f"{name}: {there - len(rows):,} of {there:,} cells are numbers; row {rows[0]:,} is "
                f"{listed(column.slice(rows[0], 1))[0]!r} (treated as missing)"
            )

    def _times(self, name: str, column: Any) -> tuple[str, str] | None:
        read = infer_times(column)
        if read is None:
            return None
        found, sort, form = read
        gone = np.isnat(found)
        self.features.append(Times(name, _median(found[~gone].astype(np.int64)), sort, form))
        cycles = ", ".join(times.CYCLES[sort])
        return "time", f" ({sort.value} → days, place in {cycles}{_filled(gone)})"

    def _categories(self, name: str, column: Any) -> tuple[str, str]:
        kind, rows = kind_of(column), len(column)
        if kind not in ("text", "booleans"):
            return "left out", f" ({kind})"
        most = max(FEW_VALUES, int(FEW_SHARE * rows))
        count = count_values(column, most)
        if count > most:
            return "left out", f" ({kind}, more than {most} values)"
        if not self.named and _UNNAMED.fullmatch(name) and count == rows:
            return "left out", " (names of rows)"
        known = texts(column)
        if count <= FEW_VALUES or count * rows <= MOST_INDICATORS:
            self.features.append(Indicators(name, known.values))
            return "categorical", f" ({count} values)"
        counts = np.bincount(known.codes[known.codes >= 0], minlength=count) / rows
        self.features.append(
            Frequencies(name, dict(zip(known.values, counts.tolist(), strict=True)))
        )
        return "frequency", (
            f" ({count} values → how often each occurs; an indicator each would be "
            f"{count * rows / 1e6:.3g} million numbers)"
        )


def fit_columns(
    table: Mapping[str, Any],
    decimal: str | None = None,
    named: bool = False,
    words: Iterable[str] = (),
    tolerant: bool = True,
) -> Columns:
    """Fit each column on some rows.

    ``decimal`` says how fractions are written if a column does not show it. ``named`` columns were
    asked for one by one, and are features even if they number rows. ``words`` stand for a missing
    value. ``tolerant`` treats up to 1% of stray cells among numbers as missing.
    """
    fit = _Fit(decimal, named, tolerant)
    for name, column in table.items():
        fit.add(name, clean(column, tuple(words)))
    if not fit.features:
        left_out = fit.words.get("left out", ["there is none"])
        raise InputError(f"no column can serve as a feature: {', '.join(left_out)}.")
    notes = [f"{one} columns: {', '.join(fit.words[one])}" for one in _HEADINGS if one in fit.words]
    return Columns(tuple(fit.features), [*notes, *fit.strays])


def numbers_rows(name: str, found: Array) -> bool:
    """Whether a column numbers the rows: by its name, and by integers that rise or fall."""
    if not (_UNNAMED.fullmatch(name) or _ROW_NAMES.fullmatch(name.strip())):
        return False
    if len(found) < FEWEST_NUMBERED or not np.isfinite(found).all() or (found % 1).any():
        return False
    steps = np.diff(found)
    return bool((steps > 0).all() or (steps < 0).all())


def ambiguous_comma(column: Any) -> str:
    """Advice for numbers whose commas may be read in two ways."""
    example = next(text for text in listed(column.drop_null()) if "," in text)
    return (
        f"numbers such as {example}, whose comma may stand at thousands or before a fraction; say "
        "--decimal point or --decimal comma"
    )


def _median(values: Array) -> float:
    """The median without NaN; 0 if there are no values."""
    there = values[~np.isnan(values)]
    if not len(there):
        return 0.0
    # Half of each of the two in the middle: their sum may overflow.
    low, high = (np.percentile(there, 50, method=one) for one in ("lower", "higher"))
    return float(low) if low == high else float(low / 2 + high / 2)


def _filled(gone: Array) -> str:
    count = int(gone.sum())
    return f", {count} missing → median" if count else ""


def _refuse_infinite(name: str, found: Array) -> None:
    wrong = np.argwhere(np.isinf(found))
    if len(wrong):
        value = found[tuple(wrong[0])]
        raise InputError(
            f"the column {name!r} holds {value} in row {wrong[0][0]}; features must be finite: "
            "leave the cell empty, or exclude the column with --drop."
        )


def _refuse_strange(name: str, column: Any, unread: Array, held: str) -> None:
    """Refuse a cell of another kind than the first rows of a pipe."""
    strange = np.flatnonzero(unread & ~missing(column))
    if len(strange):
        cell = listed(column.slice(strange[0], 1))[0]
        raise InputError(
            f"the column {name!r} held {held} in the first rows and now holds {cell!r}; leave the "
            "cell empty if there is no value, or begin with a larger --batch that has such a cell."
        )

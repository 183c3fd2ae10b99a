"""What the columns of a table become, settled on some rows and applied to any.

A table that lies there whole is settled on all of its rows; one that comes through a pipe on its
first ones, and what was settled is kept so that another process reads further rows alike.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.sources import numerals, times
from bicore.sources.cells import Cells, ListCells
from bicore.sources.numerals import Numerals
from bicore.sources.reading import COPIES, NUMBER, Allowance

#: A text column of at most this many values, or this share of the rows, becomes indicators …
FEW_VALUES = 20
FEW_SHARE = 0.05
#: … and if it has more than the few, only where its indicators are no more numbers than these
#: (80 MB): 105 airports of 336 000 flights would be 35 million.
MOST_INDICATORS = 10_000_000
#: Texts that must look like numbers or times before all of a column are tried.
TRIED = 100
#: Names of columns that number rows, where their values do; the empty ones of R and pandas too.
_UNNAMED = re.compile(r"|unnamed: ?\d+|\.\.\.\d+", re.IGNORECASE)
_ROW_NAMES = re.compile(
    r"index|id|#|level_0|row|rows|row[ ._]?(?:id|index|names?|num|number|no)", re.IGNORECASE
)
#: Fewer numbers than these rise by chance.
FEWEST_NUMBERED = 3


class Column(ABC):
    """A column that serves as features."""

    name: str
    #: Under which word it is kept; see :data:`KINDS`.
    kind: ClassVar[str]

    @property
    @abstractmethod
    def kept(self) -> tuple[bool, ...]:
        """Its features, and of each whether scaling leaves it as it is."""

    @abstractmethod
    def encoded(self, cells: Cells, unknown: Counter[str]) -> Array:
        """Its features of some rows; cells of a value that is not known are counted."""

    @abstractmethod
    def stored(self) -> list[Any]:
        """As JSON holds it: the name, a number, values, and what else there is."""


@dataclass(frozen=True)
class Numbers(Column):
    """Numbers as they are."""

    name: str
    #: What a missing one becomes.
    median: float
    written: Numerals = Numerals.POINT
    kind: ClassVar[str] = "numbers"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (False,)

    def encoded(self, cells: Cells, unknown: Counter[str]) -> Array:
        found = read_numbers(cells, self.written)
        if found is None:
            raise _strange(self.name, cells, "numbers", self._reads)
        _refuse_infinite(self.name, found)
        return np.where(np.isnan(found), self.median, found)[:, None]

    def _reads(self, cells: Cells) -> bool:
        return read_numbers(cells, self.written) is not None

    def stored(self) -> list[Any]:
        plain = self.written is Numerals.POINT
        return [self.name, self.median, None, *([] if plain else [self.kind, self.written.value])]

    @classmethod
    def restored(cls, name: str, median: float, values: None, written: str = "point") -> Self:
        """The inverse of :meth:`stored`."""
        return cls(name, median, Numerals(written))


@dataclass(frozen=True)
class Indicators(Column):
    """An indicator for each of some values; a missing one has none set."""

    name: str
    values: tuple[str, ...]
    kind: ClassVar[str] = "indicators"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (True,) * len(self.values)

    def encoded(self, cells: Cells, unknown: Counter[str]) -> Array:
        places = cells.texts().placed(self.values)
        strange = int((places == -2).sum())
        if strange:
            unknown[self.name] += strange
        found = np.zeros((len(places), len(self.values)))
        rows = np.flatnonzero(places >= 0)
        found[rows, places[rows]] = 1.0
        return found

    def stored(self) -> list[Any]:
        return [self.name, 0.0, list(self.values)]

    @classmethod
    def restored(cls, name: str, median: float, values: list[str]) -> Self:
        """The inverse of :meth:`stored`."""
        return cls(name, tuple(values))


@dataclass(frozen=True)
class Frequencies(Column):
    """How often a value occurs, as the logarithm of its share of the rows."""

    name: str
    shares: Mapping[str, float]
    kind: ClassVar[str] = "frequencies"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (False,)

    def encoded(self, cells: Cells, unknown: Counter[str]) -> Array:
        texts = cells.texts()
        # A value that is missing, or that nobody has seen, is as rare as the rarest.
        rarest = min(self.shares.values())
        values = np.array([self.shares.get(value, rarest) for value in texts.values])
        strange = np.array([value not in self.shares for value in texts.values], dtype=bool)
        count = int(texts.mapped(strange, False).sum())
        if count:
            unknown[self.name] += count
        return np.log(texts.mapped(values, rarest))[:, None]

    def stored(self) -> list[Any]:
        return [self.name, 0.0, None, self.kind, dict(self.shares)]

    @classmethod
    def restored(cls, name: str, median: float, values: None, shares: dict[str, float]) -> Self:
        """The inverse of :meth:`stored`."""
        return cls(name, shares)


@dataclass(frozen=True)
class Times(Column):
    """Days since 1970, and the place in the year, the week and the day as points of circles."""

    name: str
    #: What a missing one becomes, in microseconds.
    median: float
    sort: times.Sort
    #: How it is written as text; None of a column whose type says that it holds times.
    form: str | None
    kind: ClassVar[str] = "times"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (False, *(True, True) * len(times.CYCLES[self.sort]))

    def encoded(self, cells: Cells, unknown: Counter[str]) -> Array:
        found = read_times(cells, self.form)
        if found is None:
            raise _strange(self.name, cells, self.sort.value, self._reads)
        moments = found.astype(np.int64)
        return times.features(np.where(np.isnat(found), int(self.median), moments), self.sort)

    def _reads(self, cells: Cells) -> bool:
        return read_times(cells, self.form) is not None

    def stored(self) -> list[Any]:
        return [self.name, self.median, None, self.kind, [self.sort.value, self.form]]

    @classmethod
    def restored(cls, name: str, median: float, values: None, rest: list[Any]) -> Self:
        """The inverse of :meth:`stored`."""
        return cls(name, median, times.Sort(rest[0]), rest[1])


@dataclass(frozen=True)
class Vectors(Column):
    """Lists of numbers of one length."""

    name: str
    #: What a missing number becomes, by its place in the list.
    medians: tuple[float, ...]
    kind: ClassVar[str] = "vectors"

    @property
    def kept(self) -> tuple[bool, ...]:
        return (False,) * len(self.medians)

    def encoded(self, cells: Cells, unknown: Counter[str]) -> Array:
        found = cells.vectors()
        assert found is not None, "lists are settled on all rows"
        _refuse_infinite(self.name, found)
        return np.where(np.isnan(found), self.medians, found)

    def stored(self) -> list[Any]:
        return [self.name, 0.0, None, self.kind, list(self.medians)]

    @classmethod
    def restored(cls, name: str, median: float, values: None, medians: list[float]) -> Self:
        """The inverse of :meth:`stored`."""
        return cls(name, tuple(medians))


#: Kinds by the word under which they are kept.
KINDS: dict[str, Callable[..., Column]] = {
    one.kind: one.restored for one in (Numbers, Indicators, Frequencies, Times, Vectors)
}


def _restored(name: str, median: float, values: Any, kind: str = "", *rest: Any) -> Column:
    """A column as it was kept; the two first kinds have no word."""
    word = kind or (Numbers.kind if values is None else Indicators.kind)
    return KINDS[word](name, median, values, *rest)


@dataclass(frozen=True, eq=False)
class Columns:
    """What all columns of a table became, and in words.

    ``unknown`` counts the cells, by their column, whose value did not occur where this was settled.
    """

    features: tuple[Column, ...]
    notes: list[str]
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def kept(self) -> Array:
        """Which features scaling leaves as they are: indicators, and places in cycles."""
        return np.array([kept for column in self.features for kept in column.kept], dtype=bool)

    def encoded(self, cells: Mapping[str, Cells], allowance: Allowance | None = None) -> Array:
        """The features of some rows."""
        widths = [len(column.kept) for column in self.features]
        rows = len(next(iter(cells.values())))
        if allowance is not None:
            size = rows * sum(widths) * NUMBER * COPIES
            allowance.need(size, f"{rows} rows of {sum(widths)} features")
        x = np.empty((rows, sum(widths)))
        start = 0
        for column, width in zip(self.features, widths, strict=True):
            x[:, start : start + width] = column.encoded(cells[column.name], self.unknown)
            start += width
        return x

    def stored(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "features": [column.stored() for column in self.features],
            "notes": list(self.notes),
        }

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`stored`."""
        features = tuple(_restored(*one) for one in values["features"])
        return cls(features, list(values["notes"]))


def read_numbers(cells: Cells, written: Numerals = Numerals.POINT) -> Array | None:
    """Cells as numbers, NaN where missing; None where one is none."""
    if written is Numerals.POINT:
        return cells.numbers()
    known = cells.texts()
    values = numerals.read(known.values, written)
    return None if values is None else known.mapped(values, np.nan)


def read_times(cells: Cells, form: str | None) -> Array | None:
    """Cells as times, NaT where missing; None where one is none."""
    if form is None:
        return cells.times()
    known = cells.texts()
    values = times.read(known.values, form)
    return None if values is None else known.mapped(values.astype("datetime64[us]"), "NaT")


def numbers_of(cells: Cells, decimal: str | None = None) -> tuple[Array | None, list[Numerals]]:
    """Cells as numbers, and the ways in which they can be read: none, one, or two that nobody can
    tell."""
    plain = cells.numbers()
    if plain is not None:
        return plain, [Numerals.POINT]
    if cells.kind != "text" or not numerals.possible(cells.some(TRIED)):
        return None, []
    ways = numerals.ways_of(cells.texts().values)
    told = {"comma": Numerals.COMMA, "point": Numerals.THOUSANDS}.get(decimal or "")
    ways = [told] if told in ways else ways
    return (read_numbers(cells, ways[0]) if len(ways) == 1 else None), ways


def times_of(cells: Cells) -> tuple[Array, times.Sort, str | None] | None:
    """Cells as times, what they tell, and how they are written; None where they are none."""
    found, form = cells.times(), None
    if found is None and cells.kind == "text" and times.possible(cells.some(TRIED)):
        form = times.form_of(cells.texts().values)
        found = None if form is None else read_times(cells, form)
    if found is None:
        return None
    there = found[~np.isnat(found)].astype(np.int64)
    return found, times.sort_of(there, cells.clock or form == "clock"), form


@dataclass(frozen=True)
class _Settling:
    """What columns become, one after the other, and the words for it."""

    decimal: str | None
    named: bool
    features: list[Column] = field(default_factory=list)
    words: dict[str, list[str]] = field(default_factory=dict)

    def take(self, name: str, cells: Cells) -> None:
        """The first reading that fits."""
        for reading in (self._vectors, self._numbers, self._times, self._texts):
            found = reading(name, cells)
            if found is not None:
                heading, words = found
                self.words.setdefault(heading, []).append(f"{name or '(unnamed)'}{words}")
                return

    def _vectors(self, name: str, cells: Cells) -> tuple[str, str] | None:
        found = cells.vectors()
        if found is None:
            return None
        medians = [_median(column) for column in found.T]
        self.features.append(Vectors(name, tuple(medians)))
        return "list", f" ({found.shape[1]} numbers{_filled(np.isnan(found))})"

    def _numbers(self, name: str, cells: Cells) -> tuple[str, str] | None:
        found, ways = numbers_of(cells, self.decimal)
        if len(ways) > 1:
            return "left out", f" ({_either(cells)})"
        if found is None or np.isnan(found).all():
            return None
        if not self.named and numbers_rows(name, found):
            return "left out", " (row numbers)"
        self.features.append(Numbers(name, _median(found), ways[0]))
        words = [_COMMAS[ways[0]], _filled(np.isnan(found)).removeprefix(", ")]
        told = ", ".join(word for word in words if word)
        return "numeric", f" ({told})" if told else ""

    def _times(self, name: str, cells: Cells) -> tuple[str, str] | None:
        read = times_of(cells)
        if read is None or np.isnat(read[0]).all():
            return None
        found, sort, form = read
        median = _median(found[~np.isnat(found)].astype(np.int64))
        self.features.append(Times(name, median, sort, form))
        cycles = ", ".join(times.CYCLES[sort])
        return "time", f" ({sort.value} → days, place in {cycles}{_filled(np.isnat(found))})"

    def _texts(self, name: str, cells: Cells) -> tuple[str, str]:
        count, rows = cells.distinct(), len(cells)
        readable = cells.kind in ("text", "booleans")
        few = count <= max(FEW_VALUES, FEW_SHARE * rows)
        known = cells.texts() if few and readable else None
        values = () if known is None else known.values
        if not values:
            return "left out", f" ({_why_left_out(cells, count)})"
        if not self.named and _UNNAMED.fullmatch(name) and len(values) == rows:
            return "left out", " (names of rows)"
        assert known is not None
        if len(values) <= FEW_VALUES or len(values) * rows <= MOST_INDICATORS:
            self.features.append(Indicators(name, values))
            return "categorical", f" ({len(values)} values)"
        counts = np.bincount(known.codes[known.codes >= 0], minlength=len(values)) / rows
        shares = dict(zip(values, counts.tolist(), strict=True))
        self.features.append(Frequencies(name, shares))
        return "frequency", (
            f" ({len(values)} values → how often each occurs; an indicator each would be "
            f"{len(values) * rows / 1e6:.3g} million numbers)"
        )


#: Headings of the notes, in their order.
_HEADINGS = ("numeric", "time", "list", "categorical", "frequency", "left out")
_COMMAS = {
    Numerals.POINT: "",
    Numerals.COMMA: "decimal commas",
    Numerals.THOUSANDS: "commas at thousands",
}


def settled_columns(
    cells: Mapping[str, Cells], decimal: str | None = None, named: bool = False
) -> Columns:
    """What each column becomes, by what it holds in some rows.

    ``decimal`` says how fractions are written where a column does not tell; ``named`` columns were
    asked for one by one, and serve also where they number rows.
    """
    settling = _Settling(decimal, named)
    for name, column in cells.items():
        settling.take(name, column)
    if not settling.features:
        left_out = settling.words.get("left out", ["there is none"])
        raise InputError(f"no column can serve as a feature: {', '.join(left_out)}.")
    words = settling.words
    notes = [f"{one} columns: {', '.join(words[one])}" for one in _HEADINGS if one in words]
    return Columns(tuple(settling.features), notes)


def numbers_rows(name: str, found: Array) -> bool:
    """Whether a column numbers the rows: by its name, and by whole numbers that rise or fall."""
    if not (_UNNAMED.fullmatch(name) or _ROW_NAMES.fullmatch(name.strip())):
        return False
    if len(found) < FEWEST_NUMBERED or not np.isfinite(found).all() or (found % 1).any():
        return False
    steps = np.diff(found)
    return bool((steps > 0).all() or (steps < 0).all())


def _median(values: Array) -> float:
    """Of those that are there; 0 where there are none."""
    there = values[~np.isnan(values)]
    if not len(there):
        return 0.0
    # Half of the two in the middle each: their sum may be beyond all numbers.
    low, high = np.percentile(there, 50, method="lower"), np.percentile(there, 50, method="higher")
    return float(low) if low == high else float(low / 2 + high / 2)


def _filled(gone: Array) -> str:
    count = int(gone.sum())
    return f", {count} missing → median" if count else ""


def _either(cells: Cells) -> str:
    example = next(text for text in cells.texts().values if "," in text).strip()
    return (
        f"numbers such as {example}, whose comma may stand at thousands or before a fraction; say "
        "--decimal point or --decimal comma"
    )


def _why_left_out(cells: Cells, count: int) -> str:
    if bool(cells.missing().all()):
        return "empty"
    return f"{cells.kind}, {count} values" if cells.kind == "text" else cells.kind


def _refuse_infinite(name: str, found: Array) -> None:
    wrong = np.argwhere(np.isinf(found))
    if len(wrong):
        value = found[tuple(wrong[0])]
        raise InputError(
            f"the column {name!r} holds {value} in row {wrong[0][0]}; features must be finite: "
            "leave the cell empty, or leave the column out with --drop."
        )


def _strange(name: str, cells: Cells, held: str, reads: Callable[[Cells], bool]) -> InputError:
    """The error for a cell that is not what its column held before."""
    strange = next(cell for cell in cells.listed() if not reads(ListCells([cell])))
    return InputError(
        f"the column {name!r} held {held} in the first rows and now holds {strange!r}; leave the "
        "cell empty where there is no value, or begin with a larger --batch, in which such a cell "
        "occurs."
    )

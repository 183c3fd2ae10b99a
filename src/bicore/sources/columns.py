"""Encode the columns of a table as features and targets: fitted on all rows, applied to any."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from typing import Any, ClassVar

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.frames import arrow
from bicore.sources import cells
from bicore.sources.base import Scaling, fit_scaling
from bicore.sources.cells import Numerals, cells_of
from bicore.sources.parts import Part
from bicore.sources.reading import COPIES, NUMBER, Allowance, Reading, name_list

#: A text column with at most this many values, or this share of the rows, becomes indicators …
FEW_VALUES = 20
FEW_SHARE = 0.05
#: … unless it has more values than ``FEW_VALUES`` and the indicators would exceed this many numbers
#: (80 MB): 105 airports of 336,000 flights would be 35 million.
MOST_INDICATORS = 10_000_000
#: Names of columns of row numbers, if the values fit; R and pandas write empty names.
_UNNAMED = re.compile(r"|unnamed: ?\d+|\.\.\.\d+", re.IGNORECASE)
_ROW_NAMES = re.compile(
    r"index|(?:.*_)?id|#|level_0|row|rows|row[ ._]?(?:index|names?|num|number|no)|row[ .]?id",
    re.IGNORECASE,
)
#: With fewer rows than this a column may be monotonic by chance.
FEWEST_NUMBERED = 3
#: Microseconds of a day, and days of a mean year.
_DAY = 86_400_000_000
_YEAR = 365.2425
_WEEK = 7
#: Kinds of times, and the cycles of each.
CYCLES = {
    "dates": ("year", "week"),
    "dates with times": ("year", "week", "day"),
    "times of day": ("day",),
}


class Column(ABC):
    """A fitted column: one or more features."""

    name: str
    #: Heading of such columns in the notes.
    heading: ClassVar[str]

    @property
    def unscaled(self) -> tuple[bool, ...]:
        """For each feature, whether scaling skips it."""
        return (False,)

    @abstractmethod
    def encode(self, column: Any) -> Array:
        """Encode some rows as features."""


@dataclass(frozen=True)
class Numbers(Column):
    """Numbers; the median replaces missing ones."""

    name: str
    median: float
    written: Numerals = Numerals.POINT
    heading: ClassVar[str] = "numeric"

    def encode(self, column: Any) -> Array:
        found = cells.read_numbers(column, self.written)
        return np.where(np.isnan(found), self.median, found)[:, None]


@dataclass(frozen=True)
class Indicators(Column):
    """One indicator per value; a missing cell has none set."""

    name: str
    values: tuple[str, ...]
    heading: ClassVar[str] = "categorical"

    @property
    def unscaled(self) -> tuple[bool, ...]:
        return (True,) * len(self.values)

    def encode(self, column: Any) -> Array:
        places = cells.find_places(column, self.values)
        return np.equal.outer(places, np.arange(len(self.values))).astype(np.float64)


@dataclass(frozen=True)
class Frequencies(Column):
    """The logarithm of a value's share of the rows; missing and unknown values count as the
    rarest."""

    name: str
    shares: Mapping[str, float]
    heading: ClassVar[str] = "frequency"

    def encode(self, column: Any) -> Array:
        places = cells.find_places(column, tuple(self.shares))
        shares = [*self.shares.values(), min(self.shares.values())]
        return np.asarray(np.log(shares))[places, None]


@dataclass(frozen=True)
class Times(Column):
    """Days since 1970, and the position in the year, week and day as points on circles.

    ``median`` is in microseconds; ``sort`` is one of :data:`CYCLES`, and ``form`` the form of text.
    """

    name: str
    median: float
    sort: str
    form: str | None
    heading: ClassVar[str] = "time"

    @property
    def unscaled(self) -> tuple[bool, ...]:
        return (False, *(True, True) * len(CYCLES[self.sort]))

    def encode(self, column: Any) -> Array:
        found = cells.read_times(column, self.form)
        if found is None:
            what = f"the column {self.name!r} must hold {self.sort}"
            raise InputError(f"{what}; fix its rows, or exclude it with drop=….")
        time = np.where(np.isnat(found), int(self.median), found.astype(np.int64))
        days = time / _DAY
        whole = np.floor_divide(time, _DAY)
        dates = whole.astype("datetime64[D]")
        places = {
            "year": (dates - dates.astype("datetime64[Y]")).astype(np.int64) / _YEAR,
            "week": (whole % _WEEK) / _WEEK,
            "day": days - whole,
        }
        angles = [2 * np.pi * places[cycle] for cycle in CYCLES[self.sort]]
        circles = [part(angle) for angle in angles for part in (np.cos, np.sin)]
        return np.stack([days, *circles], axis=1)


@dataclass(frozen=True)
class Vectors(Column):
    """Lists of numbers of one length, such as embeddings, which are not scaled.

    The median of its place replaces a missing number.
    """

    name: str
    medians: tuple[float, ...]
    heading: ClassVar[str] = "list"

    @property
    def unscaled(self) -> tuple[bool, ...]:
        return (True,) * len(self.medians)

    def encode(self, column: Any) -> Array:
        width = len(self.medians)
        found: Array | None = np.full((len(column), width), np.nan)
        if column.null_count < len(column):
            found = cells.vectors(column)
        if found is None or found.shape[1] != width:
            what = f"the column {self.name!r} must hold lists of {width} numbers"
            raise InputError(f"{what}; fix its rows, or exclude it with drop=….")
        return np.where(np.isnan(found), self.medians, found)


def columns_to_json(columns: Columns) -> list[dict[str, Any]]:
    """Return fitted columns as values for JSON."""
    found = [{"kind": type(one).__name__, **vars(one)} for one in columns.features]
    plain: list[dict[str, Any]] = json.loads(json.dumps(found, default=float))
    return plain


def columns_from_json(values: Iterable[Mapping[str, Any]], words: Sequence[str]) -> Columns:
    """Invert :func:`columns_to_json`; ``words`` mark a missing value."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in _KINDS}
    features: list[Any] = []
    for value in values:
        own: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        if "written" in own:
            own["written"] = Numerals(own["written"])
        features.append(kinds[own.pop("kind")](**own))
    return Columns(tuple(features), [], words)


@dataclass(frozen=True, eq=False)
class Columns:
    """The fitted columns of a table, with notes on all columns.

    ``words`` mark a missing value; ``scaling`` is None unless requested.
    """

    features: tuple[Column, ...]
    notes: list[str]
    words: Sequence[str] = ()
    scaling: Scaling | None = None

    @property
    def names(self) -> list[str]:
        """The columns used as features."""
        return [one.name for one in self.features]

    @property
    def unscaled(self) -> Array:
        """Mask of features that are not scaled: indicators, lists and positions in cycles."""
        return np.array([flag for one in self.features for flag in one.unscaled], dtype=bool)

    def encode(
        self, table: Mapping[str, Any], allowance: Allowance | None = None, finite: bool = True
    ) -> Array:
        """Encode some rows; infinite numbers are refused if ``finite``."""
        lost = next((one.name for one in self.features if one.name not in table), None)
        if lost is not None:
            columns = f"its columns are {name_list(list(table))}"
            raise InputError(f"the table has no column {lost!r}, which is needed; {columns}.")
        widths = [len(column.unscaled) for column in self.features]
        rows = len(next(iter(table.values())))
        if allowance is not None:
            size = rows * sum(widths) * NUMBER * COPIES
            allowance.require(size, f"{rows} rows of {sum(widths)} features")
        x = np.empty((rows, sum(widths)))
        start = 0
        for column, width in zip(self.features, widths, strict=True):
            block = x[:, start : start + width]
            block[:] = column.encode(cells.clean(table[column.name], self.words))
            if finite:
                _refuse_infinite(column.name, block)
            start += width
        return x if self.scaling is None else self.scaling(x)

    def shape(self, first: Any, place: str) -> tuple[tuple[int, ...], str]:
        """Return the shape of a row, and the kind of its numbers."""
        return (len(self.unscaled),), "floats"

    def encode_part(self, table: Mapping[str, Any], shape: tuple[int, ...], part: Part) -> Array:
        """Encode the rows of a part; infinite numbers are checked for all rows later."""
        return self.encode(table, finite=False)


#: Headings of the notes, in order; columns that are not used come last.
_KINDS = (Numbers, Times, Vectors, Indicators, Frequencies)
_HEADINGS = (*(kind.heading for kind in _KINDS), "excluded")
_COMMAS = {Numerals.COMMA: "decimal commas", Numerals.THOUSANDS: "commas at thousands"}


def fit_columns(
    table: Iterable[tuple[str, Any]], reading: Reading, named: bool, scaled: bool
) -> Columns:
    """Fit each column of a table, one after the other.

    With ``named`` the user listed the columns: they are features even if they are row numbers.
    ``scaled`` fits the scaling too.
    """
    moments: list[tuple[Array, Array]] = []
    features: list[Column] = []
    by_heading: dict[str, list[str]] = {heading: [] for heading in _HEADINGS}
    unparsed: list[str] = []
    for name, given in table:
        column = cells.clean(given, reading.missing_words)
        ways = cells.find_numerals(column, reading.decimal, tolerant=True)
        fitted, remark = _fit(name, column, ways, named, unparsed)
        if fitted is not None:
            features.append(fitted)
            moments += [_moments(fitted, column)] if scaled else []
        remark = f" ({remark})" if remark else ""
        heading = "excluded" if fitted is None else fitted.heading
        by_heading[heading].append(f"{name or '(unnamed)'}{remark}")
    if not features:
        excluded = ", ".join(by_heading["excluded"]) or "all are dropped or the target"
        of_text = "an embedding of the text (--embeddings FILE.npy)"
        fix = of_text if "(text" in excluded else "other columns"
        raise InputError(f"no column can be used as a feature: {excluded}; give {fix}.")
    notes = [f"{kind} columns: {', '.join(names)}" for kind, names in by_heading.items() if names]
    found = Columns(tuple(features), [*notes, *unparsed], reading.missing_words)
    if not scaled:
        return found
    mean, spread = (np.concatenate(parts)[None] for parts in zip(*moments, strict=True))
    return replace(found, scaling=Scaling(mean, spread, found.unscaled))


def _moments(fitted: Column, column: Any) -> tuple[Array, Array]:
    """Return mean and spread of the features of a column; 0 and 1 if scaling has no numbers."""
    x = np.empty((0, 1)) if all(fitted.unscaled) else fitted.encode(column)
    finite = np.isfinite(x).all(axis=1)
    if not finite.any():
        return np.zeros(len(fitted.unscaled)), np.ones(len(fitted.unscaled))
    found = fit_scaling(x if finite.all() else x[finite])
    return found.mean.ravel(), found.spread.ravel()


#: A fitted column if it can be a feature, and a remark for the notes.
_Fitted = tuple[Column | None, str]


def _fit(name: str, column: Any, ways: list[Numerals], named: bool, notes: list[str]) -> _Fitted:
    """Fit the first kind of column that accepts the cells."""
    kind = cells_of(column)
    if column.null_count == len(column):
        return None, "empty"
    if kind == "lists":
        rows = cells.vectors(column)
        if rows is None:
            return None, "lists that are not numbers of one length"
        remark = _remark(f"{rows.shape[1]} numbers", np.isnan(rows))
        return Vectors(name, tuple(map(_median, rows.T))), remark
    if len(ways) > 1:
        return None, ambiguous_comma(column)
    if ways:
        return _fit_numbers(name, column, ways[0], named, notes)
    read = cells.find_times(column)
    if read is not None:
        return _fit_times(name, column, *read)
    if kind not in ("text", "booleans"):
        return None, kind
    return _fit_categories(name, column, named)


def _fit_numbers(name: str, column: Any, way: Numerals, named: bool, notes: list[str]) -> _Fitted:
    found = cells.read_numbers(column, way)
    if not named and _is_row_number(name, found):
        return None, "row numbers"
    bad_cells = np.flatnonzero(np.isnan(found) & ~cells.is_missing(column))
    if len(bad_cells):
        there = len(column) - column.null_count
        first = bad_cells[0]
        shares = f"{there - len(bad_cells):,} of {there:,} cells are numbers"
        other = f"row {first:,} is {_cell(column, first)!r} (treated as missing)"
        notes.append(f"{name}: {shares}; {other}")
    remark = _remark(_COMMAS.get(way, ""), np.isnan(found))
    return Numbers(name, _median(found), way), remark


def _fit_times(name: str, column: Any, found: Array, form: str | None) -> _Fitted:
    gone = np.isnat(found)
    there = found[~gone].astype(np.int64)
    sort = "dates with times" if (there % _DAY).any() else "dates"
    if cells_of(column) == "times" or form == "clock":
        sort = "times of day"
    remark = _remark(f"{sort} → days, time of {', '.join(CYCLES[sort])}", gone)
    return Times(name, _median(there), sort, form), remark


def _fit_categories(name: str, column: Any, named: bool) -> _Fitted:
    rows = len(column)
    most = max(FEW_VALUES, int(FEW_SHARE * rows))
    count = cells.count_values(column)
    if count > most:
        return None, f"{cells_of(column)}, more than {most} values"
    if not named and _UNNAMED.fullmatch(name) and count == rows:
        return None, "names of rows"
    values = cells.find_values(column)
    if count <= FEW_VALUES or count * rows <= MOST_INDICATORS:
        return Indicators(name, values), f"{count} values"
    places = cells.find_places(column, values)
    shares = np.bincount(places[places >= 0], minlength=count) / rows
    why = f"one indicator per value would take {count * rows / 1e6:.3g} million numbers"
    remark = f"{count} values → log frequency; {why}"
    return Frequencies(name, dict(zip(values, shares.tolist(), strict=True))), remark


def _remark(words: str, gone: Array) -> str:
    count = int(gone.sum())
    filled = f"{count} missing → median" if count else ""
    return ", ".join(one for one in (words, filled) if one)


def _is_row_number(name: str, found: Array) -> bool:
    """Whether a column holds row numbers, by its name and by monotonic integers."""
    if not (_UNNAMED.fullmatch(name) or _ROW_NAMES.fullmatch(name.strip())):
        return False
    if len(found) < FEWEST_NUMBERED or not np.isfinite(found).all() or (found % 1).any():
        return False
    steps = np.diff(found)
    return bool((steps > 0).all() or (steps < 0).all())


def ambiguous_comma(column: Any) -> str:
    """Return the fix for numbers with ambiguous commas."""
    example = next(text for text in cells.to_list(column.drop_null()) if "," in text)
    fix = "give --decimal point or --decimal comma"
    return f"numbers such as {example}, whose comma may separate thousands or decimals; {fix}"


def _median(values: Array) -> float:
    """Return the median without NaN; 0 without values."""
    there = values[~np.isnan(values)]
    # The sum of halves, because the sum of the two middle values may overflow.
    return 2 * float(np.median(there / 2)) if len(there) else 0.0


def _cell(column: Any, row: int) -> Any:
    """Return one cell as a Python value."""
    return cells.to_list(column[row : row + 1])[0]


def _refuse_infinite(name: str, found: Array) -> None:
    wrong = np.argwhere(np.isinf(found))
    if len(wrong):
        held = f"the column {name!r} holds {found[tuple(wrong[0])]} in row {wrong[0][0]}"
        raise InputError(f"{held}; leave the cell empty, or exclude the column with drop=….")


#: Bytes of a character in NumPy's arrays of text, whose items are as long as the longest.
_CHARACTER = 4
_WHOLE = r"^[+-]?\d[\d_]*$"


class TargetKind(StrEnum):
    """The kind of a target: integers and text are classes."""

    WHOLE = auto()
    NUMBERS = auto()
    TEXT = auto()
    LISTS = auto()


@dataclass(frozen=True)
class Target:
    """The column to predict."""

    name: str
    kind: TargetKind
    written: Numerals = Numerals.POINT
    words: Sequence[str] = ()

    def encode(
        self, column: Any, start: int = 0, allowance: Allowance | None = None, masked: bool = False
    ) -> Array:
        """Read labels or targets of some rows; ``start`` is the number of rows before them.

        A missing value is an error, or masked with ``masked``.
        """
        column = cells.clean(column, self.words)
        gone = cells.is_missing(column)
        if masked and gone.any() and self.kind is not TargetKind.LISTS:
            zero = arrow().scalar(0 if cells_of(column) == "durations" else "0").cast(column.type)
            return np.ma.MaskedArray(self.encode(column.fill_null(zero), start, masked=True), gone)
        if gone.any() and not masked:
            more = f" and {gone.sum() - 1} more" if gone.sum() > 1 else ""
            where = f"the target column {self.name!r} has no value in row {start + gone.argmax()}"
            fix = "fill it in, or exclude such rows with drop_missing_target=True"
            raise InputError(f"{where}{more} (the first row is 0); {fix}.")
        if self.kind is TargetKind.LISTS:
            rows = cells.vectors(column)
            if rows is None:
                raise InputError(f"the target column {self.name!r} must hold lists of one length.")
            return rows
        if self.kind is TargetKind.TEXT:
            values = cells.find_values(column)
            size = len(column) * max(map(len, values), default=0) * _CHARACTER
            if allowance is not None:
                allowance.require(size, f"the target {self.name!r} as text")
            return np.array(values, dtype=np.str_)[cells.find_places(column, values)]
        if self.kind is TargetKind.WHOLE:
            return self._integers(column)
        found = cells.read_numbers(column, self.written)
        wrong = np.flatnonzero(~np.isfinite(found))
        if len(wrong) and not masked:
            held = f"the target column {self.name!r} is {found[wrong[0]]}"
            fix = "leave the cell empty and give drop_missing_target=True"
            what = f"{held} in row {start + wrong[0]}, and targets must be finite"
            raise InputError(f"{what}; {fix}.")
        return found

    def _integers(self, column: Any) -> Array:
        pyarrow = arrow()
        bare = column
        if cells_of(column) == "text":
            bare = pyarrow.compute.replace_substring_regex(column, r"^\+|_", "")
        try:
            return cells.as_numpy(bare.cast("int64"))
        except pyarrow.ArrowInvalid as error:
            held = f"the target column {self.name!r} must hold integers from -2**63 to 2**63 - 1"
            raise InputError(f"{held} ({error}); add a letter to names of classes.") from error


def fit_target(name: str, column: Any, reading: Reading) -> Target:
    """Determine the kind of a target from some of its rows."""
    words = reading.missing_words
    there = cells.clean(column, words).drop_null()
    if len(there) and _is_whole(there).all():
        return Target(name, TargetKind.WHOLE, words=words)
    ways = cells.find_numerals(there, reading.decimal)
    if len(ways) > 1:
        raise InputError(f"the target column {name!r} holds {ambiguous_comma(there)}.")
    if ways:
        return Target(name, TargetKind.NUMBERS, ways[0], words)
    if len(there) and cells.find_times(there) is not None:
        held = f"the target column {name!r} holds dates or times, such as {_cell(there, 0)}"
        raise InputError(f"{held}; give numbers of days or hours, or classes as other text.")
    if cells_of(there) == "lists" and cells.vectors(there) is not None:
        return Target(name, TargetKind.LISTS, words=words)
    if cells_of(there) != "text":
        held = f"the target column {name!r} holds {cells_of(there)}"
        raise InputError(f"{held}; give numbers, text or booleans.")
    return Target(name, TargetKind.TEXT, words=words)


def _is_whole(column: Any) -> Array:
    """Mark cells that are integers or booleans, or text of integers."""
    pyarrow = arrow()
    if cells_of(column) == "text":
        return cells.as_numpy(pyarrow.compute.match_substring_regex(column, _WHOLE))
    whole = pyarrow.types.is_integer(column.type) or pyarrow.types.is_boolean(column.type)
    return np.full(len(column), whole)

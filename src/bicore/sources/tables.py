"""Tables with a header: CSV (also on standard input) and Parquet.

Columns become features by these rules, and the notes name what each column became:

* numbers: as they are; a missing one becomes the column's median.
* text or booleans with few distinct values (at most 20, or 5% of the rows): an indicator a value; a
  missing one has none set.
* any other text, and columns without a single value: left out.

The target must have a value in every row. Integers, text and booleans are classes, other numbers
are targets.
"""

from __future__ import annotations

import csv
import io
import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError, unknown_name
from bicore.files import replacing
from bicore.sources.arrays import unreadable
from bicore.sources.base import Source
from bicore.sources.columns import numbers_or_none, settled_columns, settled_target

#: Above this many classes an integer target is more likely an amount; the notes say how to treat it
#: as one.
MANY_CLASSES = 50


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as they were written: names, and a list of cells for each column."""

    names: list[str]
    columns: list[list[Any]]

    def rows(self, indices: Iterable[int]) -> Iterable[list[Any]]:
        """The cells of some rows."""
        return ([column[i] for column in self.columns] for i in indices)


def csv_table(path: Path | None) -> Table:
    """A CSV file, or standard input when there is no path.

    The delimiter is found among comma, semicolon, tab and bar.
    """
    where = str(path or "standard input")
    text = _text(path, where)
    delimiter = delimiter_of(text.split("\n", 1)[0])
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if rows and row and len(row) != len(rows[0]):
                raise InputError(
                    f"{where}: line {reader.line_num} has {len(row)} cells and the header has "
                    f"{len(rows[0])}; the file may be truncated."
                )
            if row:
                rows.append(row)
    except csv.Error as error:
        raise unreadable(Path(where), "CSV file", error) from error
    if len(rows) < 2:
        raise InputError(
            f"{where} holds no rows below its header; give a CSV file with a header line and at "
            "least one row."
        )
    names = [name.strip() for name in rows[0]]
    return Table(names, [list(column) for column in zip(*rows[1:], strict=True)])


def delimiter_of(header: str) -> str:
    """What separates the cells of a header."""
    return max(",;\t|", key=header.count)


def _text(path: Path | None, where: str) -> str:
    try:
        text = (sys.stdin.buffer.read() if path is None else path.read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"{error.reason} at byte {error.start}"
        raise InputError(
            f"{where} is not UTF-8 text ({place}); save it as UTF-8, or give the right ending."
        ) from error
    except OSError as error:
        raise unreadable(Path(where), "CSV file", error) from error
    if "\0" in text[:4096] or text.startswith("PAR1"):
        raise InputError(f"{where} is not a text file; give a CSV file, or the right ending.")
    return text


def parquet_table(path: Path) -> Table:
    """A Parquet file, by pyarrow."""
    pyarrow, parquet = _pyarrow()
    try:
        read = parquet.read_table(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise unreadable(path, "Parquet file", error) from error
    return Table(list(read.column_names), [column.to_pylist() for column in read.columns])


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("Parquet needs pyarrow: pip install 'bicore[tables]'.") from error
    return pyarrow, parquet


def table_source(name: str, table: Table, target: str | None, weight: str | None) -> Source:
    """Features, target and weights from a table."""
    target = checked_names(name, table.names, target, weight)
    cells = dict(zip(table.names, table.columns, strict=True))
    y = _target(target, cells[target])
    weights = None if weight is None else _numbers(weight, cells[weight])
    if weights is not None and np.isnan(weights).any():
        raise InputError(
            f"the weight column {weight!r} has no value in row {int(np.isnan(weights).argmax())}; "
            "every row needs one."
        )
    x, keep, notes = _features(
        {key: column for key, column in cells.items() if key not in (target, weight)}
    )
    if y.dtype.kind == "i" and len(np.unique(y)) > MANY_CLASSES:
        notes.append(
            f"target {target!r}: {len(np.unique(y))} integer classes; if these are amounts, pass "
            "--task regression"
        )
    return Source(name, Dataset(x, y, weights), "standard", tuple(notes), table=table, keep=keep)


def checked_names(name: str, names: list[str], target: str | None, weight: str | None) -> str:
    """The target column, once all columns that are named are there."""
    for argument, column in (("target", target), ("data-weights", weight)):
        if column is not None and column not in names:
            raise unknown_name(argument, column, names)
    if weight is not None and weight == target:
        raise InputError(
            f"--data-weights {weight} is the target column itself; name another column."
        )
    if target is None:
        raise InputError(f"a table needs --target COLUMN; {name} holds {', '.join(names)}.")
    if len(set(names)) != len(names):
        raise InputError(f"{name} has two columns of one name; rename one.")
    return target


def _features(cells: dict[str, list[Any]]) -> tuple[Array, Array, list[str]]:
    """A matrix of the columns, which of its columns are indicators, and what each became."""
    columns = settled_columns(cells)
    return columns.encoded(cells), columns.indicators, columns.notes


def _numbers(name: str, column: list[Any]) -> Array:
    values = numbers_or_none(column)
    if values is None:
        raise InputError(f"the weight column {name!r} holds values that are not numbers.")
    return values


def _target(name: str, column: list[Any]) -> Array:
    return settled_target(name, column).encoded(column)


def write_rows(path: Path, table: Table, indices: Array, weights: Array) -> None:
    """The chosen rows with a weight column, as .csv or .parquet; written beside and renamed."""
    names = [*table.names, _free_name(table.names)]
    rows = [[*row, float(weight)] for row, weight in zip(table.rows(indices), weights, strict=True)]
    with replacing(path) as beside:
        if path.suffix.lower() == ".parquet":
            pyarrow, parquet = _pyarrow()
            columns = [list(column) for column in zip(*rows, strict=True)]
            parquet.write_table(pyarrow.table(dict(zip(names, columns, strict=True))), beside)
        else:
            with open(beside, "w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([names, *rows])


def _free_name(names: list[str]) -> str:
    """A name for the column of weights that no other column has."""
    numbered = (f"bicore_weight_{number}" for number in itertools.count(1))
    return next(name for name in itertools.chain(["weight"], numbered) if name not in names)

"""Tables with a header, whatever file they come from.

Columns become features by these rules, and the notes name what each column became:

* numbers, with decimal points or commas: as they are; a missing one becomes the column's median.
* dates and times: days since 1970, and the places in the year, the week and the day as points of
  circles.
* lists of numbers of one length: as they are.
* text or booleans with few distinct values (at most 20, or 5% of the rows): an indicator a value; a
  missing one has none set. Where that would be more than ten million numbers: how often the value
  occurs.
* any other text, columns without a single value, and columns that number the rows: left out.

The target must have a value in every row. Integers, text and booleans are classes, other numbers
are targets; several targets are numbers.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.files import replacing
from bicore.sources.arrow import arrow, cells_of
from bicore.sources.base import Source
from bicore.sources.cells import Cells
from bicore.sources.columns import numbers_of, settled_columns
from bicore.sources.reading import Reading, Roles, roles_of
from bicore.sources.target import settled_target

#: Above this many classes a target is more likely an amount or a name; the notes say so.
MANY_CLASSES = 50


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as they were written: names, and the cells of each column."""

    names: list[str]
    columns: Sequence[Cells]

    def __len__(self) -> int:
        return len(self.columns[0])

    def rows(self, indices: Array) -> Iterable[tuple[Any, ...]]:
        """The cells of some rows."""
        return zip(*(column.at(indices).listed() for column in self.columns), strict=True)

    def at(self, indices: Array) -> Table:
        """The table of some rows."""
        return Table(self.names, [column.at(indices) for column in self.columns])

    def cells(self) -> dict[str, Cells]:
        """Columns by their names."""
        return dict(zip(self.names, self.columns, strict=True))

    def joined(self, other: Table) -> Table:
        """The rows of both; the other one has these columns, in any order."""
        cells = other.cells()
        both = [
            column.followed(cells[name])
            for name, column in zip(self.names, self.columns, strict=True)
        ]
        return Table(self.names, both)


def table_of(read: Any, names: list[str] | None = None) -> Table:
    """A table of pyarrow's."""
    columns = [cells_of(column) for column in read.columns]
    return Table([str(name) for name in names or read.column_names], columns)


def table_source(name: str, table: Table, reading: Reading) -> Source:
    """Features, target and weights from a table."""
    roles = roles_of(name, table.names, reading)
    notes: list[str] = []
    rows = None
    if reading.drop_missing_target:
        rows = _with_targets(table, roles)
        notes = _left_out(len(table) - len(rows))
        table = table.at(rows)
    cells = table.cells()
    y = _targets(roles, cells, reading)
    weights = None if roles.weight is None else _weights(roles.weight, cells[roles.weight])
    columns = settled_columns(
        {one: cells[one] for one in roles.features}, reading.decimal, roles.named
    )
    x = columns.encoded(cells, reading.allowance)
    notes += [*columns.notes, *_asked(roles), *_many_classes(roles.targets[0], y)]
    data = Dataset(x, y, weights) if rows is None else Dataset(x, y, weights, rows)
    return Source(name, data, "standard", tuple(notes), table=table, keep=columns.kept)


def _with_targets(table: Table, roles: Roles) -> Array:
    """The rows that have all targets, by their numbers in the file."""
    cells = table.cells()
    lost = np.any([cells[name].missing() for name in roles.targets], axis=0)
    if lost.all():
        raise InputError(f"no row has a value of --target {roles.targets[0]}; name another column.")
    return np.flatnonzero(~lost)


def _left_out(count: int) -> list[str]:
    if not count:
        return []
    return [f"{count} rows without a target are left out; rows are counted without them"]


def _targets(roles: Roles, cells: dict[str, Cells], reading: Reading) -> Array:
    """Labels or numbers of the one target; of several, a column of numbers each."""
    settled = [settled_target(name, cells[name], reading.decimal) for name in roles.targets]
    found = [one.encoded(cells[one.name], 0, reading.allowance) for one in settled]
    if len(found) == 1:
        return found[0]
    for name, column in zip(roles.targets, found, strict=True):
        if column.dtype.kind not in "if":
            raise InputError(
                f"--target {reading.target}: {name!r} holds text, and several targets must be "
                "numbers; name one column of classes, or numbers only."
            )
    return np.stack([column.astype(np.float64) for column in found], axis=1)


def _weights(name: str, cells: Cells) -> Array:
    values, _ = numbers_of(cells)
    if values is None:
        raise InputError(f"the weight column {name!r} holds values that are not numbers.")
    if np.isnan(values).any():
        raise InputError(
            f"the weight column {name!r} has no value in row {int(np.isnan(values).argmax())}; "
            "every row needs one."
        )
    return values


def _asked(roles: Roles) -> list[str]:
    """What was left out because somebody said so."""
    notes = [f"features are those named: {', '.join(roles.features)}"] if roles.named else []
    return [*notes, f"dropped columns: {', '.join(roles.dropped)}"] if roles.dropped else notes


def _many_classes(target: str, y: Array) -> list[str]:
    count = len(np.unique(y)) if y.dtype.kind in "iU" else 0
    if count <= MANY_CLASSES:
        return []
    if y.dtype.kind == "i":
        return [
            f"target {target!r}: {count} different whole numbers, which are classes unless --task "
            "regression says that they are amounts"
        ]
    return [f"target {target!r}: {count} classes of text; is it the column to predict?"]


def write_rows(path: Path, table: Table, indices: Array, weights: Array) -> None:
    """The chosen rows with a weight column, as .csv or .parquet; written beside and renamed."""
    names = [*table.names, _free_name(table.names)]
    columns = [*(column.at(indices).listed() for column in table.columns), weights.tolist()]
    with replacing(path) as beside:
        if path.suffix.lower() == ".parquet":
            pyarrow = arrow()
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(dict(zip(names, columns, strict=True))), beside)
        else:
            with open(beside, "w", newline="", encoding="utf-8") as file:
                rows = zip(*columns, strict=True)
                csv.writer(file, lineterminator="\n").writerows([names, *rows])


def _free_name(names: list[str]) -> str:
    """A name for the column of weights that no other column has."""
    numbered = (f"bicore_weight_{number}" for number in itertools.count(1))
    return next(name for name in itertools.chain(["weight"], numbered) if name not in names)

"""Tables with a header, from any file or data frame.

The rules for columns, which the notes apply to each:

* numbers, also in text with decimal points or commas, a currency or a percent sign: as they are; a
  missing one becomes the column's median, and so do up to 1% of cells that are no numbers.
* dates and times: days since 1970, and the places in the year, the week and the day as points of
  circles.
* lists of numbers of one length: as they are.
* text or booleans of few distinct values (at most 20, or 5% of the rows): one indicator for each; a
  missing one has none set. If that would be more than ten million numbers: how often the value
  occurs.
* other text, columns without a value, and columns that number the rows: left out.

The target must have a value in every row. Integers, text and booleans are classes, other numbers
are targets; several targets are numbers.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.files import replacing
from bicore.frames import arrow
from bicore.sources.base import Source
from bicore.sources.cells import (
    Cells,
    clean,
    find_numerals,
    join,
    listed,
    missing,
    read_numbers,
    take,
    typed,
)
from bicore.sources.columns import fit_columns, fit_target
from bicore.sources.numpy_files import load_array
from bicore.sources.reading import CELL_COPIES, Allowance, Reading, Roles, roles_of

#: Above this many classes a target is more likely an amount or a name; the notes say so.
MANY_CLASSES = 50


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as they were written: names, each column as pyarrow's or as a list, and remarks."""

    names: list[str]
    columns: Sequence[Any]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(int(getattr(column, "nbytes", 0)) for column in self.columns)

    def at(self, indices: Array) -> Table:
        """The table of some rows."""
        return replace(self, columns=[take(column, indices) for column in self.columns])

    def by_name(self) -> dict[str, Any]:
        """Columns by their names."""
        return dict(zip(self.names, self.columns, strict=True))

    def cells(self) -> dict[str, Cells]:
        """Columns by their names, for display."""
        return {name: Cells(column) for name, column in self.by_name().items()}

    def joined(self, other: Table) -> Table:
        """The rows of both; the other table has these columns, in any order."""
        columns = other.by_name()
        both = [join([one, columns[name]]) for name, one in self.by_name().items()]
        return Table(self.names, both, tuple(dict.fromkeys(self.notes + other.notes)))


def encode_table(
    frame: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    memory: int | str | None = None,
    **options: Any,
) -> Source:
    """Encode a data frame as the command encodes the same table in a file.

    Parameters
    ----------
    frame : pandas.DataFrame, polars.DataFrame or pyarrow.Table
        Columns of any kind.
    y : str or array, optional
        The target column, or labels or targets row by row.
    sample_weight : str or array, optional
        The column of weights, or weights row by row.
    memory : int or str, optional
        Memory limit, in bytes or as in "4GB" (default: half of the free memory).
    **options
        ``columns``, ``drop``, ``decimal``, ``missing`` and ``drop_missing_target``, as in
        :func:`open_source`.

    Returns
    -------
    Source
        ``data`` is the encoded :class:`~bicore.Dataset`, not scaled; ``scaled(None)`` standardises
        it as the command does; ``notes`` say what each column became.

    Raises
    ------
    InputError
        If no column can serve as a feature, or an option names no column.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"size": [1.5, None, 2.5], "colour": ["red", "blue", "red"]})
    >>> encode_table(frame, [0, 1, 0]).data.x.tolist()
    [[1.5, 0.0, 1.0], [2.0, 1.0, 0.0], [2.5, 0.0, 1.0]]
    """
    try:
        arrow("a data frame")
    except InputError:
        if options or not all_numbers(frame):
            raise
        return Source(type(frame).__name__, Dataset(frame, y, sample_weight), "standard")
    names = [str(name) for name in getattr(frame, "column_names", None) or frame.columns]
    places = frame.columns if hasattr(frame, "column_names") else _columns_of(frame)
    table = Table(names, [_arrow_column(one) for one in places])
    reading = Reading(allowance=Allowance.of(memory), **named_columns(y, sample_weight), **options)
    return labelled_table(type(frame).__name__, table, y, sample_weight, reading)


def _columns_of(frame: Any) -> list[Any]:
    if hasattr(frame, "get_columns"):  # polars
        return list(frame.get_columns())
    return [frame[name] for name in frame]


def all_numbers(frame: Any) -> bool:
    """Whether all columns of a frame hold numbers."""
    return all(map(_is_number, getattr(frame, "dtypes", [None])))


def _is_number(dtype: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric())
    kind = getattr(dtype, "kind", "")
    return bool(kind) and kind in "biuf"


def named_columns(y: Any, sample_weight: Any) -> dict[str, Any]:
    """The options of a reading for a target and weights that are names of columns."""
    columns = {"target": y, "sample_weight": sample_weight}
    return {key: one for key, one in columns.items() if isinstance(one, str)}


def labelled_table(name: str, table: Table, y: Any, sample_weight: Any, reading: Reading) -> Source:
    """Encode a table; ``y`` and ``sample_weight`` name columns, or hold a value for each row."""
    found = table_source(name, table, reading)
    given = {"y": y, "sample_weight": sample_weight}
    given = {key: one for key, one in given.items() if not (one is None or isinstance(one, str))}
    return replace(found, data=replace(found.data, **given)) if given else found


def _arrow_column(column: Any) -> Any:
    """A column of a data frame as pyarrow's; as text if its cells have several types."""
    pyarrow = arrow("a data frame")
    if hasattr(column, "to_arrow"):
        column = column.to_arrow()
    elif not hasattr(column, "chunks"):
        column = typed(column)
    return column if hasattr(column, "chunks") else pyarrow.chunked_array([column])


def table_source(name: str, table: Table, reading: Reading) -> Source:
    """Features, target and weights from a table."""
    roles = roles_of(name, table.names, reading)
    told = list(table.notes)
    rows = None
    if reading.drop_missing_target:
        rows = _rows_with_targets(table, roles, reading)
        if len(rows) < len(table):
            told.append(
                f"{len(table) - len(rows)} rows without a target are left out; rows are counted "
                "without them"
            )
    whole = len(table)
    table = table if rows is None else table.at(rows)
    columns = table.by_name()
    y = _targets(roles, columns, reading) if roles.targets else None
    weights = (
        None
        if roles.sample_weight is None
        else _weights(roles.sample_weight, columns[roles.sample_weight])
    )
    told += [] if y is None else _many_classes(roles.targets[0], y)
    if reading.embeddings is not None:
        x = _load_embeddings(reading, name, whole, roles.named)
        data = Dataset(x, y, weights) if rows is None else Dataset(x[rows], y, weights, rows)
        told.append(f"features: the {x.shape[1]} columns of {reading.embeddings}")
        return Source(name, data, "none", tuple(told), table=table)
    features = {one: columns[one] for one in roles.features}
    fitted = fit_columns(features, reading.decimal, roles.named, reading.missing_words)
    x = fitted.encode(features, replace(reading.allowance, held=CELL_COPIES * table.nbytes))
    told += fitted.notes
    told += [f"features are those named: {', '.join(roles.features)}"] if roles.named else []
    told += [f"dropped columns: {', '.join(roles.dropped)}"] if roles.dropped else []
    data = Dataset(x, y, weights) if rows is None else Dataset(x, y, weights, rows)
    return Source(
        name, data, "standard", tuple(told), table=table, keep=fitted.kept, columns=fitted
    )


def _load_embeddings(reading: Reading, table: str, rows: int, named: bool) -> Array:
    """The features of a table that are in a file of their own."""
    path = Path(str(reading.embeddings))
    if path.suffix.lower() != ".npy" or not path.is_file():
        raise InputError(f"--embeddings {path} must be an .npy file that exists.")
    if named:
        raise InputError("--features and --embeddings both name the features; leave one out.")
    x = load_array(path, reading)
    if len(x) != rows:
        raise InputError(
            f"--embeddings {path} has {len(x)} rows and {table} has {rows}; they must have the "
            "same rows in the same order."
        )
    return x.reshape(rows, -1)


def _rows_with_targets(table: Table, roles: Roles, reading: Reading) -> Array:
    """The rows that have all targets, by their numbers in the file."""
    columns, words = table.by_name(), reading.missing_words
    lost = np.any([missing(clean(columns[name], words)) for name in roles.targets], axis=0)
    if lost.all():
        raise InputError(f"no row has a value of --target {roles.targets[0]}; name another column.")
    return np.flatnonzero(~lost)


def _targets(roles: Roles, columns: dict[str, Any], reading: Reading) -> Array:
    """Labels or numbers of one target; several targets are columns of numbers."""
    words = reading.missing_words
    fitted = [fit_target(name, columns[name], reading.decimal, words) for name in roles.targets]
    found = [one.encode(columns[one.name], 0, reading.allowance) for one in fitted]
    if len(found) == 1:
        return found[0]
    for name, column in zip(roles.targets, found, strict=True):
        if column.dtype.kind not in "if":
            raise InputError(
                f"--target {reading.target}: {name!r} holds text, and several targets must be "
                "numbers; name one column of classes, or numbers only."
            )
    return np.stack([column.astype(np.float64) for column in found], axis=1)


def _weights(name: str, column: Any) -> Array:
    column = clean(column)
    ways = find_numerals(column, None)
    values = read_numbers(column, ways[0]) if len(ways) == 1 else np.full(len(column), np.nan)
    wrong = np.isnan(values)
    if wrong.any():
        raise InputError(
            f"the weight column {name!r} holds no number in row {int(wrong.argmax())}; every row "
            "needs one."
        )
    return values


def _many_classes(target: str, y: Array) -> list[str]:
    count = len(np.unique(y)) if y.dtype.kind in "iU" else 0
    if count <= MANY_CLASSES:
        return []
    if y.dtype.kind == "i":
        return [
            f"target {target!r}: {count} different integers, which are classes unless --task "
            "regression says that they are amounts"
        ]
    return [f"target {target!r}: {count} classes of text; is it the column to predict?"]


def write_rows(path: Path, table: Table, indices: Array, weights: Array) -> None:
    """Write the chosen rows with a weight column as .csv or .parquet, all or nothing."""
    names = [*table.names, _free_name(table.names)]
    columns = [*(listed(take(one, indices)) for one in table.columns), weights.tolist()]
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

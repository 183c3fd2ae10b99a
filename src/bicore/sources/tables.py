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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bicore import types
from bicore._deprecated import renamed_keywords
from bicore.data import Array, Dataset
from bicore.errors import InputError, shown
from bicore.files import replacing
from bicore.frames import arrow, dense_column, is_list, row_shape, storage_type
from bicore.sources import cells
from bicore.sources.base import Source
from bicore.sources.columns import Columns, Target, TargetKind, fit_columns, fit_target
from bicore.sources.numpy_files import load_array
from bicore.sources.parts import Chunk, Part, as_floats, kind_of
from bicore.sources.reading import (
    CELL_COPIES,
    TABLE_OPTIONS,
    Allowance,
    Reading,
    Roles,
    refuse_unused,
    roles_of,
)

#: With more classes than this a target is probably an amount or a name; a note says so.
MANY_CLASSES = 50
#: Columns by name, of pyarrow or as lists.
Table = dict[str, Any]


def load_columns(batches: Iterable[Any], reading: Reading) -> Table:
    """Load batches of pyarrow until there are enough rows, counting memory.

    A column that some batches lack is missing there.
    """
    found: list[Any] = []
    held = rows = 0
    for batch in batches:
        held += CELL_COPIES * batch.nbytes
        found.append(batch if reading.limit is None else batch.slice(0, reading.limit - rows))
        rows += len(found[-1])
        reading.allowance.require(held, f"the cells of the first {rows} rows")
        if rows == reading.limit:
            break

    names = dict.fromkeys(name for batch in found for name in batch.schema.names)
    return {name: cells.join([_column(one, name) for one in found]) for name in names if rows}


def _column(batch: Any, name: str) -> Any:
    return batch.column(name) if name in batch.schema.names else arrow().nulls(len(batch))


def count_bytes(table: Table) -> int:
    """Bytes of all columns of pyarrow."""
    return sum(int(getattr(column, "nbytes", 0)) for column in table.values())


def take_rows(table: Table, rows: Array) -> Table:
    """Take some rows of all columns."""
    return {name: cells.take(column, rows) for name, column in table.items()}


def join_tables(tables: Sequence[Table]) -> Table:
    """Concatenate tables that have the same columns, in any order."""
    return {name: cells.join([one[name] for one in tables]) for name in tables[0]}


def refuse_other_columns(place: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a table with other columns than the one before."""
    strange = set(names) ^ set(known)
    if strange:
        tables = f"{place} and the table before it must have the same columns"
        raise InputError(f"{tables}: {min(strange)!r} is in one of them only.")


@renamed_keywords()
def encode_table(
    frame: types.Table,
    y: types.Labels | None = None,
    *,
    sample_weight: types.Weights | None = None,
    memory: int | str | None = None,
    columns: str | Sequence[str] | None = None,
    drop: str | Sequence[str] | None = None,
    drop_missing_target: bool = False,
    decimal: str | None = None,
    missing: str | None = None,
    encoding: str | None = None,
) -> Source:
    """Encode a data frame as the command encodes the same table in a file.

    Parameters
    ----------
    frame : pandas.DataFrame, polars.DataFrame or pyarrow.Table
        Data frame with columns of any kind.
    y : str or array, optional
        The target column, or labels or targets row by row.
    sample_weight : str or array, optional
        The column of weights, or weights row by row.
    memory : int or str, optional
        Memory limit, in bytes or as in "4GB" (default: 4 GB).
    columns : str or sequence of str, optional
        Columns to use as features; a string separates them by commas.
    drop : str or sequence of str, optional
        Columns to exclude; a string separates them by commas.
    drop_missing_target : bool
        Whether to exclude rows without a target; otherwise they raise an error.
    decimal : "comma" or "point", optional
        Decimal separator (default: inferred).
    missing : str, optional
        Further words for a missing value, separated by commas.
    encoding : str, optional
        Encoding of a text file; refused here, because a data frame has none.

    Returns
    -------
    Source
        ``data`` is the encoded :class:`~bicore.Dataset`, not scaled; ``scale_features(None)``
        standardises it as the command does; ``notes`` say what each column became.

    Raises
    ------
    InputError
        If no column can be used as a feature, or an option names no column.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"size": [1.5, None, 2.5], "colour": ["red", "blue", "red"]})
    >>> encode_table(frame, [0, 1, 0]).data.x.tolist()
    [[1.5, 0.0, 1.0], [2.0, 1.0, 0.0], [2.5, 0.0, 1.0]]
    """
    kind = type(frame).__name__
    if not hasattr(frame, "columns"):
        raise InputError(f"frame must be a data frame or an Arrow table; got {shown(frame)}.")
    options: dict[str, Any] = {"columns": columns, "drop": drop, "decimal": decimal}
    options |= {"missing": missing, "drop_missing_target": drop_missing_target}
    try:
        arrow("a data frame")
    except InputError:
        if any(options.values()) or not all_numbers(frame):
            raise
        return Source(kind, Dataset(np.asarray(frame), y, sample_weight), "standard")
    options |= {"encoding": encoding, **named_columns(y, sample_weight)}
    refuse_unused(options, kind, TABLE_OPTIONS)
    reading = Reading(**options, allowance=Allowance.of(memory))
    given: Any = frame.to_arrow() if hasattr(frame, "to_arrow") else frame  # of polars
    names = [str(name) for name in getattr(given, "column_names", None) or given.columns]
    roles_of(kind, names, reading)  # no two columns have one name
    found = given.columns if hasattr(given, "column_names") else [given[one] for one in given]
    pairs = zip(names, found, strict=True)
    table = {name: cells.join([cells.as_array(one)]) for name, one in pairs}
    return add_labels(table_source(kind, table, reading), y, sample_weight)


def all_numbers(frame: Any) -> bool:
    """Whether all columns of a frame hold numbers."""
    return all(map(_is_number, getattr(frame, "dtypes", [None])))


def _is_number(dtype: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric())
    return getattr(dtype, "kind", "O") in "biuf"


def named_columns(y: Any, sample_weight: Any) -> dict[str, Any]:
    """Return reading options for a target and weights given by column name."""
    columns = {"target": y, "sample_weight": sample_weight}
    return {key: one for key, one in columns.items() if isinstance(one, str)}


def add_labels(source: Source, y: Any, sample_weight: Any) -> Source:
    """Add labels and weights given per row, not by column name."""
    given = {"y": y, "sample_weight": sample_weight}
    given = {key: one for key, one in given.items() if not (one is None or isinstance(one, str))}
    return replace(source, data=replace(source.data, **given)) if given else source


@dataclass(frozen=True)
class Embedding:
    """A single column of lists, the only features of a table, read as stored."""

    name: str

    @property
    def names(self) -> list[str]:
        """The name of the column."""
        return [self.name]

    @property
    def notes(self) -> list[str]:
        """Notes on the features."""
        return [f"features: the lists of column {self.name!r}"]

    def shape(self, first: Any, place: str) -> tuple[tuple[int, ...], str]:
        """Return the shape of a list, and the kind of its numbers."""
        column = first.column(self.name)
        inner, types = column.type, arrow().types
        while is_list(inner):
            inner = storage_type(inner).value_type
        number = types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)
        if inner == column.type or not number:
            held = f"{place}: columns={self.name!r} is a column of {column.type}"
            raise InputError(f"{held}; give lists of numbers.")
        shape = row_shape(column, place)
        if shape is None:
            lacks = f"{place} holds no value in the first {len(first)} rows of {self.name!r}"
            raise InputError(f"{lacks}; drop the rows without one.")
        return shape, kind_of(np.dtype(inner.to_pandas_dtype()))

    def encode_part(self, table: Mapping[str, Any], shape: tuple[int, ...], part: Part) -> Array:
        """Return the lists as rows in the stored precision; NaN for a missing list or value."""
        return as_floats(dense_column(table[self.name], shape, part.offset, part.place))


@dataclass(frozen=True, eq=False)
class Encoder:
    """Encodes the columns of a table as rows: fitted on all rows, applied to any."""

    columns: Columns | Embedding
    targets: tuple[Target, ...] = ()
    #: The column of weights, and the notation of its numbers.
    weight: tuple[str, cells.Numerals] | None = None

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        weight = [] if self.weight is None else [self.weight[0]]
        return [*self.columns.names, *(one.name for one in self.targets), *weight]

    @property
    def notes(self) -> list[str]:
        """The notes on the encoding of columns."""
        return self.columns.notes

    def labels(
        self,
        table: Mapping[str, Any],
        allowance: Allowance | None = None,
        start: int = 0,
        masked: bool = False,
    ) -> Array | None:
        """Return labels, or numbers of one or several targets."""
        found = [one.encode(table[one.name], start, allowance, masked) for one in self.targets]
        if len(found) < 2:
            return found[0] if found else None
        return np.ma.stack(found, axis=1) if masked else np.stack(found, axis=1)

    def weights(self, table: Mapping[str, Any], strict: bool = True) -> Array | None:
        """Return weights of some rows; ``strict`` refuses missing ones."""
        if self.weight is None:
            return None
        name, way = self.weight
        values = cells.read_numbers(cells.clean(table[name]), way)
        if strict and np.isnan(values).any():
            where = f"column {name!r} has no number in row {np.isnan(values).argmax()}"
            fix = "give a column of numbers"
            raise InputError(f"sample_weight: {where} (the first row is 0); {fix}.")
        return values

    def describe(self, first: Any, place: str) -> dict[str, Any]:
        """Return the shape and kinds of rows, from the first of them."""
        shape, kind = self.columns.shape(first, place)
        several = (len(self.targets),) if len(self.targets) > 1 else ()
        label = (self.targets[0].kind.name, several) if self.targets else None
        return {"shape": shape, "kind": kind, "label": label}

    def chunk(self, table: Any, shape: tuple[int, ...], part: Part) -> Chunk:
        """Encode the rows of a part and mark bad rows."""
        columns = {name: table.column(name) for name in self.names}
        y = self.labels(columns, start=part.offset, masked=True)
        x = self.columns.encode_part(columns, shape, part)
        return Chunk(x, y, self.weights(columns, strict=False))

    @property
    def identity(self) -> str:
        """A text that identifies the fit."""
        features = getattr(self.columns, "features", self.columns)
        scaled = getattr(self.columns, "scaling", None) is not None
        return repr((features, self.targets, self.weight, scaled))


def fit_table(
    roles: Roles,
    read: Callable[[str], Any],
    reading: Reading,
    scaled: bool = False,
    stored: Embedding | None = None,
) -> Encoder:
    """Fit the columns of a table, reading one at a time.

    ``scaled`` fits the scaling of the features too; ``stored`` ones are not fitted.
    """
    weight = None
    if roles.sample_weight is not None:
        ways = cells.find_numerals(cells.clean(read(roles.sample_weight)), None)
        weight = roles.sample_weight, ways[0] if len(ways) == 1 else cells.Numerals.POINT
    columns = stored or Columns((), [], reading.missing_words)
    if reading.embeddings is None and stored is None:
        features = ((name, read(name)) for name in roles.features)
        columns = fit_columns(features, reading, roles.named, scaled)
        named = [f"feature columns: {', '.join(roles.features)}"] if roles.named else []
        dropped = [f"dropped columns: {', '.join(roles.dropped)}"] if roles.dropped else []
        columns.notes.extend([*named, *dropped])
    return Encoder(columns, _fit_targets(roles, read, reading), weight)


def table_source(name: str, table: Table, reading: Reading, notes: Sequence[str] = ()) -> Source:
    """Return features, target and weights of a table as a source."""
    roles = roles_of(name, list(table), reading)
    told = list(notes)
    every = len(next(iter(table.values())))
    rows = np.arange(every)
    if reading.drop_missing_target:
        rows = _rows_with_targets(table, roles, reading)
        table = take_rows(table, rows)
    if len(rows) < every:
        lost = f"{every - len(rows)} rows without a target are excluded"
        told.append(f"{lost}; row numbers do not count them")
    encoder = fit_table(roles, table.__getitem__, reading)
    y, weights = encoder.labels(table, reading.allowance), encoder.weights(table)
    told += [] if y is None else _many_classes(roles.targets[0], y)
    fitted = encoder.columns
    assert isinstance(fitted, Columns)
    if reading.embeddings is not None:
        x = _load_embeddings(reading, name, every, roles.named)
        notes = (*told, f"features: the {x.shape[1]} columns of {reading.embeddings}")
        return Source(name, Dataset(x[rows], y, weights, rows), "none", notes, table=table)
    allowance = replace(reading.allowance, held=CELL_COPIES * count_bytes(table))
    data = Dataset(fitted.encode(table, allowance), y, weights, rows)
    return Source(name, data, "standard", (*told, *fitted.notes), table=table, columns=fitted)


def _load_embeddings(reading: Reading, table: str, rows: int, named: bool) -> Array:
    """Load the features of a table from their own file."""
    path = Path(str(reading.embeddings))
    if path.suffix.lower() != ".npy" or not path.is_file():
        raise InputError(f"--embeddings {path} must be an .npy file that exists.")
    if named:
        raise InputError("--features and --embeddings both name the features; leave one out.")
    x = load_array(path, reading)
    if len(x) != rows:
        counts = f"--embeddings {path} has {len(x)} rows and {table} has {rows}"
        raise InputError(f"{counts}; they must have the same rows in the same order.")
    return x.reshape(rows, -1)


def _rows_with_targets(table: Table, roles: Roles, reading: Reading) -> Array:
    """Return the numbers of rows that have all targets."""
    targets = [cells.clean(table[name], reading.missing_words) for name in roles.targets]
    lost = np.any([cells.is_missing(column) for column in targets], axis=0)
    if lost.all():
        raise InputError(f"no row has a value of --target {roles.targets[0]}; name another column.")
    return np.flatnonzero(~lost)


def _fit_targets(roles: Roles, read: Callable[[str], Any], reading: Reading) -> tuple[Target, ...]:
    found = [fit_target(name, read(name), reading) for name in roles.targets]
    if len(found) < 2:
        return tuple(found)
    text = next((one.name for one in found if one.kind is TargetKind.TEXT), None)
    if text is not None:
        wrong = f"{text!r} holds text, and several targets must be numbers"
        raise InputError(f"--target {reading.target}: {wrong}; name one column of classes.")
    return tuple(replace(one, kind=TargetKind.NUMBERS) for one in found)


def _many_classes(target: str, y: Array) -> list[str]:
    count = len(np.unique(y)) if y.dtype.kind in "iU" else 0
    what = "classes of text; check that this is the column to predict"
    if y.dtype.kind == "i":
        what = "integers are used as class labels; set --task regression to predict numbers"
    return [f"target {target!r}: {count} {what}"] if count > MANY_CLASSES else []


def write_rows(path: Path, table: Table, indices: Array, values: Array, column: str) -> None:
    """Write the chosen rows with a further column to a .csv or .parquet file, completely or not
    at all."""
    numbered = (f"bicore_{column}_{number}" for number in itertools.count(1))
    free = next(name for name in itertools.chain([column], numbered) if name not in table)
    chosen = {name: cells.to_list(column) for name, column in take_rows(table, indices).items()}
    chosen[free] = values.tolist()
    with replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            pyarrow = arrow()
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(chosen), temporary)
        else:
            with open(temporary, "w", newline="", encoding="utf-8") as file:
                rows = zip(*chosen.values(), strict=True)
                csv.writer(file, lineterminator="\n").writerows([chosen, *rows])

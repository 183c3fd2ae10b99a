"""Parquet and Arrow files, and Hugging Face data sets: as tables, or as numbers in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError, check_integer
from bicore.frames import arrow, dense_column, is_list, plain, row_shape
from bicore.sources.files import Files, common_name, find_files, foreign
from bicore.sources.parts import (
    PART_ROWS,
    Chunk,
    Part,
    Shard,
    ShardSource,
    as_floats,
    changed,
    digest_columns,
    digest_files,
    kind_of,
    spread,
)
from bicore.sources.reading import Reading, limited, name_list, roles_of, unknown_column
from bicore.sources.tables import Table

#: Rows of a table that are read at a time.
_ROWS = 65_536
#: The first bytes of an Arrow file, which a stream does not have.
_FILE = b"ARROW1"
#: Numbers of the rows of a part that are decoded together, 4 MB of float32.
BLOCK = 2**20
#: Rows among which one is sought that shows how long the lists of a column are.
FIRST_ROWS = 64


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file, whose rows are read on demand; errors inside name the file."""
    arrow("Parquet")
    from pyarrow import parquet as files

    with (
        foreign(path, "Parquet file"),
        files.ParquetFile(
            path, memory_map=True, pre_buffer=False, page_checksum_verification=True
        ) as file,
    ):
        yield file


def read_parquet(path: Path, reading: Reading) -> Table:
    """Read a Parquet file as a table."""
    with open_parquet(path) as file:
        rows = file.iter_batches(batch_size=min(_ROWS, reading.limit or _ROWS))
        return _table(path, file.schema_arrow, rows, reading)


def read_feather(path: Path, reading: Reading) -> Table:
    """Read a Feather file, or an Arrow file or stream, as a table."""
    arrow("Feather")
    with foreign(path, "Arrow file"), open(path, "rb") as stream:
        return _table(path, *_batches(stream), reading)


def holds_embedding(path: Path, reading: Reading) -> bool:
    """Whether the features of a Parquet file are one column of lists."""
    with open_parquet(path) as file:
        schema = file.schema_arrow
        roles = roles_of(path.name, schema.names, reading)
        return len(roles.features) == 1 and is_list(schema.field(roles.features[0]).type)


def _table(path: Path, schema: Any, batches: Iterator[Any], reading: Reading) -> Table:
    names = [str(name) for name in schema.names]
    roles_of(path.name, names, reading)  # before all of it is read
    whole = arrow().Table.from_batches(list(limited(batches, reading)), schema)
    return Table(names, whole.columns)


def _batches(stream: IO[bytes]) -> tuple[Any, Iterator[Any]]:
    import pyarrow.ipc as files

    begin = stream.read(len(_FILE))
    stream.seek(0)
    if begin != _FILE:
        reader = files.open_stream(stream)
        return reader.schema, iter(reader)
    file = files.open_file(stream)
    return file.schema, (file.get_batch(number) for number in range(file.num_record_batches))


@dataclass(frozen=True)
class Columns:
    """Columns of numbers, or the one of lists (``nested``), as features; labels; weights."""

    features: tuple[str, ...]
    nested: bool
    target: str | None = None
    weight: str | None = None

    @property
    def names(self) -> list[str]:
        """All columns that are read, each once."""
        rest = [name for name in (self.target, self.weight) if name is not None]
        return list(dict.fromkeys([*self.features, *rest]))

    @property
    def note(self) -> str:
        """The features in words."""
        if self.nested:
            return f"features: the lists of column {self.features[0]!r}"
        return f"features: {len(self.features)} columns of numbers: {name_list(self.features)}"

    def shard(self, schema: Any, first: Any, place: str, rows: int) -> Shard:
        """Describe rows by their schema and the first of them."""
        kinds = [_dtype(schema.field(name).type) for name in self.features]
        # Lists of targets are checked when they are read.
        label = self.target and _label_kind(schema.field(self.target).type, self.target)
        shape = self._shape(first, place)
        return Shard(
            place, rows, shape, kind_of(np.result_type(*kinds)), (label, ()) if label else None
        )

    def _shape(self, first: Any, place: str) -> tuple[int, ...]:
        if not self.nested:
            return (len(self.features),)
        shape = row_shape(first.column(self.features[0]), place)
        if shape is None:
            raise InputError(
                f"{place} holds no value in the first {len(first)} rows of {self.features[0]!r}; "
                "drop the rows without one."
            )
        return shape

    def gather(self, tables: Iterable[Any], shape: tuple[int, ...], part: Part) -> Chunk:
        """Write the rows of a part, which come in several tables, to one array."""
        pieces: list[Chunk] = []
        x: Array | None = None
        done = 0
        for table in tables:
            count = table.num_rows
            if done + count > part.count:
                raise changed(part.place, f"{part.count} rows", "longer")
            some = self.chunk(table, shape, replace(part, offset=part.offset + done, count=count))
            if x is None:
                x = np.empty((part.count, *shape), dtype=some.x.dtype)
            x[done : done + count] = some.x
            pieces.append(replace(some, x=some.x[:0]))
            done += count
        if x is None or done != part.count:
            raise changed(part.place, f"{part.count} rows", f"{done} rows")
        y, weight = (_join([getattr(one, name) for one in pieces]) for name in ("y", "weight"))
        return Chunk(x, y, weight)

    def chunk(self, table: Any, shape: tuple[int, ...], part: Part) -> Chunk:
        """The rows of a part from their table."""
        if table.num_rows != part.count:
            raise changed(part.place, f"{part.count} rows", f"{table.num_rows} rows")
        if self.nested:
            x = _floats(table.column(self.features[0]), shape, part)
        else:
            columns = [table.column(name) for name in self.features]
            kinds = [as_floats(np.empty(0, _dtype(column.type))).dtype for column in columns]
            x = np.empty((part.count, len(columns)), dtype=np.result_type(*kinds))
            for place, column in enumerate(columns):
                x[:, place] = _floats(column, None, part)
        y = None if self.target is None else _labels(table.column(self.target), part)
        weight = None if self.weight is None else _floats(table.column(self.weight), None, part)
        return Chunk(x, y, weight)


def choose(
    schema: Any,
    columns: str | Sequence[str] | None,
    target: str | None,
    sample_weight: str | None,
    place: str,
) -> Columns:
    """Check the columns asked for; by default the one of lists or all of numbers are features."""
    if columns is not None:
        names = [columns] if isinstance(columns, str) else list(columns)
    else:
        free = [field for field in schema if field.name not in (target, sample_weight)]
        names = [field.name for field in free if is_list(field.type)]
        if len(names) > 1:
            raise InputError(
                f"{place} holds several columns of lists ({', '.join(names)}); say which one with "
                f"columns={names[0]!r}."
            )
        names = names or [field.name for field in free if _is_number(field.type)]
    if not names:
        raise InputError(
            f"{place} holds no column of numbers or lists besides target and sample_weight "
            f"(columns: {name_list(schema.names)}); name the features."
        )
    wanted = [("columns", name) for name in names] + [
        ("target", target),
        ("sample_weight", sample_weight),
    ]
    for argument, name in wanted:
        if name is None:
            continue
        if schema.names.count(name) != 1:
            raise InputError(f"{place}: {unknown_column(argument, str(name), schema.names)}")
        kind = schema.field(name).type
        number = _innermost(kind) if argument == "columns" else kind
        if argument != "target" and not _is_number(number):
            raise InputError(
                f"{place}: {argument}={name!r} is a column of {kind}; give numbers (encode text "
                "and dates first)."
            )
    nested = [name for name in names if is_list(schema.field(name).type)]
    if nested and len(names) > 1:
        raise InputError(
            f"{place}: columns={names!r} mixes lists ({nested[0]!r}) with other columns; give "
            "the one column of lists, or columns of numbers."
        )
    return Columns(tuple(names), bool(nested), target, sample_weight)


def _innermost(kind: Any) -> Any:
    kind = plain(kind)
    return _innermost(kind.value_type) if is_list(kind) else kind


def _is_number(kind: Any) -> bool:
    types = arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_text(kind: Any) -> bool:
    types = arrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _dtype(kind: Any) -> np.dtype[np.generic]:
    """NumPy's dtype for a type of numbers, or of numbers in lists."""
    dtype: np.dtype[np.generic] = np.dtype(_innermost(kind).to_pandas_dtype())
    return dtype


def _label_kind(kind: Any, name: str) -> str:
    inner = kind.value_type if arrow().types.is_dictionary(kind) else _innermost(kind)
    if not _is_number(inner) and not _is_text(inner):
        raise InputError(
            f"target={name!r} is a column of {kind}; give integers, text, booleans or floats."
        )
    return kind_of(np.dtype(np.str_) if _is_text(inner) else _dtype(inner))


def _floats(column: Any, shape: tuple[int, ...] | None, part: Part) -> Array:
    """Numbers, or lists of equal length as rows; NaN for a missing list or value."""
    return as_floats(dense_column(column, shape, part.offset, part.place))


def _labels(column: Any, part: Part) -> Array:
    """Labels as stored, text as NumPy's; missing ones are masked."""
    if is_list(column.type):
        return _floats(column, row_shape(column, part.place), part)
    missing = column.is_null().to_numpy()
    if arrow().types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    fill = "" if _is_text(column.type) else 0
    values = np.asarray(column.fill_null(arrow().scalar(fill).cast(column.type)).to_numpy())
    if _is_text(column.type):
        values = values.astype(np.str_)
    return np.ma.MaskedArray(values, missing) if missing.any() else values


def _join(pieces: list[Any]) -> Array | None:
    """Pieces of a column below each other; masked if one is."""
    if pieces[0] is None:
        return None
    masked = any(np.ma.is_masked(piece) for piece in pieces)
    join: Any = np.ma.concatenate if masked else np.concatenate
    joined: Array = join(pieces)
    return joined


class _ArrowShards(ShardSource):
    """Rows of Arrow tables with the same columns."""

    def __init__(
        self,
        name: str,
        columns: str | Sequence[str] | None,
        target: str | None,
        sample_weight: str | None,
    ) -> None:
        super().__init__(name)
        self._wanted = columns, target, sample_weight
        self._known: Columns | None = None
        _ = self.shards  # tables that do not agree are refused now

    @property
    def _columns(self) -> Columns:
        assert self._known is not None
        return self._known

    @property
    def notes(self) -> tuple[str, ...]:
        chosen = self._wanted[0] is not None
        return super().notes if chosen else (*super().notes, self._columns.note)

    def _choose(self, schema: Any, place: str) -> Columns:
        """The columns of a table, which must be those of the tables before it."""
        columns = choose(schema, *self._wanted, place)
        self._known = self._known or columns
        if columns != self._known:
            raise InputError(
                f"{place} has the columns {name_list(columns.features)} and others have "
                f"{name_list(self._known.features)}; name those that all have with columns=[…]."
            )
        return columns


class ParquetShards(_ArrowShards):
    """Rows in Parquet files; pyarrow reads them (extra ``tables``). A row group is a part.

    Parameters
    ----------
    files : path, pattern or list of them
        A file, a folder, or a pattern such as ``'part-*.parquet'``, in the order of names.
    columns : str or list of str, optional
        One column of lists (an embedding), or columns of numbers. Default: the one column of lists,
        or all columns of numbers besides target and weight.
    target : str, optional
        The column of labels or targets.
    sample_weight : str, optional
        The column of weights.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pyarrow, pyarrow.parquet
    >>> table = pyarrow.table({"embedding": [[0.5, 1.0], [1.5, 2.0]], "label": ["cat", "dog"]})
    >>> folder = Path(tempfile.mkdtemp())
    >>> pyarrow.parquet.write_table(table, folder / "part-0.parquet")
    >>> source = ParquetShards(folder, columns="embedding", target="label")
    >>> source.shape, source.read(source.parts[0]).y.tolist()
    ((2,), ['cat', 'dog'])
    """

    def __init__(
        self,
        files: Files,
        columns: str | Sequence[str] | None = None,
        target: str | None = None,
        sample_weight: str | None = None,
    ) -> None:
        self._paths = find_files(files, (".parquet", ".pq"))
        super().__init__(common_name(self._paths), columns, target, sample_weight)

    def look(self) -> Iterator[Shard]:
        for path in self._paths:
            with open_parquet(path) as table:
                # An empty file may have been written without types.
                if table.metadata.num_rows:
                    yield from self._row_groups(path, table)
                else:
                    yield Shard(str(path), 0)

    def _row_groups(self, path: Path, table: Any) -> Iterator[Shard]:
        columns = self._choose(table.schema_arrow, str(path))
        metadata = table.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        filled = [group for group, rows in enumerate(sizes) if rows]
        first = next(_tables(table, FIRST_ROWS, filled[0], list(columns.features)))
        shard = columns.shard(table.schema_arrow, first, str(path), 0)
        starts = [0, *accumulate(sizes)]
        for group in filled:
            inside = f", row group {group}" if len(sizes) > 1 else ""
            yield replace(
                shard,
                place=f"{path}{inside}",
                rows=sizes[group],
                path=path,
                offset=starts[group],
                number=group,
            )

    def read(self, part: Part) -> Chunk:
        shard = self.home(part)
        assert shard.path is not None
        with open_parquet(shard.path) as table:
            # Some rows at a time: a row group is held as an array, not as pages, table and array.
            step = max(1, BLOCK // max(1, prod(self.shape)))
            tables = _tables(table, step, shard.number, self._columns.names)
            return self._columns.gather(tables, self.shape, part)

    def fingerprint(self) -> str:
        features, target, weight = self._wanted
        paths = list(dict.fromkeys(shard.path for shard in self.shards if shard.path is not None))
        return digest_files(f"parquet {features!r} {target!r} {weight!r}", paths)


def _tables(file: Any, rows: int, group: int, names: list[str]) -> Iterator[Any]:
    # One thread: parts are read by several processes.
    for batch in file.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
        yield arrow().Table.from_batches([batch])


class HuggingFaceShards(_ArrowShards):
    """Rows of a ``datasets.Dataset``, such as ``datasets.load_from_disk`` gives.

    Its Arrow tables are mapped, never made into Python lists.

    Parameters
    ----------
    dataset : datasets.Dataset
        One split, on disk or in memory; selected or shuffled rows stay so.
    x : str or list of str, optional
        One column of lists (an embedding), or columns of numbers. Default: the one column of lists,
        or all columns of numbers besides y and weight.
    y : str, optional
        The column of labels or targets.
    sample_weight : str, optional
        The column of weights.
    part_rows : int
        Rows that are read together.

    Examples
    --------
    >>> import datasets  # doctest: +SKIP
    >>> dataset = datasets.load_from_disk("embedded")  # doctest: +SKIP
    >>> source = HuggingFaceShards(dataset, x="embedding", y="label")  # doctest: +SKIP
    """

    def __init__(
        self,
        dataset: Any,
        x: str | Sequence[str] | None = None,
        y: str | None = None,
        sample_weight: str | None = None,
        part_rows: int = PART_ROWS,
    ) -> None:
        if not hasattr(dataset, "with_format") or not hasattr(dataset, "__len__"):
            raise InputError(
                f"dataset is a {type(dataset).__name__}; give one split of a datasets.Dataset "
                "that is on disk (not streamed)."
            )
        if hasattr(dataset, "keys"):
            splits = list(dataset.keys())
            raise InputError(
                f"dataset holds the splits {', '.join(splits)}; give one of them, such as "
                f"dataset[{splits[0]!r}]."
            )
        arrow()
        self.part_rows = check_integer("part_rows", part_rows)
        self.dataset = dataset.with_format("arrow")
        info = getattr(dataset, "info", None)
        super().__init__(str(getattr(info, "dataset_name", None) or "dataset"), x, y, sample_weight)

    def look(self) -> list[Shard]:
        if not len(self.dataset):
            return []
        first = self.dataset[:FIRST_ROWS]
        columns = self._choose(first.schema, self.name)
        self.dataset = self.dataset.select_columns(columns.names).with_format("arrow")
        return [columns.shard(first.schema, first, self.name, len(self.dataset))]

    def read(self, part: Part) -> Chunk:
        return self._columns.chunk(self.dataset[part.start : part.stop], self.shape, part)

    def fingerprint(self) -> str:
        rows = len(self.dataset)
        sample = spread(rows).tolist()
        part = Part(0, 0, len(sample), self.name)
        chunk = self._columns.chunk(self.dataset[sample], self.shape, part)
        words = f"dataset {rows} {self._columns.names}"
        return digest_columns(words, (chunk.x, chunk.y, chunk.weight))

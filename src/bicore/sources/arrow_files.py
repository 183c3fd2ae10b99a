"""Parquet and Arrow files, and Hugging Face data sets: as tables, or as numbers in parts."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import IO, Any

from bicore.errors import InputError, check_integer, unknown_name
from bicore.frames import arrow, is_list
from bicore.sources.base import SCALES
from bicore.sources.cells import join, listed
from bicore.sources.parts import (
    PART_ROWS,
    Chunk,
    Part,
    Shard,
    ShardSource,
    changed,
    digest_files,
    join_chunks,
    spread,
)
from bicore.sources.reading import (
    CELL_COPIES,
    Files,
    Reading,
    common_name,
    find_files,
    foreign,
    limited,
    roles_of,
)
from bicore.sources.tables import Embedding, Encoder, Table, fit_table, refuse_other_columns

PARQUET = (".parquet", ".pq")
#: Rows of a table that are read at a time.
_ROWS = 65_536
#: The first bytes of an Arrow file, which a stream does not have.
_FILE = b"ARROW1"
#: Numbers of the rows of a part that are decoded together, 4 MB of float32.
BLOCK = 2**20
#: Rows among which one is sought that shows how long the lists of a column are.
FIRST_ROWS = 64


@contextmanager
def open_parquet(path: Path, metadata: Any = None) -> Iterator[Any]:
    """Open a Parquet file, whose rows are read on demand; errors inside name the file."""
    arrow("Parquet")
    from pyarrow import parquet as files

    with (
        foreign(path, "Parquet file"),
        files.ParquetFile(
            path,
            metadata=metadata,
            memory_map=True,
            pre_buffer=False,
            page_checksum_verification=True,
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


class ArrowTable(ABC):
    """A table in parts: files, or a data set; its columns can be read one by one."""

    name: str
    part_rows: int | None = None

    @abstractmethod
    def shards(self) -> Iterator[tuple[Any, Shard]]:
        """Each shard with its schema; shapes and kinds are not filled in."""

    @abstractmethod
    def tables(self, shard: Shard, part: Part, names: list[str], step: int) -> Iterator[Any]:
        """Some columns of a part, about ``step`` rows at a time."""

    @abstractmethod
    def column(self, name: str) -> Any:
        """A column of all rows."""

    @abstractmethod
    def fingerprint(self, words: str, names: list[str]) -> str:
        """Digest how the table is read, and a sample of it."""

    def load(self, reading: Reading) -> Table:
        """Read all columns."""
        names: list[str] = next((schema.names for schema, _ in self.shards()), [])
        columns: list[Any] = []
        for name in names:
            columns.append(self.column(name))
            held = CELL_COPIES * sum(one.nbytes for one in columns)
            reading.allowance.need(held, f"the first {len(columns)} columns of {self.name}")
        return Table(names, columns)


class ParquetTable(ArrowTable):
    """Parquet files; a row group is a shard."""

    def __init__(self, files: Files) -> None:
        self.paths = find_files(files, PARQUET)
        self.name = common_name(self.paths)
        #: Of files whose columns were read: wide tables have much of it.
        self._metadata: dict[Path, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_metadata": {}}

    def shards(self) -> Iterator[tuple[Any, Shard]]:
        for path in self.paths:
            with open_parquet(path) as file:
                metadata, schema = file.metadata, file.schema_arrow
            groups = range(metadata.num_row_groups)
            start = 0
            for group in groups:
                rows = metadata.row_group(group).num_rows
                inside = f", row group {group}" if len(groups) > 1 else ""
                if rows:
                    yield (
                        schema,
                        Shard(f"{path}{inside}", rows, path=path, offset=start, number=group),
                    )
                start += rows
            if not start:  # it may have been written without types
                yield schema, Shard(str(path), 0)

    def tables(self, shard: Shard, part: Part, names: list[str], step: int) -> Iterator[Any]:
        assert shard.path is not None
        with open_parquet(shard.path) as file:
            # One thread: parts are read by several processes.
            groups = {"row_groups": [shard.number], "columns": names, "use_threads": False}
            for batch in file.iter_batches(step, **groups):
                yield arrow().Table.from_batches([batch])

    def column(self, name: str) -> Any:
        pieces = []
        for path in self.paths:
            with open_parquet(path, self._metadata.get(path)) as file:
                self._metadata[path] = file.metadata
                if file.metadata.num_rows:
                    pieces.append(file.read([name], use_threads=False).column(name))
                    pieces[-1].validate(full=True)
        return join(pieces)

    def fingerprint(self, words: str, names: list[str]) -> str:
        return digest_files(f"parquet {words}", self.paths)


class HuggingFaceTable(ArrowTable):
    """A ``datasets.Dataset``, whose Arrow tables are mapped."""

    def __init__(self, dataset: Any, part_rows: int = PART_ROWS) -> None:
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
        self.name = str(getattr(info, "dataset_name", None) or "dataset")

    def _select(self, names: list[str]) -> Any:
        return self.dataset.select_columns(names).with_format("arrow")

    def shards(self) -> Iterator[tuple[Any, Shard]]:
        if len(self.dataset):
            yield self.dataset[:1].schema, Shard(self.name, len(self.dataset))

    def tables(self, shard: Shard, part: Part, names: list[str], step: int) -> Iterator[Any]:
        yield self._select(names)[part.start : part.stop]

    def column(self, name: str) -> Any:
        return self._select([name])[:].column(name)

    def fingerprint(self, words: str, names: list[str]) -> str:
        rows = len(self.dataset)
        table = self._select(names)[spread(rows).tolist()]
        digest = hashlib.sha256(f"dataset {rows} {names} {words}".encode())
        for column in table.columns:
            digest.update(f"{column.type} {listed(column)}".encode())
        return digest.hexdigest()[:16]


class ArrowShards(ShardSource):
    """Rows of a table in parts, encoded by a fit on all rows."""

    def __init__(self, table: ArrowTable, encoder: Encoder) -> None:
        super().__init__(table.name)
        self.part_rows = table.part_rows
        self._table = table
        self.encoder = encoder
        _ = self.shards  # tables that do not agree are refused now

    @property
    def notes(self) -> tuple[str, ...]:
        return (*super().notes, *self.encoder.notes)

    def look(self) -> Iterator[Shard]:
        known: dict[Path | None, dict[str, Any]] = {}
        for _, shard in self._table.shards():
            if shard.rows and shard.path not in known:
                place = str(shard.path or shard.place)
                part = Part(0, 0, min(shard.rows, FIRST_ROWS), place)
                first = next(self._table.tables(shard, part, self.encoder.names, FIRST_ROWS))
                known = {shard.path: self.encoder.describe(first, place)}
            yield replace(shard, **known[shard.path]) if shard.rows else shard

    def read(self, part: Part) -> Chunk:
        """Read a part some rows at a time: not as pages, table and array at once."""
        return join_chunks(self._chunks(part), part.count)

    def _chunks(self, part: Part) -> Iterator[Chunk]:
        step = max(1, BLOCK // max(1, prod(self.shape)))
        done = 0
        for table in self._table.tables(self.home(part), part, self.encoder.names, step):
            place = replace(part, offset=part.offset + done, count=table.num_rows)
            done += table.num_rows
            if done > part.count:
                break
            yield self.encoder.chunk(table, self.shape, place)
        if done != part.count:
            found = f"{done} rows" if done < part.count else "longer"
            raise changed(part.place, f"{part.count} rows", found)

    def fingerprint(self) -> str:
        return self._table.fingerprint(self.encoder.identity, self.encoder.names)


def arrow_table(source: Any) -> ArrowTable | None:
    """Parquet files or a Hugging Face data set as a table in parts; None for anything else."""
    if hasattr(source, "with_format") and hasattr(source, "column_names"):
        return HuggingFaceTable(source)
    paths = source if isinstance(source, (list, tuple)) else [source]
    if not paths or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None
    found = find_files(source, (".npy", ".npz", *PARQUET), "source")
    return ParquetTable(found) if all(one.suffix.lower() in PARQUET for one in found) else None


def holds_embedding(table: ArrowTable, reading: Reading) -> bool:
    """Whether the features of a table are one column of lists."""
    schema = next((schema for schema, shard in table.shards() if shard.rows), None)
    if schema is None:
        return False
    roles = roles_of(table.name, schema.names, reading)
    return len(roles.features) == 1 and is_list(schema.field(roles.features[0]).type)


def fit_in_parts(table: ArrowTable, reading: Reading, scale: str | None = "none") -> Encoder:
    """Fit a table in parts, of which one column at a time is in memory."""
    if scale not in (None, *SCALES):
        raise unknown_name("scale", scale, SCALES)
    names: list[str] = []
    for schema, shard in table.shards():
        if shard.rows:
            names = names or schema.names
            refuse_other_columns(shard.place, schema.names, names)
    if not names:
        raise InputError(f"{table.name}: there are no rows; check how it was made.")

    def read(name: str) -> Any:
        column = table.column(name)
        reading.allowance.need(CELL_COPIES * column.nbytes, f"the column {name!r}")
        return column

    roles = roles_of(table.name, names, reading)
    stored = Embedding(roles.features[0]) if holds_embedding(table, reading) else None
    return fit_table(roles, read, reading, scale != "none", stored)


class ParquetShards(ArrowShards):
    """Rows in Parquet files; pyarrow reads them (extra ``tables``). A row group is a part."""

    def __init__(
        self,
        files: Files,
        columns: str | Sequence[str] | None = None,
        target: str | None = None,
        sample_weight: str | None = None,
    ) -> None:
        table = ParquetTable(files)
        reading = Reading(target=target, sample_weight=sample_weight, columns=columns)
        super().__init__(table, fit_in_parts(table, reading))


class HuggingFaceShards(ArrowShards):
    """Rows of a ``datasets.Dataset``, such as ``datasets.load_from_disk`` gives.

    Its Arrow tables are mapped, never made into Python lists.
    """

    def __init__(
        self,
        dataset: Any,
        x: str | Sequence[str] | None = None,
        y: str | None = None,
        sample_weight: str | None = None,
        part_rows: int = PART_ROWS,
    ) -> None:
        table = HuggingFaceTable(dataset, part_rows)
        reading = Reading(target=y, sample_weight=sample_weight, columns=x)
        super().__init__(table, fit_in_parts(table, reading))

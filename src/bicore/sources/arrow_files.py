"""Parquet and Arrow files, and Hugging Face data sets: as tables, or as numbers in parts."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from bicore.errors import InputError, check_integer
from bicore.frames import arrow, is_list
from bicore.sources import parts, tables
from bicore.sources.base import check_scale
from bicore.sources.cells import to_list
from bicore.sources.parts import Chunk, Part, Shard, ShardSource
from bicore.sources.reading import (
    TABLE_OPTIONS,
    Files,
    Reading,
    are_paths,
    common_name,
    find_files,
    refuse_unused,
    report_unreadable,
    roles_of,
)
from bicore.sources.tables import Embedding, Encoder, Table

_Batches = Iterator[Any]
PARQUET = (".parquet", ".pq")
#: Rows of a table read at a time.
_ROWS = 65_536
#: The first bytes of an Arrow file; a stream lacks them.
_FILE = b"ARROW1"
#: Numbers decoded at a time, 4 MB of float32.
BLOCK = 2**20
#: Number of rows searched for one that shows the length of the lists of a column.
FIRST_ROWS = 64


@contextmanager
def open_parquet(path: Path, metadata: Any = None) -> Iterator[Any]:
    """Open a Parquet file, whose rows are read on demand; errors inside name the file."""
    arrow("Parquet")
    from pyarrow import parquet as files

    options = {"memory_map": True, "pre_buffer": False, "page_checksum_verification": True}
    with (
        report_unreadable(path, "Parquet file"),
        files.ParquetFile(path, metadata=metadata, **options) as file,
    ):
        yield file


def read_parquet(path: Path, reading: Reading, notes: list[str]) -> Iterator[Any]:
    """Read a Parquet file as a table."""
    table = ParquetShards(path)
    roles_of(path.name, table.schema.names, reading)  # before reading all of it
    return table.batches(table.schema.names, step=min(_ROWS, reading.limit or _ROWS))


def read_feather(path: Path, reading: Reading, notes: list[str]) -> Iterator[Any]:
    """Read a Feather file, or an Arrow file or stream, as a table."""
    arrow("Feather")
    import pyarrow.ipc as files

    with open(path, "rb") as stream:
        begin = stream.read(len(_FILE))
        stream.seek(0)
        file = files.open_file(stream) if begin == _FILE else files.open_stream(stream)
        roles_of(path.name, file.schema.names, reading)  # before reading all of it
        if begin == _FILE:
            file = map(file.get_batch, range(file.num_record_batches))
        yield from map(_validate, file)


def _validate(batch: Any) -> Any:
    """Refuse a damaged batch, with invalid offsets or text; return it as a table."""
    batch.validate(full=True)
    return arrow().Table.from_batches([batch])


class ArrowShards(ShardSource):
    """Rows of a table in parts, encoded by a fit on all rows, one column at a time.

    Tables of another source are encoded alike by its ``encoder``.
    """

    def __init__(
        self, name: str, scale: str | None = "none", encoder: Encoder | None = None, **options: Any
    ) -> None:
        super().__init__(name)
        self.scaled = check_scale(scale) != "none"
        self.reading = Reading(**options)
        refuse_unused(options, name, TABLE_OPTIONS)
        if encoder is not None:
            self.encoder = encoder

    @abstractmethod
    def tables(self) -> Iterator[tuple[Any, Shard]]:
        """Return each shard with its schema; shapes and kinds are not set yet."""

    @abstractmethod
    def batches(self, names: list[str], part: Part | None = None, step: int = _ROWS) -> _Batches:
        """Yield some columns of all rows, or of a part, about ``step`` rows at a time."""

    @cached_property
    def schema(self) -> Any:
        """The names and types of columns; all shards must have the same names."""
        found: Any = None
        for schema, shard in self.tables():
            if shard.rows:
                found = found or schema
                tables.refuse_other_columns(shard.place, schema.names, found.names)
        if found is None:
            raise InputError(f"{self.name}: there are no rows; check how it was made.")
        return found

    @property
    def embedding(self) -> Embedding | None:
        """The only column of features, if it holds lists."""
        features = roles_of(self.name, self.schema.names, self.reading).features
        lists = len(features) == 1 and is_list(self.schema.field(features[0]).type)
        return Embedding(features[0]) if lists else None

    @cached_property
    def encoder(self) -> Encoder:
        """The fit on all rows."""
        roles = roles_of(self.name, self.schema.names, self.reading)
        return tables.fit_table(roles, self._column, self.reading, self.scaled, self.embedding)

    def _column(self, name: str) -> Any:
        return tables.load_columns(self.batches([name]), self.reading)[name]

    def load(self) -> Table:
        """Load all columns."""
        return tables.load_columns(self.batches(self.schema.names), self.reading)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*super().notes, *self.encoder.notes)

    def describe_shards(self) -> Iterator[Shard]:
        known: dict[Path | None, dict[str, Any]] = {}
        for _, shard in self.tables():
            if shard.rows and shard.path not in known:
                place = str(shard.path or shard.place)
                part = Part(0, 0, min(shard.rows, FIRST_ROWS), place, shard=shard)
                first = next(self.batches(self.encoder.names, part, FIRST_ROWS))
                known = {shard.path: self.encoder.describe(first, place)}
            yield replace(shard, **known[shard.path]) if shard.rows else shard

    def read(self, part: Part) -> Chunk:
        """Read a part some rows at a time, to limit memory."""
        return parts.join_chunks(self._chunks(part), part.count)

    def _chunks(self, part: Part) -> Iterator[Chunk]:
        step = max(1, BLOCK // max(1, prod(self.shape)))
        done = 0
        for batch in self.batches(self.encoder.names, part, step):
            place = replace(part, offset=part.offset + done, count=len(batch))
            done += len(batch)
            if done > part.count:
                break
            yield self.encoder.chunk(batch, self.shape, place)
        if done != part.count:
            found = f"{done} rows" if done < part.count else "longer"
            raise parts.changed_error(part.place, f"{part.count} rows", found)


class ParquetShards(ArrowShards):
    """Rows in Parquet files; pyarrow reads them (extra ``tables``). A row group is a part."""

    def __init__(
        self,
        files: Files,
        columns: str | Sequence[str] | None = None,
        target: str | None = None,
        sample_weight: str | None = None,
        **options: Any,
    ) -> None:
        self.paths = find_files(files, PARQUET)
        #: Metadata of files already read; wide tables have much of it.
        self._metadata: dict[Path, Any] = {}
        options |= {"columns": columns, "target": target, "sample_weight": sample_weight}
        super().__init__(common_name(self.paths), **options)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_metadata": {}}

    def tables(self) -> Iterator[tuple[Any, Shard]]:
        for path in self.paths:
            with open_parquet(path) as file:
                metadata, schema = file.metadata, file.schema_arrow
            start = 0
            for group in range(metadata.num_row_groups):
                rows = metadata.row_group(group).num_rows
                inside = f", row group {group}" if metadata.num_row_groups > 1 else ""
                place = Shard(f"{path}{inside}", rows, path=path, offset=start, number=group)
                start += rows
                if rows:
                    yield schema, place
            if not start:  # it may have no types
                yield schema, Shard(str(path), 0)

    def batches(self, names: list[str], part: Part | None = None, step: int = _ROWS) -> _Batches:
        for path in self.paths if part is None else [part.shard.path]:
            assert path is not None
            with open_parquet(path, self._metadata.get(path) if part is None else None) as file:
                self._metadata[path] = file.metadata
                groups = None if part is None else [part.shard.number]
                # One thread, because parts are read by several processes.
                batches = file.iter_batches(step, groups, names, use_threads=False)
                yield from map(_validate, batches)

    def fingerprint(self) -> str:
        return parts.digest_files(f"parquet {self.encoder.identity}", self.paths)


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
        part_rows: int = parts.PART_ROWS,
        **options: Any,
    ) -> None:
        if not hasattr(dataset, "with_format") or not hasattr(dataset, "__len__"):
            fix = "give one split of a datasets.Dataset that is on disk (not streamed)"
            raise InputError(f"dataset has type {type(dataset).__name__}; {fix}.")
        if hasattr(dataset, "keys"):
            splits = list(dataset.keys())
            fix = f"give one of them, such as dataset[{splits[0]!r}]"
            raise InputError(f"dataset holds the splits {', '.join(splits)}; {fix}.")
        arrow()
        self.part_rows = check_integer("part_rows", part_rows)
        self.dataset = dataset.with_format("arrow")
        name = getattr(getattr(dataset, "info", None), "dataset_name", None) or "dataset"
        super().__init__(str(name), columns=x, target=y, sample_weight=sample_weight, **options)

    def tables(self) -> Iterator[tuple[Any, Shard]]:
        if len(self.dataset):
            yield self.dataset[:1].schema, Shard(self.name, len(self.dataset))

    def _select(self, names: list[str]) -> Any:
        return self.dataset.select_columns(names).with_format("arrow")

    def batches(self, names: list[str], part: Part | None = None, step: int = _ROWS) -> _Batches:
        rows = part or Part(0, 0, len(self.dataset))
        chosen = self._select(names)
        for start in range(rows.start, rows.stop, step):
            yield chosen[start : min(start + step, rows.stop)]

    def fingerprint(self) -> str:
        names, rows = self.encoder.names, len(self.dataset)
        table = self._select(names)[parts.spread_positions(rows).tolist()]
        words = f"dataset {rows} {names} {self.encoder.identity}"
        digest = hashlib.sha256(words.encode())
        for column in table.columns:
            digest.update(f"{column.type} {to_list(column)}".encode())
        return digest.hexdigest()[:16]


def is_huggingface(source: Any) -> bool:
    """Whether this is a data set of Hugging Face."""
    # a delayed chunk of Dask has any attribute, but its type has not
    return hasattr(type(source), "with_format") and hasattr(source, "column_names")


def ask_for_target(source: Any, target: str | None) -> None:
    """Refuse a Hugging Face data set without a target before any row is read."""
    if target is None and is_huggingface(source):
        raise InputError(f"target is missing; name one of {', '.join(source.column_names)}.")


def open_arrow(source: Any, **options: Any) -> ArrowShards | None:
    """Open Parquet files or a Hugging Face data set in parts; None for anything else."""
    if is_huggingface(source):
        options["x"], options["y"] = options.pop("columns", None), options.pop("target", None)
        return HuggingFaceShards(source, **options)
    if not are_paths(source):
        return None
    found = find_files(source, (".npy", ".npz", *PARQUET), "source")
    whole = all(path.suffix.lower() in PARQUET for path in found)
    return ParquetShards(found, **options) if whole else None

"""Parquet files, and Arrow's own: Feather, and files and streams of its writers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from bicore.frames import arrow
from bicore.sources.base import Source
from bicore.sources.failures import foreign
from bicore.sources.reading import Reading, limited, roles_of
from bicore.sources.tables import Table, table_source

#: Rows that are read at a time.
_ROWS = 65_536
#: How a file begins, which a stream does not.
_FILE = b"ARROW1"


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A Parquet file whose rows are read when asked for; errors inside name the file."""
    arrow("Parquet")
    from pyarrow import parquet as files

    with (
        foreign(path, "Parquet file"),
        files.ParquetFile(
            path, memory_map=True, pre_buffer=False, page_checksum_verification=True
        ) as file,
    ):
        yield file


def parquet(path: Path, reading: Reading) -> Source:
    """Columns by their types."""
    with open_parquet(path) as file:
        rows = file.iter_batches(batch_size=min(_ROWS, reading.limit or _ROWS))
        table = _table(path, file.schema_arrow, rows, reading)
    return table_source(path.name, table, reading)


def feather(path: Path, reading: Reading) -> Source:
    """Columns by their types."""
    arrow("Feather")
    with foreign(path, "Arrow file"), open(path, "rb") as stream:
        table = _table(path, *_batches(stream), reading)
    return table_source(path.name, table, reading)


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

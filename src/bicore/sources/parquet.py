"""Parquet files."""

from __future__ import annotations

from pathlib import Path

from bicore.sources.arrow import arrow, limited
from bicore.sources.base import Source
from bicore.sources.failures import foreign
from bicore.sources.reading import Reading, roles_of
from bicore.sources.tables import table_of, table_source

#: Rows that are read at a time.
_ROWS = 65_536


def parquet(path: Path, reading: Reading) -> Source:
    """Columns by their types."""
    pyarrow = arrow()
    with foreign(path, "Parquet file"):
        import pyarrow.parquet as files

        with open(path, "rb") as stream, files.ParquetFile(stream) as file:
            schema = file.schema_arrow
            roles_of(path.name, [str(name) for name in schema.names], reading)
            rows = file.iter_batches(batch_size=min(_ROWS, reading.limit or _ROWS))
            table = pyarrow.Table.from_batches(list(limited(rows, reading)), schema)
    return table_source(path.name, table_of(table), reading)

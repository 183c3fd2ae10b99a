"""Files of Arrow's own: Feather, and what its writers of files and of streams leave."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bicore.sources.arrow import arrow, limited
from bicore.sources.base import Source
from bicore.sources.failures import foreign
from bicore.sources.reading import Reading, roles_of
from bicore.sources.tables import table_of, table_source

#: How a file begins, which a stream does not; and Feather's first version.
_FILE = b"ARROW1"
_FIRST_VERSION = b"FEA1"


def feather(path: Path, reading: Reading) -> Source:
    """Columns by their types."""
    pyarrow = arrow()
    with foreign(path, "Arrow file"), open(path, "rb") as stream:
        schema, batches = _batches(stream)
        roles_of(path.name, [str(name) for name in schema.names], reading)
        table = pyarrow.Table.from_batches(list(limited(batches, reading)), schema)
    return table_source(path.name, table_of(table), reading)


def _batches(stream: IO[bytes]) -> tuple[Any, Iterator[Any]]:
    import pyarrow.feather as old
    import pyarrow.ipc as files

    begin = stream.read(len(_FILE))
    stream.seek(0)
    if begin.startswith(_FIRST_VERSION):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            table = old.read_table(stream)
        return table.schema, iter(table.to_batches())
    if begin != _FILE:
        reader = files.open_stream(stream)
        return reader.schema, iter(reader)
    file = files.open_file(stream)
    return file.schema, (file.get_batch(number) for number in range(file.num_record_batches))

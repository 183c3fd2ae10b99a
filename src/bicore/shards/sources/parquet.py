"""Parquet files: a row group is a part, and only the columns that are needed are read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

from bicore.errors import InputError
from bicore.frames import arrow
from bicore.shards.source import Chunk, Part
from bicore.shards.sources.columns import FIRST_ROWS, Columns, choose
from bicore.shards.sources.files import Files, find_files
from bicore.shards.sources.gathered import FileShards, Shard
from bicore.sources.arrow_files import open_parquet

_ENDINGS = (".parquet", ".pq")
#: Numbers of the rows that are decoded together, 4 MB of float32.
BLOCK = 2**20


class ParquetShards(FileShards):
    """Rows in Parquet files; pyarrow reads them (extra ``tables``).

    Parameters
    ----------
    files : path, pattern or list of them
        A file, a folder, or a pattern such as ``'part-*.parquet'``, in the order of names.
    features : str or list of str, optional
        One column of lists (an embedding), or columns of numbers. Default: the one column of lists,
        or all columns of numbers besides target and weight.
    target : str, optional
        The column of labels or targets.
    weight : str, optional
        The column of weights.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pyarrow, pyarrow.parquet
    >>> table = pyarrow.table({"embedding": [[0.5, 1.0], [1.5, 2.0]], "label": ["cat", "dog"]})
    >>> folder = Path(tempfile.mkdtemp())
    >>> pyarrow.parquet.write_table(table, folder / "part-0.parquet")
    >>> source = ParquetShards(folder, features="embedding", target="label")
    >>> source.shape, source.read(source.parts[0]).y.tolist()
    ((2,), ['cat', 'dog'])
    """

    def __init__(
        self,
        files: Files,
        features: str | Sequence[str] | None = None,
        target: str | None = None,
        weight: str | None = None,
    ) -> None:
        shards: list[Shard] = []
        columns: dict[Path, Columns] = {}
        for path in find_files(files, _ENDINGS):
            with open_parquet(path) as table:
                if not table.metadata.num_rows:
                    # What wrote it may have known no types; nothing of it is read.
                    shards.append(Shard(path, 0, (), ""))
                    continue
                columns[path] = choose(table.schema_arrow, features, target, weight, str(path))
                shards += _row_groups(path, table, columns[path])
        super().__init__(shards, None, f"parquet {features!r} {target!r} {weight!r}")
        self._columns = _agreed({path: columns[path] for path in self.files})
        if features is None:
            self.notes = (*self.notes, self._columns.told())

    def read(self, part: Part) -> Chunk:
        shard = self.home(part)
        with open_parquet(shard.path) as table:
            # One thread: whoever reads many parts has a process for each. Some rows at a time: a
            # whole row group is held as an array, not as pages, a table and an array.
            batches = table.iter_batches(
                max(1, BLOCK // max(1, prod(self.shape))),
                row_groups=[shard.group],
                columns=self._columns.names,
                use_threads=False,
            )
            pieces = (arrow().Table.from_batches([batch]) for batch in batches)
            return self._columns.gathered(pieces, self.shape, part)


def _agreed(columns: dict[Path, Columns]) -> Columns:
    """The columns of all files, where those were found by their kinds."""
    place, first = next(iter(columns.items()))
    for path, found in columns.items():
        if found != first:
            raise InputError(
                f"{path} has the columns {', '.join(found.features)} and {place} "
                f"{', '.join(first.features)}; name those that all have with features=[…]."
            )
    return first


def _row_groups(path: Path, table: Any, columns: Columns) -> list[Shard]:
    schema = table.schema_arrow
    metadata = table.metadata
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    filled = [group for group, rows in enumerate(sizes) if rows]
    kind = columns.kind(schema)
    label = columns.label(schema)
    shape = columns.shape(_first_rows(table, filled[0], columns), str(path))
    starts = [0, *accumulate(sizes)]
    return [
        Shard(
            path,
            sizes[group],
            shape,
            kind,
            label,
            offset=starts[group],
            inside=f"row group {group}" if len(sizes) > 1 else "",
            group=group,
        )
        for group in filled
    ]


def _first_rows(table: Any, group: int, columns: Columns) -> Any:
    names = list(columns.features)
    batches = table.iter_batches(FIRST_ROWS, row_groups=[group], columns=names, use_threads=False)
    return arrow().Table.from_batches([next(batches)])

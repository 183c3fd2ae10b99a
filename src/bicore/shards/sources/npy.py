""".npy files, mapped: a part is a slice that is read when it is touched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bicore.data import Array
from bicore.errors import InputError
from bicore.shards.source import Chunk, Part
from bicore.shards.sources.arrays import PART_ROWS
from bicore.shards.sources.files import Files, find_files
from bicore.shards.sources.gathered import FileShards, Shard, changed, need_part_rows
from bicore.shards.sources.headers import ArrayHeader, npy_header
from bicore.shards.sources.values import (
    as_floats,
    as_stored_labels,
    family,
    need_labels,
    need_numbers,
)

_ENDINGS = (".npy",)


class NpyShards(FileShards):
    """Rows in one or several .npy files, with labels and weights in others beside them.

    Parameters
    ----------
    files : path, pattern or list of them
        Features: a file, a folder, or a pattern such as ``'x-*.npy'``, in the order of names;
        float16, float32 or float64, and whole numbers, which are converted part by part.
    labels : path, pattern or list of them, optional
        As many files in the same order, or one for all rows.
    weight : path, pattern or list of them, optional
        As many files in the same order, or one for all rows.
    part_rows : int
        Rows that are read together.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(2):
    ...     np.save(folder / f"x-{number}.npy", np.full((5, 3), number, dtype=np.float16))
    ...     np.save(folder / f"y-{number}.npy", np.full(5, number))
    >>> source = NpyShards(folder / "x-*.npy", labels=folder / "y-*.npy")
    >>> source.rows, source.read(source.parts[1]).y.tolist()
    (10, [1, 1, 1, 1, 1])
    """

    def __init__(
        self,
        files: Files,
        labels: Files | None = None,
        weight: Files | None = None,
        part_rows: int = PART_ROWS,
    ) -> None:
        self._features = _features(files)
        count = len(self._features.paths)
        self._labels = None if labels is None else _labels(labels, self._features)
        self._weights = None if weight is None else _weights(weight, self._features)
        kinds = [None] * count if self._labels is None else self._labels.kinds(count)
        shards = [
            Shard(path, header.rows, header.shape[1:] or (1,), family(header.dtype), kind, group=at)
            for at, (path, header, kind) in enumerate(
                zip(self._features.paths, self._features.headers, kinds, strict=True)
            )
        ]
        roles = [len(column.paths) if column else 0 for column in self._columns()]
        super().__init__(shards, need_part_rows(part_rows), f"npy {roles}")

    @property
    def sampled(self) -> tuple[Path, ...]:
        return tuple(path for column in self._columns() if column for path in column.paths)

    def _columns(self) -> tuple[_Column | None, ...]:
        return self._features, self._labels, self._weights

    def read(self, part: Part) -> Chunk:
        number = self.home(part).group
        x = self._features.rows(number, part)
        y = None if self._labels is None else as_stored_labels(self._labels.rows(number, part))
        weight = None if self._weights is None else as_floats(self._weights.rows(number, part))
        return Chunk(as_floats(x.reshape(part.count, *self.shape)), y, weight)


@dataclass(frozen=True)
class _Column:
    """Features, labels or weights of all rows: in a file for each shard, or all in one."""

    paths: tuple[Path, ...]
    headers: tuple[ArrayHeader, ...]

    def rows(self, number: int, part: Part) -> Array:
        """Those of a part of shard ``number``, as a map."""
        if len(self.paths) == 1:
            return _mapped(self.paths[0], self.headers[0])[part.start : part.stop]
        mapped = _mapped(self.paths[number], self.headers[number])
        return mapped[part.offset : part.offset + part.count]

    def kinds(self, count: int) -> list[tuple[str, tuple[int, ...]] | None]:
        """What labels are, for each of ``count`` shards."""
        found = [(family(header.dtype), header.shape[1:]) for header in self.headers]
        return [*(found if len(found) == count else found * count)]


def _mapped(path: Path, known: ArrayHeader) -> Array:
    header = npy_header(path)
    if (header.shape, header.dtype) != (known.shape, known.dtype):
        raise changed(str(path), f"{known.shape} {known.dtype}", f"{header.shape} {header.dtype}")
    return header.mapped(path)


def _features(files: Files) -> _Column:
    column = _column("files", files)
    for header in column.headers:
        need_numbers(header.dtype, header.place)
    return column


def _labels(files: Files, features: _Column) -> _Column:
    column = _column("labels", files)
    for header in column.headers:
        need_labels(header.dtype, header.place)
    _refuse_unpaired("labels", column, features)
    return column


def _weights(files: Files, features: _Column) -> _Column:
    column = _column("weight", files)
    for header in column.headers:
        need_numbers(header.dtype, header.place)
        if len(header.shape) != 1:
            raise InputError(f"{header.place} has shape {header.shape}; give one weight a row.")
    _refuse_unpaired("weight", column, features)
    return column


def _column(argument: str, files: Files) -> _Column:
    paths = find_files(files, _ENDINGS, argument)
    return _Column(paths, tuple(npy_header(path) for path in paths))


def _refuse_unpaired(argument: str, column: _Column, features: _Column) -> None:
    """A column has a file for each of the features' or one for all, with as many rows."""
    if len(column.paths) == 1:
        pairs = [(column.headers[0], sum(header.rows for header in features.headers), "features")]
    elif len(column.paths) != len(features.paths):
        raise InputError(
            f"{argument}: {len(column.paths)} files for {len(features.paths)} files of features"
            f"{_alone(features.paths, column.paths)}; give one for each, in the same order, or one "
            "for all rows."
        )
    else:
        pairs = [
            (beside, header.rows, header.place)
            for beside, header in zip(column.headers, features.headers, strict=True)
        ]
    for beside, rows, place in pairs:
        if beside.rows != rows:
            raise InputError(
                f"{beside.place} has {beside.rows} rows and {place} {rows}; {argument} are needed "
                "row by row."
            )


def _alone(features: Sequence[Path], others: Sequence[Path]) -> str:
    """In words, the first file of features whose number none of the others bears."""
    known = {_number(path) for path in others}
    missing = [path for path in features if _number(path) not in known]
    return f" ({missing[0]} has none)" if missing else ""


def _number(path: Path) -> str:
    found = re.findall(r"\d+", path.stem)
    return str(found[-1]) if found else path.stem

""".npz files with arrays x, y and weight: a file is a part."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.shards.source import Chunk, Part
from bicore.shards.sources.files import Files, find_files
from bicore.shards.sources.gathered import FileShards, Shard, changed
from bicore.shards.sources.headers import ArrayHeader, npz_headers
from bicore.shards.sources.values import (
    as_floats,
    as_stored_labels,
    family,
    need_labels,
    need_numbers,
)
from bicore.sources.failures import foreign

_ENDINGS = (".npz",)


class NpzShards(FileShards):
    """Rows in .npz files: features x, and where they are there labels y and weights.

    A file is read at a time; sizes come from headers.

    Parameters
    ----------
    files : path, pattern or list of them
        A file, a folder, or a pattern such as ``'part-*.npz'``, in the order of names.
    weight : str
        The array of weights; files may lack one of the usual name.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.savez(folder / "part-0.npz", x=np.zeros((5, 3)), y=np.arange(5))
    >>> np.savez(folder / "part-1.npz", x=np.ones((2, 3)), y=np.arange(2))
    >>> source = NpzShards(folder)
    >>> [part.count for part in source.parts], source.labelled
    ([5, 2], True)
    """

    def __init__(self, files: Files, weight: str = "weight") -> None:
        shards = []
        weighted = []
        for path in find_files(files, _ENDINGS):
            headers = npz_headers(path)
            shards.append(_shard(path, headers, weight))
            if shards[-1].rows:
                weighted.append(weight in headers)
        super().__init__(shards, None, f"npz {weight}")
        self._weight = weight if any(weighted) else None
        lacking = [shard for shard, has in zip(self.shards, weighted, strict=True) if not has]
        if lacking and (self._weight or weight != "weight"):
            raise InputError(
                f"{lacking[0].place} has no array {weight!r}; every file needs its weights, or "
                "none."
            )

    def read(self, part: Part) -> Chunk:
        shard = self.home(part)
        names = ["x"]
        names += ["y"] if self.labelled else []
        names += [self._weight] if self._weight else []
        found = dict(zip(names, _members(shard.path, names), strict=True))
        x, y, weight = found["x"], found.get("y"), found.get(self._weight or "")
        if len(x) != shard.rows or (x.shape[1:] or (1,)) != shard.shape:
            raise changed(shard.place, (shard.rows, *shard.shape), x.shape)
        return Chunk(
            as_floats(x.reshape(part.count, *shard.shape)),
            None if y is None else as_stored_labels(y),
            None if weight is None else as_floats(weight),
        )


def _shard(path: Path, headers: dict[str, ArrayHeader], weight: str) -> Shard:
    x = headers.get("x")
    if x is None:
        raise InputError(
            f"{path} has no array 'x'; it holds {', '.join(headers) or 'nothing'} "
            "(np.savez(file, x=…, y=…) makes one)."
        )
    need_numbers(x.dtype, x.place)
    y = headers.get("y")
    if y is not None:
        need_labels(y.dtype, y.place)
    for name in ("y", weight):
        if name in headers and headers[name].rows != x.rows:
            raise InputError(
                f"{path} has {x.rows} rows in 'x' and {headers[name].rows} in {name!r}; they are "
                "needed row by row."
            )
    label = None if y is None else (family(y.dtype), y.shape[1:])
    return Shard(path, x.rows, x.shape[1:] or (1,), family(x.dtype), label)


def _members(path: Path, names: list[str]) -> list[Array]:
    with foreign(path, ".npz file"), np.load(path, allow_pickle=False) as stored:
        return [stored[name] for name in names]

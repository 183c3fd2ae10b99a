"""From a path, a pattern or a thing in memory to rows in parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore.data import Dataset
from bicore.errors import InputError
from bicore.shards.source import ShardSource
from bicore.shards.sources.arrays import ArrayShards
from bicore.shards.sources.files import files_below, find_files
from bicore.shards.sources.huggingface import HuggingFaceShards
from bicore.shards.sources.iterable import IterableShards
from bicore.shards.sources.lazy import DaskShards, of_collection
from bicore.shards.sources.npy import NpyShards
from bicore.shards.sources.npz import NpzShards
from bicore.shards.sources.parquet import ParquetShards

KINDS = (
    "a .npy, .npz or .parquet file, a folder or a pattern such as 'part-*.parquet' of them, an "
    "array, a Dataset, a Dask collection, or an iterable of (x, y) chunks"
)


@dataclass(frozen=True)
class _Asked:
    """What a caller says of a source besides where it is."""

    features: str | Sequence[str] | None
    target: str | None
    labels: Any
    weight: Any

    def only(self, thing: str, *read: str) -> None:
        """Refuse what means nothing for a kind of source."""
        for name, value in vars(self).items():
            if value is not None and name not in read:
                allowed = ", ".join(f"{word}=" for word in read) or "none of these"
                raise InputError(f"{name}= means nothing for {thing}; it reads {allowed}.")


def open_shards(
    source: Any,
    features: str | Sequence[str] | None = None,
    target: str | None = None,
    labels: Any = None,
    weight: Any = None,
) -> ShardSource:
    """Open rows that are never loaded whole.

    Parameters
    ----------
    source : path, pattern, array, data set or iterable
        A .npy, .npz or .parquet file, a folder or pattern of them, an array or tensor, a
        :class:`~bicore.Dataset`, a Hugging Face data set, a Dask array, dataframe or list of
        delayed (x, y) chunks, or an iterable of such chunks (or a function that makes one).
    features : str or list of str, optional
        Columns of a table: one of lists, or several of numbers.
    target : str, optional
        The column of a table that holds labels or targets.
    labels : path or array, optional
        Labels of .npy files, in files of their own, or those of an array.
    weight : str, path or array, optional
        The column of weights, the array of an .npz, the file beside an .npy, or the weights of an
        array.

    Returns
    -------
    ShardSource
        Its headers are read and agree; its rows are not read yet.

    Raises
    ------
    InputError
        Where there is no such source, its files do not agree, or an option means nothing for it.

    Examples
    --------
    >>> import numpy as np
    >>> open_shards(np.zeros((100, 8)), labels=np.arange(100)).rows
    100
    """
    return _opened(source, _Asked(features, target, labels, weight))


@singledispatch
def _opened(source: Any, asked: _Asked) -> ShardSource:
    if hasattr(source, "with_format") and hasattr(source, "column_names"):
        asked.only("a Hugging Face data set", "features", "target", "weight")
        return HuggingFaceShards(source, asked.features, asked.target, asked.weight)
    if hasattr(source, "__dask_graph__"):
        return _of_dask(source, asked)
    if hasattr(source, "keys"):
        raise InputError(
            f"source is a {type(source).__name__} of named columns; give arrays (x, y), such as "
            "(frame[features].to_numpy(), frame[target].to_numpy()), or a .parquet file."
        )
    if not callable(source) and not hasattr(source, "__iter__"):
        raise InputError(f"source is a {type(source).__name__}; give {KINDS}.")
    asked.only("an iterable of chunks")
    return IterableShards(source)


@_opened.register
def _(source: ShardSource, asked: _Asked) -> ShardSource:
    asked.only("a source that is open")
    return source


@_opened.register
def _(source: Dataset, asked: _Asked) -> ShardSource:
    asked.only("a Dataset")
    return ArrayShards(source.x, source.y, source.weight)


@_opened.register(np.ndarray)
@_opened.register(torch.Tensor)
def _(source: Any, asked: _Asked) -> ShardSource:
    asked.only("an array", "labels", "weight")
    return ArrayShards(source, asked.labels, asked.weight)


@_opened.register(str)
@_opened.register(os.PathLike)
def _(source: str | os.PathLike[str], asked: _Asked) -> ShardSource:
    path = Path(source)
    if path.is_dir():
        return _folder(path, asked)
    return _files(source, _ending(find_files(source, tuple(_READERS), "source"), source), asked)


@_opened.register(list)
def _(source: list[Any], asked: _Asked) -> ShardSource:
    if source and all(map(_is_path, source)):
        return _files(source, _ending(find_files(source, tuple(_READERS), "source"), source), asked)
    asked.only("a list of chunks")
    if source and all(hasattr(one, "__dask_graph__") for one in source):
        return DaskShards(source)
    return IterableShards(source)


@_opened.register(tuple)
def _(source: tuple[Any, ...], asked: _Asked) -> ShardSource:
    if source and all(map(_is_path, source)):
        return _opened(list(source), asked)
    asked.only("arrays (x, y)")
    if not 1 <= len(source) <= _MOST_ARRAYS:
        raise InputError(
            f"source is a tuple of {len(source)}; give (x, y) or (x, y, weight), or a list of such "
            "chunks."
        )
    if hasattr(source[0], "__dask_graph__"):
        labels, weight = (*source[1:], None, None)[:2]
        return of_collection(source[0], labels=labels, weight=weight)
    return ArrayShards(*source)


def _of_dask(source: Any, asked: _Asked) -> ShardSource:
    if hasattr(source, "columns"):
        asked.only("a Dask dataframe", "features", "target", "weight")
    else:
        asked.only("a Dask array", "labels", "weight")
    if not hasattr(source, "to_delayed"):
        return DaskShards([source])
    return of_collection(source, asked.features, asked.target, asked.labels, asked.weight)


#: x, y and weight.
_MOST_ARRAYS = 3


def _is_path(thing: Any) -> bool:
    return type(thing) is str or hasattr(thing, "__fspath__")


def _folder(folder: Path, asked: _Asked) -> ShardSource:
    found = [path for path in files_below(folder) if path.suffix.lower() in _READERS]
    if not found:
        raise InputError(f"{folder} holds no {', '.join(_READERS)} file; give {KINDS}.")
    ending = _ending(found, folder)
    x, y, w = (sorted(folder.glob(f"{letter}-*.npy")) for letter in "xyw")
    if ending == ".npy" and x:
        # The names that embedded() gives: features, and labels and weights beside them.
        labels = (y or None) if asked.labels is None else asked.labels
        weight = (w or None) if asked.weight is None else asked.weight
        return _npy(x, replace(asked, labels=labels, weight=weight))
    return _files(found, ending, asked)


def _ending(found: Sequence[Path], source: Any) -> str:
    """The one kind that all files are."""
    endings = sorted({path.suffix.lower() for path in found})
    unknown = [path for path in found if path.suffix.lower() not in _READERS]
    if unknown:
        raise InputError(f"{unknown[0]} has an ending that is not known; give {KINDS}.")
    if len({_READERS[ending] for ending in endings}) > 1:
        raise InputError(
            f"{source} holds files of several kinds ({', '.join(endings)}); give a pattern that "
            f"matches one kind, such as '*{endings[0]}'."
        )
    return endings[0]


def _files(files: Any, ending: str, asked: _Asked) -> ShardSource:
    return _READERS[ending](files, asked)


def _npy(files: Any, asked: _Asked) -> ShardSource:
    asked.only(".npy files", "labels", "weight")
    return NpyShards(files, asked.labels, asked.weight)


def _npz(files: Any, asked: _Asked) -> ShardSource:
    asked.only(".npz files", "weight")
    return NpzShards(files) if asked.weight is None else NpzShards(files, asked.weight)


def _parquet(files: Any, asked: _Asked) -> ShardSource:
    asked.only("Parquet files", "features", "target", "weight")
    return ParquetShards(files, asked.features, asked.target, asked.weight)


#: What reads files of each ending.
_READERS: dict[str, Callable[[Any, _Asked], ShardSource]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".parquet": _parquet,
    ".pq": _parquet,
}

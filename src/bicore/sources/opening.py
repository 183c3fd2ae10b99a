"""Open data by a path, a pattern, a name or an object: loaded, or in parts."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore._deprecated import renamed_keywords
from bicore.data import Dataset
from bicore.errors import InputError, MemoryLimitError
from bicore.frames import is_frame
from bicore.runtime.context import Runtime
from bicore.sources.arrow_files import (
    PARQUET,
    ArrowShards,
    ArrowTable,
    HuggingFaceTable,
    ParquetTable,
    arrow_table,
    fit_in_parts,
    holds_embedding,
    read_feather,
    read_parquet,
)
from bicore.sources.base import Source, scale_note
from bicore.sources.chunks import (
    MOST_ARRAYS,
    ArrayShards,
    DaskShards,
    IterableShards,
    open_dask_array,
    open_dask_frame,
)
from bicore.sources.columns import Columns
from bicore.sources.images import load_images
from bicore.sources.numpy_files import NpyShards, NpzShards, load_npy, load_npz
from bicore.sources.parts import LazyRows, ShardSource, rows_of
from bicore.sources.reading import CELL_COPIES, Allowance, Reading, common_name, find_files
from bicore.sources.standard_sets import STANDARD_SETS, load_standard_set
from bicore.sources.tables import (
    Table,
    encode_table,
    labelled,
    named_columns,
    refuse_other_columns,
    table_source,
)
from bicore.sources.text_files import PACKED, read_csv, read_json, read_tsv

_TABLE = (
    "target",
    "sample-weight",
    "columns",
    "drop",
    "drop-missing-target",
    "decimal",
    "missing",
    "embeddings",
)
_TEXT = (*_TABLE, "encoding")
#: Readers by ending, and the options of each; a new format is a line here. Text may be packed.
_TEXT_READERS = {
    **dict.fromkeys((".csv", ".txt"), read_csv),
    **dict.fromkeys((".tsv", ".tab"), read_tsv),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), read_json),
}
TABLES: dict[str, tuple[Callable[[Path, Reading], Table], tuple[str, ...]]] = {
    **{end + pack: (read, _TEXT) for end, read in _TEXT_READERS.items() for pack in ("", *PACKED)},
    **dict.fromkeys(PARQUET, (read_parquet, _TABLE)),
    **dict.fromkeys((".feather", ".arrow"), (read_feather, _TABLE)),
}
ARRAYS: dict[str, tuple[Callable[[Path, Reading], Source], tuple[str, ...]]] = {
    ".npz": (load_npz, ("sample-weight", "labels")),
    ".npy": (load_npy, ("labels",)),
}
KINDS = (
    "digits, mnist, cifar10, FILE.npz, FILE.npy, a table (.csv .tsv .txt .json .jsonl .parquet "
    ".feather .arrow, text also .gz .bz2 .zst .zip), a folder of images, or - for CSV on standard "
    "input"
)


def open_source(
    word: str,
    *,
    scale: str | None = None,
    later: bool = False,
    memory: int | str | None = None,
    needs_target: bool = True,
    **options: Any,
) -> Source:
    """Load data by a name or a path, as the command line does."""
    reading = Reading.of(options, allowance=Allowance.of(memory), needs_target=needs_target)
    source = _load(word, reading)
    limit = reading.limit
    if limit is not None and len(source.data) > limit:
        images = None if source.images is None else source.images[:limit]
        source = replace(source, data=source.data[:limit], images=images)
    return source.scaled(scale, later)


def open_test(word: str, folder: str | None = None, scale: str | None = None) -> Source | None:
    """Load the test set of a source, scaled like its training data; None if it has none."""
    if word not in ("mnist", "cifar10"):
        return None
    return load_standard_set(word, Reading(folder=folder), "test").scaled(scale, later=True)


def _load(word: str, reading: Reading) -> Source:
    path = Path(word)
    if word in STANDARD_SETS:
        _refuse_unused(word, reading, () if word == "digits" else ("data",))
        return load_standard_set(word, reading)
    if word == "-":
        _refuse_unused(word, reading, _TEXT)
        return table_source("standard input", read_csv(None, reading), reading)
    if path.is_dir():
        _refuse_unused(word, reading, ("resize",))
        return load_images(path, reading)
    if not path.exists():
        nearby = [*STANDARD_SETS, *(os.listdir(path.parent) if path.parent.is_dir() else ())]
        close = difflib.get_close_matches(path.name, nearby, n=1)
        hint = f"did you mean {close[0]}?" if close else f"give {KINDS}."
        raise InputError(f"{word!r} does not exist; {hint}")
    readers: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {**TABLES, **ARRAYS}
    if _ending(path) not in readers:
        raise InputError(f"{word!r} has an ending that is not known; give {KINDS}.")
    read, options = readers[_ending(path)]
    _refuse_unused(word, reading, options)
    found = read(path, reading)
    return found if isinstance(found, Source) else table_source(path.name, found, reading)


def _ending(path: Path) -> str:
    """The ending of a file in small letters, with that of a packed file."""
    endings = [one.lower() for one in path.suffixes[-2:]]
    both = "".join(endings)
    return both if both in TABLES else "".join(endings[-1:])


def open_table(
    source: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    memory: int | str | None = None,
    scale: str | None = None,
    target: Any = None,
    labels: Any = None,
    **options: Any,
) -> Source | None:
    """Load a data frame, or table files that are encoded as one table.

    Options are those of :func:`encode_table`; ``target`` and ``labels`` are other names of ``y``.
    Rows of Parquet files and data sets beyond the memory limit are read when they are needed. None
    if the source is no table, or a table in parts whose only features are an embedding.
    """
    given = [one for one in (y, target, labels) if one is not None]
    y = given[0] if given else None
    if is_frame(source):
        return encode_table(
            source, y, sample_weight=sample_weight, memory=memory, **options
        ).scaled(scale)
    parts = arrow_table(source)
    paths = find_files(source, tuple(_FILE_READERS), "source") if _are_paths(source) else ()
    if parts is None and (not paths or any(_ending(path) not in TABLES for path in paths)):
        return None
    if len(given) > 1:
        raise InputError("y, target and labels are the same thing for a table; give one of them.")
    named = named_columns(y, sample_weight)
    reading = Reading.of(options, allowance=Allowance.of(memory), **named)
    for path in paths:
        _refuse_unused(path.name, reading, TABLES[_ending(path)][1])
    if parts is None or not holds_embedding(parts, reading):
        try:
            table = _read_tables(paths, reading) if parts is None or paths else parts.load(reading)
            name = common_name(paths) if parts is None else parts.name
            return labelled(table_source(name, table, reading), y, sample_weight).scaled(scale)
        except MemoryLimitError:
            if parts is None or reading.drop_missing_target or reading.embeddings:
                raise
    shards = ArrowShards(parts, fit_in_parts(parts, reading, scale))
    source = read_in_parts(shards, Runtime(memory=memory), scale)
    return labelled(source, y, sample_weight)


def read_in_parts(shards: ShardSource, runtime: Runtime, scale: str | None = None) -> Source:
    """Read rows in parts; those beyond the memory limit are read when they are needed."""
    data = rows_of(shards, runtime)
    unread = f"{shards.name} does not fit the memory limit: rows are read when needed"
    notes = (*shards.notes, *([unread] if isinstance(data.x, LazyRows) else []))
    columns = shards.encoder.columns if isinstance(shards, ArrowShards) else None
    if isinstance(columns, Columns):
        scale = scale or "standard"
        notes = (*notes, scale_note(scale))
    return Source(shards.name, data, scale or "none", notes, columns=columns)


def _read_tables(paths: Sequence[Path], reading: Reading) -> Table:
    """Read files as one table."""
    whole: Table | None = None
    for path in paths:
        table = TABLES[_ending(path)][0](path, reading)
        if not len(table):
            continue
        if whole is not None:
            refuse_other_columns(str(path), table.names, whole.names)
        whole = table if whole is None else whole.joined(table)
        held = CELL_COPIES * whole.nbytes
        reading.allowance.need(held, f"the cells of {path} and the files before it")
    if whole is None:
        raise InputError(f"{paths[0]} has no rows; give a file with rows.")
    return whole


def _refuse_unused(word: str, reading: Reading, options: tuple[str, ...]) -> None:
    for option, value in reading.given().items():
        if option not in options:
            allowed = ", ".join(f"--{name}" for name in options) or "none of these options"
            given = f"--{option} {value}".rstrip()
            raise InputError(f"{given} means nothing for {word}; it reads {allowed}.")


SHARDS = (
    "a .npy, .npz or .parquet file, a folder or a pattern such as 'part-*.parquet' of them, an "
    "array, a Dataset, a Dask collection, or an iterable of (x, y) chunks"
)


@renamed_keywords()
def open_shards(
    source: Any,
    columns: str | Sequence[str] | None = None,
    target: str | None = None,
    labels: Any = None,
    sample_weight: Any = None,
    *,
    scale: str | None = None,
    drop: str | Sequence[str] | None = None,
    drop_missing_target: bool = False,
    decimal: str | None = None,
    missing: str | None = None,
    encoding: str | None = None,
) -> ShardSource:
    """Open rows in parts, which are never loaded all at once.

    A table of columns is encoded and standardised as :func:`bicore.select` does it; the only column
    of lists is read as it is stored. :class:`ParquetShards` and :class:`HuggingFaceShards` read
    columns of numbers as they are stored.

    Parameters
    ----------
    source : path, pattern, array, data set or iterable
        A .npy, .npz or .parquet file, a folder or pattern of them, an array or tensor, a
        :class:`~bicore.Dataset`, a Hugging Face data set, a Dask array, dataframe or list of
        delayed (x, y) chunks, or an iterable of such chunks (or a function that makes one).
    columns : str or list of str, optional
        Columns of a table: one of lists, or several of numbers.
    target : str, optional
        The column of a table that holds labels or targets.
    labels : path or array, optional
        Labels of .npy files, in files of their own, or those of an array.
    sample_weight : str, path or array, optional
        The column of weights, the array of an .npz, the file next to an .npy, or the weights of an
        array.
    scale, drop, drop_missing_target, decimal, missing, encoding : optional
        Of Parquet files and Hugging Face data sets, as in :func:`bicore.select`.

    Returns
    -------
    ShardSource
        Its headers are read and agree; its rows are not read yet.

    Raises
    ------
    InputError
        If there is no such source, its files do not agree, or an option means nothing for it.

    Examples
    --------
    >>> import numpy as np
    >>> open_shards(np.zeros((100, 8)), labels=np.arange(100)).rows
    100
    """
    given = {
        "columns": columns,
        "target": target,
        "labels": labels,
        "sample_weight": sample_weight,
        "scale": scale,
        "drop": drop,
        "drop_missing_target": drop_missing_target or None,
        "decimal": decimal,
        "missing": missing,
        "encoding": encoding,
    }
    return open_in_parts(source, given)


def open_in_parts(source: Any, given: Mapping[str, Any]) -> ShardSource:
    """Open a source by its options, which a kind of source may refuse."""
    asked = {name: value for name, value in given.items() if value is not None}
    if _are_paths(source):
        thing, names, read, source = _file_reader(source, asked)
    else:
        thing, names, read = _reader(source)
    for name in asked:
        if name not in names:
            allowed = ", ".join(f"{word}=" for word in names) or "none of these"
            raise InputError(f"{name}= means nothing for {thing}; it reads {allowed}.")
    opened: ShardSource = read(source, *(asked.get(name) for name in names))
    return opened


#: The kind of a source in words, the options it takes in order, and the function that opens it.
_Reader = tuple[str, tuple[str, ...], Callable[..., ShardSource]]
_COLUMNS = ("columns", "target", "sample_weight")
_TABLE_COLUMNS = (*_COLUMNS, "drop", "decimal", "missing", "scale")


def _reader(source: Any) -> _Reader:
    """Choose the reader of an object in memory or on a cluster."""
    match source:
        case ShardSource():
            return "an open source", (), lambda source: source
        case Dataset():
            return "a Dataset", (), ArrayShards.of
        case Source():
            return "a source", (), lambda read: ArrayShards.of(read.data, read.name, read.notes)
        case np.ndarray() | torch.Tensor():
            return "an array", ("labels", "sample_weight"), ArrayShards
        case tuple():
            return "arrays (x, y)", (), _open_tuple
        case list():
            delayed = bool(source) and all(hasattr(one, "__dask_graph__") for one in source)
            return "a list of chunks", (), DaskShards if delayed else IterableShards
    if hasattr(source, "with_format") and hasattr(source, "column_names"):
        opener = partial(_open_arrow, HuggingFaceTable)
        return "a Hugging Face data set", _TABLE_COLUMNS, opener
    if hasattr(source, "__dask_graph__"):
        if hasattr(source, "columns"):
            return "a Dask dataframe", _COLUMNS, open_dask_frame
        if hasattr(source, "to_delayed"):
            return "a Dask array", ("labels", "sample_weight"), open_dask_array
        return "a delayed chunk", (), lambda chunk: DaskShards([chunk])
    if hasattr(source, "keys"):
        raise InputError(
            f"source is a {type(source).__name__} of named columns; give arrays (x, y), such as "
            "(frame[features].to_numpy(), frame[target].to_numpy()), or a .parquet file."
        )
    if not callable(source) and not isinstance(source, Iterable):
        raise InputError(f"source is a {type(source).__name__}; give {SHARDS}.")
    return "an iterable of chunks", (), IterableShards


def _open_arrow(kind: Callable[[Any], ArrowTable], source: Any, *given: Any) -> ArrowShards:
    """Open a table in parts; ``given`` are the values of ``_TABLE_COLUMNS``."""
    options = dict(zip(_TABLE_COLUMNS, given, strict=True))
    scale = options.pop("scale")
    table = kind(source)
    return ArrowShards(table, fit_in_parts(table, Reading(**options), scale))


def _open_tuple(source: tuple[Any, ...]) -> ShardSource:
    if not 1 <= len(source) <= MOST_ARRAYS:
        raise InputError(
            f"source is a tuple of {len(source)}; give (x, y) or (x, y, sample_weight), or a list "
            "of such chunks."
        )
    if hasattr(source[0], "__dask_graph__"):
        return open_dask_array(*source)
    return ArrayShards(*source)


def _is_path(thing: Any) -> bool:
    return isinstance(thing, (str, os.PathLike))


def _are_paths(source: Any) -> bool:
    """Whether a source is a path, or a list of paths."""
    several = isinstance(source, (list, tuple)) and bool(source)
    return _is_path(source) or (several and all(map(_is_path, source)))


#: Names of labels and weights in a folder of .npy files; the other files are features.
_NAMES = {
    "labels": re.compile(r"(?:y|labels?|targets?)(?:[-_]\d+)?", re.IGNORECASE),
    "sample_weight": re.compile(r"(?:w|(?:sample[-_])?weights?)(?:[-_]\d+)?", re.IGNORECASE),
}
_FILE_READERS: dict[str, _Reader] = {
    ".npy": (".npy files", ("labels", "sample_weight"), NpyShards),
    ".npz": (
        ".npz files",
        ("sample_weight",),
        lambda files, sample_weight: NpzShards(files, sample_weight or "weight"),
    ),
    **dict.fromkeys(
        PARQUET, ("Parquet files", _TABLE_COLUMNS, lambda *given: _open_arrow(ParquetTable, *given))
    ),
}


def _file_reader(source: Any, asked: dict[str, Any]) -> tuple[Any, ...]:
    """Choose the reader of files by their ending, which must be one; and find the files."""
    found = list(find_files(source, tuple(_FILE_READERS), "source"))
    endings = sorted({path.suffix.lower() for path in found})
    unknown = [path for path in found if path.suffix.lower() not in _FILE_READERS]
    if unknown:
        raise InputError(f"{unknown[0]} has an ending that is not known; give {SHARDS}.")
    if len({_FILE_READERS[ending] for ending in endings}) > 1:
        raise InputError(
            f"{source} holds files of several kinds ({', '.join(endings)}); give a pattern that "
            f"matches one kind, such as '*{endings[0]}'."
        )
    if endings == [".npy"] and _is_path(source) and Path(source).is_dir():
        for option, names in _NAMES.items():
            beside = [path for path in found if names.fullmatch(path.stem)]
            if beside and len(beside) < len(found):
                asked.setdefault(option, beside)
                found = [path for path in found if path not in beside]
    return (*_FILE_READERS[endings[0]], found)

"""Open data by path, pattern, name or object: loaded, or in parts."""

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

from bicore import frames
from bicore._deprecated import renamed_keywords
from bicore.data import Dataset
from bicore.errors import InputError, MemoryLimitError
from bicore.runtime.context import Runtime
from bicore.sources import arrow_files, numpy_files, parts, tables, text_files
from bicore.sources.base import Source, scale_note
from bicore.sources.columns import Columns
from bicore.sources.images import load_images
from bicore.sources.parts import LazyRows, ShardSource, rows_of
from bicore.sources.reading import (
    CELL_COPIES,
    TABLE_OPTIONS,
    TEXT_OPTIONS,
    Allowance,
    Reading,
    are_paths,
    common_name,
    find_files,
    refuse_unused,
    report_unreadable,
)
from bicore.sources.standard_sets import STANDARD_SETS, load_standard_set
from bicore.sources.tables import Table
from bicore.types import Labels, Rows, Weights

#: Name of a format, its reader, and its options.
_Format = tuple[str, Callable[..., Iterable[Any]], tuple[str, ...]]
_read_tsv = partial(text_files.read_csv, delimiter="\t")
#: Readers of tables by ending, with the name of the format and its options. They yield batches of
#: pyarrow; text may be compressed.
_TEXT: dict[str, _Format] = {
    **dict.fromkeys((".csv", ".txt"), ("CSV", text_files.read_csv, TEXT_OPTIONS)),
    **dict.fromkeys((".tsv", ".tab"), ("CSV", _read_tsv, TEXT_OPTIONS)),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), ("JSON", text_files.read_json, TEXT_OPTIONS)),
}
TABLES: dict[str, _Format] = {
    **{end + pack: _TEXT[end] for end in _TEXT for pack in ("", *text_files.PACKED)},
    **dict.fromkeys(arrow_files.PARQUET, ("Parquet", arrow_files.read_parquet, TABLE_OPTIONS)),
    **dict.fromkeys((".feather", ".arrow"), ("Arrow", arrow_files.read_feather, TABLE_OPTIONS)),
}
ARRAYS: dict[str, tuple[Callable[[Path, Reading], Source], tuple[str, ...]]] = {
    ".npz": (numpy_files.load_arrays, ("sample_weight", "labels")),
    ".npy": (numpy_files.load_arrays, ("labels",)),
}
#: Kinds of sources, for errors.
KINDS = (
    "digits, mnist, cifar10, FILE.npz, FILE.npy, a table (.csv .tsv .txt .json .jsonl .parquet "
    ".feather .arrow, text also .gz .bz2 .zst .zip), a folder of images, or - for CSV on standard "
    "input"
)


def open_source(
    name: str,
    *,
    scale: str | None = None,
    later: bool = False,
    memory: int | str | None = None,
    needs_target: bool = True,
    **options: Any,
) -> Source:
    """Load data by name or path, as the command does.

    With ``later`` features are not standardised here, but with the statistics of each pool.
    """
    reading = Reading(**options, allowance=Allowance.of(memory), needs_target=needs_target)
    source = _load(name, reading)
    limit = reading.limit
    if limit is not None and len(source.data) > limit:
        images = None if source.images is None else source.images[:limit]
        source = replace(source, data=source.data[:limit], images=images)
    return source.scale_features(scale, later)


def open_test(name: str, folder: str | None = None, scale: str | None = None) -> Source | None:
    """Load the test set of a source, scaled like its training data; None if it has none."""
    if name not in ("mnist", "cifar10"):
        return None
    return load_standard_set(name, Reading(data=folder), "test").scale_features(scale, later=True)


def _load(name: str, reading: Reading) -> Source:
    path, ending = Path(name), _ending(Path(name))
    load, options = ARRAYS.get(ending, (_load_table, None))
    if name in STANDARD_SETS:
        refuse_unused(vars(reading), name, () if name == "digits" else ("data",))
        return load_standard_set(name, reading)
    if path.is_dir():
        load, options = load_images, ("resize",)
    elif name != "-" and not path.exists():
        nearby = [*STANDARD_SETS, *(os.listdir(path.parent) if path.parent.is_dir() else ())]
        close = difflib.get_close_matches(path.name, nearby, n=1, cutoff=0.75)
        hint = f"did you mean {close[0]}?" if close else f"give {KINDS}."
        raise InputError(f"{name!r} does not exist; {hint}")
    elif name != "-" and ending not in {**ARRAYS, **TABLES}:
        raise InputError(f"{name!r} has an unknown file extension; give {KINDS}.")
    if options is not None:
        refuse_unused(vars(reading), name, options)
    return load(path, reading)


def _load_table(path: Path, reading: Reading) -> Source:
    return _load_tables([path], reading)


def _load_tables(paths: Sequence[Path], reading: Reading) -> Source:
    """Load files as one table; the path - is standard input (CSV)."""
    whole: Table = {}
    notes: list[str] = []
    for path in paths:
        piped = str(path) == "-"
        where = "standard input" if piped else str(path)
        kind, read, options = TABLES[".csv" if piped else _ending(path)]
        refuse_unused(vars(reading), path.name, options)
        with report_unreadable(Path(where), f"{kind} file"):
            found = tables.load_columns(read(None if piped else path, reading, notes), reading)
        if whole and found:
            tables.refuse_other_columns(where, found, whole)
            found = tables.join_tables([whole, found])
        whole = found or whole
        what = f"the cells of {where} and the files before it"
        reading.allowance.require(CELL_COPIES * tables.count_bytes(whole), what)
    if not whole:
        raise text_files.no_rows_error(str(paths[0]))
    name = "standard input" if str(paths[0]) == "-" else common_name(paths)
    return tables.table_source(name, whole, reading, list(dict.fromkeys(notes)))


def _ending(path: Path) -> str:
    """Return the ending of a file in lower case, including that of a compressed file."""
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
    Rows of Parquet files and data sets beyond the memory limit are read when they are needed. A
    file of ``ARRAYS`` without a reader in parts is loaded too. None if the source is no table, or a
    table in parts whose only features are an embedding.
    """
    given = [one for one in (y, target, labels) if one is not None]
    if len(given) > 1:
        raise InputError("y, target and labels mean the same for a table; give one of them.")
    y = given[0] if given else None
    if frames.is_frame(source):
        options |= {"sample_weight": sample_weight, "memory": memory}
        return tables.encode_table(source, y, **options).scale_features(scale)
    options |= {"allowance": Allowance.of(memory), **tables.named_columns(y, sample_weight)}
    shards = arrow_files.open_arrow(source, scale=scale, **options)
    if shards is None:
        paths = find_files(source, tuple(_FILE_READERS), "source") if are_paths(source) else ()
        endings = {_ending(path) for path in paths}
        if len(paths) == 1 and endings <= ARRAYS.keys() - _FILE_READERS.keys():
            found = _load(str(paths[0]), Reading(**options)).scale_features(scale)
            return tables.add_labels(found, y, sample_weight)
        if not paths or not endings <= TABLES.keys():
            return None
        found = _load_tables(paths, Reading(**options)).scale_features(scale)
    else:
        found = _load_arrow(shards, Runtime(memory=memory), scale)
    return tables.add_labels(found, y, sample_weight)


def _load_arrow(shards: arrow_files.ArrowShards, runtime: Runtime, scale: str | None) -> Source:
    """Load a table; read it on demand if it does not fit, or is an embedding."""
    if shards.embedding is None:
        try:
            found = tables.table_source(shards.name, shards.load(), shards.reading)
            return found.scale_features(scale)
        except MemoryLimitError:
            if shards.reading.drop_missing_target or shards.reading.embeddings:
                raise
    return read_in_parts(shards, runtime, scale)


def read_in_parts(shards: ShardSource, runtime: Runtime, scale: str | None = None) -> Source:
    """Read rows in parts; those beyond the memory limit are read on demand."""
    data = rows_of(shards, runtime)
    unread = f"{shards.name} does not fit the memory limit: rows are read when needed"
    notes = (*shards.notes, *([unread] if isinstance(data.x, LazyRows) else []))
    columns = shards.encoder.columns if isinstance(shards, arrow_files.ArrowShards) else None
    if not isinstance(columns, Columns):
        return Source(shards.name, data, scale or "none", notes)
    scale = scale or "standard"
    return Source(shards.name, data, scale, (*notes, scale_note(scale)), columns=columns)


#: Kinds of sources in parts, for errors.
SHARD_KINDS = (
    "a .npy, .npz or .parquet file, a folder or a pattern such as 'part-*.parquet' of them, an "
    "array, a Dataset, a Dask collection, or an iterable of (x, y) chunks"
)


@renamed_keywords()
def open_shards(
    source: Rows | Dataset | Source | Iterable[Any] | Callable[[], Iterable[Any]],
    columns: str | Sequence[str] | None = None,
    target: str | None = None,
    labels: Labels | os.PathLike[str] | None = None,
    sample_weight: Weights | None = None,
    *,
    scale: str | None = None,
    drop: str | Sequence[str] | None = None,
    decimal: str | None = None,
    missing: str | None = None,
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
    scale, drop, decimal, missing : optional
        Encoding of Parquet files and Hugging Face data sets, as in :func:`bicore.select`.

    Returns
    -------
    ShardSource
        Its headers are read and agree; its rows are not read yet.

    Raises
    ------
    InputError
        If there is no such source, its files do not agree, or an option does not apply to it.

    Examples
    --------
    >>> import numpy as np
    >>> open_shards(np.zeros((100, 8)), labels=np.arange(100)).rows
    100
    """
    given = dict(locals())
    arrow_files.ask_for_target(source, target)
    return open_in_parts(given.pop("source"), given)


def open_in_parts(source: Any, given: Mapping[str, Any]) -> ShardSource:
    """Open a source by its options; options of other kinds of sources are refused."""
    asked = {name: one for name, one in given.items() if one is not None and one is not False}
    if are_paths(source):
        kind, names, read, source = _file_reader(source, asked)
    else:
        kind, names, read = _reader(source)
    refuse_unused(asked, kind, names)
    opened: ShardSource = read(source, **asked)
    return opened


#: The kind of a source, its options, and the function that opens it.
_Reader = tuple[str, tuple[str, ...], Callable[..., ShardSource]]
_COLUMNS = ("columns", "target", "sample_weight")
_TABLE_COLUMNS = (*_COLUMNS, "drop", "decimal", "missing", "scale")


def _reader(source: Any) -> _Reader:
    """Choose the reader of an object in memory or on a cluster."""
    dask, xarray = frames.is_dask(source), type(source).__name__ == "DataArray"
    match source:
        case ShardSource():
            return "an open source", (), lambda source: source
        case Dataset() | Source():
            return "a Dataset", (), _open_data
        case _ if isinstance(source, (np.ndarray, torch.Tensor)) or (xarray and not dask):
            return "an array", ("labels", "sample_weight"), _open_array
        case tuple():
            return "arrays (x, y)", (), _open_tuple
        case [*delayed] if delayed and all(map(frames.is_dask, delayed)):
            return "a list of chunks", (), parts.DaskShards
        case _ if arrow_files.is_huggingface(source):
            return "a Hugging Face data set", _TABLE_COLUMNS, _open_arrow
        case _ if dask and hasattr(type(source), "columns"):  # delayed chunks accept any attribute
            return "a Dask dataframe", _COLUMNS, parts.open_dask_frame
        case _ if dask and hasattr(type(source), "chunks"):
            return "a Dask array", ("labels", "sample_weight"), parts.open_dask_array
        case _ if dask:
            return "a delayed chunk", (), lambda chunk: parts.DaskShards([chunk])
        case _ if hasattr(source, "keys"):
            what = f"source is a {type(source).__name__} of named columns"
            raise InputError(f"{what}; give arrays (x, y), a data frame, or a .parquet file.")
        case _ if callable(source) or isinstance(source, Iterable):
            return "an iterable of chunks", (), parts.IterableShards
    raise InputError(f"source has type {type(source).__name__}; give {SHARD_KINDS}.")


def _open_arrow(source: Any, scale: str | None = None, **options: Any) -> ShardSource:
    """Open a table in parts, encoded and standardised; errors of the fit are raised now."""
    opened = arrow_files.open_arrow(source, scale=scale, **options)
    assert opened is not None
    _ = opened.shards
    return opened


def _open_data(source: Dataset | Source) -> ShardSource:
    read = source if isinstance(source, Source) else Source("arrays", source)
    rows = (read.data.x, read.data.y, read.data.sample_weight)
    return parts.ArrayShards(*rows, name=read.name, notes=read.notes)


def _open_array(x: Any, labels: Any = None, sample_weight: Any = None) -> ShardSource:
    return parts.ArrayShards(x, labels, sample_weight)


def _open_tuple(source: tuple[Any, ...]) -> ShardSource:
    if not 1 <= len(source) <= parts.MOST_ARRAYS:
        fix = "give (x, y) or (x, y, sample_weight), or a list of such chunks"
        raise InputError(f"source is a tuple of {len(source)}; {fix}.")
    dask = frames.is_dask(source[0])
    return (parts.open_dask_array if dask else parts.ArrayShards)(*source)


#: Names of label and weight files in a folder of .npy files; the other files are features.
_NAMES = {
    "labels": re.compile(r"(?:y|labels?|targets?)(?:[-_]\d+)?", re.IGNORECASE),
    "sample_weight": re.compile(r"(?:w|(?:sample[-_])?weights?)(?:[-_]\d+)?", re.IGNORECASE),
}
_FILE_READERS: dict[str, _Reader] = {
    ".npy": (".npy files", ("labels", "sample_weight"), numpy_files.NpyShards),
    ".npz": (".npz files", ("sample_weight",), numpy_files.NpzShards),
    **dict.fromkeys(arrow_files.PARQUET, ("Parquet files", _TABLE_COLUMNS, _open_arrow)),
}


def _file_reader(source: Any, asked: dict[str, Any]) -> tuple[Any, ...]:
    """Choose the reader of files by their common ending, and find the files.

    Label and weight files in a folder of .npy files are added to the options ``asked``.
    """
    found = list(find_files(source, tuple(_FILE_READERS), "source"))
    endings = sorted({path.suffix.lower() for path in found})
    unknown = [path for path in found if path.suffix.lower() not in _FILE_READERS]
    if unknown:
        raise InputError(f"{unknown[0]} has an unknown file extension; give {SHARD_KINDS}.")
    if len({_FILE_READERS[ending] for ending in endings}) > 1:
        held = f"{source} holds files of several kinds ({', '.join(endings)})"
        raise InputError(f"{held}; give a pattern of one kind, such as '*{endings[0]}'.")
    if endings == [".npy"] and not isinstance(source, (list, tuple)) and Path(source).is_dir():
        for option, names in _NAMES.items():
            companions = [path for path in found if names.fullmatch(path.stem)]
            if companions and len(companions) < len(found):
                asked.setdefault(option, companions)
                found = [path for path in found if path not in companions]
    return (*_FILE_READERS[endings[0]], found)

"""Embed rows with a frozen module, into shards on disk."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore._deprecated import renamed_keywords
from bicore.data import Array
from bicore.errors import InputError, check_integer, check_name
from bicore.files import explain_failed_writes, replacing
from bicore.runtime.context import frozen
from bicore.sources.numpy_files import NpyShards, read_header
from bicore.sources.parts import PART_ROWS
from bicore.types import PathLike

_RECORD = "embedding.json"
_DTYPES = ("float16", "float32")
NOT_WRITTEN = "the embedding could not be written, and finished shards are kept"


@renamed_keywords()
def embed_to_folder(
    loader: Iterable[Any],
    module: torch.nn.Module,
    folder: PathLike,
    device: str = "cpu",
    dtype: str = "float16",
    shard_rows: int = PART_ROWS,
) -> NpyShards:
    """Embed the rows of a loader once, and read them from disk afterwards.

    A killed run continues with its first unfinished shard. If the embedding is complete, the call
    only reads the first batch, to check that the rows are the same; later rows are not compared.

    Parameters
    ----------
    loader : torch.utils.data.DataLoader
        Batches (x, y) or x, the same each time: without shuffling and random augmentation.
    module : torch.nn.Module
        Returns a row of numbers for each row of a batch x. It runs in evaluation mode, and its
        weights do not change.
    folder : path
        Folder for the shards ``x-00000.npy``, ``y-00000.npy`` … and a small record.
    device : str
        Device of the module.
    dtype : "float16" or "float32"
        Type of the stored numbers.
    shard_rows : int
        Number of rows of a shard, rounded up to whole batches; the last may have fewer.

    Returns
    -------
    NpyShards
        Rows in the order of the loader.

    Raises
    ------
    InputError
        If the folder holds another embedding, the loader shuffles or drops rows, or an output is
        not one row of numbers for each row of x, or too large for float16.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> rows = torch.utils.data.TensorDataset(torch.ones(10, 4), torch.arange(10))
    >>> loader = torch.utils.data.DataLoader(rows, batch_size=4)
    >>> source = embed_to_folder(loader, torch.nn.Linear(4, 3), tempfile.mkdtemp())
    >>> source.rows, source.shape
    (10, (3,))
    """
    check_name("dtype", dtype, _DTYPES)
    check_integer("shard_rows", shard_rows)
    if isinstance(getattr(loader, "sampler", None), torch.utils.data.RandomSampler):
        raise InputError("loader shuffles; give DataLoader(…, shuffle=False) to keep positions.")
    if getattr(loader, "drop_last", False):
        fix = "give DataLoader(…, drop_last=False)"
        raise InputError(f"loader leaves out the rows of a last short batch; {fix}.")
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    batches = iter(loader)
    first = next(batches, None)
    record = _begin(root, _record(loader, first, module, dtype, shard_rows))
    if not record["complete"]:
        with frozen(module.to(device)):
            _write_shards(itertools.chain([first], batches), module, root, device, record)
        _write_record(root, {**record, "complete": True})
    return NpyShards(sorted(root.glob("x-*.npy")), sorted(root.glob("y-*.npy")) or None)


def _write_shards(
    batches: Iterable[Any], module: torch.nn.Module, root: Path, device: str, record: dict[str, Any]
) -> None:
    """Embed the rows of missing shards; rows of finished ones are only counted."""
    number = rows = 0
    columns: dict[str, list[Array]] = {"y": [], "x": []}
    for batch in itertools.chain(batches, [None]):
        if rows and (batch is None or rows >= record["shard_rows"]):
            _close_shard(root, number, rows, columns)
            number, rows, columns = number + 1, 0, {"y": [], "x": []}
        if batch is None:
            return
        x, y = _split(batch)
        if not _path(root, "x", number).exists():
            columns["x"].append(embed_batch(module, x, device, record["dtype"]))
            columns["y"] += [] if y is None else [np.asarray(y)]
        rows += len(x)


def _split(batch: Any) -> tuple[Any, Any]:
    x, y, *_ = (*batch, None) if isinstance(batch, (tuple, list)) else (batch, None)
    return x, y


def _close_shard(root: Path, number: int, rows: int, columns: dict[str, list[Array]]) -> None:
    """Write a shard, features last, because their file marks it as complete."""
    path = _path(root, "x", number)
    if not path.exists():
        for column, batches in columns.items():
            if batches:
                part = _path(root, column, number)
                with explain_failed_writes(part, NOT_WRITTEN), replacing(part) as temporary:
                    np.save(temporary, np.concatenate(batches))
    elif (finished := len(read_header(path))) != rows:
        changed = f"{path} has {finished} rows, and the loader now gives {rows} for it"
        raise InputError(f"{changed}; use the same loader, or another folder.")


def _path(root: Path, column: str, number: int) -> Path:
    return root / f"{column}-{number:05d}.npy"


def embed_batch(module: torch.nn.Module, x: Any, device: str, dtype: str) -> Array:
    """Embed the rows of a batch."""
    if not hasattr(x, "to"):
        given = f"loader gives a {type(x).__name__} for x"
        raise InputError(f"{given}; give batches (x, y) of tensors (collate_fn= makes them).")
    made = module(x.to(device))
    if not hasattr(made, "detach") or made.ndim < 1 or len(made) != len(x):
        given = f"{type(made).__name__} of shape {getattr(made, 'shape', None)}"
        fix = "wrap it so that it returns one tensor with a row for each"
        raise InputError(f"module gives {given} for {len(x)} rows; {fix}.")
    rows: Array = made.detach().float().cpu().numpy().reshape(len(x), -1)
    with np.errstate(over="ignore"):
        stored = rows.astype(dtype)
    lost = np.isfinite(rows) & ~np.isfinite(stored)
    if lost.any():
        advice = "give dtype='float32'"
        raise InputError(f"module gives {rows[lost][0]:g}, which float16 cannot hold; {advice}.")
    return stored


def _record(
    loader: Any, first: Any, module: torch.nn.Module, dtype: str, shard_rows: int
) -> dict[str, Any]:
    """Describe an embedding: its module, its settings, and the first batch of its rows."""
    batches = None
    with suppress(TypeError):  # a loader over an iterable has no length
        batches = len(loader)
    size = getattr(loader, "batch_size", None)
    record = {"module": _digest(repr(module), module.state_dict()), "batches": batches}
    columns = dict(zip("xy", _split(first), strict=True))
    text = "".join(repr(one) for one in columns.values() if not hasattr(one, "detach"))
    record |= {"first_batch": _digest(text, columns), "batch_size": size}
    return {**record, "dtype": dtype, "shard_rows": shard_rows, "complete": False}


def _digest(text: str, values: Mapping[str, Any]) -> str:
    """Return a digest of a text and of all tensors among the values."""
    # Functions are printed with an address, which differs between runs.
    digest = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", text).encode())
    for name, value in values.items():
        digest.update(name.encode())
        if hasattr(value, "detach"):
            flat = value.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()[:16]


def _begin(root: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Read the record of the folder, which must be of the same embedding, or write a new one."""
    path = root / _RECORD
    if not path.exists():
        if any(root.glob("x-*.npy")):
            raise InputError(f"{root} holds shards without {_RECORD}; give another folder.")
        _write_record(root, record)
        return record
    try:
        found = dict(json.loads(path.read_text()))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); embed into another folder.") from error
    for name, value in record.items():
        # Records of version 0.2 have no first batch.
        known = found.get(name, value if name == "first_batch" else None)
        if name != "complete" and known != value:
            different = f"{root} holds an embedding with {name}={known!r}"
            raise InputError(f"{different}, and this one has {value!r}; give another folder.")
    return found


def _write_record(root: Path, record: dict[str, Any]) -> None:
    path = root / _RECORD
    with explain_failed_writes(path, NOT_WRITTEN), replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1))

"""Rows behind a frozen module: embedded once, into shards on disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore.data import Array
from bicore.errors import InputError
from bicore.files import replacing
from bicore.shards.sources.arrays import PART_ROWS
from bicore.shards.sources.headers import npy_header
from bicore.shards.sources.npy import NpyShards

_RECORD = "embedding.json"
_DTYPES = ("float16", "float32")


def embedded(
    loader: Any,
    module: torch.nn.Module,
    folder: str | os.PathLike[str],
    device: str = "cpu",
    dtype: str = "float16",
    shard_rows: int = PART_ROWS,
) -> NpyShards:
    """Embed the rows of a loader once, and read them from disk from then on.

    A run that was killed goes on with the first shard that is not finished; a finished one returns
    at once.

    Parameters
    ----------
    loader : torch.utils.data.DataLoader
        Gives (x, y), or x alone, in the same order each time: without shuffling.
    module : torch.nn.Module
        Makes a row of numbers of each x; it computes in evaluation mode, and its weights are not
        changed.
    folder : path
        Where shards ``x-00000.npy``, ``y-00000.npy`` … and a small record are written.
    device : str
        Where the module computes.
    dtype : "float16" or "float32"
        What is stored.
    shard_rows : int
        Rows of a shard, at least; it ends with a batch.

    Returns
    -------
    NpyShards
        Rows in the order of the loader.

    Raises
    ------
    InputError
        Where the folder holds another embedding, the loader shuffles or drops rows, an output is
        no row of numbers or too large for float16, or the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> rows = torch.utils.data.TensorDataset(torch.ones(10, 4), torch.arange(10))
    >>> loader = torch.utils.data.DataLoader(rows, batch_size=4)
    >>> source = embedded(loader, torch.nn.Linear(4, 3), tempfile.mkdtemp())
    >>> source.rows, source.shape
    (10, (3,))
    """
    if dtype not in _DTYPES:
        raise InputError(f"dtype={dtype!r} is not known; it is 'float16' or 'float32'.")
    if shard_rows < 1:
        raise InputError(f"shard_rows={shard_rows} is below 1; give the number of rows of a shard.")
    _refuse_lost_places(loader)
    place = Path(folder)
    with _room(place):
        place.mkdir(parents=True, exist_ok=True)
        record = _begun(place, _record(loader, module, dtype, shard_rows))
        if not record["complete"]:
            with frozen(module, device):
                _write_shards(loader, module, place, device, record)
            _note(place, {**record, "complete": True})
    return NpyShards(sorted(place.glob("x-*.npy")), sorted(place.glob("y-*.npy")) or None)


def _write_shards(
    loader: Any, module: torch.nn.Module, place: Path, device: str, record: dict[str, Any]
) -> None:
    shard = _Shard(place, 0)
    for batch in loader:
        x, y = _columns(batch)
        if shard.finished is None:
            shard.x.append(embedded_batch(module, x, device, record["dtype"]))
            if y is not None:
                shard.y.append(np.asarray(y))
        shard.rows += len(x)
        if shard.rows >= record["shard_rows"]:
            shard = shard.closed()
    if shard.rows:
        shard.closed()


class _Shard:
    """A shard that is growing in memory, or one that is on disk and is only counted again."""

    def __init__(self, place: Path, number: int) -> None:
        self.place = place
        self.number = number
        self.rows = 0
        self.x: list[Array] = []
        self.y: list[Array] = []
        path = self.path("x")
        #: Rows on disk; None where there are none yet.
        self.finished = npy_header(path).rows if path.exists() else None

    def path(self, column: str) -> Path:
        return self.place / f"{column}-{self.number:05d}.npy"

    def closed(self) -> _Shard:
        """Write what was gathered; features last, because their file says that all is there."""
        if self.finished is None:
            for column, batches in (("y", self.y), ("x", self.x)):
                if batches:
                    with replacing(self.path(column)) as beside:
                        np.save(beside, np.concatenate(batches))
        elif self.finished != self.rows:
            raise InputError(
                f"{self.path('x')} has {self.finished} rows and the loader gives {self.rows} "
                "there; the loader changed: embed into another folder."
            )
        return _Shard(self.place, self.number + 1)


def embedded_batch(module: torch.nn.Module, x: Any, device: str, dtype: str) -> Array:
    """A row of numbers for each row of a batch."""
    if not hasattr(x, "to"):
        raise InputError(
            f"loader gives a {type(x).__name__} for x; give batches (x, y) in which x is a tensor "
            "(collate_fn= makes them)."
        )
    made = module(x.to(device))
    if not hasattr(made, "detach") or made.ndim < 1 or len(made) != len(x):
        raise InputError(
            f"module gives {type(made).__name__} of shape {getattr(made, 'shape', None)} for "
            f"{len(x)} rows; wrap it so that it returns one tensor with a row for each."
        )
    rows: Array = made.detach().float().cpu().numpy().reshape(len(x), -1)
    with np.errstate(over="ignore"):
        stored = rows.astype(dtype)
    lost = np.isfinite(rows) & ~np.isfinite(stored)
    if lost.any():
        raise InputError(
            f"module gives {rows[lost][0]:g}, which float16 cannot hold; give dtype='float32'."
        )
    return stored


@singledispatch
def _columns(batch: Any) -> tuple[Any, Any]:
    return batch, None


@_columns.register(tuple)
@_columns.register(list)
def _(batch: Any) -> tuple[Any, Any]:
    return batch[0], batch[1] if len(batch) > 1 else None


def _refuse_lost_places(loader: Any) -> None:
    """Row i of the embedding is row i of what the loader reads."""
    sampler = type(getattr(loader, "sampler", None))
    if issubclass(sampler, torch.utils.data.RandomSampler):
        raise InputError(
            "loader shuffles, and positions in it would mean nothing; give "
            "DataLoader(…, shuffle=False)."
        )
    if getattr(loader, "drop_last", False):
        raise InputError(
            "loader leaves out the rows of a last short batch; give DataLoader(…, drop_last=False)."
        )


def _record(loader: Any, module: torch.nn.Module, dtype: str, shard_rows: int) -> dict[str, Any]:
    """What an embedding depends on."""
    return {
        "module": _digest(module),
        "batches": _batches(loader),
        "batch_size": getattr(loader, "batch_size", None),
        "dtype": dtype,
        "shard_rows": shard_rows,
        "complete": False,
    }


def _batches(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # one over an iterable has no length
        return None


def _digest(module: torch.nn.Module) -> str:
    # Functions inside are printed with an address, which differs from run to run.
    digest = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", repr(module)).encode())
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        if hasattr(value, "detach"):
            flat = value.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()[:16]


def _begun(place: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The record of the folder, which must be of the same embedding; a new folder gets one."""
    path = place / _RECORD
    if not path.exists():
        if any(place.glob("x-*.npy")):
            raise InputError(
                f"{place} holds shards without {_RECORD}, so nobody knows by what they were made; "
                "give another folder."
            )
        _note(place, record)
        return record
    try:
        found = dict(json.loads(path.read_text()))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); embed into another folder.") from error
    for name, value in record.items():
        if name != "complete" and found.get(name) != value:
            raise InputError(
                f"{place} holds an embedding with {name}={found.get(name)!r} and this one has "
                f"{value!r}; give another folder, or remove this one."
            )
    return found


def _note(place: Path, record: dict[str, Any]) -> None:
    with replacing(place / _RECORD) as beside:
        beside.write_text(json.dumps(record, indent=1))


@contextmanager
def frozen(module: torch.nn.Module, device: str) -> Iterator[None]:
    """Evaluation mode without gradients for the duration."""
    training = [(one, one.training) for one in module.modules()]
    module.eval().to(device)
    try:
        with torch.no_grad():
            yield
    finally:
        for one, before in training:
            one.training = before


@contextmanager
def _room(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            f"the disk of {place} is full; finished shards are kept: make room and run again, or "
            "store float16."
        ) from error

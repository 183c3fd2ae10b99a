"""Fingerprints of sources that are too large to read for one: names, sizes, a sample."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.shards.sources.files import common_folder

#: Samples taken over all of a source; a change that touches one row in 64 or more is rarely missed.
SAMPLES = 64
#: Bytes of a file read at each sample: a page of the disk costs no more than a row.
_BLOCK = 4096
#: Every file gives its beginning, where headers are, and its end, where tables keep their index.
_LEAST = 2
_LENGTH = 16


def spread(rows: int, samples: int = SAMPLES) -> Array:
    """Positions from the first to the last of so many rows, evenly."""
    return np.unique(np.linspace(0, max(rows - 1, 0), min(samples, rows)).astype(np.int64))


def of_files(words: str, files: Sequence[Path]) -> str:
    """A digest of how files are read, their names, sizes and a sample of their bytes.

    Folders above the files and times are not in it: a copy of the source is the same source.
    """
    digest = hashlib.sha256(words.encode())
    if files:
        above = common_folder(files)
        blocks = max(_LEAST, SAMPLES // len(files))
        for path in files:
            try:
                size = os.path.getsize(path)
                name = path.relative_to(above).as_posix()
                digest.update(f"\n{name} {size}\n".encode())
                with open(path, "rb", buffering=0) as file:
                    for start in np.linspace(0, max(size - _BLOCK, 0), blocks).astype(int):
                        file.seek(int(start))
                        digest.update(file.read(_BLOCK))
            except OSError as error:
                raise InputError(
                    f"{path} cannot be read any more ({error.strerror}); put the file back, or "
                    "start again from the files there are."
                ) from error
    return digest.hexdigest()[:_LENGTH]


def of_words(words: str) -> str:
    """A digest of words alone."""
    return hashlib.sha256(words.encode()).hexdigest()[:_LENGTH]


def of_columns(words: str, columns: Sequence[Array | None]) -> str:
    """A digest of columns that are in memory or mapped: shapes, kinds and rows spread over them."""
    digest = hashlib.sha256(words.encode())
    for column in columns:
        if column is None:
            digest.update(b"none")
            continue
        digest.update(f"{column.dtype.str}{column.shape}".encode())
        digest.update(np.ascontiguousarray(column[spread(len(column))]).tobytes())
    return digest.hexdigest()[:_LENGTH]

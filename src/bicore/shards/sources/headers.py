"""What .npy files and members of .npz files say of themselves, without reading their values."""

from __future__ import annotations

import math
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from bicore.data import Array
from bicore.errors import DamagedFileError, InputError
from bicore.sources.failures import foreign
from bicore.sources.stored import stored


@dataclass(frozen=True)
class ArrayHeader:
    """Shape and dtype of a stored array, and where its values begin.

    Parameters
    ----------
    place : str
        The file, and the member of it.
    shape : tuple of int
        Of all of it.
    dtype : dtype
        As stored.
    fortran : bool
        Whether columns, not rows, lie together.
    begin : int
        Bytes before the first value.
    """

    place: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool = False
    begin: int = 0

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.shape[0]

    @property
    def bytes(self) -> int:
        """Of all values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def mapped(self, path: Path) -> Array:
        """The values as a map of the file: read when they are touched."""
        order = "F" if self.fortran else "C"
        with foreign(path, ".npy file"):
            values = np.memmap(path, self.dtype, "r", self.begin, self.shape, order)  # type: ignore[call-overload]
            return np.asarray(values)


def npy_header(path: Path) -> ArrayHeader:
    """Read the header of an .npy file."""
    with foreign(path, ".npy file"), open(path, "rb") as file:
        return _header(file, str(path), os.fstat(file.fileno()).st_size)


def npz_headers(path: Path) -> dict[str, ArrayHeader]:
    """Read the headers of all arrays in an .npz file, by name."""
    found = {}
    with foreign(path, ".npz file"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as file:
                found[name] = _header(file, f"{path}, array {name!r}", member.file_size)
    return found


def _header(file: IO[bytes], place: str, size: int) -> ArrayHeader:
    """Read the header of a stored array of ``size`` bytes; refuse one that is cut short."""
    found = stored(file, place)
    if not found.shape:
        raise InputError(f"{place} is a single value; give an array with one row a point.")
    header = ArrayHeader(place, found.shape, found.dtype, found.fortran, file.tell())
    if size < header.begin + header.bytes:
        raise DamagedFileError(
            f"{place} is cut short: {size} of {header.begin + header.bytes} bytes are there; copy "
            "or make it again."
        )
    return header

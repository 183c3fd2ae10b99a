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
from bicore.sources.failures import unreadable
from bicore.sources.stored import stored

_FAILURES = (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError)


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
        try:
            values = np.memmap(path, self.dtype, "r", self.begin, self.shape, order)  # type: ignore[call-overload]
        except _FAILURES as error:
            raise unreadable(path, ".npy file", error) from error
        return np.asarray(values)


def npy_header(path: Path) -> ArrayHeader:
    """Of an .npy file; one cut short is refused here already."""
    try:
        with open(path, "rb") as file:
            header = _header(file, str(path))
            size = os.fstat(file.fileno()).st_size
    except InputError:
        raise
    except _FAILURES as error:
        raise unreadable(path, ".npy file", error) from error
    if size < header.begin + header.bytes:
        raise DamagedFileError(
            f"{path} is cut short: {size} of {header.begin + header.bytes} bytes are there; copy "
            "or make it again."
        )
    return header


def npz_headers(path: Path) -> dict[str, ArrayHeader]:
    """Of all arrays in an .npz file, by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = {}
            for member in archive.namelist():
                with archive.open(member) as file:
                    name = member.removesuffix(".npy")
                    found[name] = _header(file, f"{path}, array {name!r}")
            return found
    except InputError:
        raise
    except _FAILURES as error:
        raise unreadable(path, ".npz file", error) from error


def _header(file: IO[bytes], place: str) -> ArrayHeader:
    found = stored(file, place)
    if not found.shape:
        raise InputError(f"{place} is a single value; give an array with one row a point.")
    return ArrayHeader(place, found.shape, found.dtype, found.fortran, file.tell())

"""Arrays as NumPy stores them: what the header says is checked before a value is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from bicore.data import Array
from bicore.errors import InputError
from bicore.sources.reading import NUMBER, Reading

#: The first version whose header may be longer than 64 KiB; later ones are read alike.
_LONG = (2, 0)
#: Bytes that are read at a time: of a size that is not true only what is there is ever touched.
_BLOCK = 2**24


@dataclass(frozen=True)
class Stored:
    """The header of an array, in a stream that stands at its first value."""

    place: str
    stream: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool

    def read(self, reading: Reading) -> Array:
        """The values, of the first rows where there is a limit."""
        shape = self.shape
        # Rows lie one after the other unless columns do.
        if shape and reading.limit is not None and not self.fortran:
            shape = (min(shape[0], reading.limit), *shape[1:])
        count = math.prod(shape)
        reading.allowance.need(
            count * max(self.dtype.itemsize, NUMBER if self.dtype.kind in "biu" else 0),
            f"{self.place} of shape {'×'.join(map(str, shape))}",
        )
        values = np.frombuffer(self._bytes(count * self.dtype.itemsize), self.dtype, count)
        found = values.reshape(shape, order="F" if self.fortran else "C")
        return found[: reading.limit] if shape else found

    def _bytes(self, size: int) -> Array:
        found = np.empty(size, dtype=np.uint8)
        filled = 0
        while filled < size:
            block = self.stream.read(min(_BLOCK, size - filled))
            if not block:
                raise InputError(
                    f"{self.place} is cut short: {filled} of the {size} bytes that its header "
                    "promises are there; copy or make it again."
                )
            found[filled : filled + len(block)] = np.frombuffer(block, dtype=np.uint8)
            filled += len(block)
        return found


def stored(stream: IO[bytes], place: str) -> Stored:
    """What a header says; one of pickled objects is refused."""
    version = npy_format.read_magic(stream)
    read = npy_format.read_array_header_1_0 if version < _LONG else npy_format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise InputError(
            f"{place} holds pickled Python objects, which are never loaded: they can run code; "
            "save plain numbers or text (np.save(file, array.astype(…)))."
        )
    if any(size < 0 for size in shape) or not dtype.itemsize:
        raise ValueError(f"a shape of {shape} and values of {dtype.itemsize} bytes")
    return Stored(place, stream, tuple(shape), dtype, fortran)

"""Bytes of a file, unpacked where its ending says that it is packed; or of standard input."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bicore.sources.arrow import arrow

#: How packed files end, and what pyarrow calls the way.
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@contextmanager
def opened(path: Path | None) -> Iterator[IO[bytes]]:
    """A stream to read from; never more is unpacked than is read."""
    if path is None:
        yield sys.stdin.buffer
        return
    with open(path, "rb") as file:
        way = PACKED.get(path.suffix.lower())
        if way is None:
            yield file
            return
        with arrow().CompressedInputStream(file, way) as stream:
            yield io.BufferedReader(Unread(b"", stream))  # type: ignore[type-var]


class Unread(io.RawIOBase):
    """A stream some of which was read already, and is put back before it."""

    def __init__(self, before: bytes, rest: IO[bytes]) -> None:
        self._before = before
        self._rest = rest

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, room: bytearray) -> int:  # type: ignore[override]  # as io calls it
        """Fill some bytes; 0 at the end."""
        if self._before:
            part, self._before = self._before[: len(room)], self._before[len(room) :]
        else:
            part = self._rest.read(len(room))
        room[: len(part)] = part
        return len(part)

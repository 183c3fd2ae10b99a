"""A Gram matrix on disk, tile by tile, resumable.

Room is reserved before any work and tiles are written, not mapped: a disk that is full is an error
with a name, never a signal. A stripe of the upper triangle counts as done when its digest is noted;
a later run reads it back and computes again what does not hold. The lower triangle is mirrored at
the end.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore.cli.telling import tell
from bicore.data import Array, as_tensor
from bicore.files import hold, open_own, replace_keeping_mode, replacing, sync_folder
from bicore.kernels.base import Kernel
from bicore.runtime import Clock, Runtime, Step, human_bytes, wide

#: Rows of a tile, and of the matrix between two notes of progress on disk.
ROWS = 500
#: Version of the note beside an unfinished matrix; one of another version is not believed.
FORMAT = 2


def part_of(out: Path) -> Path:
    """The unfinished matrix."""
    return out.with_name(f".{out.name}.part")


def _beside(out: Path, kind: str) -> Path:
    return out.with_name(f".{out.name}.{kind}")


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Nobody else computes this file meanwhile."""
    place = _beside(out, "lock")
    handle = hold(place, f"--out {out}", "give another --out")
    try:
        yield
    finally:
        place.unlink(missing_ok=True)  # before it is let go of: who waits for it looks again
        os.close(handle)


def compute(
    kernel: Kernel, x: Any, out: Path, job: dict[str, Any], runtime: Runtime, progress: Any
) -> float:
    """The matrix of some points in ``out``; seconds."""
    clock = Clock()
    # points stay with the host, tiles go to the device
    points = as_tensor(x).to(runtime.torch_dtype)
    note = Note(_beside(out, "json"), {**job, "format": FORMAT, "rows": ROWS})
    with _opened(part_of(out), len(points), np.dtype(runtime.dtype), note) as matrix:
        known = note.verified(matrix)
        stripes = [top for top in matrix.starts() if top not in known]
        for count, top in enumerate(stripes):
            note.add(top, _stripe(kernel, points, top, matrix, runtime.torch_device))
            if callable(progress):
                progress(_step(stripes, count + 1, matrix.n, clock.seconds))
        for top in matrix.starts():
            for left in matrix.starts(top + ROWS):
                matrix.write(left, top, matrix.read(top, left).T)
    replace_keeping_mode(part_of(out), out)
    sync_folder(out.parent)
    note.place.unlink(missing_ok=True)
    return clock.seconds


def _stripe(kernel: Kernel, points: torch.Tensor, top: int, matrix: Matrix, device: Any) -> str:
    """Compute and write the tiles from the diagonal to the right; their digest."""
    rows = points[top : top + ROWS].to(device)
    first = kernel.gram(rows).cpu().numpy().copy()
    np.fill_diagonal(first, kernel.diag(rows).cpu().numpy())
    digest = hashlib.sha256()
    for left in matrix.starts(top):
        tile = first
        if left > top:
            with wide(math.inf):
                there = points[left : left + ROWS].to(device)
                tile = kernel.evaluate(rows, there).cpu().numpy()
        tile = np.ascontiguousarray(tile, matrix.dtype)
        matrix.write(top, left, tile)
        digest.update(tile.tobytes())
    os.fsync(matrix.handle)
    return digest.hexdigest()


def _step(stripes: list[int], done: int, n: int, seconds: float) -> Step:
    """Rows done, and the time left by the areas of the stripes: each is shorter than the last."""
    areas = [n - top for top in stripes]
    left = seconds / sum(areas[:done]) * sum(areas[done:])
    rows = n - sum(min(ROWS, n - top) for top in stripes[done:])
    return Step(rows, n, float("nan"), seconds, left)


@dataclass(frozen=True)
class Matrix:
    """A square matrix in an open ``.npy`` file."""

    handle: int
    n: int
    dtype: np.dtype[Any]
    #: Bytes before the first number.
    offset: int

    def starts(self, first: int = 0) -> range:
        """Where stripes begin."""
        return range(first, self.n, ROWS)

    def read(self, top: int, left: int) -> Array:
        """A tile; rows of it that are not in the file are an error."""
        height, width = min(ROWS, self.n - top), min(ROWS, self.n - left)
        size = width * self.dtype.itemsize
        rows = [os.pread(self.handle, size, self._at(top + row, left)) for row in range(height)]
        return np.frombuffer(b"".join(rows), self.dtype).reshape(height, width)

    def write(self, top: int, left: int, tile: Array) -> None:
        for row, numbers in enumerate(tile):
            _write(self.handle, np.ascontiguousarray(numbers).tobytes(), self._at(top + row, left))

    def _at(self, row: int, column: int) -> int:
        return self.offset + (row * self.n + column) * self.dtype.itemsize


@dataclass
class Note:
    """Which stripes are on disk, by their digests."""

    place: Path
    job: dict[str, Any]

    def __post_init__(self) -> None:
        self.digests: dict[str, str] = {}

    def read(self) -> bool:
        """Take over what an earlier run of the same job noted; whether there was any."""
        try:
            stored = json.loads(self.place.read_text())
            digests = dict(stored.pop("digests"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False
        if stored != self.job:
            return False
        self.digests = digests
        return True

    def verified(self, matrix: Matrix) -> set[int]:
        """Stripes that are on disk as they were written; the others are forgotten."""
        known = set()
        for top in matrix.starts():
            noted = self.digests.get(str(top))
            if noted is None:
                continue
            if noted == _digest(matrix, top):
                known.add(top)
            else:
                del self.digests[str(top)]
                tell(f"bicore: rows from {top} on are damaged on disk; they are computed again.")
        return known

    def add(self, top: int, digest: str) -> None:
        """Note a stripe, so that it holds whatever happens next."""
        self.digests[str(top)] = digest
        with replacing(self.place) as beside:
            beside.write_text(json.dumps(self.job | {"digests": self.digests}))


def _digest(matrix: Matrix, top: int) -> str:
    digest = hashlib.sha256()
    for left in matrix.starts(top):
        digest.update(matrix.read(top, left).tobytes())
    return digest.hexdigest()


@contextmanager
def _opened(part: Path, n: int, dtype: np.dtype[Any], note: Note) -> Iterator[Matrix]:
    """The unfinished matrix with room for all of it; without a stripe a failure leaves nothing."""
    head = io.BytesIO()
    shape = {"descr": dtype.str, "fortran_order": False, "shape": (n, n)}
    np.lib.format.write_array_header_1_0(head, shape)
    header = head.getvalue()
    size = len(header) + n * n * dtype.itemsize
    handle = open_own(part)
    try:
        found = os.fstat(handle).st_size == size and os.pread(handle, len(header), 0) == header
        if not (found and note.read()):
            note.place.unlink(missing_ok=True)
            os.ftruncate(handle, 0)
            _reserve(handle, size, part)
            _write(handle, header, 0)
        yield Matrix(handle, n, dtype, len(header))
        os.fsync(handle)
    except OSError as error:
        if not note.digests:
            part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(error.filename or part)) from error
    finally:
        os.close(handle)


def _reserve(handle: int, size: int, place: Path) -> None:
    """Take the room now, or say that there is none."""
    room = os.statvfs(place.parent)
    free = room.f_bavail * room.f_frsize
    try:
        if free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with suppress(AttributeError):  # a system without it finds out when it writes
            os.posix_fallocate(handle, 0, size)
    except OSError as error:
        words = f"{error.strerror}: {human_bytes(size)} are needed, {human_bytes(free)} are free"
        raise OSError(error.errno, words, str(place)) from error


def _write(handle: int, content: bytes, place: int) -> None:
    while content:
        written = os.pwrite(handle, content, place)
        content, place = content[written:], place + written

"""A kernel matrix on disk, computed in tiles, that continues after an interrupt.

Space is reserved before any work, and tiles are written, not mapped: a full disk is an error with a
name, never a signal. A stripe of the upper triangle is complete once its digest is recorded. A
later run reads it back and computes it again if the digest differs. The lower triangle is mirrored
at the end.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bicore.cli.terminal import tell
from bicore.data import Array, as_tensor
from bicore.files import hold, open_own, replace_keeping_mode, replacing, sync_folder
from bicore.kernels.base import Kernel
from bicore.runtime import Clock, Runtime, Step, human_bytes, wide

#: Rows of a tile, and of a stripe.
ROWS = 500
#: Version of the record of an unfinished matrix.
FORMAT = 2


def part_of(out: Path) -> Path:
    """The unfinished matrix."""
    return _neighbour(out, "part")


def _neighbour(out: Path, kind: str) -> Path:
    return out.with_name(f".{out.name}.{kind}")


@contextmanager
def lock(out: Path) -> Iterator[None]:
    """Keep other processes from computing the same file."""
    place = _neighbour(out, "lock")
    handle = hold(place, f"--out {out}", "give another --out")
    try:
        yield
    finally:
        place.unlink(missing_ok=True)  # before it is released: a waiting process looks again
        os.close(handle)


def compute(
    kernel: Kernel, x: Any, out: Path, job: dict[str, Any], runtime: Runtime, progress: Any
) -> float:
    """Write the matrix of some points to ``out``; the seconds it took."""
    clock = Clock()
    points = as_tensor(x).to(runtime.torch_dtype)  # on the host; tiles go to the device
    record = Record(_neighbour(out, "json"), {**job, "format": FORMAT, "rows": ROWS})
    with _open(part_of(out), len(points), np.dtype(runtime.dtype), record) as matrix:
        known = record.verified(matrix)
        missing = [top for top in matrix.starts() if top not in known]
        for count, top in enumerate(missing, 1):
            record.add(top, _compute_stripe(kernel, points, top, matrix, runtime.torch_device))
            if callable(progress):
                progress(_step(missing, count, matrix.n, clock.seconds))
        for top in matrix.starts():
            for left in matrix.starts(top + ROWS):
                matrix.write(left, top, matrix.read(top, left).T)
    replace_keeping_mode(part_of(out), out)
    sync_folder(out.parent)
    record.path.unlink(missing_ok=True)
    return clock.seconds


def _compute_stripe(
    kernel: Kernel, points: torch.Tensor, top: int, matrix: Matrix, device: Any
) -> str:
    """Write the tiles from the diagonal to the right; their digest."""
    rows = points[top : top + ROWS].to(device)
    first = kernel.gram(rows).cpu().numpy().copy()
    np.fill_diagonal(first, kernel.diag(rows).cpu().numpy())
    matrix.write(top, top, first)
    for left in matrix.starts(top + ROWS):
        with wide(math.inf):
            tile = kernel.evaluate(rows, points[left : left + ROWS].to(device))
        matrix.write(top, left, tile.cpu().numpy())
    os.fsync(matrix.handle)
    return matrix.digest(top)


def _step(stripes: list[int], done: int, n: int, seconds: float) -> Step:
    """Rows done, and the time left by the areas of the stripes: each is shorter than the last."""
    areas = [n - top for top in stripes]
    left = seconds / sum(areas[:done]) * sum(areas[done:])
    rows = n - sum(min(ROWS, n - top) for top in stripes[done:])
    return Step(rows, n, float("nan"), seconds, left)


@dataclass(frozen=True)
class Matrix:
    """A square matrix in an open ``.npy`` file whose numbers start at ``offset``."""

    handle: int
    n: int
    dtype: np.dtype[Any]
    offset: int

    def starts(self, first: int = 0) -> range:
        """The first rows of the stripes."""
        return range(first, self.n, ROWS)

    def read(self, top: int, left: int) -> Array:
        """A tile; rows that the file does not hold are an error."""
        height, width = min(ROWS, self.n - top), min(ROWS, self.n - left)
        size = width * self.dtype.itemsize
        rows = [os.pread(self.handle, size, self._at(top + row, left)) for row in range(height)]
        return np.frombuffer(b"".join(rows), self.dtype).reshape(height, width)

    def write(self, top: int, left: int, tile: Array) -> None:
        """Write a tile."""
        for row, numbers in enumerate(np.ascontiguousarray(tile, self.dtype)):
            _write(self.handle, numbers.tobytes(), self._at(top + row, left))

    def digest(self, top: int) -> str:
        """The digest of a stripe as it is on disk."""
        found = hashlib.sha256()
        for left in self.starts(top):
            found.update(self.read(top, left).tobytes())
        return found.hexdigest()

    def _at(self, row: int, column: int) -> int:
        return self.offset + (row * self.n + column) * self.dtype.itemsize


@dataclass
class Record:
    """The complete stripes of a job, by their digests."""

    path: Path
    job: dict[str, Any]
    digests: dict[str, str] = field(default_factory=dict)

    def read(self) -> bool:
        """Read the record of an earlier run; whether there is one of the same job."""
        try:
            stored = json.loads(self.path.read_text())
            digests = dict(stored.pop("digests"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False
        if stored != self.job:
            return False
        self.digests = digests
        return True

    def verified(self, matrix: Matrix) -> set[int]:
        """The stripes whose digests hold; the others are forgotten."""
        for top in [one for one in matrix.starts() if str(one) in self.digests]:
            if self.digests[str(top)] != matrix.digest(top):
                del self.digests[str(top)]
                tell(f"bicore: rows from {top} on are damaged on disk; they are computed again.")
        return set(map(int, self.digests))

    def add(self, top: int, digest: str) -> None:
        """Write a stripe's digest to the disk."""
        self.digests[str(top)] = digest
        with replacing(self.path) as temporary:
            temporary.write_text(json.dumps(self.job | {"digests": self.digests}))


@contextmanager
def _open(part: Path, n: int, dtype: np.dtype[Any], record: Record) -> Iterator[Matrix]:
    """The unfinished matrix; a failure before the first stripe leaves no file."""
    head = io.BytesIO()
    shape = {"descr": dtype.str, "fortran_order": False, "shape": (n, n)}
    np.lib.format.write_array_header_1_0(head, shape)
    header = head.getvalue()
    size = len(header) + n * n * dtype.itemsize
    handle = open_own(part)
    try:
        found = os.fstat(handle).st_size == size and os.pread(handle, len(header), 0) == header
        if not (found and record.read()):
            record.path.unlink(missing_ok=True)
            os.ftruncate(handle, 0)
            _reserve(handle, size, part)
            _write(handle, header, 0)
        yield Matrix(handle, n, dtype, len(header))
        os.fsync(handle)
    except OSError as error:
        if not record.digests:
            part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(error.filename or part)) from error
    finally:
        os.close(handle)


def _reserve(handle: int, size: int, place: Path) -> None:
    """Reserve the space of the file, or raise an error that says how much is free."""
    disk = os.statvfs(place.parent)
    free = disk.f_bavail * disk.f_frsize
    try:
        if free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with suppress(AttributeError):  # systems without it fail when they write
            os.posix_fallocate(handle, 0, size)
    except OSError as error:
        words = f"{error.strerror}: {human_bytes(size)} are needed, {human_bytes(free)} are free"
        raise OSError(error.errno, words, str(place)) from error


def _write(handle: int, content: bytes, place: int) -> None:
    while content:
        written = os.pwrite(handle, content, place)
        content, place = content[written:], place + written

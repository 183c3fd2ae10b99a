"""NumPy's files: .npy and .npz, in parts or loaded; headers are checked before values are read."""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from bicore._deprecated import renamed_keywords
from bicore.data import Array, Dataset
from bicore.errors import DamagedFileError, InputError, check_integer
from bicore.sources import parts
from bicore.sources.base import Source
from bicore.sources.parts import PART_ROWS, Chunk, Part, Shard, ShardSource
from bicore.sources.reading import (
    NUMBER,
    Files,
    Reading,
    common_name,
    find_files,
    report_unreadable,
)

#: Words for the roles of arrays.
_ROLES = {"x": "features", "y": "labels", "weight": "weights"}
#: First bytes of a file with one array, and of an archive.
_ONE, _SEVERAL = b"\x93NUMPY", b"PK"
#: The first version of .npy with headers above 64 KiB; later ones are read alike.
_LONG = (2, 0)
#: Bytes read at a time, so that a false size in a header takes no memory.
_BLOCK = 2**24


@dataclass(frozen=True)
class StoredArray:
    """The header of an array in an .npy file, or of a name in an .npz file."""

    path: Path
    name: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool
    #: Bytes before the first value, bytes in all, and rows in earlier shards.
    begin: int
    size: int
    before: int = 0

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def place(self) -> str:
        """The file and the array, for errors."""
        return str(self.path) if self.name is None else f"{self.path}, array {self.name!r}"

    def read(self, stream: IO[bytes]) -> Array:
        """Read all values from a stream positioned at the first one."""
        found = np.empty(math.prod(self.shape) * self.dtype.itemsize, dtype=np.uint8)
        filled = 0
        while filled < len(found):
            count = stream.readinto(found[filled : filled + _BLOCK])  # type: ignore[attr-defined]
            if not count:
                raise self._cut_short(filled, len(found))
            filled += count
        stream.read(1)  # an archive compares checksums at the end of a member
        return found.view(self.dtype).reshape(self.shape, order="F" if self.fortran else "C")

    def check_rows(self) -> StoredArray:
        """Refuse a single value, and a truncated file or member."""
        if not self.shape:
            raise InputError(f"{self.place} is a single value; give an array of rows.")
        needed = self.begin + math.prod(self.shape) * self.dtype.itemsize
        if self.size < needed:
            raise self._cut_short(self.size, needed)
        return self

    def _cut_short(self, there: int, size: int) -> DamagedFileError:
        wrong = f"{self.place} is truncated: it has {there} of {size} bytes"
        return DamagedFileError(f"{wrong}; copy or write it again.")


def _read_header(stream: IO[bytes], path: Path, name: str | None, size: int) -> StoredArray:
    """Read a header; pickled objects are refused."""
    version = npy_format.read_magic(stream)
    read = npy_format.read_array_header_1_0 if version < _LONG else npy_format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    found = StoredArray(path, name, tuple(shape), dtype, fortran, stream.tell(), size)
    if dtype.hasobject:
        held = f"{found.place} holds pickled Python objects, which can run code"
        raise InputError(f"{held}; save plain numbers or text (np.save(file, array.astype(…))).")
    if any(size < 0 for size in shape) or not dtype.itemsize:
        raise ValueError(f"a shape of {shape} and values of {dtype.itemsize} bytes")
    return found


@contextmanager
def open_npz(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Open an .npz file, with its arrays by name; errors inside name the file."""
    with report_unreadable(path, ".npz file"), open(path, "rb") as file:
        if file.read(len(_ONE)) == _ONE:
            raise InputError(f"{path} has the ending .npz and holds a single array; name it .npy.")
        with zipfile.ZipFile(file) as archive:
            yield archive, {one.filename.removesuffix(".npy"): one for one in archive.infolist()}


@contextmanager
def open_array(path: Path, name: str | None = None) -> Iterator[tuple[IO[bytes], StoredArray]]:
    """Open an array: a stream at its first value, and its header."""
    if name is None:
        with report_unreadable(path, ".npy file"), open(path, "rb") as file:
            if file.read(len(_SEVERAL)) == _SEVERAL:
                raise InputError(f"{path} has the ending .npy and holds an archive; name it .npz.")
            file.seek(0)
            yield file, _read_header(file, path, None, os.fstat(file.fileno()).st_size)
        return
    with open_npz(path) as (archive, members):
        if name not in members:
            names = (one if one.isprintable() else ascii(one) for one in members)
            held = ", ".join(names) or "nothing"
            lacks = f"{path} has no array {name!r}; it holds {held}"
            more = "" if name in ("x", "y") else f", {name}=…"
            fix = f"Save the features as x and the labels as y: np.savez(file, x=…, y=…{more})"
            fix += ", or give --labels FILE.npy" * (name == "y")
            raise InputError(f"{lacks}. {fix}.")
        with archive.open(members[name]) as stream:
            yield stream, _read_header(stream, path, name, members[name].file_size)


def read_header(path: Path, name: str | None = None) -> StoredArray:
    """Read the header of an array with rows; a truncated file is refused."""
    with open_array(path, name) as (_, header):
        return header.check_rows()


def load_array(path: Path, reading: Reading, name: str | None = None) -> Array:
    """Load the first rows of an .npy file, or of an array of an .npz file."""
    with open_array(path, name) as (stream, header):
        limit, shape = reading.limit, header.shape
        if shape and limit is not None and not header.fortran:  # otherwise columns are contiguous
            header = replace(header, shape=(min(len(header), limit), *shape[1:]))
        width = max(header.dtype.itemsize, NUMBER if header.dtype.kind in "biu" else 0)
        shown = "×".join(map(str, header.shape))
        size = math.prod(header.shape) * width
        reading.allowance.require(size, f"{header.place} of shape {shown}")
        values = header.read(stream)
        return values[:limit] if shape else values


class _StoredShards(ShardSource):
    """Shards of stored arrays: features, labels and weights of each shard."""

    def __init__(self, name: str, words: str, arrays: list[dict[str, StoredArray]]) -> None:
        super().__init__(name)
        self._arrays = arrays
        self._words = words
        _ = self.shards  # refuses files that do not agree

    def describe_shards(self) -> Iterator[Shard]:
        for number, arrays in enumerate(self._arrays):
            for role, one in arrays.items():
                parts.check_dtype(one.dtype, one.place, _ROLES[role])
            if "weight" in arrays and arrays["weight"].shape[1:]:
                raise InputError(f"{arrays['weight'].place} must hold one number per row.")
            x = arrays["x"]
            yield parts.describe(str(x.path), x, arrays.get("y"), number=number)

    def read(self, part: Part) -> Chunk:
        arrays = self._arrays[part.shard.number]
        rows = {role: _read_rows(one, part) for role, one in arrays.items()}
        x = rows["x"].reshape(part.count, *self.shape)
        return parts.make_chunk(x, rows.get("y"), rows.get("weight"))

    def fingerprint(self) -> str:
        paths = [arrays[role].path for role in _ROLES for arrays in self._arrays if role in arrays]
        return parts.digest_files(self._words, list(dict.fromkeys(paths)))


def _read_rows(known: StoredArray, part: Part) -> Array:
    with open_array(known.path, known.name) as (stream, now):
        if (now.shape, now.dtype) != (known.shape, known.dtype):
            was, found = (f"{one.shape} {one.dtype}" for one in (known, now))
            raise parts.changed_error(known.place, was, found)
        if now.name is not None:
            values = now.read(stream)
        else:  # mapped, and read on access
            order = "F" if now.check_rows().fortran else "C"
            values = np.memmap(now.path, now.dtype, "r", now.begin, now.shape, order)  # type: ignore[call-overload]
    return np.asarray(values)[known.before + part.offset :][: part.count]


class NpyShards(_StoredShards):
    """Rows in one or several .npy files, with labels and weights in other files."""

    @renamed_keywords()
    def __init__(
        self,
        files: Files,
        labels: Files | None = None,
        sample_weight: Files | None = None,
        part_rows: int = PART_ROWS,
    ) -> None:
        self.part_rows = check_integer("part_rows", part_rows)
        columns = {"x": [read_header(path) for path in find_files(files, (".npy",))]}
        for role, given in (("y", labels), ("weight", sample_weight)):
            if given is not None:
                columns[role] = _pair(columns["x"], _ROLES[role], given)
        shards = zip(*columns.values(), strict=True)
        arrays = [dict(zip(columns, shard, strict=True)) for shard in shards]
        counts = [len({one.path for one in columns.get(role, ())}) for role in _ROLES]
        super().__init__(common_name([one.path for one in columns["x"]]), f"npy {counts}", arrays)


def _pair(x: list[StoredArray], argument: str, files: Files) -> list[StoredArray]:
    """Return the labels or weights of each shard: one file per shard, or one for all rows."""
    found = [read_header(path) for path in find_files(files, (".npy",), argument)]
    counts = [one.shape[0] for one in x]
    if len(found) == 1:
        _check_count(found[0], sum(counts))
        starts = accumulate(counts[:-1], initial=0)
        return [replace(found[0], before=start) for start in starts]
    if len(found) != len(x):
        known = {_numbers(one) for one in found}
        alone = next((f" ({one.place} has none)" for one in x if _numbers(one) not in known), "")
        both = f"{argument}: {len(found)} files for {len(x)} files of features{alone}"
        raise InputError(f"{both}; give one for each, in their order, or one for all rows.")
    return [_check_count(one, rows) for one, rows in zip(found, counts, strict=True)]


def _numbers(header: StoredArray) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+", header.path.stem))


def _check_count(one: StoredArray, rows: int) -> StoredArray:
    if one.shape[0] != rows:
        here = f"{one.place} has {one.shape[0]} rows, and the features have {rows}"
        raise InputError(f"{here}; give one value for each row.")
    return one


class NpzShards(_StoredShards):
    """Rows in .npz files: features x, and optionally labels y and weights.

    A file is a part; sizes come from headers.
    """

    @renamed_keywords()
    def __init__(self, files: Files, sample_weight: str = "weight") -> None:
        paths = find_files(files, (".npz",))
        arrays = []
        for path in paths:
            x = read_header(path, "x")
            arrays.append({"x": x})
            for role, name in (("y", "y"), ("weight", sample_weight)):
                if name in member_names(path):
                    arrays[-1][role] = _check_count(read_header(path, name), len(x))
        super().__init__(common_name(paths), f"npz {sample_weight}", arrays)
        lacking = [one["x"].path for one in arrays if len(one["x"]) and "weight" not in one]
        if lacking and (len(lacking) < len(self.shards) or sample_weight != "weight"):
            lacks = f"{lacking[0]} has no array {sample_weight!r}"
            raise InputError(f"{lacks}; every file needs its weights, or none.")


def member_names(path: Path) -> set[str]:
    """Return the names of the arrays of an .npz file."""
    with open_npz(path) as (_, members):
        return set(members)


def load_arrays(path: Path, reading: Reading) -> Source:
    """Load arrays x and y of an .npz file, or an .npy file; labels may have their own file.

    A sparse matrix in an .npz file, as scipy writes it, replaces x.
    """
    y = weight = None
    single = path.suffix.lower() == ".npy"
    if single and reading.labels is None and reading.needs_target:
        raise InputError(f"{path} holds features only; give the labels with --labels FILE.npy.")
    names = set() if single else member_names(path)
    if "x" not in names and "format" in names:  # of scipy.sparse.save_npz
        x = _load_sparse(path, reading)
    else:
        x = load_array(path, reading, None if single else "x")
    if reading.labels is not None:
        y = load_array(Path(reading.labels), reading)
        if x.ndim and y.ndim and len(y) != len(x):
            here = f"{reading.labels} has {len(y)} rows, and {path} has {len(x)}"
            raise InputError(f"{here}; give one value for each row.")
    elif not single:
        y = load_array(path, reading, "y")
    if reading.sample_weight is not None:
        weight = load_array(path, reading, reading.sample_weight)
    # Vectors, such as embeddings, are not scaled; pixels are standardised.
    scale = "none" if x.ndim == 2 else "standard"
    return Source(path.name, Dataset(x, y, weight), scale, images=_images(x))


def _load_sparse(path: Path, reading: Reading) -> Array:
    """Load a sparse matrix as a dense array."""
    from scipy.sparse import load_npz

    with open_npz(path) as (_, members):
        reading.allowance.require(sum(one.file_size for one in members.values()), str(path))
        matrix = load_npz(path)
        if matrix.format != "csr":
            held = f"{path} holds a sparse matrix in the format {matrix.format!r}"
            fix = "store it by rows: scipy.sparse.save_npz(file, matrix.tocsr())"
            raise InputError(f"{held}; {fix}.")
        kept, width = min(matrix.shape[0], reading.limit or matrix.shape[0]), matrix.shape[1]
        what = f"{path}, a sparse matrix, written out as {kept}×{width} numbers,"
        reading.allowance.require(kept * width * NUMBER, what)
        matrix.check_format(full_check=True)  # places outside the matrix would be written to
        return np.asarray(matrix[:kept].toarray())


def _images(x: Array) -> Array | None:
    """Return images in 0 … 1 for a picture, if the array has their shape."""
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4 or x.shape[1] not in (1, 3) or not x.size or x.dtype.kind not in "biuf":
        return None
    low, high = float(x.min()), float(x.max())
    scaled = (x - low) / (high - low if high > low else 1.0)
    return scaled[:, 0] if x.shape[1] == 1 else scaled.transpose(0, 2, 3, 1)

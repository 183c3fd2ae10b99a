"""NumPy's files: .npy and .npz, in parts or loaded; headers are checked before values are read."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from bicore.data import Array, Dataset
from bicore.errors import DamagedFileError, InputError, check_integer
from bicore.sources.base import Source
from bicore.sources.files import Files, common_name, find_files, foreign
from bicore.sources.parts import (
    PART_ROWS,
    Chunk,
    KnownShards,
    Part,
    Shard,
    changed,
    check_labels,
    check_numbers,
    digest_files,
    kind_of,
    make_chunk,
)
from bicore.sources.reading import NUMBER, Allowance, Reading

#: First bytes of a file of one array and of an archive.
_ONE = b"\x93NUMPY"
_SEVERAL = b"PK"
#: The first version of .npy whose header may be longer than 64 KiB; later ones are read alike.
_LONG = (2, 0)
#: Bytes that are read at a time: a size that is a lie takes no more memory than there are bytes.
_BLOCK = 2**24
#: The arrays of ``scipy.sparse.save_npz``.
_SPARSE = ("data", "indices", "indptr", "shape", "format")


@dataclass(frozen=True)
class StoredArray:
    """The header of a stored array: its place in words, and the bytes before its first value."""

    place: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool
    begin: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def map(self, path: Path) -> Array:
        """Map the values of a file: they are read when they are touched."""
        order = "F" if self.fortran else "C"
        with foreign(path, ".npy file"):
            values = np.memmap(path, self.dtype, "r", self.begin, self.shape, order)  # type: ignore[call-overload]
            return np.asarray(values)

    def read(self, stream: IO[bytes], limit: int | None, allowance: Allowance | None) -> Array:
        """Read the first rows from a stream that stands at the first value."""
        shape = self.shape
        if shape and limit is not None and not self.fortran:  # else columns lie together
            shape = (min(shape[0], limit), *shape[1:])
        count = math.prod(shape)
        if allowance is not None:
            width = max(self.dtype.itemsize, NUMBER if self.dtype.kind in "biu" else 0)
            shown = "×".join(map(str, shape))
            allowance.need(count * width, f"{self.place} of shape {shown}")
        values = np.frombuffer(self._bytes(stream, count * self.dtype.itemsize), self.dtype, count)
        found = values.reshape(shape, order="F" if self.fortran else "C")
        return found[:limit] if shape else found

    def _bytes(self, stream: IO[bytes], size: int) -> Array:
        found = np.empty(size, dtype=np.uint8)
        filled = 0
        while filled < size:
            block = stream.read(min(_BLOCK, size - filled))
            if not block:
                raise _cut_short(self.place, filled, size)
            found[filled : filled + len(block)] = np.frombuffer(block, dtype=np.uint8)
            filled += len(block)
        return found


def _cut_short(place: str, there: int, size: int) -> DamagedFileError:
    return DamagedFileError(
        f"{place} is cut short: {there} of {size} bytes are there; copy or make it again."
    )


def read_header(stream: IO[bytes], place: str) -> StoredArray:
    """Read a header; pickled objects are refused."""
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
    return StoredArray(place, tuple(shape), dtype, fortran, stream.tell())


@contextmanager
def _open_npy(path: Path) -> Iterator[tuple[IO[bytes], StoredArray]]:
    """An .npy file that stands at its first value, and its header."""
    with foreign(path, ".npy file"), open(path, "rb") as file:
        if file.read(len(_SEVERAL)) == _SEVERAL:
            raise InputError(f"{path} is an archive of several arrays; rename it to .npz.")
        file.seek(0)
        yield file, read_header(file, str(path))


def npy_header(path: Path) -> StoredArray:
    """Read the header of an .npy file with rows; a file that is cut short is refused."""
    with _open_npy(path) as (file, header):
        _check_rows(header, os.fstat(file.fileno()).st_size)
        return header


def _check_rows(header: StoredArray, size: int) -> None:
    if not header.shape:
        raise InputError(f"{header.place} is a single value; give an array with one row a point.")
    if size < header.begin + header.size:
        raise _cut_short(header.place, size, header.begin + header.size)


class NpzFile:
    """An open .npz file whose arrays are read one by one."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self._members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def need(self, name: str) -> None:
        """Refuse a file without this array."""
        if name not in self:
            held = ", ".join(self._members) or "nothing"
            raise InputError(
                f"{self.path} has no array {name!r}; it holds {held} "
                "(np.savez(file, x=…, y=…) makes one, --labels FILE.npy gives labels)."
            )

    def header(self, name: str) -> StoredArray:
        """Read the header of an array with rows."""
        with self._open(name) as (_, header):
            _check_rows(header, self._members[name].file_size)
            return header

    def read(
        self, name: str, limit: int | None = None, allowance: Allowance | None = None
    ) -> Array:
        """Read the first rows of an array."""
        with self._open(name) as (stream, header):
            found = header.read(stream, limit, allowance)
            if limit is None:
                stream.read(1)  # the end of a member is where its checksum is compared
            return found

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[IO[bytes], StoredArray]]:
        self.need(name)
        with self._archive.open(self._members[name]) as stream:
            yield stream, read_header(stream, f"{self.path}, array {name!r}")


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """Open an .npz file; errors inside name the file."""
    with foreign(path, ".npz file"), open(path, "rb") as file:
        if file.read(len(_ONE)) == _ONE:
            raise InputError(
                f"{path} is a single array under the name .npz; rename it to .npy and give "
                "--labels."
            )
        with zipfile.ZipFile(file) as archive:
            yield NpzFile(path, archive)


class NpyShards(KnownShards):
    """Rows in one or several .npy files, with labels and weights in other files.

    Parameters
    ----------
    files : path, pattern or list of them
        Features: a file, a folder, or a pattern such as ``'x-*.npy'``, in the order of names;
        float16, float32 or float64, and integers, which are converted part by part.
    labels : path, pattern or list of them, optional
        As many files in the same order, or one for all rows.
    weight : path, pattern or list of them, optional
        As many files in the same order, or one for all rows.
    part_rows : int
        Rows that are read together.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(2):
    ...     np.save(folder / f"x-{number}.npy", np.full((5, 3), number, dtype=np.float16))
    ...     np.save(folder / f"y-{number}.npy", np.full(5, number))
    >>> source = NpyShards(folder / "x-*.npy", labels=folder / "y-*.npy")
    >>> source.rows, source.read(source.parts[1]).y.tolist()
    (10, [1, 1, 1, 1, 1])
    """

    def __init__(
        self,
        files: Files,
        labels: Files | None = None,
        weight: Files | None = None,
        part_rows: int = PART_ROWS,
    ) -> None:
        self.part_rows = check_integer("part_rows", part_rows)
        self._x = _Column.open("files", files)
        self._y = None if labels is None else _Column.open("labels", labels, self._x)
        self._weight = None if weight is None else _Column.open("weight", weight, self._x)
        super().__init__(common_name(self._x.paths))
        _ = self.shards  # files that do not agree are refused now

    def _look(self) -> Iterator[Shard]:
        for number, (path, x) in enumerate(zip(self._x.paths, self._x.headers, strict=True)):
            label = None
            if self._y is not None:
                y = self._y.headers[number if len(self._y.paths) > 1 else 0]
                label = kind_of(y.dtype), y.shape[1:]
            shape = x.shape[1:] or (1,)
            yield Shard(str(path), x.rows, shape, kind_of(x.dtype), label, path, number=number)

    def read(self, part: Part) -> Chunk:
        number = self.home(part).number
        columns = (self._x, self._y, self._weight)
        x, y, weight = (None if one is None else one.rows(number, part) for one in columns)
        assert x is not None
        return make_chunk(x.reshape(part.count, *self.shape), y, weight)

    def fingerprint(self) -> str:
        columns = (self._x, self._y, self._weight)
        counts = [0 if column is None else len(column.paths) for column in columns]
        paths = [path for column in columns if column is not None for path in column.paths]
        return digest_files(f"npy {counts}", paths)


@dataclass(frozen=True)
class _Column:
    """Features, labels or weights of all rows: a file for each shard, or one for all."""

    paths: tuple[Path, ...]
    headers: tuple[StoredArray, ...]

    @classmethod
    def open(cls, argument: str, files: Files, features: _Column | None = None) -> _Column:
        """Read the headers of the files and check that they belong to ``features``."""
        paths = find_files(files, (".npy",), argument)
        column = cls(paths, tuple(map(npy_header, paths)))
        for header in column.headers:
            (check_labels if argument == "labels" else check_numbers)(header.dtype, header.place)
            if argument == "weight" and len(header.shape) != 1:
                raise InputError(f"{header.place} has shape {header.shape}; give one weight a row.")
        if features is not None:
            column._check_pairs(argument, features)
        return column

    def _check_pairs(self, argument: str, features: _Column) -> None:
        counts = [header.rows for header in features.headers]
        if len(self.paths) == 1:
            counts = [sum(counts)]
        if len(self.paths) != len(counts):
            raise InputError(
                f"{argument}: {len(self.paths)} files for {len(counts)} files of features; give "
                "one for each, in the same order, or one for all rows."
            )
        for header, rows in zip(self.headers, counts, strict=True):
            if header.rows != rows:
                raise InputError(
                    f"{header.place} has {header.rows} rows and the features have {rows}; "
                    f"{argument} are needed row by row."
                )

    def rows(self, number: int, part: Part) -> Array:
        """Map the rows of a part of shard ``number``."""
        alone = len(self.paths) == 1
        place = 0 if alone else number
        path, known = self.paths[place], self.headers[place]
        header = npy_header(path)
        if (header.shape, header.dtype) != (known.shape, known.dtype):
            raise changed(
                str(path), f"{known.shape} {known.dtype}", f"{header.shape} {header.dtype}"
            )
        start = part.start if alone else part.offset
        return header.map(path)[start : start + part.count]


class NpzShards(KnownShards):
    """Rows in .npz files: features x, and if they are there labels y and weights.

    A file is a part; sizes come from headers.

    Parameters
    ----------
    files : path, pattern or list of them
        A file, a folder, or a pattern such as ``'part-*.npz'``, in the order of names.
    weight : str
        The array of weights; files may lack one of the default name.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.savez(folder / "part-0.npz", x=np.zeros((5, 3)), y=np.arange(5))
    >>> np.savez(folder / "part-1.npz", x=np.ones((2, 3)), y=np.arange(2))
    >>> source = NpzShards(folder)
    >>> [part.count for part in source.parts], source.labelled
    ([5, 2], True)
    """

    def __init__(self, files: Files, weight: str = "weight") -> None:
        self._paths = find_files(files, (".npz",))
        self._weight = weight
        #: Files with rows that have weights.
        self._weighted: set[Path] = set()
        super().__init__(common_name(self._paths))
        lacking = [one.place for one in self.shards if one.path not in self._weighted]
        if lacking and (self._weighted or weight != "weight"):
            raise InputError(
                f"{lacking[0]} has no array {weight!r}; every file needs its weights, or none."
            )

    def _look(self) -> Iterator[Shard]:
        for path in self._paths:
            with open_npz(path) as file:
                x = file.header("x")
                check_numbers(x.dtype, x.place)
                beside = {one: file.header(one) for one in ("y", self._weight) if one in file}
            for name, header in beside.items():
                check_labels(header.dtype, header.place)
                if header.rows != x.rows:
                    raise InputError(
                        f"{path} has {x.rows} rows in 'x' and {header.rows} in {name!r}; they are "
                        "needed row by row."
                    )
            if self._weight in beside and x.rows:
                self._weighted.add(path)
            y = beside.get("y")
            label = None if y is None else (kind_of(y.dtype), y.shape[1:])
            yield Shard(str(path), x.rows, x.shape[1:] or (1,), kind_of(x.dtype), label, path)

    def read(self, part: Part) -> Chunk:
        shard = self.home(part)
        assert shard.path is not None
        with open_npz(shard.path) as file:
            x = file.read("x")
            y = file.read("y") if self.labelled else None
            weight = file.read(self._weight) if self._weighted else None
        if len(x) != shard.rows or (x.shape[1:] or (1,)) != shard.shape:
            raise changed(shard.place, (shard.rows, *shard.shape), x.shape)
        return make_chunk(x.reshape(part.count, *shard.shape), y, weight)

    def fingerprint(self) -> str:
        paths = [shard.path for shard in self.shards if shard.path is not None]
        return digest_files(f"npz {self._weight}", paths)


def load_npz(path: Path, reading: Reading) -> Source:
    """Load arrays x and y, and one of weights if it is named.

    A sparse matrix as scipy writes it replaces x; labels may be in a file of their own.
    """
    limits = reading.limit, reading.allowance
    with open_npz(path) as file:
        sparse = "x" not in file and all(name in file for name in _SPARSE)
        needed = [] if sparse else ["x"]
        needed += ["y"] if reading.labels is None else []
        needed += [] if reading.weight is None else [reading.weight]
        for name in needed:
            file.need(name)
        x = _dense(file, reading) if sparse else file.read("x", *limits)
        y = file.read("y", *limits) if reading.labels is None else None
        weight = None if reading.weight is None else file.read(reading.weight, *limits)
    if reading.labels is not None:
        y = _load_array(Path(reading.labels), reading)
    return _source(path, x, y, weight)


def load_npy(path: Path, reading: Reading) -> Source:
    """Load a matrix of features and, from a file of its own, the labels."""
    if reading.labels is None:
        raise InputError(f"{path} holds features only; give the labels with --labels FILE.npy.")
    y = _load_array(Path(reading.labels), reading)
    return _source(path, _load_array(path, reading), y, None)


def _load_array(path: Path, reading: Reading) -> Array:
    with _open_npy(path) as (file, header):
        return header.read(file, reading.limit, reading.allowance)


def _dense(file: NpzFile, reading: Reading) -> Array:
    """Write out a sparse matrix with its zeros."""
    from scipy.sparse import csr_array

    parts = {name: file.read(name, None, reading.allowance) for name in _SPARSE}
    form = parts["format"].tobytes().decode("ascii", "replace").replace("\0", "")
    if form != "csr":
        raise InputError(
            f"{file.path} holds a sparse matrix by {form!r}; store it by rows: "
            "scipy.sparse.save_npz(file, matrix.tocsr())."
        )
    rows, width = (int(size) for size in parts["shape"])
    kept = min(rows, reading.limit or rows)
    what = f"{file.path}, a sparse matrix, written out as {kept}×{width} numbers,"
    reading.allowance.need(kept * width * NUMBER, what)
    matrix = csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=(rows, width))
    matrix.check_format(full_check=True)  # places outside the matrix would be written to
    return np.asarray(matrix[:kept].toarray())


def _source(path: Path, x: Array, y: Array | None, weight: Array | None) -> Source:
    # Vectors keep the scale of their maker, most often of an embedding; pixels are standardised.
    scale = "none" if x.ndim == 2 else "standard"
    return Source(path.name, Dataset(x, y, weight), scale, images=_images(x))


def _images(x: Array) -> Array | None:
    """Images in 0 … 1 for a picture, if the array has their shape."""
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4 or x.shape[1] not in (1, 3) or not x.size or x.dtype.kind not in "biuf":
        return None
    low, high = float(x.min()), float(x.max())
    scaled = (x - low) / (high - low if high > low else 1.0)
    return scaled[:, 0] if x.shape[1] == 1 else scaled.transpose(0, 2, 3, 1)

"""Rows in parts that can be read repeatedly: checked, and loaded if they fit in memory.

Arrays, iterables of chunks and Dask collections are read here, files in modules of their own.
Chunks of an iterable or of Dask are described once; when they are read again, a digest of a sample
of their rows is compared.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bicore import frames
from bicore._deprecated import renamed_keywords, renamed_methods
from bicore.data import Array, Dataset, as_features, as_labels
from bicore.errors import InputError, check_integer
from bicore.runtime.clock import checkpoint
from bicore.runtime.context import Runtime
from bicore.sources.reading import COPIES, NUMBER, common_folder

#: Default number of rows of a part: 32 MB of float16 at 256 columns.
PART_ROWS = 65536
#: Number of rows (or blocks of a file) sampled by a fingerprint.
SAMPLES = 64
#: Bytes per sample of a file; the beginning and the end are always sampled.
_BLOCK = 4096
_LEAST = 2
_LENGTH = 16
#: Integers of at most this many bytes are exact in float32.
_SHORT = 2
#: Words for NumPy's kinds of features and labels.
_KINDS = dict.fromkeys("iu", "integers") | dict.fromkeys("US", "text")
_KINDS |= {"b": "booleans", "f": "floats"}


@dataclass(frozen=True)
class Shard:
    """A file, row group or chunk, before its rows are read."""

    place: str
    rows: int
    shape: tuple[int, ...] = ()
    kind: str = ""
    label: tuple[str, tuple[int, ...]] | None = None
    path: Path | None = None
    offset: int = 0
    number: int = 0
    digest: str = ""

    @property
    def traits(self) -> dict[str, Any]:
        """Properties that all shards of a source must share."""
        kind, shape = self.label or ("missing", ())
        traits = {"rows of shape": self.shape, "features that are": self.kind}
        return {**traits, "labels that are": kind, "labels of shape": shape}


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a source that are read together."""

    number: int
    start: int
    count: int
    place: str = ""
    offset: int = 0
    #: The shard that contains all of its rows.
    shard: Shard = Shard("", 0)

    @property
    def stop(self) -> int:
        """Position after its last row."""
        return self.start + self.count


@dataclass(frozen=True, eq=False)
class Chunk:
    """The rows of a part."""

    x: Array
    y: Array | None = None
    weight: Array | None = None

    def __len__(self) -> int:
        return len(self.x)


@renamed_methods(look="describe_shards", told="extra_notes")
class ShardSource(ABC):
    """Rows in parts: the input of a selection of any size.

    A source describes its shards once, which must agree, and reads their rows part by part. It is
    small and can be sent to another process; it opens files when it reads. Positions of rows count
    from 0 over all parts in order.

    Parameters
    ----------
    name : str
        Name of the source in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.sources.parts import ArrayShards
    >>> len(ArrayShards(np.zeros((10, 2)), part_rows=4))
    10
    """

    #: Number of rows read together; None: a shard is a part.
    part_rows: int | None = None
    #: Notes on how the rows were encoded.
    extra_notes: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def describe_shards(self) -> Iterable[Shard]:
        """Describe all shards without keeping their rows.

        Returns
        -------
        iterable of Shard
            In the order of their rows.
        """

    @abstractmethod
    def read(self, part: Part) -> Chunk:
        """Read the rows of a part.

        Parameters
        ----------
        part : Part
            One of ``parts``.

        Returns
        -------
        Chunk
            As stored.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Return sixteen characters that identify the files and a sample of rows."""

    @cached_property
    def _all_shards(self) -> tuple[Shard, ...]:
        found = tuple(self.describe_shards())
        filled = [shard for shard in found if shard.rows]
        if not filled:
            raise InputError(f"{self.name}: there are no rows in {len(found)} shards; add some.")
        for shard, (what, here) in itertools.product(filled, filled[0].traits.items()):
            there = shard.traits[what]
            if here != there:
                both = f"{shard.place} has {what} {there} and {filled[0].place} {here}"
                raise InputError(f"{both}; leave one of them out, or make it again.")
        return found

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The shards that contain rows."""
        return tuple(shard for shard in self._all_shards if shard.rows)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """All parts in order, known without reading rows."""
        found: list[Part] = []
        start = 0
        for shard in self.shards:
            step = self.part_rows or shard.rows
            for first in range(0, shard.rows, step):
                count, offset = min(step, shard.rows - first), shard.offset + first
                found.append(Part(len(found), start, count, shard.place, offset, shard))
                start += count
        return tuple(found)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.shards[0].shape

    @property
    def labelled(self) -> bool:
        """Whether parts have labels."""
        return self.shards[0].label is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the source, including skipped empty shards."""
        empty = [shard.place for shard in self._all_shards if not shard.rows]
        more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        skipped = [f"{one}{more} has no rows and is skipped" for one in empty[:1]]
        return (*self.extra_notes, *skipped)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(shard.rows for shard in self.shards)

    def __len__(self) -> int:
        return self.rows


def changed_error(place: str, known: object, found: object) -> InputError:
    """Return the error for a shard that changed since the source was opened."""
    was = f"{place} changed since it was opened: it was {known} and is {found}"
    return InputError(f"{was}; put it back, or open the source again.")


def kind_of(dtype: np.dtype[np.generic]) -> str:
    """Return the kind of values of this dtype; "" if they can be neither feature nor label."""
    return _KINDS.get(dtype.kind, "")


def describe(place: str, x: Any, y: Any, **rest: Any) -> Shard:
    """Describe a shard by the shapes and dtypes of its features and labels."""
    label = None if y is None else (kind_of(y.dtype), y.shape[1:])
    return Shard(place, x.shape[0], x.shape[1:] or (1,), kind_of(x.dtype), label, **rest)


def check_dtype(dtype: np.dtype[np.generic], place: str, role: str = "features") -> None:
    """Refuse features and weights that are not numbers, and labels that are neither numbers nor
    text."""
    if not kind_of(dtype) or (role != "labels" and kind_of(dtype) == "text"):
        allowed = "numbers" if role != "labels" else "integers, text, booleans or floats"
        raise InputError(f"{place} holds {role} of dtype {dtype}; give {allowed}.")


def make_chunk(x: Array, y: Array | None, weight: Array | None) -> Chunk:
    """Return stored columns as a chunk: numbers as floats, labels unchanged, bytes as text."""
    if y is not None and y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8")
    return Chunk(as_floats(x), y, None if weight is None else as_floats(weight))


def as_floats(stored: Array) -> Array:
    """Return float16, float32 or float64 in native byte order, without a copy if possible.

    Integers of up to 16 bits become float32, longer ones float64.
    """
    if stored.dtype.kind in "biu":
        return stored.astype(np.float32 if stored.dtype.itemsize <= _SHORT else np.float64)
    size = min(stored.dtype.itemsize, np.dtype(np.float64).itemsize)
    return np.asarray(stored, dtype=np.dtype(f"=f{size}"))


def spread_positions(rows: int, samples: int = SAMPLES) -> Array:
    """Return evenly spaced positions from the first to the last row."""
    return np.unique(np.linspace(0, max(rows - 1, 0), min(samples, rows)).astype(np.int64))


def digest_files(words: str, files: Sequence[Path]) -> str:
    """Digest how files are read, their names, sizes and a sample of their bytes.

    Folders above the files and times are left out: a copy of the source is the same source.
    """
    digest = hashlib.sha256(words.encode())
    above = common_folder(files)
    blocks = max(_LEAST, SAMPLES // len(files))
    for path in files:
        try:
            size = os.path.getsize(path)
            digest.update(f"\n{path.relative_to(above).as_posix()} {size}\n".encode())
            with open(path, "rb", buffering=0) as file:
                for start in np.linspace(0, max(size - _BLOCK, 0), blocks).astype(int):
                    file.seek(int(start))
                    digest.update(file.read(_BLOCK))
        except OSError as error:
            lost = f"{path} cannot be read any more ({error.strerror})"
            raise InputError(f"{lost}; put it back, or start again without it.") from error
    return digest.hexdigest()[:_LENGTH]


def digest_columns(words: str, columns: Iterable[Array | None] = ()) -> str:
    """Digest words, and shapes, types and a sample of the rows of columns."""
    digest = hashlib.sha256(words.encode())
    for column in columns:
        if column is None:
            digest.update(b"none")
        else:
            digest.update(f"{column.dtype.str}{column.shape}".encode())
            digest.update(np.ascontiguousarray(column[spread_positions(len(column))]).tobytes())
    return digest.hexdigest()[:_LENGTH]


#: Number of rows checked at a time, so that the check needs no copy of a part.
_CHECKED_ROWS = 2048
#: The exponent of float16; all ones mean infinity or NaN. Reading bits is ten times as fast as
#: ``isfinite``, which converts each value.
_EXPONENT16 = 0x7C00


def check_values(chunk: Chunk, part: Part, skip_bad: bool = False) -> tuple[Chunk, int]:
    """Check that all values are finite, no label is missing and no weight is negative."""
    bad = np.zeros(len(chunk), dtype=bool)
    for name, column in vars(chunk).items():
        if column is not None:
            bad |= _bad_rows(column, name == "weight")
            if bad.any() and not skip_bad:
                raise _refusal(column, name, int(bad.argmax()), part)
    y = None if chunk.y is None else np.array(chunk.y) if bad.any() else np.asarray(chunk.y)
    if not bad.any():
        return replace(chunk, y=y), 0
    x = np.array(chunk.x)
    weight = np.ones(len(x)) if chunk.weight is None else np.array(chunk.weight)
    x[bad] = weight[bad] = 0
    if y is not None:
        # Bad rows get the label of a good one, so that no new class appears.
        y[bad] = y[np.argmin(bad)] if not bad.all() else np.zeros((), dtype=y.dtype)
    return Chunk(x, y, weight), int(bad.sum())


def _bad_rows(column: Array, weights: bool) -> Array:
    """Mark rows with missing or non-finite values, or negative weights."""
    found: Array = np.any(np.ma.getmaskarray(column).reshape(len(column), -1), axis=1)
    values = np.ma.getdata(column)
    for start in range(0, len(values) if values.dtype.kind == "f" else 0, _CHECKED_ROWS):
        block = values[start : start + _CHECKED_ROWS]
        if not _all_finite(block):
            finite = np.isfinite(block).reshape(len(block), -1)
            found[start : start + _CHECKED_ROWS] |= ~finite.all(axis=1)
    return found | (values < 0) if weights else found


def _all_finite(block: Array) -> bool:
    if block.dtype == np.float16 and block.flags.c_contiguous and block.size:
        return int((block.view(np.uint16) & _EXPONENT16).max()) != _EXPONENT16
    return bool(np.isfinite(block).all())


def _refusal(column: Array, name: str, row: int, part: Part) -> InputError:
    values = column[row]
    if np.ma.getmaskarray(values).any():
        what = "no value"
    else:
        flat = np.ravel(np.ma.getdata(values))
        place = int(np.argmax(~np.isfinite(flat) | ((flat < 0) & (name == "weight"))))
        what = str(flat[place]) + (f" in column {place}" if len(flat) > 1 else "")
    where = f"row {part.offset + row} (row {part.start + row} of the source)"
    fix = "fill or drop the row, or skip bad rows (skip_bad=True, --skip-bad)"
    return InputError(f"{part.place or 'the source'}: {where} holds {what} in {name}; {fix}.")


class LazyRows:
    """The features of a source as an array that reads rows when they are indexed."""

    def __init__(self, source: ShardSource) -> None:
        self.source = source
        self.shape = (source.rows, *source.shape)
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        wanted = np.arange(len(self))[rows]
        order = np.argsort(wanted, kind="stable")
        places = wanted[order]
        found = []
        for part in self.source.parts:
            low, high = np.searchsorted(places, (part.start, part.stop))
            if low < high:
                checkpoint()
                chunk = self.source.read(part).x
                found.append(_features(chunk[places[low:high] - part.start], self.source))
        gathered = np.concatenate(found) if found else np.zeros((0, *self.shape[1:]))
        return np.asarray(gathered[np.argsort(order)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read all rows."""
        return np.asarray(self[:], dtype=dtype)

    def reshape(self, *shape: int) -> Array:
        """Read all rows in another shape."""
        return np.asarray(self).reshape(*shape)

    def fingerprint(self) -> str:
        """Digest the source without reading all rows."""
        return self.source.fingerprint()


def _features(x: Array, source: ShardSource) -> Array:
    """Features as an array has them: parts hold short integers as float32."""
    x = as_features(x, "x")
    return x.astype(np.float64) if source.shards[0].kind in ("integers", "booleans") else x


def join_chunks(chunks: Iterable[Chunk], rows: int) -> Chunk:
    """Concatenate chunks into one array of features, which is the only copy in memory."""
    x = np.zeros(0, np.float16)
    columns: dict[str, list[Array]] = {"y": [], "weight": []}
    start = 0
    for chunk in chunks:
        x = x if start else np.empty((rows, *chunk.x.shape[1:]), chunk.x.dtype)
        x = x.astype(np.result_type(x, chunk.x), copy=False)
        x[start : start + len(chunk)] = chunk.x
        start += len(chunk)
        for name, pieces in columns.items():
            pieces += [] if getattr(chunk, name) is None else [getattr(chunk, name)]
    return Chunk(x, *map(_join_column, columns.values()))


def _join_column(pieces: list[Array]) -> Array | None:
    """Concatenate pieces of a column; the result is masked if one of them is."""
    join: Any = np.ma.concatenate if any(map(np.ma.is_masked, pieces)) else np.concatenate
    return join(pieces) if pieces else None


def rows_of(source: ShardSource, runtime: Runtime | None = None) -> Dataset:
    """Read a source as a data set.

    Labels and weights are always loaded, and every row is checked. Features that do not fit the
    memory limit of a runtime are read again when a selection asks for them.
    """
    size = source.rows * int(np.prod(source.shape)) * NUMBER * COPIES
    loaded = runtime is None or size <= runtime.memory_bytes()

    def read() -> Iterator[Chunk]:
        for part in source.parts:
            checkpoint(part.start / source.rows)
            chunk, _ = check_values(source.read(part), part)
            yield replace(chunk, x=_features(chunk.x, source) if loaded else chunk.x[:, :0])

    whole = join_chunks(read(), source.rows)
    if loaded:
        return Dataset(whole.x, whole.y, whole.weight)
    if whole.y is None:
        lacks = f"{source.name} has no labels and does not fit the memory limit"
        raise InputError(f"{lacks}; give labels (target=…, labels=…) or raise Runtime(memory=…).")
    narrow = Dataset(np.zeros((source.rows, 1)), whole.y, whole.weight)
    return narrow.with_columns(x=LazyRows(source))  # type: ignore[arg-type]  # read on demand


Chunks = Iterable[Any] | Callable[[], Iterable[Any]]
#: Marks the end of the chunks.
_END = object()
#: x, y and weight.
MOST_ARRAYS = 3


class ArrayShards(ShardSource):
    """Rows of arrays in memory or mapped from files; another process gets a copy."""

    @renamed_keywords()
    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        part_rows: int = PART_ROWS,
        name: str = "arrays",
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name)
        self.extra_notes = notes
        self.part_rows = check_integer("part_rows", part_rows)
        rows = _as_rows(x)
        #: Features, labels and weights.
        self.columns: tuple[Array | None, ...] = (
            rows,
            _as_column(y, len(rows), "y"),
            _as_column(sample_weight, len(rows), "sample_weight"),
        )

    def describe_shards(self) -> list[Shard]:
        return [describe(self.name, *self.columns[:2])]

    def read(self, part: Part) -> Chunk:
        rows = slice(part.start, part.stop)
        x, y, weight = (None if column is None else column[rows] for column in self.columns)
        assert x is not None
        return make_chunk(x, y, weight)

    def fingerprint(self) -> str:
        return digest_columns("arrays", self.columns)


def _as_rows(x: Any) -> Array:
    frames.refuse_hidden(x, "x")
    array: Array = np.asanyarray(x)
    check_dtype(array.dtype, "x")
    if array.ndim < 1 or array.size == 0:
        raise InputError(f"x has shape {array.shape}; give at least one row and one column.")
    return array[:, None] if array.ndim == 1 else array


def _as_column(column: Any, rows: int, name: str) -> Array | None:
    """Return labels or weights, one per row, if there are any."""
    if column is None:
        return None
    if name != "y":  # a masked label marks a bad row
        frames.refuse_hidden(column, name)
    array: Array = np.asanyarray(column)
    if array.dtype.kind == "O":
        array = as_labels(column, rows)
    check_dtype(array.dtype, name, "labels" if name == "y" else "weights")
    if array.ndim < 1 or len(array) != rows or (name != "y" and array.ndim > 1):
        here = f"{name} has shape {array.shape} and x has {rows} rows"
        raise InputError(f"{here}; give one value for each row.")
    return array


class IterableShards(ShardSource):
    """Rows from an iterable of chunks, each of which is a part.

    A first run counts the rows; later runs must give the same chunks in the same order, which a
    sample of the rows of each shows. Parts that are read in order are one run.
    """

    def __init__(self, make: Chunks, name: str = "chunks") -> None:
        if not callable(make) and iter(make) is make:
            once = f"make is a {type(make).__name__}, which can be iterated only once"
            raise InputError(f"{once}; give a list, or the function that makes it.")
        super().__init__(name)
        self._make = make
        self._running: Iterator[Any] | None = None
        self._next = 0

    def __getstate__(self) -> dict[str, Any]:
        # An iteration in progress stays in its process; the shards are sent along.
        return {**self.__dict__, "_running": None, "_next": 0}

    def _run(self) -> Iterator[Any]:
        return iter(self._make() if callable(self._make) else self._make)

    def describe_shards(self) -> Iterator[Shard]:
        for number, given in enumerate(self._run()):
            yield _look_at(given, f"{self.name}, chunk {number}", number)

    def fingerprint(self) -> str:
        return digest_columns(f"chunks {' '.join(shard.digest for shard in self.shards)}")

    def read(self, part: Part) -> Chunk:
        shard = part.shard
        if self._running is None or self._next > shard.number:
            self._running, self._next = self._run(), 0
        running = self._running
        given = next(itertools.islice(running, shard.number - self._next, None), _END)
        self._next = shard.number + 1
        try:
            if given is _END:
                raise changed_error(part.place, f"{part.count} rows", "not there")
            chunk = check_chunk(given, shard)
            if self._next == len(self._all_shards):
                self._running = None
                if next(running, _END) is not _END:
                    raise changed_error(self.name, f"{self._next} chunks long", "longer")
        except InputError as error:
            self._running = None
            fix = "do not shuffle, and let a function make a new iterator when called"
            raise InputError(f"{error} Give the same chunks in each run: {fix}.") from error
        return chunk


class DaskShards(ShardSource):
    """Rows of a Dask array, a Dask dataframe or delayed chunks, one part each.

    All chunks are computed once to count their rows, on the current cluster; rows stay there.
    """

    def __init__(self, chunks: Sequence[Any], name: str = "dask") -> None:
        if not len(chunks):
            raise InputError("source is a Dask collection without partitions; give one with rows.")
        super().__init__(name)
        self._all = tuple(chunks)

    @property
    def chunks(self) -> tuple[Any, ...]:
        """The delayed chunk of each part."""
        return tuple(self._all[shard.number] for shard in self.shards)

    def describe_shards(self) -> Sequence[Shard]:
        import dask

        look, place = dask.delayed(_look_at), f"{self.name}, partition"
        seen = [look(chunk, f"{place} {number}", number) for number, chunk in enumerate(self._all)]
        return list(dask.compute(*seen))

    def read(self, part: Part) -> Chunk:
        return check_chunk(self.chunks[part.number].compute(), part.shard)

    def fingerprint(self) -> str:
        return digest_columns(f"dask {' '.join(shard.digest for shard in self.shards)}")


def as_chunk(given: Any) -> Chunk:
    """Convert a chunk of an iterable or a cluster: x, (x, y) or (x, y, weight)."""
    if isinstance(given, Chunk):
        given = (given.x, given.y, given.weight)
    elif not isinstance(given, (tuple, list)):
        given = (given,)
    if not 1 <= len(given) <= MOST_ARRAYS:
        raise InputError(f"a chunk holds {len(given)} values; give (x, y) or (x, y, weight).")
    if not len(given[0]):
        return Chunk(np.empty((0, 1)))
    x, y, weight = (*given, None, None)[:MOST_ARRAYS]
    rows = _as_rows(x)
    columns = _as_column(y, len(rows), "y"), _as_column(weight, len(rows), "sample_weight")
    return make_chunk(rows, *columns)


def check_chunk(given: Any, shard: Shard) -> Chunk:
    """Return rows as a chunk; raise an error if a sample of them differs from the shard."""
    chunk = as_chunk(given)
    if _digest(chunk) != shard.digest:
        found = f"{len(chunk)} rows, some of other values"
        raise changed_error(shard.place, f"{shard.rows} rows", found)
    return chunk


def _digest(chunk: Chunk) -> str:
    return digest_columns("", (chunk.x, chunk.y, chunk.weight))


def _look_at(given: Any, place: str, number: int) -> Shard:
    try:
        chunk = as_chunk(given)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
    return describe(place, chunk.x, chunk.y, number=number, digest=_digest(chunk))


def open_dask_frame(
    source: Any, columns: Any = None, target: str | None = None, sample_weight: str | None = None
) -> DaskShards:
    """Open a Dask dataframe by its columns."""
    import dask

    names = None if columns is None else np.atleast_1d(columns).tolist()
    cut = dask.delayed(_frame_columns)
    return DaskShards([cut(one, names, target, sample_weight) for one in source.to_delayed()])


def open_dask_array(source: Any, labels: Any = None, sample_weight: Any = None) -> DaskShards:
    """Open a Dask array with labels and weights."""
    import dask

    whole = getattr(source, "data", source)  # of xarray
    whole = whole.rechunk(dict.fromkeys(range(1, whole.ndim), -1)) if whole.ndim > 1 else whole
    sizes = whole.chunks[0]
    columns = [_blocks(one, sizes) for one in (whole, labels, sample_weight)]
    return DaskShards([dask.delayed(blocks) for blocks in zip(*columns, strict=True)])


def _blocks(column: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Return the blocks of x, or of labels or weights split like x."""
    if column is None:
        return [None] * len(sizes)
    import dask.array

    known = not np.isnan(np.array(sizes, dtype=float)).any()
    if frames.is_dask(column):
        column = getattr(column, "data", column)  # of xarray
    elif known:
        column = dask.array.from_array(np.asarray(column))
    else:
        raise InputError("the blocks of x have unknown lengths; call x.compute_chunk_sizes().")
    if known and column.shape[0] == sum(sizes):
        column = column.rechunk({0: sizes})
    blocks: list[Any] = list(column.to_delayed().ravel())
    if len(blocks) != len(sizes) or (known and column.shape[0] != sum(sizes)):
        here = f"x has {sum(sizes)} rows in {len(sizes)} blocks"
        there = f"labels or weights have {column.shape[0]} in {len(blocks)}"
        raise InputError(f"{here} and {there}; give one for each row, with the same chunks.")
    return blocks


def _frame_columns(
    frame: Any, features: list[str] | None, target: str | None, sample_weight: str | None
) -> list[Array | None]:
    """Return the columns of one partition of a dataframe as arrays."""
    others = [target, sample_weight]
    names = features or [name for name in frame.select_dtypes("number") if name not in others]
    missing = [name for name in (*names, *others) if name and name not in frame]
    if missing or not names:
        lacks = f"column {missing[0]!r}" if missing else "columns of numbers"
        raise InputError(f"the dataframe has no {lacks}; choose from {', '.join(map(str, frame))}.")
    lists = len(names) == 1 and frame[names[0]].dtype == object
    x = np.stack(frame[names[0]].to_list()) if lists and len(frame) else frame[names].to_numpy()
    return [x, *(None if name is None else frame[name].to_numpy() for name in others)]

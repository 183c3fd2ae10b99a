"""Arrays (x, y, weight) in parts: in memory or mapped, from an iterable, or from Dask.

Chunks of an iterable or of Dask are looked at once; when they are read again, a digest shows
whether they are the same.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bicore.data import Array, as_labels
from bicore.errors import InputError, check_integer
from bicore.sources import parts
from bicore.sources.parts import PART_ROWS, Chunk, Part, Shard, ShardSource, digest_columns

Made = Iterable[Any] | Callable[[], Iterable[Any]]
#: The mode of a map whose changes stay in this process; other processes would not see them.
_PRIVATE = "c"
#: After the last chunk.
_END = object()
#: x, y and weight.
MOST_ARRAYS = 3


class ArrayShards(ShardSource):
    """Rows of arrays in memory, or mapped from files.

    Another process gets a copy of arrays in memory, and maps files anew.
    """

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
        self.told = notes
        self.part_rows = check_integer("part_rows", part_rows)
        rows = _as_rows(x)
        #: Features, labels and weights.
        self.columns: tuple[Array | None, ...] = (
            rows,
            _as_column(y, len(rows), "y"),
            _as_column(sample_weight, len(rows), "sample_weight"),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "columns": tuple(map(_pack, self.columns))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "columns": tuple(map(_unpack, state["columns"]))})

    def look(self) -> list[Shard]:
        return [parts.describe(self.name, *self.columns[:2])]

    def read(self, part: Part) -> Chunk:
        rows = slice(part.start, part.stop)
        x, y, weight = (None if column is None else column[rows] for column in self.columns)
        assert x is not None
        return parts.make_chunk(x, None if y is None else np.asarray(y), weight)

    def fingerprint(self) -> str:
        return digest_columns("arrays", self.columns)


def _as_rows(x: Any) -> Array:
    array: Array = np.asanyarray(x)
    parts.check_dtype(array.dtype, "x")
    if array.ndim < 1 or array.size == 0:
        raise InputError(f"x has shape {array.shape}; give at least one row and one column.")
    return array[:, None] if array.ndim == 1 else array


def _as_column(column: Any, rows: int, name: str) -> Array | None:
    """Labels or weights, one for each row, if there are any."""
    if column is None:
        return None
    array: Array = np.asanyarray(column)
    if array.dtype.kind == "O":
        array = as_labels(column, rows)
    parts.check_dtype(array.dtype, name, "labels" if name == "y" else "weights")
    if array.ndim < 1 or len(array) != rows or (name != "y" and array.ndim > 1):
        here = f"{name} has shape {array.shape} and x has {rows} rows"
        raise InputError(f"{here}; give one value for each row.")
    return array


def _pack(column: Array | None) -> Any:
    """A column for another process: the place of a map in its file, else the column itself."""
    whole: Any = column
    while whole is not None and getattr(whole, "_mmap", None) is None:
        whole = getattr(whole, "base", None)
    if column is None or whole is None or whole.filename is None or whole.mode == _PRIVATE:
        return column
    # NumPy begins a map at the last boundary of pages before its first value.
    begin = whole.offset - whole.offset % mmap.ALLOCATIONGRANULARITY
    first = np.frombuffer(whole._mmap, dtype=np.uint8).ctypes.data
    offset = begin + column.ctypes.data - first
    return str(whole.filename), offset, column.dtype, column.shape, column.strides


def _unpack(packed: Any) -> Array | None:
    """The inverse of :func:`_pack`."""
    if not isinstance(packed, tuple):
        return packed  # type: ignore[no-any-return]
    path, offset, dtype, shape, strides = packed
    whole = np.memmap(path, dtype=np.uint8, mode="r")
    return np.ndarray(shape, dtype, whole.data, offset, strides)


class IterableShards(ShardSource):
    """Rows from an iterable of chunks, each a part.

    A first run counts the rows; later runs must give the same chunks in the same order, which is
    checked. Parts that are read in order are one run.
    """

    def __init__(self, make: Made, name: str = "chunks") -> None:
        if not callable(make) and iter(make) is make:
            once = f"make is a {type(make).__name__}, which can be run through once only"
            raise InputError(f"{once}; give a list, or the function that makes it.")
        super().__init__(name)
        self._make = make
        self._running: Iterator[Any] | None = None
        self._next = 0

    def __getstate__(self) -> dict[str, Any]:
        # A run under way stays in its process; the shards are sent along.
        return {**self.__dict__, "_running": None, "_next": 0}

    def _run(self) -> Iterator[Any]:
        return iter(self._make() if callable(self._make) else self._make)

    def look(self) -> Iterator[Shard]:
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
                raise parts.changed(part.place, f"{part.count} rows", "not there")
            chunk = check_chunk(given, shard)
            if self._next == len(self._all_shards):
                self._running = None
                if next(running, _END) is not _END:
                    raise parts.changed(self.name, f"{self._next} chunks long", "longer")
        except InputError as error:
            self._running = None
            fix = "do not shuffle, and let a function make a new iterator when called"
            raise InputError(f"{error} Give the same chunks in each run: {fix}.") from error
        return chunk


class DaskShards(ShardSource):
    """Rows of a Dask array, a Dask dataframe or delayed chunks, a part each.

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

    def look(self) -> Sequence[Shard]:
        import dask

        look, place = dask.delayed(_look_at), f"{self.name}, partition"
        seen = [look(chunk, f"{place} {number}", number) for number, chunk in enumerate(self._all)]
        found: Sequence[Shard] = dask.compute(*seen)
        return found

    def read(self, part: Part) -> Chunk:
        return check_chunk(self.chunks[part.number].compute(), part.shard)

    def fingerprint(self) -> str:
        return digest_columns(f"dask {' '.join(shard.digest for shard in self.shards)}")


def as_chunk(given: Any) -> Chunk:
    """Rows as an iterable or a cluster gives them: x, (x, y) or (x, y, weight)."""
    if isinstance(given, Chunk):
        given = (given.x, given.y, given.weight)
    elif not isinstance(given, (tuple, list)):
        given = (given,)
    if not 1 <= len(given) <= MOST_ARRAYS:
        raise InputError(f"a chunk holds {len(given)} things; give (x, y) or (x, y, weight).")
    if not len(given[0]):
        return Chunk(np.empty((0, 1)))
    x, y, weight = (*given, None, None)[:MOST_ARRAYS]
    whole = ArrayShards(x, y, weight, part_rows=len(x))
    # Not whole.parts: before Python 3.12 cached properties of two sources share a lock, and the
    # threads of a Dask scheduler would wait for the source that started them.
    return whole.read(Part(0, 0, len(x), whole.name))


def check_chunk(given: Any, shard: Shard) -> Chunk:
    """Rows as a chunk; an error if they are not those of the shard."""
    chunk = as_chunk(given)
    if _digest(chunk) != shard.digest:
        found = f"{len(chunk)} rows, some of other values"
        raise parts.changed(shard.place, f"{shard.rows} rows", found)
    return chunk


def _digest(chunk: Chunk) -> str:
    return digest_columns("", (chunk.x, chunk.y, chunk.weight))


def _look_at(given: Any, place: str, number: int) -> Shard:
    try:
        chunk = as_chunk(given)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
    return parts.describe(place, chunk.x, chunk.y, number=number, digest=_digest(chunk))


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

    whole = source.rechunk(dict.fromkeys(range(1, source.ndim), -1)) if source.ndim > 1 else source
    sizes = whole.chunks[0]
    columns = [_blocks(one, sizes) for one in (whole, labels, sample_weight)]
    return DaskShards([dask.delayed(blocks) for blocks in zip(*columns, strict=True)])


def _blocks(column: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Cut labels or weights like the blocks of x."""
    if column is None:
        return [None] * len(sizes)
    import dask.array

    known = not np.isnan(np.array(sizes, dtype=float)).any()
    if not known and not hasattr(column, "__dask_graph__"):
        raise InputError("the blocks of x have unknown lengths; call x.compute_chunk_sizes().")
    if not hasattr(column, "__dask_graph__"):
        column = dask.array.from_array(np.asarray(column))
    if known and column.shape[0] == sum(sizes):
        column = column.rechunk({0: sizes})
    blocks: list[Any] = list(column.to_delayed().ravel())
    if len(blocks) != len(sizes) or (known and column.shape[0] != sum(sizes)):
        here = f"x has {sum(sizes)} rows in {len(sizes)} blocks"
        there = f"labels or weights have {column.shape[0]} in {len(blocks)}"
        raise InputError(f"{here} and {there}; give one for each row, cut alike.")
    return blocks


def _frame_columns(
    frame: Any, features: list[str] | None, target: str | None, sample_weight: str | None
) -> list[Array | None]:
    """The columns of one partition of a dataframe as arrays."""
    others = [target, sample_weight]
    names = features or [name for name in frame.select_dtypes("number") if name not in others]
    missing = [name for name in (*names, *others) if name and name not in frame]
    if missing or not names:
        lacks = f"the dataframe has no column {missing[0] if missing else 'of numbers'!r}"
        raise InputError(f"{lacks}; name those that are there: {', '.join(map(str, frame))}.")
    lists = len(names) == 1 and frame[names[0]].dtype == object
    x = np.stack(frame[names[0]].to_list()) if lists and len(frame) else frame[names].to_numpy()
    return [x, *(None if name is None else frame[name].to_numpy() for name in others)]

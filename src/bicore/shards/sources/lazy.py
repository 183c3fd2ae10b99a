"""Dask's collections: chunks that are computed where their rows lie, again in every pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.shards.source import Chunk, Part, ShardSource
from bicore.shards.sources import sampling
from bicore.shards.sources.gathered import Shard, changed, refuse_unlike
from bicore.shards.sources.iterable import chunk_of, digest_of, shard_of


class DaskShards(ShardSource):
    """Rows of a Dask array, a Dask dataframe or delayed chunks, a part each.

    All chunks are computed once to count them, on whatever cluster is current; rows stay there.

    Parameters
    ----------
    chunks : sequence of dask.delayed.Delayed
        Each gives (x, y) or (x, y, weight), or x alone.
    name : str
        What reports call it.

    Examples
    --------
    >>> import dask  # doctest: +SKIP
    >>> chunks = [dask.delayed(load)(path) for path in paths]  # doctest: +SKIP
    >>> DaskShards(chunks).rows  # doctest: +SKIP
    100000
    """

    def __init__(self, chunks: Sequence[Any], name: str = "dask") -> None:
        if not len(chunks):
            raise InputError("source is a Dask collection without partitions; give one with rows.")
        self._all = tuple(chunks)
        self._name = name
        self._known: tuple[_Seen, ...] | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def chunks(self) -> tuple[Any, ...]:
        """What a cluster computes for each part."""
        return tuple(self._all[seen.number] for seen in self._counted())

    @property
    def parts(self) -> tuple[Part, ...]:
        found, start = [], 0
        for number, seen in enumerate(self._counted()):
            found.append(Part(number, start, seen.shard.rows, seen.shard.place))
            start += seen.shard.rows
        return tuple(found)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._counted()[0].shard.shape

    @property
    def labelled(self) -> bool:
        return self._counted()[0].shard.label is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was passed over."""
        empty = len(self._all) - len(self._counted())
        return (f"{empty} partitions have no rows and are passed over",) if empty else ()

    def read(self, part: Part) -> Chunk:
        return self.given(part).chunk(self.chunks[part.number].compute(), part)

    def given(self, part: Part) -> Given:
        """A source of one part, for who has its rows already.

        Parameters
        ----------
        part : Part
            Which.

        Returns
        -------
        Given
            Small: what the rows are held against.
        """
        return Given(self._counted()[part.number].digest)

    def fingerprint(self) -> str:
        return sampling.of_words(f"dask {' '.join(seen.digest for seen in self._counted())}")

    def _counted(self) -> tuple[_Seen, ...]:
        if self._known is None:
            import dask

            look = [
                dask.delayed(_seen)(chunk, self._name, number)
                for number, chunk in enumerate(self._all)
            ]
            found = [seen for seen in dask.compute(*look) if seen.shard.rows]
            if not found:
                raise InputError(f"{self._name}: there are no rows in {len(look)} partitions.")
            refuse_unlike([seen.shard for seen in found])
            self._known = tuple(found)
        return self._known


@dataclass(frozen=True)
class Given:
    """What rows that lie on a worker are held against."""

    digest: str

    def chunk(self, rows: Any, part: Part) -> Chunk:
        """The rows as a chunk; an error where they are not what was counted.

        Parameters
        ----------
        rows : tuple of array
            Features, labels and weights.
        part : Part
            Which they are, for errors.

        Returns
        -------
        Chunk
            Checked.
        """
        found = chunk_of(rows)
        if digest_of(found) != self.digest:
            raise changed(part.place, f"{part.count} rows", f"{len(found)} rows of other values")
        return found


@dataclass(frozen=True)
class _Seen:
    """What is known of a chunk once it was computed."""

    number: int
    shard: Shard
    digest: str


def _seen(rows: Any, name: str, number: int) -> _Seen:
    place = f"partition {number}"
    try:
        chunk = chunk_of(rows)
    except InputError as error:
        raise InputError(f"{name}, {place}: {error}") from error
    return _Seen(number, shard_of(chunk, name, place), digest_of(chunk))


# From collections to delayed chunks.


def of_collection(
    source: Any,
    features: str | Sequence[str] | None = None,
    target: str | None = None,
    labels: Any = None,
    weight: Any = None,
) -> DaskShards:
    """A Dask array with labels and weights beside it, or a Dask dataframe by its columns.

    Parameters
    ----------
    source : dask.array.Array or dask.dataframe.DataFrame
        The rows.
    features, target : str, optional
        Columns of a dataframe.
    labels : dask.array.Array or array, optional
        Of an array of features.
    weight : str or array, optional
        A column, or beside an array.

    Returns
    -------
    DaskShards
        A part for each block of rows.
    """
    import dask

    if hasattr(source, "columns"):
        names = None if features is None else np.atleast_1d(features).tolist()
        cut = dask.delayed(_of_frame)
        return DaskShards([cut(one, names, target, weight) for one in source.to_delayed()])
    whole = source.rechunk(dict.fromkeys(range(1, source.ndim), -1)) if source.ndim > 1 else source
    sizes = whole.chunks[0]
    columns = [_blocks(one, sizes) for one in (whole, labels, weight)]
    beside = dask.delayed(_beside)
    return DaskShards([beside(*blocks) for blocks in zip(*columns, strict=True)])


def _blocks(column: Any, sizes: tuple[int, ...]) -> list[Any]:
    """The blocks of a column that lies beside others, cut as they are."""
    if column is None:
        return [None] * len(sizes)
    import dask.array

    known = not np.isnan(np.array(sizes, dtype=float)).any()
    if not hasattr(column, "__dask_graph__"):
        if not known:
            raise InputError(
                "the blocks of x have unknown lengths, and labels or weights are no Dask array; "
                "give these as one too, or call x.compute_chunk_sizes() first."
            )
        column = dask.array.from_array(np.asarray(column))
    if known:
        if column.shape[0] != sum(sizes):
            raise InputError(
                f"x has {sum(sizes)} rows and a column beside it {column.shape[0]}; they must have "
                "the same length, row by row."
            )
        column = column.rechunk({0: sizes})
    blocks: list[Any] = list(column.to_delayed().ravel())
    if len(blocks) != len(sizes):
        raise InputError(
            f"x has {len(sizes)} blocks of unknown lengths and a column beside it {len(blocks)}; "
            "cut both alike."
        )
    return blocks


def _beside(x: Any, y: Any, weight: Any) -> tuple[Any, Any, Any]:
    return x, y, weight


def _of_frame(
    frame: Any, features: list[str] | None, target: str | None, weight: str | None
) -> tuple[Array, Array | None, Array | None]:
    others = {target, weight}
    names = features or [name for name in frame.select_dtypes("number") if name not in others]
    missing = [name for name in (*names, target, weight) if name and name not in frame]
    if missing or not names:
        raise InputError(
            f"the dataframe has no column {missing[0] if missing else 'of numbers'!r} (columns: "
            f"{', '.join(map(str, frame.columns))}); name those that are there."
        )
    lists = len(names) == 1 and frame[names[0]].dtype == object
    x = np.stack(frame[names[0]].to_list()) if lists and len(frame) else frame[names].to_numpy()
    return (
        x,
        None if target is None else frame[target].to_numpy(),
        None if weight is None else frame[weight].to_numpy(),
    )

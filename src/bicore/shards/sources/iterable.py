"""Chunks from anything that can be run through again: a list, or a function that starts anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from bicore.errors import InputError
from bicore.shards.source import Chunk, Part, ShardSource
from bicore.shards.sources import sampling
from bicore.shards.sources.arrays import ArrayShards
from bicore.shards.sources.gathered import Shard, changed, refuse_unlike
from bicore.shards.sources.values import family

Made = Iterable[Any] | Callable[[], Iterable[Any]]


class IterableShards(ShardSource):
    """Rows from an iterable of chunks, each a part.

    It is run through once to count; later runs must give the same chunks in the same order, which
    is checked. Parts that are read in order are one run.

    Parameters
    ----------
    make : iterable, or callable that returns one
        Gives (x, y) or (x, y, weight), or x alone. An iterable must start anew whenever it is
        iterated; a generator does not, the function that makes it does.
    name : str
        What reports call it.

    Examples
    --------
    >>> import numpy as np
    >>> def chunks():
    ...     for number in range(3):
    ...         yield np.full((4, 2), float(number)), np.full(4, number)
    >>> source = IterableShards(chunks)
    >>> source.rows, source.read(source.parts[2]).y.tolist()
    (12, [2, 2, 2, 2])
    """

    def __init__(self, make: Made, name: str = "chunks") -> None:
        if not callable(make) and iter(make) is make:
            raise InputError(
                f"make is a {type(make).__name__}, which can be run through once only; give a "
                "list, or the function that makes it (without calling it)."
            )
        self._make = make
        self._name = name
        self._known: _Known | None = None
        self._running: Iterator[Chunk] | None = None
        self._next = 0

    def __getstate__(self) -> dict[str, Any]:
        # A run under way stays in its process; what was counted is sent along.
        return {**self.__dict__, "_running": None, "_next": 0}

    @property
    def name(self) -> str:
        return self._name

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._counted().parts

    @property
    def shape(self) -> tuple[int, ...]:
        return self._counted().first.shape

    @property
    def labelled(self) -> bool:
        return self._counted().first.label is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was passed over."""
        empty = self._counted().empty
        return (f"{empty} chunks have no rows and are passed over",) if empty else ()

    def fingerprint(self) -> str:
        digests = self._counted().digests
        return sampling.of_words(f"chunks {' '.join(digests)}")

    def read(self, part: Part) -> Chunk:
        digests = self._counted().digests
        chunk = self._run_to(part.number)
        if chunk is None or digest_of(chunk) != digests[part.number]:
            found = "not there" if chunk is None else f"{len(chunk)} rows, some of other values"
            raise self._unlike(part.place, f"{part.count} rows", found)
        if self._next == len(digests):
            if self._following() is not None:
                raise self._unlike(self._name, f"{len(digests)} chunks long", "longer")
            self._running = None
        return chunk

    def _run_to(self, number: int) -> Chunk | None:
        """A chunk by its number: by going on where it lies ahead, else by starting anew."""
        if self._running is None or self._next > number:
            self._running = (chunk for _, chunk in _run(self._make, self._name) if len(chunk))
            self._next = 0
        while self._next < number:
            self._following()
        return self._following()

    def _following(self) -> Chunk | None:
        self._next += 1
        return None if self._running is None else next(self._running, None)

    def _unlike(self, place: str, known: str, found: str) -> InputError:
        self._running = None
        return InputError(
            f"{changed(place, known, found)} An iterable must give the same chunks in the same "
            "order each time: do not shuffle, and let a function make a new iterator when called."
        )

    def _counted(self) -> _Known:
        if self._known is None:
            self._known = _count(self._make, self._name)
        return self._known


@dataclass(frozen=True)
class _Known:
    """What the first run showed."""

    parts: tuple[Part, ...]
    digests: tuple[str, ...]
    first: Shard
    empty: int


def _count(make: Made, name: str) -> _Known:
    parts: list[Part] = []
    digests: list[str] = []
    first: Shard | None = None
    start = empty = 0
    for number, chunk in _run(make, name):
        if not len(chunk):
            empty += 1
            continue
        shard = shard_of(chunk, name, f"chunk {number}")
        first = first or shard
        refuse_unlike((first, shard))
        parts.append(Part(len(parts), start, len(chunk), shard.place))
        digests.append(digest_of(chunk))
        start += len(chunk)
    if first is None:
        raise InputError(
            f"{name}: there are no rows in {empty} chunks; a function must make a new iterator "
            "each time it is called."
        )
    return _Known(tuple(parts), tuple(digests), first, empty)


def _run(make: Made, name: str) -> Iterator[tuple[int, Chunk]]:
    made = make() if callable(make) else make
    for number, given in enumerate(made):
        try:
            chunk = chunk_of(given)
        except InputError as error:
            raise InputError(f"{name}, chunk {number}: {error}") from error
        yield number, chunk


def chunk_of(given: Any) -> Chunk:
    """Rows that an iterable or a cluster gave: x, (x, y) or (x, y, weight)."""
    x, y, weight = _columns(given)
    if not len(x):
        return Chunk(np.empty((0, 1)))
    whole = ArrayShards(x, y, weight, part_rows=len(x))
    return whole.read(whole.parts[0])


@singledispatch
def _columns(given: Any) -> tuple[Any, Any, Any]:
    """Features, labels and weights of what an iterable gave."""
    return given, None, None


@_columns.register
def _(given: Chunk) -> tuple[Any, Any, Any]:
    return given.x, given.y, given.weight


@_columns.register(tuple)
@_columns.register(list)
def _(given: Any) -> tuple[Any, Any, Any]:
    if not 1 <= len(given) <= 3:
        raise InputError(
            f"a chunk holds {len(given)} things; give (x, y) or (x, y, weight), arrays of rows."
        )
    x, y, weight = (*given, None, None)[:3]
    return x, y, weight


def shard_of(chunk: Chunk, name: str, inside: str) -> Shard:
    """Kind, shape and number of the rows of a chunk."""
    label = None if chunk.y is None else (family(chunk.y.dtype), chunk.y.shape[1:])
    kind = family(chunk.x.dtype)
    return Shard(Path(name), len(chunk), chunk.x.shape[1:], kind, label, inside=inside)


def digest_of(chunk: Chunk) -> str:
    """A digest of a sample of the rows of a chunk."""
    return sampling.of_columns("", (chunk.x, chunk.y, chunk.weight))

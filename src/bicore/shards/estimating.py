"""What a selection from shards would take: bytes, operations, passes and seconds, before it runs.

A block of the first part is counted, scored and chosen from, and the clock is read; the rest is
multiplication.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from bicore.data import Array
from bicore.errors import InputError
from bicore.moments.moments import Moments, check_room
from bicore.moments.ridge import Candidates
from bicore.picking import as_size
from bicore.runtime import Runtime
from bicore.runtime.context import free_bytes
from bicore.shards.blocks import exact_features
from bicore.shards.growing import Growing
from bicore.shards.request import (
    ROUNDS,
    Request,
    lengths,
    passes_left,
    rows_of_a_part,
    settle_features,
)
from bicore.shards.room import Shape
from bicore.shards.scoring import Scoring
from bicore.shards.shortlist import Shortlist
from bicore.shards.work import Counting
from bicore.sources.chunks import ArrayShards
from bicore.sources.parts import Chunk, ShardSource

#: Rows that are timed, and how often: the faster time counts, for the slower one had company.
PROBE_ROWS, PROBE_CALLS = 8192, 2
#: Points that are taken from a shortlist to time one.
PROBE_POINTS = 4
#: Exchanges are timed among this share of their rows; pairs grow with the square.
PROBE_SHARE = 0.25
#: Seconds until a process has imported what it works with.
PROCESS_SECONDS = 4.0


@dataclass(frozen=True)
class Way:
    """One way to run a selection.

    Parameters
    ----------
    name : str
        "threads" or "processes".
    workers : int
        How many.
    seconds : float
        Expected on this machine.
    bytes : int
        Memory beside the files.
    fits : bool
        Whether that is within the limit.

    Examples
    --------
    >>> Way("threads", 2, 12.5, 400_000_000, True).workers
    2
    """

    name: str
    workers: int
    seconds: float
    bytes: int
    fits: bool


@dataclass(frozen=True)
class ShardEstimate:
    """What a selection from shards is expected to take.

    Parameters
    ----------
    rows, parts, width, outputs, size : int
        Of the source, the features and the request.
    passes : int
        Over all rows, with the one that counts moments and those that look for exchanges.
    bytes_read : int
        In all passes together, as rows are stored in memory.
    operations : int
        Multiply-adds of all passes.
    limit : int
        On memory, in bytes.
    ways : tuple of Way
        What each way to run would take.
    taken : Way
        The one that is taken under the limit.

    Examples
    --------
    >>> from bicore.sources import ArrayShards
    >>> x = np.random.default_rng(0).normal(size=(500, 8))
    >>> found = estimate(ArrayShards(x, x[:, 0] > 0), 10)
    >>> found.rows, found.taken.name
    (500, 'threads')
    """

    rows: int
    parts: int
    width: int
    outputs: int
    size: int
    passes: int
    bytes_read: int
    operations: int
    limit: int
    ways: tuple[Way, ...]
    taken: Way

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON.

        Returns
        -------
        dict
            By name.
        """
        return asdict(self)


def estimate(
    source: ShardSource,
    size: int | float,
    *,
    features: Any = None,
    intercept: float | str = "auto",
    runtime: Runtime | None = None,
    **options: Any,
) -> ShardEstimate:
    """What :func:`select_from_shards` would take with the same arguments, without selecting.

    Parameters
    ----------
    source : ShardSource
        The rows; see :func:`bicore.shards.open_shards`.
    size : int or float
        How many points, or a fraction of the rows.
    features : str, FeatureMap or torch.nn.Module, optional
        What rows are compared in; by default the rows themselves, brought to length 1.
    intercept : float or "auto"
        The constant feature; see :func:`select_from_shards`.
    runtime : Runtime, optional
        Memory and threads.
    **options
        Of the selection: passes, exchange, prior and so on.

    Returns
    -------
    ShardEstimate
        Passes, bytes, operations, and the seconds of each way to run.

    Raises
    ------
    InputError
        Where the request cannot be right.
    MemoryLimitError
        Where moments do not fit the memory limit.

    Examples
    --------
    >>> from bicore.sources import ArrayShards
    >>> x = np.random.default_rng(0).normal(size=(500, 8))
    >>> estimate(ArrayShards(x, x[:, 0] > 0), 10, passes="exact").passes
    11
    """
    runtime = runtime or Runtime()
    count = as_size(size, source.rows)
    map = settle_features(features, intercept, source)
    request = Request(count, map, **options).within(runtime)
    if not source.labelled:
        raise InputError(f"{source.name} has no labels; name them (target=…, labels=…).")
    shape = lengths(source, request)
    limit = runtime.memory_bytes()
    check_room(shape.width, shape.outputs, shape.apart, limit)
    most = runtime.threads or torch.get_num_threads()
    with runtime.applied():
        rates = _Rates.measured(source, request, shape)
    passes = passes_left(0, request.size, request.passes == "exact")
    passes += ROUNDS if shape.exchanged else 0
    ways = _ways(shape, rates, passes, most, limit)
    taken = next(way for way in ways if way.workers == shape.workers_within(limit, most))
    each = min(2 * shape.width * shape.outputs, shape.width**2)
    return ShardEstimate(
        shape.rows,
        shape.parts,
        shape.width,
        shape.outputs,
        shape.size,
        1 + passes,
        (1 + passes) * shape.rows * shape.row_bytes,
        shape.rows * (shape.width**2 + passes * each),
        limit,
        ways,
        taken,
    )


def _ways(shape: Shape, rates: _Rates, passes: int, most: int, limit: int) -> tuple[Way, ...]:
    """Threads one by one up to all of them, then as many processes."""
    ways = []
    kinds = [(count, False) for count in range(1, most + 1)] + [(max(most, 2), True)]
    for workers, processes in kinds:
        seconds = rates.seconds(shape, passes, workers) + processes * PROCESS_SECONDS
        room = shape.room(workers, processes)
        name = "processes" if processes else "threads"
        ways.append(Way(name, workers, seconds, room, room <= limit))
    return tuple(ways)


@dataclass(frozen=True)
class _Rates:
    """Seconds of each piece of work: of a row read, counted and scored, a shortlist, a point in it,
    and a round of exchanges."""

    read: float
    counted: float
    scored: float
    listed: float
    taken: float
    exchanged: float

    @classmethod
    def measured(cls, source: ShardSource, request: Request, shape: Shape) -> _Rates:
        part = source.parts[0]
        chunk = source.read(part)
        # Files that fit free memory are read from it after the first pass.
        warm = shape.rows * shape.row_bytes < free_bytes(torch.device("cpu"))
        read = _seconds(lambda: source.read(part), PROBE_CALLS if warm else 1) / part.count
        probe = _Probe.of(chunk, request, shape)
        some, only = probe.source, probe.source.parts[0]
        counted = _seconds(lambda: probe.counting(some, only)) / only.count
        scored = _seconds(lambda: probe.scoring(some, only)) / only.count
        listed = _seconds(lambda: probe.shortlist()) * shape.listed / probe.listed
        taken = min(probe.point() for _ in range(PROBE_CALLS)) * shape.listed / probe.listed
        return cls(read, counted, scored, listed, taken, probe.exchanging(shape))

    def seconds(self, shape: Shape, passes: int, workers: int) -> float:
        """Of a selection by so many threads; what follows a pass is a matter of one."""
        together = min(workers, shape.parts)
        first = shape.rows * (self.read + self.counted)
        each = shape.rows * (self.read + self.scored)
        alone = passes * self.listed + shape.size * self.taken
        rounds = ROUNDS * self.exchanged
        return (first + passes * each) / together + alone + rounds


@dataclass(frozen=True, eq=False)
class _Probe:
    """The first rows of a source, and the work of a selection on them."""

    source: ShardSource
    counting: Counting
    scoring: Scoring
    growing: Growing
    features: Array
    targets: Array
    #: Rows of the shortlist that is timed.
    listed: int

    @classmethod
    def of(cls, chunk: Chunk, request: Request, shape: Shape) -> _Probe:
        map = request.features
        sound = _sound(chunk)
        x = np.asarray(chunk.x[:PROBE_ROWS])[sound]
        every: Array = np.ma.getdata(np.ma.asanyarray(chunk.y))
        labels = every[:PROBE_ROWS][sound]
        source = ArrayShards(x, labels, part_rows=len(x))
        # Which numbers the work is done with does not change how long it takes.
        rng = np.random.default_rng(0)
        features = exact_features(x, map)
        targets = rng.normal(size=(len(x), shape.outputs))
        moments = Moments.empty(map.width, classes=None, targets=shape.outputs)
        outer = moments.with_rows(features, targets).outer()
        growing = Growing(outer, max(request.inner_reg * outer.energy, np.finfo(float).tiny))
        classes = None if labels.dtype.kind == "f" else np.unique(every)
        empty = Moments.empty(map.width, apart=shape.apart) if classes is not None else moments
        scoring = Scoring(
            map,
            growing.change,
            growing.model,
            np.zeros(shape.outputs),
            classes,
            max(1, min(len(x), shape.listed)),
            np.empty(0, dtype=np.int64),
            listed=rows_of_a_part(request, shape.parts),
        )
        listed = min(len(x), shape.listed)
        return cls(source, Counting(map, empty), scoring, growing, features, targets, listed)

    def shortlist(self) -> Shortlist:
        rows = slice(0, self.listed)
        return Shortlist(
            self.growing, np.arange(self.listed), self.features[rows], self.targets[rows]
        )

    def point(self) -> float:
        """Seconds of a point that is taken from a shortlist."""
        held = self.shortlist()
        began = time.perf_counter()
        for place in range(PROBE_POINTS):
            held.best("gain")
            held.values("gain")
            held.take(self.growing, min(place, self.listed - 1))
        return (time.perf_counter() - began) / PROBE_POINTS

    def exchanging(self, shape: Shape) -> float:
        """A round among all rows, from one among a quarter of them."""
        if not shape.exchanged:
            return 0.0
        count = max(2, min(len(self.features), int(PROBE_SHARE * shape.exchanged)))
        inside = np.arange(count) < max(1, int(count * shape.size / shape.exchanged))
        rows = slice(0, count)

        def built() -> None:
            own = self.features[rows], self.targets[rows]
            Candidates(self.growing.outer, *own, self.growing.ridge, inside)

        ratio = shape.exchanged / count
        # Products of pairs with features, and of pairs with the points that are in.
        few, many = 2 * shape.width, 3 * shape.size
        share = (few * ratio**2 + many * ratio**2) / (few + many / ratio)
        return _seconds(built) * share


def _seconds(work: Callable[[], Any], calls: int = PROBE_CALLS) -> float:
    """The fastest of some calls."""
    found = []
    for _ in range(calls):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def _sound(chunk: Chunk) -> Array:
    """Which of the first rows are finite."""
    rows = np.asarray(chunk.x[:PROBE_ROWS])
    found: Array = np.isfinite(rows).reshape(len(rows), -1).all(1)
    return found

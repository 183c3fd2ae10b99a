"""The request of a selection in passes, and its estimated cost: passes, bytes, seconds.

Operations and bytes are counted; the seconds follow from them with fixed constants.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch

from bicore._deprecated import removed_attributes
from bicore.arguments import Relative, as_size
from bicore.bilevel.greedy import QuotaRule, open_classes
from bicore.bilevel.prepare import as_quotas
from bicore.data import Array, Targets, Task
from bicore.errors import InputError, check_integer, check_name, check_number, check_type
from bicore.moments.features import FeatureMap
from bicore.moments.features.base import WithConstant
from bicore.moments.features.maps import Rows
from bicore.moments.features.registry import as_feature_map
from bicore.moments.moments import DEFAULT_REG, Moments, as_inner_reg, check_room
from bicore.runtime.context import Runtime
from bicore.shards.counting import BLOCK
from bicore.sources.parts import Chunk, ShardSource

#: Number of rows that a pass returns, and that it returns if it gives a single point.
SHORTLIST, SHORTLIST_OF_ONE = 8192, 256
#: Number of rows of a part returned with their features: minimum, and as a multiple of an equal
#: share. If more rows of a part are among the best, it is read again.
LEAST_OF_PART, SHARES_OF_PART = 16, 2
#: Points per pass, as a share of the points so far. In trials with 10,000 embeddings the objective
#: was within 0.5% of that with one point per pass.
SHARE_A_PASS = 0.2
#: Maximum number of rows for exchanges at the end, and of passes for them.
MOST_EXCHANGED, ROUNDS = 1500, 3
#: Rows that a feature map is fitted on.
FIRST_ROWS = 1000
#: The square of the constant feature, as a share of the mean of ‖φ‖².
INTERCEPT = 1.0
RULES = ("gain", "gradient")

#: Bytes of a number in sums and fits, and in a block of features.
NUMBER, SHORT = 8, 4
#: Blocks per worker: rows as stored and converted, features, their products.
BLOCKS = 4
#: Copies of a shortlist in memory, measured with 8192 rows of 256 features, and the share of a
#: memory limit for them.
COPIES, LISTED_SHARE = 16, 0.4
#: Number of p² matrices in the state of the coreset.
MATRICES = 6
#: Seconds to read, convert and check a number, and of a multiply-add, on one core.
READ, MULTIPLY = 8e-10, 4e-11
#: Seconds per number of the shortlist for every point.
UPDATE = 1e-9


@dataclass(frozen=True)
class Request:
    """A checked request; see :func:`bicore.shards.select_from_shards` for its options."""

    size: int
    features: FeatureMap = field(default_factory=lambda: Rows().unit())
    rule: str = "gain"
    exact: bool = False
    inner_reg: float | Relative | str = DEFAULT_REG
    prior: Any = "data"
    exchange: bool = True
    quotas: Any = None
    skip_bad: bool = False
    shortlist: int = SHORTLIST

    def __post_init__(self) -> None:
        check_name("rule", self.rule, RULES)
        check_type("exact", self.exact, bool, "True or False")
        check_integer("shortlist", self.shortlist)
        object.__setattr__(self, "quotas", as_quotas(self.quotas))
        object.__setattr__(self, "inner_reg", as_inner_reg(self.inner_reg))

    @property
    def exchanges(self) -> bool:
        """Whether points are exchanged at the end."""
        return self.exchange and not self.exact and self.size < MOST_EXCHANGED

    @property
    def listed(self) -> int:
        """The number of rows that a pass returns."""
        return min(self.shortlist, SHORTLIST_OF_ONE) if self.exact else self.shortlist

    def limit_shortlist(self, runtime: Runtime) -> Request:
        """Shorten the shortlist for a given memory limit; free memory has no influence."""
        if runtime.memory is None:
            return self
        most = LISTED_SHARE * runtime.memory_bytes() / (NUMBER * COPIES * self.features.width)
        return replace(self, shortlist=min(self.shortlist, max(1, int(most))))

    def listed_of_part(self, parts: int) -> int:
        """Return the number of rows of each part to return with their features."""
        return max(LEAST_OF_PART, SHARES_OF_PART * self.listed // parts)

    def points_of_pass(self, done: int) -> int:
        """Return the number of points of the next pass."""
        return 1 if self.exact else min(self.size - done, max(1, int(SHARE_A_PASS * done)))

    def passes_left(self, done: int) -> int:
        """Return the number of passes for the missing points, without exchanges."""
        count = 0
        while done < self.size:
            done += self.points_of_pass(done)
            count += 1
        return count


def make_request(
    source: ShardSource, size: int, features: Any, intercept: Any, runtime: Runtime, options: Any
) -> Request:
    """Fit the feature map, with its constant feature, on the first rows; check the options."""
    if not source.labelled:
        raise InputError(f"{source.name} has no labels; give target=… or labels=….")
    chosen = Rows().unit() if features is None else as_feature_map(features)
    share = INTERCEPT
    if intercept != "auto":
        share = check_number("intercept", intercept, least=0, fix="or 'auto'")
    if share > 0 and not isinstance(chosen, WithConstant):
        chosen = WithConstant(chosen, share, reason=chosen.reason)
    map = chosen.fit(first_rows(source).x)
    return Request(size, map, **options).limit_shortlist(runtime)


def first_rows(source: ShardSource) -> Chunk:
    """Read the first finite rows, without weights; their number does not depend on the parts."""
    x: list[Array] = []
    y: list[Array] = []
    count = 0
    for part in source.parts:
        chunk = source.read(part)
        rows = slice(FIRST_ROWS - count)
        x.append(np.array(chunk.x[rows]))
        if chunk.y is not None:
            y.append(np.array(np.ma.getdata(chunk.y)[rows]))
        count += len(x[-1])
        if count >= FIRST_ROWS:
            break
    values = np.concatenate(x)
    finite = np.isfinite(values).reshape(len(values), -1).all(1)
    if not finite.any():
        values, finite = np.zeros_like(values), np.arange(len(values)) < 1
    return Chunk(values[finite], np.concatenate(y)[finite] if y else None)


@dataclass(frozen=True, eq=False)
class ClassLimits:
    """The maximum number of points per class, from quotas and available rows."""

    caps: Array | None
    available: Array

    @classmethod
    def of(cls, rule: QuotaRule | None, classes: Array | None, available: Array) -> Self | None:
        """Return the limits of a rule; None if every row may be taken."""
        if rule is not None and classes is None:
            rule.of(Targets(Task.REGRESSION, np.zeros((1, 1))))  # refuses rules that need classes
            return None
        return None if rule is None or classes is None else cls(rule.caps(classes), available)

    def next(self, counts: Array) -> Array:
        """Return which classes may have the next point."""
        return open_classes(self.caps, counts, counts < self.available)

    def open(self, counts: Array) -> Array:
        """Return which classes may have more points."""
        full = counts >= (self.available if self.caps is None else self.caps)
        return ~full & (counts < self.available)

    def most(self, counts: Array) -> Array:
        """Return the maximum number of points per class after exchanges."""
        return counts if self.caps is None else self.caps


@dataclass(frozen=True)
class Shape:
    """The lengths that determine memory and work."""

    rows: int
    parts: int
    #: Rows of the largest part, and bytes per row.
    largest: int
    row_bytes: int
    width: int
    outputs: int
    size: int
    listed: int
    apart: bool

    @classmethod
    def of(cls, source: ShardSource, request: Request) -> Shape:
        """Read the first part; its classes count as those of the source."""
        first = source.read(source.parts[0])
        labels = np.zeros(1) if first.y is None else np.ma.getdata(first.y)
        targets = labels.dtype.kind == "f"
        outputs = int(np.prod(labels.shape[1:])) if targets else len(np.unique(labels))
        return cls(
            source.rows,
            len(source.parts),
            max(part.count for part in source.parts),
            first.x.nbytes // max(len(first), 1),
            request.features.width,
            max(outputs, 1),
            request.size,
            min(source.rows, request.listed),
            request.prior != "data",
        )

    def worker_bytes(self, workers: int) -> int:
        """Estimate the bytes of this many workers, in addition to the present process."""
        moments = Moments.room(self.width, self.outputs, self.apart)
        part = self.largest * (self.row_bytes + NUMBER)
        each = part + BLOCKS * SHORT * BLOCK + 2 * moments
        # Results of parts are buffered, two per worker.
        counting = moments * (2 + 2 * workers * (workers > 1))
        columns = self.width + 2 * self.outputs
        listing = NUMBER * (COPIES * self.listed + 2 * self.size) * columns
        return workers * each + max(counting, NUMBER * MATRICES * self.width**2 + listing)

    def count_workers(self, limit: int, most: int) -> int:
        """Return the number of threads that fit a memory limit, at least 1."""
        fitting = (count for count in range(1, most + 1) if self.worker_bytes(count) <= limit)
        return max(fitting, default=1)


@removed_attributes
@dataclass(frozen=True)
class ShardEstimate(Shape):
    """The expected cost of a selection in passes."""

    passes: int
    bytes_read: int
    operations: int
    workers: int
    seconds: float
    bytes: int


def estimate(
    source: ShardSource,
    size: int | float,
    *,
    feature_map: Any = None,
    intercept: float | str = "auto",
    runtime: Runtime | None = None,
    **options: Any,
) -> ShardEstimate:
    """Estimate the cost of :func:`select_from_shards` with the same arguments."""
    runtime = runtime or Runtime()
    count = as_size(size, source.rows)
    request = make_request(source, count, feature_map, intercept, runtime, options)
    shape, limit = Shape.of(source, request), runtime.memory_bytes()
    check_room(shape.width, shape.outputs, shape.apart, limit)
    passes = request.passes_left(0) + (ROUNDS if request.exchanges else 0)
    each = min(2 * shape.width * shape.outputs, shape.width**2)
    operations = shape.rows * (shape.width**2 + passes * each)
    reading = (1 + passes) * shape.rows * shape.width * READ
    alone = (passes + shape.size) * shape.listed * shape.width * UPDATE
    workers = shape.count_workers(limit, runtime.threads or torch.get_num_threads())
    seconds = (operations * MULTIPLY + reading) / min(workers, shape.parts) + alone
    return ShardEstimate(
        **vars(shape),
        passes=1 + passes,
        bytes_read=(1 + passes) * shape.rows * shape.row_bytes,
        operations=operations,
        workers=workers,
        seconds=seconds,
        bytes=shape.worker_bytes(workers),
    )

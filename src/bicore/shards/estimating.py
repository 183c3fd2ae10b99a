"""The cost of a selection in passes before it runs: passes, bytes, operations and seconds.

Operations and bytes are counted; the seconds follow from them with fixed constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from bicore.errors import InputError
from bicore.moments.moments import check_room
from bicore.picking import as_size
from bicore.runtime.context import Runtime
from bicore.shards.request import ROUNDS, Shape, make_request
from bicore.sources.parts import ShardSource

#: Seconds of a number that is read, converted and checked, and of a multiply-add, on one core.
READ, MULTIPLY = 8e-10, 4e-11
#: Seconds of a number of the shortlist for every point.
UPDATE = 1e-9


@dataclass(frozen=True)
class ShardEstimate:
    """The expected cost of a selection in passes."""

    rows: int
    parts: int
    width: int
    outputs: int
    size: int
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
    if not source.labelled:
        raise InputError(f"{source.name} has no labels; name them (target=…, labels=…).")
    shape, limit = Shape.of(source, request), runtime.memory_bytes()
    check_room(shape.width, shape.outputs, shape.apart, limit)
    passes = request.passes_left(0) + (ROUNDS if request.exchanges else 0)
    each = min(2 * shape.width * shape.outputs, shape.width**2)
    operations = shape.rows * (shape.width**2 + passes * each)
    reading = (1 + passes) * shape.rows * shape.width * READ
    alone = (passes + shape.size) * shape.listed * shape.width * UPDATE
    workers = shape.workers_within(limit, runtime.threads or torch.get_num_threads())
    seconds = (operations * MULTIPLY + reading) / min(workers, shape.parts) + alone
    return ShardEstimate(
        shape.rows,
        shape.parts,
        shape.width,
        shape.outputs,
        shape.size,
        1 + passes,
        (1 + passes) * shape.rows * shape.row_bytes,
        operations,
        workers,
        seconds,
        shape.bytes(workers),
    )

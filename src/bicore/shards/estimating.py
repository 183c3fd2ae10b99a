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
    """The expected cost of a selection in passes.

    Parameters
    ----------
    rows, parts, width, outputs, size : int
        Of the source, the features and the request.
    passes : int
        Over all rows, including the first and those that look for exchanges.
    bytes_read : int
        In all passes together, as rows are stored in memory.
    operations : int
        Multiply-adds of all passes.
    workers : int
        Threads that are used under the memory limit.
    seconds : float
        Expected on a common machine.
    bytes : int
        Memory in addition to the files.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.sources.chunks import ArrayShards
    >>> x = np.random.default_rng(0).normal(size=(500, 8))
    >>> found = estimate(ArrayShards(x, x[:, 0] > 0), 10)
    >>> found.rows, found.passes
    (500, 14)
    """

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
    """Estimate the cost of :func:`select_from_shards` with the same arguments, without selecting.

    Parameters
    ----------
    source : ShardSource
        The rows; see :func:`bicore.sources.open_shards`.
    size : int or float
        How many points, or a fraction of the rows.
    feature_map : str, FeatureMap or torch.nn.Module, optional
        Features in which rows are compared; by default the rows themselves, scaled to length 1.
    intercept : float or "auto"
        The constant feature; see :func:`select_from_shards`.
    runtime : Runtime, optional
        Memory and threads.
    **options
        Of the selection: passes, exchange, prior and so on.

    Returns
    -------
    ShardEstimate
        Passes, bytes, operations and seconds.

    Raises
    ------
    InputError
        If an argument is invalid.
    MemoryLimitError
        If moments do not fit the memory limit.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.sources.chunks import ArrayShards
    >>> x = np.random.default_rng(0).normal(size=(500, 8))
    >>> estimate(ArrayShards(x, x[:, 0] > 0), 10, exact=True).passes
    11
    """
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

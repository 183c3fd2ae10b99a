"""What a selection from shards has to say beside its points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bicore.runtime import Runtime
from bicore.shards.request import Request, lengths
from bicore.sources.parts import ShardSource

#: How many files with bad rows are named.
MOST_NAMED = 5


def beyond_limit(source: ShardSource, request: Request, runtime: Runtime) -> list[str]:
    """What is said where a memory limit was given that not even one worker keeps.

    Parameters
    ----------
    source : ShardSource
        The rows.
    request : Request
        What is asked.
    runtime : Runtime
        With the limit.

    Returns
    -------
    list of str
        Nothing where no limit was given, or one that is kept.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.sources import ArrayShards
    >>> source = ArrayShards(np.zeros((10, 2)), np.arange(10) % 2)
    >>> beyond_limit(source, Request(2), Runtime("cpu"))
    []
    """
    if runtime.memory is None:
        return []
    shape = lengths(source, request)
    needed, limit = shape.room(1), runtime.memory_bytes()
    if needed <= limit:
        return []
    return [
        f"memory: about {needed / 1e6:.0f} MB beside the process, beyond the limit of "
        f"{limit / 1e6:.0f} MB; parts of {shape.largest} rows take "
        f"{shape.largest * shape.row_bytes / 1e6:.0f} MB of it (smaller parts take less)"
    ]


def left_out(bad: int, places: Sequence[str]) -> str:
    """How many rows were left out, and where.

    Parameters
    ----------
    bad : int
        How many.
    places : sequence of str
        A name for each of them, empty where its place has none.

    Returns
    -------
    str
        With the places that have most of them.

    Examples
    --------
    >>> left_out(3, ["a.csv", "b.csv", "a.csv"])
    '3 rows with values that are not finite were left out (2 in a.csv, 1 in b.csv)'
    """
    counts = Counter(place for place in places if place)
    named = ", ".join(f"{count} in {place}" for place, count in counts.most_common(MOST_NAMED))
    more = " …" if len(counts) > MOST_NAMED else ""
    return f"{bad} rows with values that are not finite were left out" + (
        f" ({named}{more})" if named else ""
    )

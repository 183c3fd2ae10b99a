"""Selection from rows that are never loaded whole."""

from bicore.shards.estimating import ShardEstimate, Way, estimate
from bicore.shards.executors import Executor, Processes, Threads
from bicore.shards.opening import open_shards
from bicore.shards.selection import select_from_shards
from bicore.shards.source import Chunk, Part, ShardSource
from bicore.shards.sources.embedded import embedded

__all__ = [
    "Chunk",
    "Executor",
    "Part",
    "Processes",
    "ShardEstimate",
    "ShardSource",
    "Threads",
    "Way",
    "embedded",
    "estimate",
    "open_shards",
    "select_from_shards",
]

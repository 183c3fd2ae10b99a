"""Selection from rows that are never loaded whole."""

from bicore.shards.estimating import ShardEstimate, estimate
from bicore.shards.executors import Executor, Processes, Threads
from bicore.shards.selection import select_from_shards
from bicore.sources.embedding import embedded
from bicore.sources.opening import open_shards
from bicore.sources.parts import Chunk, Part, ShardSource

__all__ = [
    "Chunk",
    "Executor",
    "Part",
    "Processes",
    "ShardEstimate",
    "ShardSource",
    "Threads",
    "embedded",
    "estimate",
    "open_shards",
    "select_from_shards",
]

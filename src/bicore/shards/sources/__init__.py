"""Where rows that are never loaded whole come from."""

from bicore.shards.sources.arrays import ArrayShards
from bicore.shards.sources.checking import checked
from bicore.shards.sources.embedded import embedded
from bicore.shards.sources.huggingface import HuggingFaceShards
from bicore.shards.sources.iterable import IterableShards
from bicore.shards.sources.lazy import DaskShards
from bicore.shards.sources.npy import NpyShards
from bicore.shards.sources.npz import NpzShards
from bicore.shards.sources.parquet import ParquetShards

__all__ = [
    "ArrayShards",
    "DaskShards",
    "HuggingFaceShards",
    "IterableShards",
    "NpyShards",
    "NpzShards",
    "ParquetShards",
    "checked",
    "embedded",
]

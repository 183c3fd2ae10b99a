"""Readers: files, data frames, standard data sets, and rows in parts."""

from bicore.sources.arrow_files import HuggingFaceShards, ParquetShards
from bicore.sources.base import Source
from bicore.sources.chunks import ArrayShards, DaskShards, IterableShards
from bicore.sources.embedding import embedded
from bicore.sources.numpy_files import NpyShards, NpzShards
from bicore.sources.opening import open_shards, open_source
from bicore.sources.parts import Chunk, Part, Shard, ShardSource
from bicore.sources.rows import checked
from bicore.sources.standard_sets import cifar10, digits, mnist
from bicore.sources.tables import encode_table

__all__ = [
    "ArrayShards",
    "Chunk",
    "DaskShards",
    "HuggingFaceShards",
    "IterableShards",
    "NpyShards",
    "NpzShards",
    "ParquetShards",
    "Part",
    "Shard",
    "ShardSource",
    "Source",
    "checked",
    "cifar10",
    "digits",
    "embedded",
    "encode_table",
    "mnist",
    "open_shards",
    "open_source",
]

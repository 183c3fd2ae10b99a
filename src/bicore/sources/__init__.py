"""Readers: files, data frames, standard data sets, and rows in parts."""

from bicore._deprecated import keep_old_names
from bicore.sources.embedding import embed_to_folder
from bicore.sources.opening import open_shards
from bicore.sources.parts import ShardSource
from bicore.sources.standard_sets import cifar10, digits, mnist
from bicore.sources.tables import encode_table

__all__ = [
    "ShardSource",
    "cifar10",
    "digits",
    "embed_to_folder",
    "encode_table",
    "mnist",
    "open_shards",
]

keep_old_names(__name__)

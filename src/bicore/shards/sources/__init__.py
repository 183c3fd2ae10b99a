"""Where rows that are never loaded whole come from."""

from bicore.shards.sources.arrays import ArrayShards
from bicore.shards.sources.checking import checked
from bicore.shards.sources.npy import NpyShards
from bicore.shards.sources.npz import NpzShards

__all__ = ["ArrayShards", "NpyShards", "NpzShards", "checked"]

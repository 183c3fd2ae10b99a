"""Selection on a cluster: Dask's workers, and Dask's collections as rows.

``DaskExecutor`` sends parts to the workers of a scheduler; ``DaskShards`` are rows of a Dask array,
a dataframe or delayed chunks; ``select_from_shards`` takes both. The extra ``bicore[dask]`` has
what is needed.
"""

from bicore.shards.executors import DaskExecutor
from bicore.shards.selection import select_from_shards
from bicore.sources.chunks import DaskShards
from bicore.sources.opening import open_shards

__all__ = ["DaskExecutor", "DaskShards", "open_shards", "select_from_shards"]

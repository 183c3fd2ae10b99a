"""Selection in passes over rows that are never loaded at once."""

from bicore._deprecated import keep_old_names
from bicore.shards.executors import DaskExecutor
from bicore.shards.selection import select_from_shards
from bicore.shards.state import load_head

__all__ = ["DaskExecutor", "load_head", "select_from_shards"]

keep_old_names(__name__)

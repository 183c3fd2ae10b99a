"""Selection from rows that are never loaded whole."""

from typing import TYPE_CHECKING

from bicore._deprecated import find_moved
from bicore.shards.executors import DaskExecutor
from bicore.shards.selection import select_from_shards
from bicore.shards.state import load_head

__all__ = [
    "DaskExecutor",
    "load_head",
    "select_from_shards",
]

if not TYPE_CHECKING:
    __getattr__ = find_moved(__name__)

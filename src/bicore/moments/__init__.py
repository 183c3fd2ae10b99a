"""The outer objective as moments: one object for streams, shards and clusters."""

from typing import TYPE_CHECKING

from bicore._deprecated import find_moved

if not TYPE_CHECKING:
    __getattr__ = find_moved(__name__)

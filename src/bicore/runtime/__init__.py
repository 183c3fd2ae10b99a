"""Device, precision, memory, threads, time and progress of a computation."""

from typing import TYPE_CHECKING

from bicore._deprecated import find_moved

if not TYPE_CHECKING:
    __getattr__ = find_moved(__name__)

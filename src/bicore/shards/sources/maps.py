"""Maps of files on their way to another process: where they lie, not what they hold."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np

from bicore.data import Array

#: A function and its arguments that give an array again.
Recipe = tuple[Callable[..., Array | None], tuple[Any, ...]]
#: A map whose changes stay in this process; other processes would not see them.
_PRIVATE = "c"


def recipe(column: Array | None) -> Recipe:
    """How to make a column elsewhere: by mapping its file again, or from itself."""
    whole = _map_of(column)
    if column is None or whole is None or whole.filename is None or whole.mode == _PRIVATE:
        return _itself, (column,)
    # NumPy begins a map at the last boundary of pages before its first value.
    begin = whole.offset - whole.offset % mmap.ALLOCATIONGRANULARITY
    first = np.frombuffer(whole._mmap, dtype=np.uint8).ctypes.data
    offset = begin + column.ctypes.data - first
    return _mapped, (str(whole.filename), offset, column.dtype, column.shape, column.strides)


def followed(made: Recipe) -> Array | None:
    """The column that a recipe makes."""
    function, arguments = made
    return function(*arguments)


def _map_of(column: Any) -> Any:
    """The map that a column is a view of; None for one in memory."""
    while column is not None and getattr(column, "_mmap", None) is None:
        column = getattr(column, "base", None)
    return column


def _itself(column: Array | None) -> Array | None:
    return column


def _mapped(
    path: str,
    offset: int,
    dtype: np.dtype[np.generic],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Array:
    whole = np.memmap(path, dtype=np.uint8, mode="r")
    view: Array = np.ndarray(shape, dtype, whole.data, offset, strides)
    return view

"""How many threads arithmetic has: one for small algebra, all that are asked for in large products.

A selection is thousands of operations on matrices of the coreset's size. Splitting one of these
costs more than it saves, and on a machine where a core is busy every one of them waits for that
core. So a call runs on one thread, and what is large says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch

#: Multiplications from which a product is worth all threads: some ten milliseconds of one core.
WIDE = 1e8

#: How many threads large products have in the running call; 0 outside of one.
_THREADS: ContextVar[int] = ContextVar("threads", default=0)


@contextmanager
def narrow(threads: int | None = None) -> Iterator[None]:
    """One thread for the duration of a call, in torch and in the libraries behind NumPy and SciPy.

    Parameters
    ----------
    threads : int, optional
        How many :func:`wide` products have; default: as many as torch has now, or as an enclosing
        call was given.

    Yields
    ------
    None
        The old numbers come back at the end.

    Examples
    --------
    >>> with narrow(2):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    libraries = [(library, library.num_threads) for library in _libraries()]
    token = _THREADS.set(threads or _THREADS.get() or before)
    _set(1)
    try:
        yield
    finally:
        for library, number in libraries:
            library.set_num_threads(number)
        torch.set_num_threads(before)
        _THREADS.reset(token)


@contextmanager
def wide(multiplications: float) -> Iterator[None]:
    """All threads of the running call for something large.

    Parameters
    ----------
    multiplications : float
        How large it is; below a hundred million nothing changes.

    Yields
    ------
    None
        One thread again at the end.

    Examples
    --------
    >>> with narrow(2):
    ...     with wide(1e9):
    ...         torch.get_num_threads()
    2
    """
    threads = _THREADS.get()
    if threads <= 1 or multiplications < WIDE:
        yield
        return
    _set(threads)
    try:
        yield
    finally:
        _set(1)


def _set(threads: int) -> None:
    torch.set_num_threads(threads)
    for library in _libraries():
        library.set_num_threads(threads)


@cache
def _libraries() -> list[Any]:
    """The linear algebra of NumPy and SciPy; torch has a number of its own."""
    # SciPy's is not loaded before it is used, and what is not loaded cannot be told.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().lib_controllers
    return [one for one in found if one.user_api == "blas" and "torch" not in one.filepath]

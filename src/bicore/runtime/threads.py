"""Threads: one for small algebra, all requested ones for large products.

A selection is thousands of operations on matrices of the coreset's size. Splitting one of these
costs more than it saves, and on a machine where a core is busy every one of them waits for that
core. So a call runs on one thread. A large product uses all threads (:func:`all_threads`); many
tiles are distributed to threads that never wait for one another (:func:`run_in_threads`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

import torch

#: Minimum number of multiplications for all threads: about ten milliseconds of one core.
WIDE = 1e8

T = TypeVar("T")

#: Threads for large products in the running call; 0 outside of one.
_THREADS: ContextVar[int] = ContextVar("threads", default=0)


@contextmanager
def single_thread(threads: int | None = None) -> Iterator[None]:
    """Use one thread during a call, in torch and in the libraries behind NumPy and SciPy."""
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
def all_threads(multiplications: float) -> Iterator[None]:
    """Use all threads of the running call if there are many multiplications."""
    threads = _THREADS.get()
    before = torch.get_num_threads()
    if threads == before or threads <= 1 or multiplications < WIDE:
        yield  # nested in another large product
        return
    _set(threads)
    try:
        yield
    finally:
        _set(before)


def run_in_threads(work: Callable[[T], None], parts: Iterable[T], multiplications: float) -> None:
    """Run ``work`` on every part, each on one thread, with all threads of the call.

    Threads that split every operation wait at the end of each for the slowest of them; a part is a
    matter of one thread, and a free thread takes the next.
    """
    threads = _THREADS.get()
    if threads <= 1 or multiplications < WIDE:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(threads, "bicore", torch.set_num_threads, (1,)) as pool:
        for _ in results_in_order(lambda part: pool.submit(work, part), parts, threads):
            pass  # errors of the work are raised here


def results_in_order(submit: Callable[[T], Any], parts: Iterable[T], ahead: int) -> Iterator[Any]:
    """Yield the results of parts in their order, with at most ``ahead`` of them submitted."""
    waiting: deque[Any] = deque()
    try:
        for part in parts:
            waiting.append(submit(part))
            if len(waiting) > ahead:  # one is ready for a free worker
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _set(threads: int) -> None:
    torch.set_num_threads(threads)
    for library in _libraries():
        library.set_num_threads(threads)


@cache
def _libraries() -> list[Any]:
    """Return the linear algebra libraries of NumPy and SciPy; torch has its own setting."""
    # SciPy loads its library on first use, and only loaded libraries can be configured.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().lib_controllers
    return [one for one in found if one.user_api == "blas" and "torch" not in one.filepath]

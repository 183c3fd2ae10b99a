"""Who does the work on parts: this process, its threads, or a pool of processes.

An executor maps a function over parts and gives the results in the order of the parts, nothing
else: whoever works, and however many, the answer is the same.
"""

from __future__ import annotations

import multiprocessing
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import torch

from bicore.errors import WorkerLostError
from bicore.runtime.threads import narrow, on_one_thread
from bicore.sources.parts import Part, ShardSource

T = TypeVar("T")
Work = Callable[[ShardSource, Part], T]

#: Processes that may die one after another without a part done between.
MOST_LOSSES = 3


class Executor(ABC):
    """Maps work over the parts of a source.

    Examples
    --------
    >>> issubclass(Threads, Executor), issubclass(Processes, Executor)
    (True, True)
    """

    #: Where a shortlist is kept up to date; None: on the host.
    device: torch.device | None = None

    @abstractmethod
    def map(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        """The results of all parts, in order.

        Parameters
        ----------
        work : callable
            A function of the source and a part.
        source : ShardSource
            The rows.

        Yields
        ------
        object
            What the work gave.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027 (nothing to close is usual)
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to close."""


@dataclass
class Threads(Executor):
    """This process, some parts at a time: reading and products wait for no one.

    Parameters
    ----------
    count : int
        How many parts at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.sources import ArrayShards
    >>> source = ArrayShards(np.zeros((10, 2)), part_rows=4)
    >>> list(Threads(2).map(lambda source, part: part.count, source))
    [4, 4, 2]
    """

    count: int = 1

    def map(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        if self.count <= 1:
            for part in source.parts:
                yield work(source, part)
            return
        with narrow(1), ThreadPoolExecutor(self.count) as pool:
            yield from in_order(pool.submit, work, source, 2 * self.count)


@dataclass
class Processes(Executor):
    """A pool of processes; the source is sent to each, not its rows.

    Where a process dies the pool is made anew, and the parts that were under way are done again.

    Parameters
    ----------
    count : int
        How many.

    Examples
    --------
    >>> Processes(2).count
    2
    """

    count: int = 2

    def __post_init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(self.count, context, initializer=on_one_thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the processes go."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def map(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        if self._pool is None:
            with self:
                yield from self.map(work, source)
            return
        done, losses = 0, 0
        while True:
            try:
                for result in in_order(self._pool.submit, work, source, 2 * self.count, done):
                    yield result
                    done, losses = done + 1, 0
                return
            except BrokenProcessPool as error:
                losses += 1
                if losses > MOST_LOSSES:
                    raise _lost(source.parts[done], losses) from error
                self.__exit__(None, None, None)
                self.__enter__()


def _lost(part: Part, losses: int) -> WorkerLostError:
    return WorkerLostError(
        f"{losses} processes in a row died at or just behind {part.place or 'the source'}, row "
        f"{part.offset}; often it is memory: ask for fewer processes, or smaller parts."
    )


def in_order(
    submit: Callable[..., Any],
    work: Work[T],
    source: ShardSource,
    ahead: int,
    first: int = 0,
) -> Iterator[T]:
    """Results in the order of the parts, no more than some parts ahead of whoever takes them."""
    waiting: deque[Any] = deque()
    try:
        for part in source.parts[first:]:
            waiting.append(submit(work, source, part))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()

"""A cluster that works on parts, through Dask: a task a part, done again where a worker is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from bicore.errors import InputError
from bicore.shards.executors import Executor, Work, in_order
from bicore.sources.parts import Chunk, Part, ShardSource

T = TypeVar("T")

#: Parts under way for every thread of the cluster: with two, threads wait for results to come home.
AHEAD = 6


@dataclass
class DaskExecutor(Executor):
    """The workers of a Dask cluster; each reads its parts itself, so files must be there for all.

    What a worker had done or begun when it was lost, the scheduler gives to another. Results are
    added in the order of the parts: the picks are those of one process.

    Parameters
    ----------
    client : distributed.Client or str
        A client, or the address of a scheduler such as ``"tcp://10.0.0.1:8786"``.

    Examples
    --------
    >>> from bicore.shards.dask import DaskExecutor
    >>> with DaskExecutor("tcp://10.0.0.1:8786") as workers:  # doctest: +SKIP
    ...     select_from_shards(source, 1000, executor=workers)
    """

    client: Any

    def __post_init__(self) -> None:
        self._own = not hasattr(self.client, "submit")
        if self._own:
            self.client = _connected(self.client)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the cluster, where this object joined it."""
        if self._own:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def map(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        threads = max(1, sum(self.client.nthreads().values()))
        # Results are never looked up by what went in: work of another pass is other work.
        submit = (
            self._beside
            if hasattr(source, "given")
            else partial(self.client.submit, _done, pure=False)
        )
        # Matrices of p² travel once a pass, not with every part; as the result of a task, which is
        # made again where the worker that had it is lost.
        held = self.client.submit(_itself, work, pure=False)
        yield from in_order(submit, held, source, AHEAD * threads)

    def _beside(self, work: Work[T], source: Any, part: Part) -> Any:
        """Work where the rows of a Dask collection are, once they are computed."""
        rows = self.client.compute(source.chunks[part.number])
        return self.client.submit(_done_on, work, source.given(part), part, rows, pure=False)


def _itself(work: T) -> T:
    return work


class _Here:
    """A source of the one part whose rows are at hand."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk

    def read(self, part: Part) -> Chunk:
        return self.chunk


def _done_on(work: Any, given: Any, part: Part, rows: Any) -> Any:
    return work(_Here(given.chunk(rows, part)), part)


def _done(work: Work[T], source: ShardSource, part: Part) -> T:
    return work(source, part)


def _connected(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError("a cluster needs Dask: pip install 'bicore[dask]'.") from error
    try:
        return Client(address)
    except (OSError, ValueError) as error:
        raise InputError(
            f"dask={address!r}: no scheduler answers there ({error}); start one with "
            "'dask scheduler', or give its address."
        ) from error

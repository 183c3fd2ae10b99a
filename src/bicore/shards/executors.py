"""Executors apply a function to every part of a source: threads, a GPU, or a Dask cluster.

An executor returns the results in the order of the parts. The answer does not depend on the
executor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from bicore.errors import InputError, WorkerLostError, import_extra
from bicore.runtime.context import Runtime, free_bytes
from bicore.runtime.threads import results_in_order, single_thread
from bicore.shards.counting import PartRows, PartWork
from bicore.sources.parts import DaskShards, Part, Shard, ShardSource, check_chunk

T = TypeVar("T")
Work = Callable[[ShardSource, Part], T]

#: Share of a GPU's free memory for rows; the rest is for blocks and the shortlist.
GPU_SHARE = 0.7
#: Number of parts submitted per thread of a cluster. With only two, threads would wait for the
#: transfer of results.
AHEAD = 6


class Executor(ABC):
    """Applies a function to every part of a source."""

    #: Device of the coreset and its candidates; None: the CPU.
    device: torch.device | None = None

    @abstractmethod
    def map(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        """Yield the results of all parts, in order.

        Parameters
        ----------
        work : callable
            A function of the source and a part.
        source : ShardSource
            The rows.

        Yields
        ------
        object
            The result of the work on a part.
        """

    def close(self) -> None:  # noqa: B027
        """Release resources; the executor can be used again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass
class Threads(Executor):
    """Threads of this process."""

    count: int = 1

    def map(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        if self.count <= 1:
            yield from (work(source, part) for part in source.parts)
            return
        with single_thread(1), ThreadPoolExecutor(self.count) as pool:
            yield from results_in_order(
                lambda part: pool.submit(work, source, part), source.parts, 2 * self.count
            )


@dataclass
class GPUExecutor(Executor):
    """A GPU.

    Rows that fit into ``memory`` bytes stay on the GPU, in the precision of the source. The others
    are read again in every pass: in advance, and into pinned memory.
    """

    name: str = "cuda"
    memory: int | None = None
    readers: int = 4

    def __post_init__(self) -> None:
        self.device = self._device = Runtime(self.name).torch_device
        #: Bytes of the rows on the GPU.
        self.resident = 0
        self.close()

    def close(self) -> None:
        """Free the rows on the GPU."""
        self.resident = 0
        # Each value refers to its source, so that no other source gets the same id.
        self._kept: dict[tuple[int, int], tuple[ShardSource, PartRows]] = {}
        free = self.memory is None
        self._room = int(GPU_SHARE * free_bytes(self._device)) if free else self.memory or 0

    def map(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        if not isinstance(work, PartWork):
            yield from (work(source, part) for part in source.parts)
            return
        with ThreadPoolExecutor(self.readers) as pool:
            ahead = 2 * self.readers
            for rows in results_in_order(
                lambda part: pool.submit(self._read, work, source, part), source.parts, ahead
            ):
                yield work.run(self._place(source, rows))

    def _read(self, work: PartWork[Any], source: ShardSource, part: Part) -> PartRows:
        """Return rows on the GPU, or read them into pinned memory."""
        if (id(source), part.number) in self._kept:
            return self._kept[id(source), part.number][1]
        rows = work.read(source, part)
        x: Tensor = torch.from_numpy(np.array(rows.x))  # reads a mapped file
        rows.x = x.pin_memory() if self._device.type == "cuda" else x
        rows.y = None if rows.y is None else np.asarray(rows.y)
        return rows

    def _place(self, source: ShardSource, rows: PartRows) -> PartRows:
        key = (id(source), rows.part.number)
        if key in self._kept:
            return self._kept[key][1]
        rows = replace(rows, x=rows.x.to(self._device, non_blocking=True))
        if self.resident + rows.x.nbytes <= self._room:
            self._kept[key] = (source, rows)
            self.resident += rows.x.nbytes
        return rows


class DaskClient(Protocol):
    """What is used of a ``distributed.Client``."""

    status: str

    def submit(self, function: Callable[..., Any], *args: Any, pure: bool) -> Any:
        """Run a function on a worker; return a future."""

    def compute(self, collections: Any) -> Any:
        """Compute a collection on the workers; return a future."""

    def nthreads(self) -> Mapping[str, int]:
        """Return the number of threads of each worker."""

    def close(self) -> Any:
        """Disconnect."""


@dataclass
class DaskExecutor(Executor):
    """The workers of a Dask cluster; each reads its own parts, so all of them need the files.

    If a worker is lost, the scheduler gives its parts to another one.

    Parameters
    ----------
    client : distributed.Client or str
        A client, or the address of a scheduler such as ``"tcp://10.0.0.1:8786"``.

    Examples
    --------
    >>> from bicore.shards import DaskExecutor
    >>> with DaskExecutor("tcp://10.0.0.1:8786") as workers:  # doctest: +SKIP
    ...     select_from_shards(source, 1000, executor=workers)
    """

    client: DaskClient | str

    def __post_init__(self) -> None:
        self._connected = isinstance(self.client, str)
        client = _connect(self.client) if isinstance(self.client, str) else self.client
        if not hasattr(client, "submit"):
            kinds = "the address of a Dask scheduler, a Dask client or a DaskExecutor"
            raise InputError(f"executor must be {kinds}; got {self.client!r}.")
        self._client: DaskClient = client

    def close(self) -> None:
        """Disconnect from the cluster, if this object connected."""
        if self._connected:
            self._client.close()

    def map(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        threads = max(1, sum(self._client.nthreads().values()))
        # pure=False: Dask must not reuse results of an earlier pass.
        submit: Callable[..., Any] = partial(self._client.submit, _call, pure=False)
        if isinstance(source, DaskShards):
            submit = self._submit_near_rows
        # The work holds matrices of p² numbers. As the result of a task it is sent once per pass,
        # and computed again if its worker is lost.
        try:
            held = self._client.submit(_identity, work, pure=False)
            yield from results_in_order(
                lambda part: submit(held, source, part), source.parts, AHEAD * threads
            )
        except Exception as error:  # Dask raises many kinds of errors if the connection is lost
            if self._client.status == "running" and not isinstance(error, CancelledError):
                raise  # an error raised by the work
            wrong = f"the Dask scheduler was lost or restarted ({error})"
            fix = "and give state= (a folder) to continue a selection where it stopped"
            raise WorkerLostError(f"{wrong}; start it again, {fix}.") from error

    def _submit_near_rows(self, work: Work[T], source: Any, part: Part) -> Any:
        """Run the work on the workers that hold the rows of a Dask collection."""
        rows = self._client.compute(source.chunks[part.number])
        return self._client.submit(_call_on, work, part.shard, part, rows, pure=False)


def _identity(work: T) -> T:
    return work


def _call(work: Work[T], source: ShardSource, part: Part) -> T:
    return work(source, part)


def _call_on(work: Any, shard: Shard, part: Part, rows: Any) -> Any:
    chunk = check_chunk(rows, shard)
    return work(SimpleNamespace(read=lambda part: chunk), part)


def _connect(address: str) -> Any:
    distributed = import_extra("distributed", "a cluster needs Dask", "'bicore[dask]'")
    try:
        return distributed.Client(address)
    except (OSError, ValueError) as error:
        wrong = f"executor={address!r}: no Dask scheduler answers at this address ({error})"
        fix = "start one with 'dask scheduler', or correct the address"
        raise InputError(f"{wrong}; {fix}.") from error

"""A card that works on parts: rows stay there where they fit, and come over the bus where not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from bicore.errors import InputError
from bicore.runtime.context import free_bytes
from bicore.shards.executors import Executor, Work, in_order
from bicore.shards.work import DeviceWork, Held
from bicore.sources.parts import Part, ShardSource

T = TypeVar("T")

#: The share of free memory that rows may take; the rest is for blocks in float32 and float64, the
#: shortlist and the products' own room.
SHARE = 0.7
#: Threads that read parts ahead of the card: reading and checking is slower than the bus.
READERS = 4


@dataclass
class Card(Executor):
    """A GPU; its picks are those of the host.

    Rows are stored there as the source has them (float16, float32, float64) while they fit into
    ``memory``; what does not fit is read again in every pass, ahead of the work, into pinned
    blocks. The shortlist is kept up to date there too.

    Parameters
    ----------
    name : str
        A device of torch.
    memory : int, optional
        Bytes that rows may take there; default: a share of what is free.
    readers : int
        Threads that read parts.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.shards.selection import select_from_shards
    >>> from bicore.sources import ArrayShards
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 4))
    >>> source = ArrayShards(x, (x[:, 0] > 0).astype(int), part_rows=100)
    >>> len(select_from_shards(source, 5, executor=Card("cpu")))
    5
    """

    name: str = "cuda"
    memory: int | None = None
    readers: int = READERS

    def __post_init__(self) -> None:
        self.device = self._device = torch.device(self.name)
        if self._device.type == "cuda" and not torch.cuda.is_available():
            raise InputError(
                f"device={self.name!r} is asked for, and torch finds no CUDA device here; leave "
                "it out to work on the processor."
            )
        self._rows = _Resident(self._room())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the rows go."""
        self._rows = _Resident(self._room())

    @property
    def resident(self) -> int:
        """Bytes of rows that are on the card."""
        return self._rows.bytes

    def map(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        if not hasattr(work, "on"):
            for part in source.parts:
                yield work(source, part)
            return
        here = cast(DeviceWork[T], work)
        with ThreadPoolExecutor(self.readers) as pool:
            reading = _Reading(self._rows, here, self._device)
            for held in in_order(pool.submit, reading, source, 2 * self.readers):
                placed = held.placed(self._device)
                self._rows.keep(source, placed)
                yield here.on(placed.held)

    def _room(self) -> int:
        return int(SHARE * free_bytes(self._device)) if self.memory is None else self.memory


class _Resident:
    """Parts that stay on the card, the first ones that fit."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.bytes = 0
        # The sources are kept beside their numbers, so that a number is nobody else's.
        self._sources: dict[int, ShardSource] = {}
        self._parts: dict[tuple[int, int], _Waiting] = {}

    def find(self, source: ShardSource, part: Part) -> _Waiting | None:
        return self._parts.get((id(source), part.number))

    def keep(self, source: ShardSource, one: _Waiting) -> None:
        key = (id(source), one.held.part.number)
        size = one.held.x.nbytes
        if key in self._parts or self.bytes + size > self.room:
            return
        self._sources[id(source)] = source
        self._parts[key] = one
        self.bytes += size


@dataclass(frozen=True, eq=False)
class _Reading:
    """Parts read from a source into pinned memory, unless they are on the card."""

    rows: _Resident
    work: DeviceWork[Any]
    device: torch.device

    def __call__(self, source: ShardSource, part: Part) -> _Waiting:
        found = self.rows.find(source, part)
        if found is not None:
            return found
        chunk, bad = self.work.chunk(source, part)
        x = self._pinned(chunk.x)
        weight = None if chunk.weight is None else self._pinned(chunk.weight)
        y = None if chunk.y is None else np.asarray(chunk.y)
        return _Waiting(Held(part, x, y, weight, bad))

    def _pinned(self, array: Any) -> Tensor:
        tensor = torch.from_numpy(np.array(array))  # a map of a file is read here, ahead
        return tensor.pin_memory() if self.device.type == "cuda" else tensor


@dataclass(eq=False)
class _Waiting:
    """A part on its way to the card, or there."""

    held: Held
    there: bool = False

    def placed(self, device: torch.device) -> _Waiting:
        if self.there:
            return self
        held = self.held
        weight = None if held.weight is None else held.weight.to(device, non_blocking=True)
        x = held.x.to(device, non_blocking=True)
        return _Waiting(Held(held.part, x, held.y, weight, held.bad), there=True)

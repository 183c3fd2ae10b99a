"""What buffers share that can take in another one of their kind."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from bicore.data import joined
from bicore.errors import InputError
from bicore.memory.buffer import Buffer
from bicore.runtime import Context


class Merging(Buffer):
    """A buffer that goes on as if the stream of another one had come after its own."""

    def _follow(self, other: Self, offset: int | None, context: Context | None) -> None:
        """Take in what another buffer has seen, once it is known to be built alike.

        ``offset`` is what its ids are moved by, by default the rows seen here.
        """
        if offset is not None and offset < self.position:
            raise InputError(
                f"offset={offset} is below the {self.position} rows seen here; ids would occur "
                "twice."
            )
        if self.kept is not None and other.kept is not None:
            # refuses columns of another kind than those kept
            joined(self.kept[:0], other.kept[:0])
        context = context or Context()
        moved = self.position if offset is None else offset
        with self._wholly():
            with context.runtime.applied():
                self._absorb(other, moved, context)
            self.position = moved + other.position
            self.counted += other.counted
            self.seen += other.seen

    @abstractmethod
    def _absorb(self, other: Self, moved: int, context: Context) -> None:
        """Change what is kept; ``moved`` is what the other's ids are moved by."""

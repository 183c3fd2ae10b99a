"""Rows that are never loaded whole: parts that can be read again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from bicore.data import Array


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a source that are read together.

    Parameters
    ----------
    number : int
        Its place among the parts.
    start, count : int
        Position of its first row in the source, and how many it has.
    place : str
        Where it lies, as errors name it: a file, a row group.
    offset : int
        Row of that file with which it begins.

    Examples
    --------
    >>> Part(1, 1000, 500, "part-1.npy").stop
    1500
    """

    number: int
    start: int
    count: int
    place: str = ""
    offset: int = 0

    @property
    def stop(self) -> int:
        """Position behind its last row."""
        return self.start + self.count


@dataclass(frozen=True, eq=False)
class Chunk:
    """The rows of a part.

    Parameters
    ----------
    x : array (n, …)
        Features as they are stored: float16, float32 or float64, not checked.
    y : array (n,) or (n, targets), optional
        Labels or targets.
    weight : array (n,), optional
        How much each row counts.

    Examples
    --------
    >>> import numpy as np
    >>> len(Chunk(np.zeros((3, 2))))
    3
    """

    x: Array
    y: Array | None = None
    weight: Array | None = None

    def __len__(self) -> int:
        return len(self.x)


class ShardSource(ABC):
    """Rows in parts: what a selection of any size reads from.

    A source is small and can be sent to another process; it opens files when it reads. Positions of
    rows count from 0 over all parts in order.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.shards.sources import ArrayShards
    >>> len(ArrayShards(np.zeros((10, 2)), part_rows=4))
    10
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What reports call it."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """All parts in order; known without reading rows."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""

    @property
    @abstractmethod
    def labelled(self) -> bool:
        """Whether parts have labels."""

    @abstractmethod
    def read(self, part: Part) -> Chunk:
        """The rows of a part.

        Parameters
        ----------
        part : Part
            One of ``parts``.

        Returns
        -------
        Chunk
            As stored.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Sixteen characters that change where files, sizes or a sample of contents do."""

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(part.count for part in self.parts)

    def __len__(self) -> int:
        return self.rows

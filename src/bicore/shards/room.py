"""How much memory a selection from shards takes beside the files it reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bicore.moments.features import FeatureMap
from bicore.moments.moments import Moments
from bicore.shards.blocks import BLOCK
from bicore.sources.parts import ShardSource

#: Bytes of a number in sums and fits, and in a block of features.
NUMBER, SHORT = 8, 4
#: Blocks that one worker holds at a time: rows as stored and converted, features, their products.
BLOCKS = 4
#: Copies of a shortlist that the process has grown by: as measured (8192 rows of 256 features),
#: more than are held at a time.
COPIES = 16
#: Matrices of p² that the growing model holds.
MATRICES = 6
#: Matrices of pairs while exchanges are made, and the share of a memory limit they may fill.
PAIRS, PAIRS_SHARE = 9, 0.5
#: The share of a memory limit that a shortlist may fill.
LISTED_SHARE = 0.4
#: What a process has in memory before it does anything: Python, NumPy and torch.
PROCESS_BYTES = 300_000_000


@dataclass(frozen=True)
class Shape:
    """The lengths that memory and work depend on.

    Parameters
    ----------
    rows, parts, largest : int
        Rows and parts of the source, and rows of its largest part.
    row_bytes : int
        Of a row as it is read.
    width, outputs : int
        Features, and classes or targets.
    size : int
        Points that are chosen.
    listed, exchanged : int
        Rows of a shortlist, and rows among which exchanges are made at the end.
    apart : bool
        Whether classes have moments of their own.

    Examples
    --------
    >>> shape = Shape(1000, 2, 500, 32, 8, 3, 10, 100, 100)
    >>> shape.room(2) > shape.room(1)
    True
    """

    rows: int
    parts: int
    largest: int
    row_bytes: int
    width: int
    outputs: int
    size: int
    listed: int
    exchanged: int
    apart: bool = False

    def room(self, workers: int, processes: bool = False) -> int:
        """Bytes that so many workers take together.

        Parameters
        ----------
        workers : int
            How many work at a time.
        processes : bool
            Whether each is a process.

        Returns
        -------
        int
            Bytes, beside this process as it is now.
        """
        moments = Moments.room(self.width, self.outputs, self.apart)
        part = self.largest * (self.row_bytes + NUMBER)
        each = part + BLOCKS * SHORT * BLOCK + 2 * moments + processes * PROCESS_BYTES
        # Results of parts wait for their turn, two for each worker.
        counting = moments * (2 + 2 * workers * (workers > 1))
        columns = self.width + 2 * self.outputs
        listing = NUMBER * (COPIES * self.listed + 2 * self.size) * columns
        growing = NUMBER * MATRICES * self.width**2
        exchanging = NUMBER * PAIRS * self.exchanged**2
        return workers * each + max(counting, growing + listing + exchanging)

    def workers_within(self, limit: int, most: int) -> int:
        """How many threads fit a memory limit.

        Parameters
        ----------
        limit : int
            Bytes.
        most : int
            How many there are.

        Returns
        -------
        int
            At least 1: what one needs at the least is refused elsewhere.
        """
        fits = [count for count in range(1, most + 1) if self.room(count) <= limit]
        return max(fits, default=1)


def most_pairs(limit: int) -> int:
    """Among how many rows exchanges may be made within a memory limit.

    Parameters
    ----------
    limit : int
        Bytes.

    Returns
    -------
    int
        How many rows' pairs fit.

    Examples
    --------
    >>> most_pairs(400_000_000)
    1666
    """
    return int((PAIRS_SHARE * limit / (NUMBER * PAIRS)) ** 0.5)


def most_listed(limit: int, width: int) -> int:
    """How many rows a shortlist may have within a memory limit.

    Parameters
    ----------
    limit : int
        Bytes.
    width : int
        Features of a row.

    Returns
    -------
    int
        How many rows' copies fit.

    Examples
    --------
    >>> most_listed(100_000_000, 256)
    1220
    """
    return int(LISTED_SHARE * limit / (NUMBER * COPIES * width))


def shape_of(
    source: ShardSource,
    features: FeatureMap,
    size: int,
    listed: int,
    exchanged: int,
    apart: bool = False,
) -> Shape:
    """The lengths of a selection, from the headers of a source and its first part.

    Parameters
    ----------
    source : ShardSource
        The rows.
    features : FeatureMap
        Settled.
    size : int
        Points that are chosen.
    listed, exchanged : int
        Rows of a shortlist, and rows among which exchanges are made.
    apart : bool
        Whether classes have moments of their own.

    Returns
    -------
    Shape
        The classes are those of the first part.
    """
    first = source.read(source.parts[0])
    outputs = 1
    if first.y is not None:
        labels = np.ma.getdata(first.y)
        targets = labels.dtype.kind == "f"
        outputs = int(np.prod(labels.shape[1:])) if targets else len(np.unique(labels))
    return Shape(
        source.rows,
        len(source.parts),
        max(part.count for part in source.parts),
        first.x.nbytes // max(len(first), 1),
        features.width,
        max(outputs, 1),
        size,
        listed,
        exchanged,
        apart,
    )

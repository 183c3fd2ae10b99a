"""All rows in the plane of their two main directions, without a second copy of the data.

The directions are those of some rows, evenly spaced, found by multiplying a few vectors by the
covariance again and again; rows are read a block at a time.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array

#: So many rows say which directions are the main ones.
DIRECTION_ROWS = 5000
#: A page holds at most this many points: a browser draws them in a fraction of a second.
MOST_POINTS = 50_000
#: Numbers in a block of rows: 8 MB of them.
BLOCK = 1_000_000
#: Vectors beside the two that are wanted, and multiplications: the third direction is then
#: forgotten by more than a picture shows, unless it is as large as the second.
BESIDE, MULTIPLICATIONS = 6, 12
#: The page's grid: whole numbers from 0.
GRID = 65535


@dataclass(frozen=True, eq=False)
class Plane:
    """Places of some rows on a square grid, and how much of the variance the plane holds."""

    rows: Array
    places: Array
    share: float

    def as_json(self, codes: Array, total: int, numbers: Array | None = None) -> dict[str, Any]:
        """As a page reads it: whole numbers in base64, a code of its group for each point.

        ``numbers`` are what rows are called where that is not their place.
        """
        every = len(self.rows) == total and numbers is None
        called = self.rows if numbers is None else numbers[self.rows]
        return {
            "count": len(self.rows),
            "of": total,
            "share": self.share,
            "x": _packed(self.places[:, 0], "<u2"),
            "y": _packed(self.places[:, 1], "<u2"),
            "codes": _packed(codes[self.rows], "<u2"),
            "rows": None if every else _packed(called, "<u4"),
        }


def plane_of(features: Array, wanted: Array) -> Plane:
    """The plane of the rows' two main directions; ``wanted`` rows are always among the points."""
    rows = points_of(len(features), wanted)
    mean, directions, share = main_directions(features)
    flat = np.concatenate(
        [(block - mean) @ directions for block in _blocks(features, rows)], dtype=np.float64
    )
    low, high = flat.min(0), flat.max(0)
    width = np.where(high > low, high - low, 1.0)
    middle = np.where(high > low, 0.0, 0.5)
    return Plane(rows, np.rint(((flat - low) / width + middle) * GRID), share)


def points_of(count: int, wanted: Array) -> Array:
    """The rows that a page shows, in order: all, or evenly spaced ones and those wanted."""
    if count <= MOST_POINTS:
        return np.arange(count)
    spaced = np.linspace(0, count - 1, MOST_POINTS).round().astype(np.int64)
    return np.union1d(spaced, wanted)


def main_directions(features: Array) -> tuple[Array, Array, float]:
    """The mean, the two directions (d, 2) of most variance, and their share of all variance."""
    rows = np.arange(0, len(features), max(1, len(features) // DIRECTION_ROWS))
    width = int(np.prod(features.shape[1:]))
    mean = sum(block.sum(0) for block in _blocks(features, rows)) / len(rows)
    total = sum(float(np.square(block - mean).sum()) for block in _blocks(features, rows))
    found = np.random.default_rng(0).normal(size=(width, min(2 + BESIDE, width)))
    values = np.zeros(found.shape[1])
    for _ in range(MULTIPLICATIONS):
        found, _ = np.linalg.qr(found)
        image = np.zeros_like(found)
        for block in _blocks(features, rows):
            centred = block - mean
            image += centred.T @ (centred @ found)
        values, turned = np.linalg.eigh(found.T @ image)
        found = image @ turned[:, ::-1]
    leading, _ = np.linalg.qr(found)
    leading = leading[:, :2]
    # a direction and its opposite are one: the largest entry is made positive
    leading = leading * np.sign(leading[np.abs(leading).argmax(0), range(leading.shape[1])])
    directions = np.zeros((width, 2))
    directions[:, : leading.shape[1]] = leading
    share = float(np.sort(values)[-2:].sum() / total) if total > 0 else 1.0
    return mean, directions, min(share, 1.0)


def _blocks(features: Array, rows: Array) -> Iterator[Array]:
    """Some rows as vectors of float64, a block at a time."""
    width = max(1, int(np.prod(features.shape[1:])))
    step = max(1, BLOCK // width)
    for start in range(0, len(rows), step):
        part = features[rows[start : start + step]]
        yield part.reshape(len(part), -1).astype(np.float64)


def _packed(numbers: Array, kind: str) -> str:
    return base64.b64encode(numbers.astype(kind).tobytes()).decode()

"""Projection of all rows on their two main directions, for the map of a page."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array

#: Limits of the rows, and of the numbers in them, that determine the main directions.
DIRECTION_ROWS, DIRECTION_NUMBERS = 5000, 50_000_000
#: Limit of the points on a page: a browser draws them in a fraction of a second.
MOST_POINTS = 50_000
#: Numbers per block of projected rows: 8 MB.
BLOCK = 1_000_000
#: Largest coordinate on the grid of the page.
GRID = 65535


@dataclass(frozen=True, eq=False)
class Plane:
    """Places of some rows on a square grid, and the share of the variance in the plane."""

    rows: Array
    places: Array
    share: float

    def as_json(self, codes: Array, total: int, numbers: Array | None = None) -> dict[str, Any]:
        """Whole numbers in base64, with a code of its group for each point.

        ``numbers`` are the row numbers in the source, if they differ from the places.
        """
        every = len(self.rows) == total and numbers is None
        called = self.rows if numbers is None else numbers[self.rows]
        return {
            "count": len(self.rows),
            "of": total,
            "share": self.share,
            "x": _pack(self.places[:, 0], "<u2"),
            "y": _pack(self.places[:, 1], "<u2"),
            "codes": _pack(codes[self.rows], "<u2"),
            "rows": None if every else _pack(called, "<u4"),
        }


def project(features: Array, wanted: Array) -> Plane:
    """Project rows on their two main directions; ``wanted`` rows are always among the points."""
    rows = _points(len(features), wanted)
    mean, directions, share = main_directions(features)
    blocks = np.array_split(rows, -(-len(rows) * len(mean) // BLOCK) or 1)
    flat = np.concatenate([(_vectors(features[block]) - mean) @ directions for block in blocks])
    low, high = flat.min(0), flat.max(0)
    width = np.where(high > low, high - low, 1.0)
    middle = np.where(high > low, 0.0, 0.5)
    return Plane(rows, np.rint(((flat - low) / width + middle) * GRID), share)


def _points(count: int, wanted: Array) -> Array:
    """The rows on the map, in order: all, or evenly spaced ones and those wanted."""
    if count <= MOST_POINTS:
        return np.arange(count)
    spaced = np.linspace(0, count - 1, MOST_POINTS).round().astype(np.int64)
    return np.union1d(spaced, wanted)


def main_directions(features: Array) -> tuple[Array, Array, float]:
    """The mean, the two directions (d, 2) of most variance, and their share of all variance.

    They come from evenly spaced rows.
    """
    from sklearn.decomposition import PCA

    width = int(np.prod(features.shape[1:]))
    most = max(2, min(DIRECTION_ROWS, DIRECTION_NUMBERS // max(1, width)))
    sample = _vectors(features[:: max(1, len(features) // most)])
    directions = np.zeros((width, 2))
    if len(sample) < 2 or not np.ptp(sample, axis=0).any():
        return sample.mean(0), directions, 1.0
    count = min(2, *sample.shape)
    found = PCA(count, random_state=0).fit(sample)
    directions[:, :count] = found.components_.T
    return found.mean_, directions, min(float(found.explained_variance_ratio_.sum()), 1.0)


def _vectors(rows: Array) -> Array:
    return rows.reshape(len(rows), -1).astype(np.float64)


def _pack(numbers: Array, kind: str) -> str:
    return base64.b64encode(numbers.astype(kind).tobytes()).decode()

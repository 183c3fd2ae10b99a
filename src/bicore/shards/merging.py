"""The best rows of all parts together: how rows are divided into parts changes nothing."""

from __future__ import annotations

import numpy as np

from bicore.data import Array
from bicore.shards.blocks import codes_of
from bicore.shards.scoring import Found

#: Features of rows that have fallen behind are dropped once there are this many times as many.
SPARE = 2


class Merged:
    """The rows that are worth most among the parts so far.

    Parameters
    ----------
    count : int
        How many rows are kept.
    classes, open : array, optional
        All labels in order, and the places of those that have an equal share of the rows; None: the
        best rows are kept whatever their class.

    Examples
    --------
    >>> def part(*values):
    ...     places = np.arange(len(values))
    ...     return Found(places, places[:, None], None, -np.inf, np.array(values), places)
    >>> merged = Merged(2)
    >>> merged.add(part(1.0, 3.0, 2.0))
    >>> merged.positions.tolist(), merged.below
    ([1, 2], 1.0)
    """

    def __init__(self, count: int, classes: Array | None = None, open: Array | None = None) -> None:
        self.count = count
        self.classes = classes
        self.open = open
        self.below = -np.inf
        self.positions: Array = np.empty(0, dtype=np.int64)
        self.values: Array = np.empty(0, dtype=np.float32)
        self.y: Array | None = None
        self._features: list[tuple[Array, Array]] = []

    def add(self, found: Found) -> None:
        """Add the best rows of another part.

        Parameters
        ----------
        found : Found
            Its rows.
        """
        self.below = max(self.below, found.below)
        near = self._near(found.values)
        if not len(near):
            return
        positions = np.concatenate([self.positions, found.positions[near]])
        values = np.concatenate([self.values, found.values[near]])
        new = None if found.y is None else found.y[near]
        y = new if self.y is None else _join(self.y, new)
        best = np.sort(self._best(values, positions, y))
        left_out = np.ones(len(values), dtype=bool)
        left_out[best] = False
        if left_out.any():
            self.below = max(self.below, float(values[left_out].max()))
        self.positions, self.values = positions[best], values[best]
        self.y = None if y is None else y[best]
        self._features.append((found.positions[found.listed], found.features))
        if sum(len(one) for one, _ in self._features) > SPARE * self.count:
            self._features = [self._known()]

    def _near(self, values: Array) -> Array:
        """Places of the rows that may be among the best; the others only count as left out."""
        if self.open is not None or len(self.values) < self.count:
            return np.arange(len(values))
        far = values < self.values.min()
        self.below = max(self.below, float(values[far].max(initial=-np.inf)))
        return np.flatnonzero(~far)

    def _best(self, values: Array, positions: Array, y: Array | None) -> Array:
        """Places of the best rows; among equal ones those at the smallest positions."""
        order = np.lexsort((positions, -values))
        if self.open is None or self.classes is None:
            return np.asarray(order[: self.count])
        codes = codes_of(y, self.classes)[order]
        share = max(1, self.count // max(1, len(self.open)))
        return np.concatenate([order[codes == code][:share] for code in self.open.tolist()])

    def _known(self) -> tuple[Array, Array]:
        """Positions of the rows whose features came with their parts, in order, and these."""
        positions = np.concatenate([one for one, _ in self._features])
        places = np.flatnonzero(np.isin(positions, self.positions))
        places = places[np.argsort(positions[places])]
        parts = np.concatenate([features for _, features in self._features])
        return positions[places], parts[places]

    def missing(self) -> Array:
        """Positions of the rows whose features did not come with their parts.

        Returns
        -------
        array of int
            In order.
        """
        return np.setdiff1d(self.positions, self._known()[0])

    def features(self, fetched: Array) -> Array:
        """The features of all rows.

        Parameters
        ----------
        fetched : array
            Those of the missing rows.

        Returns
        -------
        array (n, p)
            In the order of ``positions``.
        """
        positions, known = self._known()
        found: Array = np.empty((len(self.positions), known.shape[1]))
        there = np.isin(self.positions, positions)
        found[there] = known
        found[~there] = fetched
        return found


def _join(a: Array, b: Array | None) -> Array | None:
    return None if b is None else np.concatenate([a, b])

"""Prototypes: when the memory is full, the two nearest rows of a class are averaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.runtime.context import Context
from bicore.streaming.base import Arrays
from bicore.streaming.buffer import Buffer
from bicore.types import RandomState


class Prototypes(Buffer):
    """Averages of rows: in a full memory, the two nearest prototypes of a class are merged.

    ExStream of Hayes, Cahill and Kanan (2019): each class keeps prototypes; for a new row in a full
    memory, the two nearest of one class are replaced by their average, weighted by the rows each
    represents.

    The original gives every class a buffer of fixed size. Here the classes share the capacity: the
    class that would hold the most prototypes merges (on a tie the new row's own class, then the one
    seen first), so that new classes always find room as long as there are no more classes than
    ``capacity``. Averages are no rows of the stream: the id is that of the earliest row in them.
    Labels are optional; without them all rows form one class. Extra columns of floats are averaged
    as the rows are, and do not count in the distances; others are refused.

    Parameters
    ----------
    capacity : int
        Maximum number of prototypes.
    random_state : int, Generator, RandomState or None
        Not used: nothing is drawn.

    Examples
    --------
    >>> buffer = Prototypes(capacity=2).update([[0.0], [9.0], [2.0]], [1, 1, 1])
    >>> sorted(buffer.snapshot().x[:, 0].tolist())
    [2.0, 4.5]
    """

    needs_classes = True
    _own_state = ("order",)
    _weighted = True

    def __init__(self, capacity: int, random_state: RandomState = 0) -> None:
        super().__init__(capacity, random_state)
        self.order: list[Any] = []  # classes in the order they were first seen
        # Distances are changed in place: an update removes them first, so that they are recomputed
        # after a failed one.
        self._distances: list[Array] = []

    def _check(self, batch: Dataset, context: Context) -> None:
        super()._check(batch, context)
        for name, column in (batch.extra or {}).items():
            if column.dtype.kind != "f":
                raise InputError(
                    f"extra[{name!r}] must hold floats, which {self.name} averages; got "
                    f"{column.dtype}."
                )

    def _process_batch(self, batch: Dataset, context: Context) -> None:
        labels = _labels(batch)
        self.order = list(dict.fromkeys([*self.order, *labels]))
        if len(self.order) > self.capacity:
            raise InputError(
                f"capacity={self.capacity} must be at least {len(self.order)}, the number of "
                "classes; each class keeps a prototype."
            )
        code = {label: number for number, label in enumerate(self.order)}
        squared = self._distances.pop() if self._distances else None
        averages = _Averages(self.capacity, batch.x[0].size, _matrix(batch).shape[1], squared)
        if self.kept is not None:
            averages.fill(self.kept, [code[label] for label in _labels(self.kept)])
        for vector, weight, ident, label in zip(
            _matrix(batch), batch.weights.tolist(), batch.ids.tolist(), labels, strict=True
        ):
            averages.add(vector, weight, ident, code[label])
        self.kept = averages.dataset(self._join_kept(batch))
        self._distances = [averages.squared]

    def _restore(self, head: Mapping[str, Any], arrays: Arrays) -> None:
        super()._restore(head, arrays)
        self._distances = []


def _labels(rows: Dataset) -> list[Any]:
    """Return one label per row; None for all without labels."""
    return [None] * len(rows) if rows.y is None else rows.y.reshape(-1).tolist()


def _matrix(rows: Dataset) -> Array:
    """Return the averaged columns: the features, then extra ones by name."""
    extra = rows.extra or {}
    columns = [rows.x, *(extra[name] for name in sorted(extra))]
    # In double precision, because a product may overflow in half precision.
    return np.hstack([column.reshape(len(rows), -1).astype(np.float64) for column in columns])


class _Averages:
    """Prototypes with the squared distances between their features, updated row by row."""

    def __init__(self, capacity: int, features: int, width: int, squared: Array | None) -> None:
        self.rows = np.zeros((capacity, width))
        self.features = self.rows[:, :features]
        self.weights = np.zeros(capacity)
        self.known = squared is not None
        self.squared = np.full((capacity, capacity), np.inf) if squared is None else squared
        self.ids: list[int] = []
        self.codes: list[int] = []

    def fill(self, kept: Dataset, codes: list[int]) -> None:
        """Begin with the prototypes kept."""
        self.ids, self.codes = kept.ids.tolist(), codes
        self.rows[: len(kept)] = _matrix(kept)
        self.weights[: len(kept)] = kept.weights
        for place in range(0 if self.known else len(kept)):
            self._measure(place)

    def _measure(self, place: int) -> None:
        count = len(self.ids)
        distances = np.square(self.features[:count] - self.features[place]).sum(1)
        distances[place] = np.inf
        self.squared[place, :count] = self.squared[:count, place] = distances

    def add(self, vector: Array, weight: float, ident: int, code: int) -> None:
        """Add a row; without room, two prototypes of the largest class are merged first."""
        if len(self.ids) == len(self.weights):
            counts = np.bincount([*self.codes, code])
            group = code if counts[code] == counts.max() else int(counts.argmax())
            members = np.flatnonzero(np.array(self.codes) == group)
            if len(members) == 1:  # the new row and the only prototype of its class
                self._absorb(int(members[0]), vector, weight)
                return
            self._merge_nearest(members)
        place = len(self.ids)
        self.ids.append(ident)
        self.codes.append(code)
        self.rows[place], self.weights[place] = vector, weight
        self._measure(place)

    def _absorb(self, place: int, vector: Array, weight: float) -> None:
        """Average a prototype with a row, by weight."""
        own = self.weights[place]
        self.rows[place] = (own * self.rows[place] + weight * vector) / (own + weight)
        self.weights[place] = own + weight
        self._measure(place)

    def _merge_nearest(self, members: Array) -> None:
        """Merge the two nearest members; the last prototype moves to the place that gets free."""
        among = self.squared[np.ix_(members, members)]
        first, second = sorted(int(members[k]) for k in divmod(int(among.argmin()), len(members)))
        self._absorb(first, self.rows[second], float(self.weights[second]))
        self.ids[first] = min(self.ids[first], self.ids[second])
        last = len(self.ids) - 1
        for column in (self.rows, self.weights, self.ids, self.codes):
            column[second] = column[last]
        del self.ids[last], self.codes[last]
        if second != last:
            self._measure(second)

    def dataset(self, both: Dataset) -> Dataset:
        """Return the prototypes; labels and shapes are those of the rows with the same ids."""
        place = {int(ident): row for row, ident in enumerate(both.ids)}
        rows = both[[place[ident] for ident in self.ids]]
        extra = rows.extra or {}
        columns = {"x": rows.x, **{name: extra[name] for name in sorted(extra)}}
        start = 0
        for name, column in columns.items():
            stop = start + column[0].size
            part = self.rows[: len(rows), start:stop]
            columns[name], start = part.reshape(column.shape).astype(column.dtype), stop
        x = columns.pop("x")
        return rows.with_columns(
            x=x, sample_weight=self.weights[: len(rows)].copy(), extra=columns or None
        )

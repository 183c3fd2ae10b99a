"""Prototypes: when the memory is filled, the two nearest rows of a class become one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bicore.data import Array, Dataset, read_targets
from bicore.errors import InputError
from bicore.memory.buffer import Buffer
from bicore.runtime import Context


class Prototypes(Buffer):
    """Averages of rows: in a filled memory, the two nearest prototypes of one class become one.

    ExStream of Hayes, Cahill and Kanan (2019): each class keeps prototypes; for a new row in a
    filled memory, the two nearest of one class are replaced by their average, weighted by the rows
    each stands for.

    The original gives every class a buffer of fixed size. Here the classes share the capacity: the
    class that would hold the most prototypes merges (on a tie the new row's own class, then the one
    seen first), so that new classes always find room as long as there are no more classes than
    ``capacity``. Averages are no rows of the stream: the id is that of the earliest row in them.
    Labels are optional; without them all rows form one class.

    Parameters
    ----------
    capacity : int
        The most prototypes that are ever kept.
    seed : int
        Of no effect: nothing is drawn.

    Examples
    --------
    >>> buffer = Prototypes(capacity=2).update([[0.0], [9.0], [2.0]], [1, 1, 1])
    >>> sorted(buffer.snapshot().x[:, 0].tolist())
    [2.0, 4.5]
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        super().__init__(capacity, seed)
        self.order: list[Any] = []  # classes in the order they were first seen
        self._distances: Array | None = None  # between the prototypes kept; made anew after loading

    def _check(self, batch: Dataset, context: Context) -> None:
        super()._check(batch, context)
        if batch.y is not None and read_targets(batch.y).classes is None:
            raise InputError(
                f"{self.name} needs class labels or none, and y holds targets; use Reservoir for "
                "regression."
            )

    def _take(self, batch: Dataset, context: Context) -> None:
        labels = _labels(batch)
        self.order = self._met(labels)
        held = [] if self.kept is None else [self.order.index(one) for one in _labels(self.kept)]
        memory = _Memory(self.kept, held, batch, self.capacity, self._distances)
        self._distances = None  # until this batch is through
        for row, label in enumerate(labels):
            if len(memory.ids) >= self.capacity and not self._make_room(memory, label, batch, row):
                continue
            memory.append(batch, row, self.order.index(label))
        self.kept = memory.dataset(self._followed_by(batch))
        self._distances = memory.squared

    def _met(self, labels: list[Any]) -> list[Any]:
        """The classes seen so far and those of a batch, which must all find room."""
        fresh = [label for label in dict.fromkeys(labels) if label not in self.order]
        classes = self.order + fresh
        if len(classes) > self.capacity:
            raise InputError(
                f"capacity={self.capacity} is below the {len(classes)} classes seen; each class "
                "keeps at least one prototype: raise the capacity."
            )
        return classes

    def _make_room(self, memory: _Memory, label: Any, batch: Dataset, row: int) -> bool:
        """Merge a pair; False when the new row itself was merged and needs no room."""
        own = self.order.index(label)
        counts = np.bincount(memory.codes, minlength=len(self.order))
        counts[own] += 1
        largest = np.flatnonzero(counts == counts.max())
        group = own if own in largest else int(largest[0])
        members = np.flatnonzero(np.array(memory.codes) == group)
        if len(members) == 1:  # the new row and the only prototype of its class
            memory.absorb(int(members[0]), batch.x[row].reshape(-1), float(batch.weights[row]))
            return False
        memory.merge_nearest(members)
        return True

    def _weights(self) -> Array:
        assert self.kept is not None
        return self.kept.weights.copy()

    def _own(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {"order": list(self.order)}, {}

    def _load_own(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.order = list(values["order"])
        self._distances = None


def _labels(rows: Dataset) -> list[Any]:
    """One label a row; None for all of them where there are none."""
    return [None] * len(rows) if rows.y is None else rows.y.reshape(-1).tolist()


class _Memory:
    """Prototypes with the squared distances between them, which change a row at a time."""

    def __init__(
        self,
        kept: Dataset | None,
        codes: list[int],
        batch: Dataset,
        capacity: int,
        squared: Array | None,
    ) -> None:
        width = int(np.prod(batch.x.shape[1:]))
        self.x = np.zeros((capacity, width))
        self.weights = np.zeros(capacity)
        self.squared = np.full((capacity, capacity), np.inf) if squared is None else squared
        self.ids: list[int] = []
        self.codes = codes
        if kept is not None:
            self.ids = kept.ids.tolist()
            self.x[: len(kept)] = kept.x.reshape(len(kept), -1)
            self.weights[: len(kept)] = kept.weights
            for place in range(len(kept) if squared is None else 0):
                self._measure(place)

    def _measure(self, place: int) -> None:
        distances = np.square(self.x[: len(self.ids)] - self.x[place]).sum(1)
        distances[place] = np.inf
        self.squared[place, : len(self.ids)] = distances
        self.squared[: len(self.ids), place] = distances

    def append(self, batch: Dataset, row: int, code: int) -> None:
        place = len(self.ids)
        self.ids.append(int(batch.ids[row]))
        self.codes.append(code)
        self.x[place] = batch.x[row].reshape(-1)
        self.weights[place] = batch.weights[row]
        self._measure(place)

    def absorb(self, place: int, x: Array, weight: float) -> None:
        """Move a prototype to its weighted average with x."""
        total = self.weights[place] + weight
        self.x[place] = (self.weights[place] * self.x[place] + weight * x) / total
        self.weights[place] = total
        self._measure(place)

    def merge_nearest(self, members: Array) -> None:
        """Make one of the two members nearest each other.

        The later place becomes free and the last prototype moves there.
        """
        among = self.squared[np.ix_(members, members)]
        first, second = sorted(int(members[k]) for k in divmod(int(among.argmin()), len(members)))
        self.absorb(first, self.x[second].copy(), float(self.weights[second]))
        self.ids[first] = min(self.ids[first], self.ids[second])
        last = len(self.ids) - 1
        if second != last:
            self.x[second] = self.x[last]
            self.weights[second] = self.weights[last]
            self.ids[second] = self.ids[last]
            self.codes[second] = self.codes[last]
        del self.ids[last], self.codes[last]
        if second != last:
            self._measure(second)

    def dataset(self, both: Dataset) -> Dataset:
        """As rows; labels and shapes are those of the rows whose ids the prototypes carry."""
        place = {int(ident): row for row, ident in enumerate(both.ids)}
        rows = both[[place[ident] for ident in self.ids]]
        size = len(self.ids)
        averages = self.x[:size].reshape(rows.x.shape).astype(rows.x.dtype)
        return rows.with_columns(x=averages, weight=self.weights[:size].copy())

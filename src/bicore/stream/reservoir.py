"""Random samples of a stream: of all rows alike, or balanced over classes."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import Any

import numpy as np

from bicore.data import Array, Dataset, joined, read_targets
from bicore.errors import InputError
from bicore.runtime import Context
from bicore.stream.base import Buffer


class Reservoir(Buffer):
    """Reservoir sampling (Vitter 1985): at any time a uniform random sample of the rows seen.

    Rows of unequal weight are kept with probability proportional to their weight (Chao 1982), as long as no row outweighs the rest.
    The answer does not depend on how the stream is cut into batches.

    Examples
    --------
    >>> buffer = Reservoir(capacity=3).update(np.arange(100.0))
    >>> float(buffer.snapshot().weights.sum())
    100.0
    """

    def _take(self, batch: Dataset, context: Context) -> None:
        drawn = self.rng.random((len(batch), 2))
        total = self.seen + np.cumsum(batch.weights)
        free = max(0, min(self.capacity - len(self), len(batch)))
        rows = np.arange(len(batch))
        enters = (rows >= free) & (drawn[:, 0] * total < self.capacity * batch.weights)
        slots = (drawn[:, 1] * self.capacity).astype(np.int64)
        kept = len(self)
        source = np.arange(kept + free)
        source[slots[enters]] = kept + rows[enters]  # of several rows for one slot the last stays, as one by one
        both = batch if self.kept is None else joined(self.kept, batch)
        self.kept = both[source]

    def _weights(self) -> Array:
        assert self.kept is not None
        if self.counted <= self.capacity:
            return self.kept.weights.copy()
        return np.full(len(self), self.seen / len(self))


class ClassBalancedReservoir(Buffer):
    """Class-balancing reservoir sampling (CBRS, Chrysakis and Moens 2020), for streams whose classes come in any proportion.

    Once the memory is filled, a class that is or since then was the largest in it is *full*. A row of a class that is not full
    takes the place of a random row of the largest class; a row of a full class c replaces a random row of c with probability
    m_c/n_c, m_c rows of it being kept and n_c seen (weights count in place of numbers, if given).

    The snapshot weighs rows of class c by n_c/m_c. The answer does not depend on how the stream is cut into batches.

    Examples
    --------
    >>> buffer = ClassBalancedReservoir(capacity=4).update(np.zeros((50, 1)), [0] * 48 + [1] * 2)
    >>> np.bincount(buffer.snapshot().y).tolist()
    [2, 2]
    """

    needs_labels = True

    def __init__(self, capacity: int, seed: int = 0) -> None:
        super().__init__(capacity, seed)
        self.class_seen: dict[Any, float] = {}
        self.full: set[Any] = set()

    def _check(self, batch: Dataset, context: Context) -> None:
        super()._check(batch, context)
        assert batch.y is not None
        if read_targets(batch.y).classes is None:
            raise InputError(f"{self.name} needs class labels, and y holds targets; use Reservoir for regression.")

    def _take(self, batch: Dataset, context: Context) -> None:
        both = batch if self.kept is None else joined(self.kept, batch)
        assert both.y is not None
        labels, drawn = both.y.reshape(-1).tolist(), self.rng.random((len(batch), 2)).tolist()
        source = list(range(len(self)))  # the row that each slot holds
        slots: dict[Any, list[int]] = {}
        for slot in source:
            slots.setdefault(labels[slot], []).append(slot)
        for number, weight in enumerate(batch.weights.tolist()):
            row = len(self) + number
            label = labels[row]
            self.class_seen[label] = self.class_seen.get(label, 0.0) + weight
            if len(source) < self.capacity:
                slots.setdefault(label, []).append(len(source))
                source.append(row)
            else:
                place = self._place(label, weight, drawn[number], slots)
                if place is not None:
                    source[place] = row
            self._mark(slots, len(source))
        self.kept = both[source]

    def _mark(self, slots: dict[Any, list[int]], kept: int) -> None:
        """Once the memory is filled, the largest classes are full, for good."""
        if kept == self.capacity:
            largest = max(map(len, slots.values()))
            self.full.update(label for label, own in slots.items() if len(own) == largest)

    def _place(self, label: Any, weight: float, drawn: list[float], slots: dict[Any, list[int]]) -> int | None:
        """The slot that a new row takes, or None."""
        chance, which = drawn
        own = slots.get(label, [])
        if label in self.full and own:
            replaces = chance * self.class_seen[label] <= len(own) * weight
            return own[int(which * len(own))] if replaces else None
        largest = max(map(len, slots.values()))
        groups = sorted(name for name, places in slots.items() if len(places) == largest)
        group, number = divmod(int(which * largest * len(groups)), largest)
        place = slots[groups[group]].pop(number)
        if not slots[groups[group]]:
            del slots[groups[group]]
        insort(slots.setdefault(label, []), place)  # in order, as when the lists are made anew for the next batch
        return place

    def _weights(self) -> Array:
        assert self.kept is not None
        assert self.kept.y is not None
        labels = self.kept.y.reshape(-1).tolist()
        counts: dict[Any, int] = {}
        for label in labels:
            counts[label] = counts.get(label, 0) + 1
        weights = np.array([self.class_seen[label] / counts[label] for label in labels])
        return np.asarray(weights * (self.seen / weights.sum()))  # classes that found no room are shared out

    def _extra(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {"class_seen": list(self.class_seen.items()), "full": sorted(self.full)}, {}

    def _load_extra(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.class_seen, self.full = dict(values["class_seen"]), set(values["full"])

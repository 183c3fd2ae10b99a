"""Random samples of a stream: of all rows alike, or balanced over classes."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from bicore.data import Array, Dataset, read_targets
from bicore.errors import InputError
from bicore.memory.buffer import Buffer
from bicore.runtime import Context


class Reservoir(Buffer):
    """Reservoir sampling: at any time a uniform random sample of the rows seen.

    Rows of unequal weight are kept by priority sampling (Duffield, Lund and Thorup 2007): the rows
    with the largest w/u, u uniform. With τ the largest priority that was dropped, max(w, τ) is an
    unbiased estimate of the weight each kept row stands for; the snapshot scales these to the
    weight seen. The answer does not depend on how the stream is cut into batches.

    Parameters
    ----------
    capacity : int
        The most rows that are ever kept.
    seed : int
        Of whatever is drawn at random.

    Examples
    --------
    >>> buffer = Reservoir(capacity=3).update(np.arange(100.0))
    >>> round(buffer.snapshot().weights.sum())
    100
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        super().__init__(capacity, seed)
        self.priorities = np.empty(0)
        self.threshold = 0.0

    def _take(self, batch: Dataset, context: Context) -> None:
        fresh = batch.weights / (1.0 - self.rng.random(len(batch)))
        priorities = np.concatenate([self.priorities, fresh])
        both = self._followed_by(batch)
        if len(both) > self.capacity:
            order = np.argsort(-priorities, kind="stable")
            self.threshold = max(self.threshold, float(priorities[order[self.capacity]]))
            rows = np.sort(order[: self.capacity])  # in the order of the stream
            both = both[rows]
            priorities = priorities[rows]
        self.kept = both
        self.priorities = priorities

    def _weights(self) -> Array:
        assert self.kept is not None
        estimates = np.maximum(self.kept.weights, self.threshold)
        return np.asarray(estimates * (self.seen / estimates.sum()))

    def _own(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {"threshold": self.threshold}, {"priorities": self.priorities.copy()}

    def _load_own(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.threshold = float(values["threshold"])
        self.priorities = np.asarray(arrays["priorities"])


class ClassBalancedReservoir(Buffer):
    """Class-balancing reservoir sampling, for streams whose classes come in any proportion.

    CBRS of Chrysakis and Moens (2020). Once the memory is filled, a class that is or since then was
    the largest in it is *full*. A row of a class that is not full takes the place of a random row
    of the largest class; a row of a full class c replaces a random row of c with probability
    m_c/n_c, m_c rows of it being kept and n_c seen. Which rows are kept does not depend on their
    weights.

    The snapshot shares the weight seen of a class equally among its rows. The answer does not
    depend on how the stream is cut into batches.

    Parameters
    ----------
    capacity : int
        The most rows that are ever kept.
    seed : int
        Of whatever is drawn at random.

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
        self.class_rows: dict[Any, int] = {}
        self.full: set[Any] = set()

    def _check(self, batch: Dataset, context: Context) -> None:
        super()._check(batch, context)
        assert batch.y is not None
        if read_targets(batch.y).classes is None:
            raise InputError(
                f"{self.name} needs class labels, and y holds targets; use Reservoir for "
                "regression."
            )

    def _take(self, batch: Dataset, context: Context) -> None:
        both = self._followed_by(batch)
        assert both.y is not None
        labels = both.y.reshape(-1).tolist()
        drawn = self.rng.random((len(batch), 2)).tolist()
        source = list(range(len(self)))  # the row that each slot holds
        slots: dict[Any, list[int]] = {}
        for slot in source:
            slots.setdefault(labels[slot], []).append(slot)
        for number, weight in enumerate(batch.weights.tolist()):
            row = len(self) + number
            label = labels[row]
            self.class_seen[label] = self.class_seen.get(label, 0.0) + weight
            self.class_rows[label] = self.class_rows.get(label, 0) + 1
            if len(source) < self.capacity:
                slots.setdefault(label, []).append(len(source))
                source.append(row)
            else:
                place = self._place(label, drawn[number], slots)
                if place is not None:
                    source[place] = row
            self._note_full(slots, len(source))
        self.kept = both[source]

    def _note_full(self, slots: dict[Any, list[int]], kept: int) -> None:
        """Once the memory is filled, the largest classes are full, for good."""
        if kept == self.capacity:
            largest = max(map(len, slots.values()))
            self.full.update(label for label, own in slots.items() if len(own) == largest)

    def _place(self, label: Any, drawn: list[float], slots: dict[Any, list[int]]) -> int | None:
        """The slot that a new row takes, or None."""
        chance, which = drawn
        own = slots.get(label, [])
        if label in self.full and own:
            replaces = chance * self.class_rows[label] <= len(own)
            return own[int(which * len(own))] if replaces else None
        largest = max(map(len, slots.values()))
        groups = sorted(name for name, places in slots.items() if len(places) == largest)
        group, number = divmod(int(which * largest * len(groups)), largest)
        place = slots[groups[group]].pop(number)
        if not slots[groups[group]]:
            del slots[groups[group]]
        # in order, as when the lists are made anew for the next batch
        insort(slots.setdefault(label, []), place)
        return place

    def _weights(self) -> Array:
        assert self.kept is not None
        assert self.kept.y is not None
        labels = self.kept.y.reshape(-1).tolist()
        counts = Counter(labels)
        weights = np.array([self.class_seen[label] / counts[label] for label in labels])
        # the weight of classes that found no room is shared out among the others
        return np.asarray(weights * (self.seen / weights.sum()))

    def _own(self) -> tuple[dict[str, Any], dict[str, Array]]:
        counts = {
            "class_seen": list(self.class_seen.items()),
            "class_rows": list(self.class_rows.items()),
        }
        return {**counts, "full": sorted(self.full)}, {}

    def _load_own(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.class_seen = dict(values["class_seen"])
        self.class_rows = dict(values["class_rows"])
        self.full = set(values["full"])

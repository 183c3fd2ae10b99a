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
    Labels are optional; without them all rows form one class. Extra columns of floats are averaged
    as the rows are, and do not count in the distances; others are refused.

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
        for name, column in (batch.extra or {}).items():
            if column.dtype.kind != "f":
                raise InputError(
                    f"{self.name} averages rows, and extra[{name!r}] holds {column.dtype}; give "
                    "floats, or use a buffer that keeps rows, such as ClassBalancedReservoir."
                )

    def _take(self, batch: Dataset, context: Context) -> None:
        labels = _labels(batch)
        self.order = self._met(labels)
        held = [] if self.kept is None else [self.order.index(one) for one in _labels(self.kept)]
        memory = _Memory(self.kept, held, batch, self.capacity, self._distances)
        self._distances = None  # until this batch is through
        for row, label in enumerate(labels):
            if len(memory.ids) >= self.capacity and not self._make_room(memory, label, row):
                continue
            memory.append(row, self.order.index(label))
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

    def _make_room(self, memory: _Memory, label: Any, row: int) -> bool:
        """Merge a pair; False when the new row itself was merged and needs no room."""
        own = self.order.index(label)
        counts = np.bincount(memory.codes, minlength=len(self.order))
        counts[own] += 1
        largest = np.flatnonzero(counts == counts.max())
        group = own if own in largest else int(largest[0])
        members = np.flatnonzero(np.array(memory.codes) == group)
        if len(members) == 1:  # the new row and the only prototype of its class
            memory.absorb(int(members[0]), memory.lines, row, memory.batch.weights)
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


def _lines(rows: Dataset) -> dict[str, Array]:
    """The columns that are averaged, a line a row: the features, and the extra ones."""
    # The latter in double precision: a weight times a half may be beyond what a half holds.
    extra = {name: column.astype(np.float64) for name, column in (rows.extra or {}).items()}
    columns = {"x": rows.x, **extra}
    return {name: column.reshape(len(rows), -1) for name, column in columns.items()}


class _Memory:
    """Prototypes with the squared distances between them, which change a row at a time.

    ``averages`` holds every averaged column; the distances are those of the features.
    """

    def __init__(
        self,
        kept: Dataset | None,
        codes: list[int],
        batch: Dataset,
        capacity: int,
        squared: Array | None,
    ) -> None:
        self.batch = batch
        self.lines = _lines(batch)
        self.averages = {
            name: np.zeros((capacity, lines.shape[1])) for name, lines in self.lines.items()
        }
        self.weights = np.zeros(capacity)
        self.squared = np.full((capacity, capacity), np.inf) if squared is None else squared
        self.ids: list[int] = []
        self.codes = codes
        if kept is not None:
            self.ids = kept.ids.tolist()
            for name, lines in _lines(kept).items():
                self.averages[name][: len(kept)] = lines
            self.weights[: len(kept)] = kept.weights
            for place in range(len(kept) if squared is None else 0):
                self._measure(place)

    def _measure(self, place: int) -> None:
        x = self.averages["x"]
        distances = np.square(x[: len(self.ids)] - x[place]).sum(1)
        distances[place] = np.inf
        self.squared[place, : len(self.ids)] = distances
        self.squared[: len(self.ids), place] = distances

    def append(self, row: int, code: int) -> None:
        place = len(self.ids)
        self.ids.append(int(self.batch.ids[row]))
        self.codes.append(code)
        for name, lines in self.lines.items():
            self.averages[name][place] = lines[row]
        self.weights[place] = self.batch.weights[row]
        self._measure(place)

    def absorb(self, place: int, lines: Mapping[str, Array], row: int, weights: Array) -> None:
        """Move a prototype to its weighted average with a row of some lines."""
        own = self.weights[place]
        weight = float(weights[row])
        total = own + weight
        for name, average in self.averages.items():
            average[place] = (own * average[place] + weight * lines[name][row]) / total
        self.weights[place] = total
        self._measure(place)

    def merge_nearest(self, members: Array) -> None:
        """Make one of the two members nearest each other.

        The later place becomes free and the last prototype moves there.
        """
        among = self.squared[np.ix_(members, members)]
        first, second = sorted(int(members[k]) for k in divmod(int(among.argmin()), len(members)))
        self.absorb(first, self.averages, second, self.weights)
        self.ids[first] = min(self.ids[first], self.ids[second])
        last = len(self.ids) - 1
        if second != last:
            for average in self.averages.values():
                average[second] = average[last]
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
        columns = {"x": rows.x, **(rows.extra or {})}
        averages = {
            name: self.averages[name][:size].reshape(one.shape).astype(one.dtype)
            for name, one in columns.items()
        }
        x = averages.pop("x")
        return rows.with_columns(x=x, weight=self.weights[:size].copy(), extra=averages or None)

"""Buffers that keep rows by sampling (uniform, by class, by gradients), or averages of rows."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore._deprecated import renamed_fields
from bicore.data import Array, Dataset
from bicore.errors import InputError, check_integer, check_name
from bicore.networks.observe import Observed, observe
from bicore.runtime.context import Context
from bicore.streaming.base import Arrays, State
from bicore.streaming.buffer import Buffer
from bicore.types import RandomState

#: Score of a row without others to compare with: that of orthogonal gradients.
NEUTRAL = 1.0
STRATEGIES = ("greedy", "cosine")


class Reservoir(Buffer):
    """Reservoir sampling: at any time a uniform random sample of the rows seen.

    Rows of unequal weight are kept by priority sampling (Duffield, Lund and Thorup 2007): the rows
    with the largest w/u, u uniform. With τ the largest priority that was dropped, max(w, τ) is an
    unbiased estimate of the weight that each kept row represents; the snapshot scales these to the
    weight seen. The answer does not depend on how the stream is split into batches.

    Parameters
    ----------
    capacity : int
        Maximum number of rows kept.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.

    Examples
    --------
    >>> buffer = Reservoir(capacity=3).update(np.arange(100.0))
    >>> round(buffer.snapshot().weights.sum())
    100
    """

    _own_state = ("threshold", "priorities")

    def __init__(self, capacity: int, random_state: RandomState = 0) -> None:
        super().__init__(capacity, random_state)
        self.priorities = np.empty(0)
        self.threshold = 0.0

    def _process_batch(self, batch: Dataset, context: Context) -> None:
        fresh = batch.weights / (1.0 - self.rng.random(len(batch)))
        priorities = np.concatenate([self.priorities, fresh])
        both = self._join_kept(batch)
        if len(both) > self.capacity:
            order = np.argsort(-priorities, kind="stable")
            self.threshold = max(self.threshold, float(priorities[order[self.capacity]]))
            rows = np.sort(order[: self.capacity])  # in the order of the stream
            both = both[rows]
            priorities = priorities[rows]
        self.kept = both
        self.priorities = priorities

    def _weights(self, kept: Dataset) -> Array:
        estimates = np.maximum(kept.weights, self.threshold)
        return np.asarray(estimates * (self.seen / estimates.sum()))


class ClassBalancedReservoir(Buffer):
    """Class-balancing reservoir sampling, for streams whose classes come in any proportion.

    CBRS of Chrysakis and Moens (2020). Once the memory is filled, a class that is or since then was
    the largest in it is *full*. A row of a class that is not full takes the place of a random row
    of the largest class; a row of a full class c replaces a random row of c with probability
    m_c/n_c, m_c rows of it being kept and n_c seen. Which rows are kept does not depend on their
    weights.

    The snapshot shares the weight seen of a class equally among its rows. The answer does not
    depend on how the stream is split into batches.

    Parameters
    ----------
    capacity : int
        Maximum number of rows kept.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.

    Examples
    --------
    >>> buffer = ClassBalancedReservoir(capacity=4).update(np.zeros((50, 1)), [0] * 48 + [1] * 2)
    >>> np.bincount(buffer.snapshot().y).tolist()
    [2, 2]
    """

    needs_labels = needs_classes = True

    def __init__(self, capacity: int, random_state: RandomState = 0) -> None:
        super().__init__(capacity, random_state)
        #: The weight and the number of rows seen, by label, and the labels of full classes.
        self.seen_weights: dict[Any, float] = {}
        self.seen_rows: dict[Any, int] = {}
        self.full: set[Any] = set()

    def _process_batch(self, batch: Dataset, context: Context) -> None:
        both = self._join_kept(batch)
        assert both.y is not None
        labels = both.y.reshape(-1).tolist()
        drawn = self.rng.random((len(batch), 2)).tolist()
        # copies, because a failed update must not change the old ones
        self.seen_weights, self.seen_rows = dict(self.seen_weights), dict(self.seen_rows)
        self.full = set(self.full)
        source = list(range(len(self)))  # the row that each slot holds
        slots: dict[Any, list[int]] = {}
        for slot in source:
            slots.setdefault(labels[slot], []).append(slot)
        for number, weight in enumerate(batch.weights.tolist()):
            row = len(self) + number
            label = labels[row]
            self.seen_weights[label] = self.seen_weights.get(label, 0.0) + weight
            self.seen_rows[label] = self.seen_rows.get(label, 0) + 1
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
        """Mark the largest classes of a full memory as full, permanently."""
        if kept == self.capacity:
            largest = max(map(len, slots.values()))
            self.full.update(label for label, own in slots.items() if len(own) == largest)

    def _place(self, label: Any, drawn: list[float], slots: dict[Any, list[int]]) -> int | None:
        """Return the slot for a new row, or None."""
        chance, which = drawn
        own = slots.get(label, [])
        if label in self.full and own:
            replaces = chance * self.seen_rows[label] <= len(own)
            return own[int(which * len(own))] if replaces else None
        largest = max(map(len, slots.values()))
        groups = sorted(name for name, places in slots.items() if len(places) == largest)
        group, number = divmod(int(which * largest * len(groups)), largest)
        place = slots[groups[group]].pop(number)
        if not slots[groups[group]]:
            del slots[groups[group]]
        # sorted, like the lists of the next batch
        insort(slots.setdefault(label, []), place)
        return place

    def _weights(self, kept: Dataset) -> Array:
        assert kept.y is not None
        labels = kept.y.reshape(-1).tolist()
        counts = Counter(labels)
        weights = np.array([self.seen_weights[label] / counts[label] for label in labels])
        # the weight of classes without room is divided among the others
        return np.asarray(weights * (self.seen / weights.sum()))

    def _state(self) -> State:
        head, arrays = super()._state()
        # As pairs, because labels may be numbers, which cannot be keys in JSON.
        seen = [list(one.items()) for one in (self.seen_weights, self.seen_rows)]
        head["values"] |= {"class_seen": seen[0], "class_rows": seen[1], "full": sorted(self.full)}
        return head, arrays

    def _restore(self, head: Mapping[str, Any], arrays: Arrays) -> None:
        super()._restore(head, arrays)
        values = head["values"]
        self.seen_weights, self.seen_rows = dict(values["class_seen"]), dict(values["class_rows"])
        self.full = set(values["full"])


@renamed_fields(rule="strategy", compared="n_compared")
class GradientSampling(Buffer):
    """Gradient-based sample selection, on gradients of the last layer under the current model.

    GSS of Aljundi, Lin, Goujaud and Bengio (2019). The scores of kept rows are those of their
    arrival. Every row represents the same share of the stream.

    Parameters
    ----------
    capacity : int
        Maximum number of rows kept.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.
    strategy : {"greedy", "cosine"}
        Greedy (their algorithm 2): a row's score is 1 + its largest cosine to ``n_compared`` kept
        rows. With the memory filled, a row of score c < 1 proposes to replace a kept row i drawn ∝
        its score C_i, and does so with probability C_i/(C_i + c). Cosine (their surrogate of the
        integer program): of the kept rows and the batch together, drop the row whose cosines to the
        others sum highest, until the memory holds the rest.
    n_compared : int
        Number of kept rows, drawn once for this many new rows, that a new row is compared with.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> buffer = GradientSampling(capacity=4)
    >>> buffer.update(np.ones((9, 2)), [0, 1, 0] * 3, model=torch.nn.Linear(2, 2))
    GradientSampling(4 of 4 rows kept, 9 seen)
    """

    needs_labels = needs_model = True
    _own_state = ("scores",)

    def __init__(
        self,
        capacity: int,
        random_state: RandomState = 0,
        strategy: str = "greedy",
        n_compared: int = 10,
    ) -> None:
        super().__init__(capacity, random_state)
        check_name("strategy", strategy, STRATEGIES)
        self.strategy = strategy
        self.n_compared = check_integer("n_compared", n_compared)
        self.scores = np.empty(0)

    @property
    def name(self) -> str:
        return f"GradientSampling ({self.strategy})"

    def _process_batch(self, batch: Dataset, context: Context) -> None:
        if self.strategy == "greedy":
            # a long batch is compared with its own earlier rows
            for start in range(0, len(batch), self.n_compared):
                self._greedy(batch[start : start + self.n_compared], context)
        else:
            self._cosine(batch, context)

    def _greedy(self, batch: Dataset, context: Context) -> None:
        both = self._join_kept(batch)
        offset = len(self)
        arrival = self._arrival_scores(both, context)
        source = list(range(offset))  # the row that each place holds
        scores = self.scores.tolist()
        for row, score in enumerate(arrival.tolist(), offset):
            if len(source) < self.capacity:
                source.append(row)
                scores.append(score)
            elif score < NEUTRAL:
                place = self._draw(np.array(scores))
                if self.rng.random() * (scores[place] + score) < scores[place]:
                    source[place] = row
                    scores[place] = score
        self.kept = both[source]
        self.scores = np.array(scores)

    def _arrival_scores(self, both: Dataset, context: Context) -> Array:
        """1 + the largest cosine of each row after those kept to a few of those kept."""
        offset = len(self)
        if not offset:
            return np.full(len(both), NEUTRAL)
        count = min(self.n_compared, offset)
        partners = self.rng.choice(offset, count, replace=False)
        left, right = _directions(both[np.r_[partners, np.arange(offset, len(both))]], context)
        cosines = (left[count:] @ left[:count].T) * (right[count:] @ right[:count].T)
        scores: Array = 1 + cosines.amax(1).cpu().numpy()
        return scores

    def _draw(self, scores: Array) -> int:
        """Draw a place in proportion to its score."""
        total = float(scores.sum())
        if total > 0:
            return int(self.rng.choice(len(scores), p=scores / total))
        return int(self.rng.integers(len(scores)))

    def _cosine(self, batch: Dataset, context: Context) -> None:
        both = self._join_kept(batch)
        rows = np.arange(len(both))
        if len(both) > self.capacity:
            left, right = _directions(both, context)
            cosines = (left @ left.T) * (right @ right.T)
            sums = cosines.sum(1)
            while len(rows) > self.capacity:
                worst = int(sums[torch.from_numpy(rows).to(sums.device)].argmax())
                sums -= cosines[:, rows[worst]]
                rows = np.delete(rows, worst)
        self.kept = both[rows]
        self.scores = np.full(len(rows), NEUTRAL)


def _directions(data: Dataset, context: Context) -> tuple[Tensor, Tensor]:
    """Factors of the gradients, scaled so that the product of their inner products is the cosine.

    A zero gradient stays zero.
    """
    if isinstance(context.model, Observed):
        raise InputError("GradientSampling needs the module itself; give model=module.")
    assert data.y is not None
    observed = observe(context.model, data.x)
    if context.classes is None and data.y.dtype.kind in "US":
        raise InputError("y is text; give the numbers of the outputs of the model instead.")
    classes = None if context.classes is None else tuple(context.classes)
    factors = replace(observed, classes=classes).gradient_factors(data.y)
    left, right = (
        part / part.norm(dim=1, keepdim=True).clamp_min(torch.finfo(part.dtype).tiny)
        for part in factors
    )
    return left, right


class Prototypes(Buffer):
    """Averages of rows: in a full memory, the two nearest prototypes of a class are merged.

    ExStream of Hayes, Cahill and Kanan (2019): each class keeps prototypes; for a new row in a full
    memory, the two nearest of one class are replaced by their average, weighted by the rows each
    represents.

    The original gives every class a buffer of fixed size. Here the classes share the capacity: the
    class that would hold the most prototypes merges (on a tie the new row's own class, then the one
    seen first), so that new classes always find room as long as there are no more classes than
    ``capacity``. Averages are not rows of the stream: the id is that of the earliest row in them.
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
        """Merge the two nearest members; the last prototype takes the free place."""
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

"""Merge-reduce: a fixed number of slots, each a coreset of the part of the stream it stands for.

Section 5 of the paper.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np

from bicore.data import Array, Dataset, joined
from bicore.errors import InputError
from bicore.memory.merging import Merging
from bicore.memory.options import Weighting, as_chooser, as_weighting
from bicore.picking import whole_number
from bicore.runtime import Context
from bicore.selectors.base import Selector, finished, labels_of
from bicore.state import fingerprint


@dataclass(frozen=True, eq=False)
class Slot:
    """Rows that stand for a part of the stream.

    The weights of the rows sum to the weight of the stream points the slot stands for (the paper's
    β_i). ``level`` is how many chunks those are, ``built`` how many chunks had been seen when the
    slot was made.
    """

    data: Dataset
    level: int
    built: int


class MergeReduce(Merging):
    """A coreset of an endless stream in ``capacity`` rows.

    Every chunk is reduced to a slot of capacity/slots rows by ``selector``. When there is a slot
    too many, two neighbouring slots of equal level become one: the selector chooses again, from the
    rows of both, weighted by how much of the stream each stands for.

    An update of at least a slot's size is one chunk; smaller ones wait until they make up a slot.
    Waiting rows are part of the snapshot and of the state. To stay within the capacity, a pair of
    slots merges when the first row waits for a slot too many (with one slot: the rows join it at
    once).

    Parameters
    ----------
    selector : Selector
        How rows are chosen; bilevel selection in the paper. Without labels in the stream, one that
        needs none.
    capacity : int
        The most rows kept after any update.
    slots : int
        One slot adapts to all of the past at once, several keep parts of it intact; the paper uses
        10 for 100 rows.
    weights : {"equal", "learnt"}
        Rows of a slot share its weight equally (the paper), or in proportion to the weights the
        selector learnt.
    seed : int
        Of the selections.

    Raises
    ------
    InputError
        Where a parameter is out of its range.

    Examples
    --------
    >>> from bicore.selectors import KCenter
    >>> buffer = MergeReduce(KCenter(), capacity=6, slots=3)
    >>> for start in range(0, 70, 10):
    ...     _ = buffer.update(np.arange(start, start + 10.0))
    >>> buffer.levels
    [4, 2, 1]
    """

    def __init__(
        self,
        selector: Selector,
        capacity: int,
        slots: int = 1,
        weights: str = "equal",
        seed: int = 0,
    ) -> None:
        super().__init__(capacity, seed)
        self.selector = as_chooser(selector)
        self.slot_count = _slot_count(slots, self.capacity)
        self.weighting = as_weighting(weights)
        self.needs_labels = selector.needs_labels
        self.needs_model = selector.needs_model
        self.slots: list[Slot] = []
        self.pending: Dataset | None = None
        self.chunks = 0
        self.reductions = 0
        self.classes: list[Any] = []

    @property
    def name(self) -> str:
        return f"MergeReduce with {self.selector.name}"

    @property
    def slot_size(self) -> int:
        """Rows of a slot."""
        return self.capacity // self.slot_count

    @property
    def levels(self) -> list[int]:
        """How many chunks each slot stands for, oldest first."""
        return [slot.level for slot in self.slots]

    def _take(self, batch: Dataset, context: Context) -> None:
        self._meet(labels_of(batch, self.selector))
        rows = batch if self.pending is None else joined(self.pending, batch)
        if len(rows) >= self.slot_size:
            self.pending = None
            self._append(rows, context)
        else:
            self.pending = rows
            self._make_room(context)
        self._gather()

    def _meet(self, labels: list[Any]) -> None:
        """Remember classes in the order they come.

        A chunk without some of them is then still one problem with the others.
        """
        known = set(self.classes)
        self.classes = self.classes + [label for label in labels if label not in known]

    def _append(self, rows: Dataset, context: Context) -> None:
        """Reduce a chunk to a slot, and two slots to one if that is one too many."""
        self.chunks += 1
        self.slots = [*self.slots, Slot(self._reduced(rows, context), 1, self.chunks)]
        if len(self.slots) > self.slot_count:
            self._merge(select_index(self.levels), context)

    def _make_room(self, context: Context) -> None:
        """Waiting rows need the room of a slot."""
        assert self.pending is not None
        held = sum(len(slot.data) for slot in self.slots)
        if held + len(self.pending) <= self.capacity:
            return
        if len(self.slots) == 1:
            rows = joined(self.slots[0].data, self.pending)
            self.pending = None
            self.chunks += 1
            self.slots = [Slot(self._reduced(rows, context), self.slots[0].level + 1, self.chunks)]
        else:
            self._merge(nearest_pair(self.levels), context)

    def _merge(self, k: int, context: Context) -> None:
        """Make one slot of slot k and the next."""
        first = self.slots[k]
        second = self.slots[k + 1]
        rows = self._reduced(joined(first.data, second.data), context)
        merged = Slot(rows, first.level + second.level, self.chunks)
        self.slots = [*self.slots[:k], merged, *self.slots[k + 2 :]]

    def _reduced(self, rows: Dataset, context: Context) -> Dataset:
        """At most a slot's size of the rows; their weights sum to what all of them weighed."""
        self.reductions += 1
        total = float(rows.weights.sum())
        if len(rows) <= self.slot_size:
            return rows
        rng = np.random.default_rng((self.seed, self.reductions))
        selector = self.selector.for_classes(self.classes) if self.classes else self.selector
        # a selector is shown nothing that is to decide nothing
        seen = rows.with_columns(extra=None)
        coreset = finished(selector.select(seen, self.slot_size, rng=rng, context=context))
        picked = coreset.of(rows)
        shares = picked.weights if self.weighting is Weighting.LEARNT else np.ones(len(picked))
        return picked.with_columns(weight=shares * (total / shares.sum()))

    def merge(
        self, other: Self, *, offset: int | None = None, context: Context | None = None
    ) -> Self:
        """Take in what another buffer of the same kind has seen.

        It is as if its stream had come after this one's.

        Parameters
        ----------
        other : MergeReduce
            A buffer built like this one, but for the seed; it is left as it is.
        offset : int, optional
            What its ids are moved by; the default, the number of rows this buffer has seen, is also
            the least.
        context : Context, optional
            The current model where one is needed, and the runtime.

        Returns
        -------
        MergeReduce
            The buffer itself.

        Raises
        ------
        InputError
            Where the buffers are not built alike, or ids would occur twice; nothing has changed
            then.
        """
        self._check_alike(other)
        self._follow(other, offset, context)
        return self

    def _check_alike(self, other: MergeReduce) -> None:
        if not isinstance(other, MergeReduce):
            raise InputError(
                f"other is a {type(other).__name__}; a MergeReduce built like this one is needed."
            )
        changed = [name for name in self.unlike(other) if name != "seed"]
        if changed:
            raise InputError(
                f"other has another {', '.join(changed)}; two buffers merge when they are built "
                "alike."
            )

    def _absorb(self, other: Self, moved: int, context: Context) -> None:
        self._meet(other.classes)
        for slot in other.slots:
            self.chunks += slot.level
            self.slots = [*self.slots, Slot(_moved(slot.data, moved), slot.level, self.chunks)]
        waiting = [] if self.pending is None else [self.pending]
        if other.pending is not None:
            waiting.append(_moved(other.pending, moved))
        self.pending = None
        while len(self.slots) > self.slot_count:
            self._merge(nearest_pair(self.levels), context)
        for rows in waiting:
            self._take(rows, context)
        self._gather()

    def _gather(self) -> None:
        """What is kept is what the slots hold, then what waits."""
        parts = [slot.data for slot in self.slots]
        if self.pending is not None:
            parts.append(self.pending)
        self.kept = reduce(joined, parts) if parts else None

    def _weights(self) -> Array:
        assert self.kept is not None
        return self.kept.weights.copy()

    # State.

    def _configuration(self) -> dict[str, Any]:
        return {
            **super()._configuration(),
            "slots": self.slot_count,
            "weights": self.weighting.value,
            "selector": fingerprint(self.selector),
        }

    def _own(self) -> tuple[dict[str, Any], dict[str, Array]]:
        values = {
            "slots": [[slot.level, slot.built, len(slot.data)] for slot in self.slots],
            "chunks": self.chunks,
            "reductions": self.reductions,
            "classes": list(self.classes),
        }
        return values, {}

    def _load_own(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.chunks = values["chunks"]
        self.reductions = values["reductions"]
        self.classes = list(values["classes"])
        self.slots = []
        start = 0
        for level, built, size in values["slots"]:
            assert self.kept is not None
            self.slots.append(Slot(self.kept[start : start + size], level, built))
            start += size
        # the rows beyond the slots are those that wait
        waits = start < len(self)
        self.pending = self.kept[start:] if waits and self.kept is not None else None

    @classmethod
    def load(cls, path: str | os.PathLike[str], selector: Selector | None = None) -> Self:
        """Read what :meth:`save` wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.
        selector : Selector
            The one the buffer was built with: it may hold a network or a function, which no file
            restores.

        Returns
        -------
        MergeReduce
            As it was saved.

        Raises
        ------
        InputError
            Where the selector is missing or of another configuration, or the file is of another
            class or format, or damaged.
        """
        if selector is None:
            raise InputError(
                "MergeReduce.load needs selector=…, the one the buffer was built with."
            )
        head, arrays = cls._read(path)
        configuration = dict(head["configuration"])
        known = configuration.pop("selector")
        if known != fingerprint(as_chooser(selector)):
            raise InputError(
                f"{path} was written with another selector configuration (fingerprint {known}, "
                f"yours is {fingerprint(selector)}); give the selector it was built with."
            )
        return cls(selector, **configuration)._loaded(path, head, arrays)


def select_index(levels: list[int]) -> int:
    """Which neighbours merge, algorithm 3 of the paper, counted from 0.

    The last two if the slot before the last full one is larger than it (or there is one slot), else
    the leftmost pair of equal level among those of the smallest level.
    """
    slots = len(levels) - 1
    if slots == 1 or levels[slots - 2] > levels[slots - 1]:
        return slots - 1
    return nearest_pair(levels)


def nearest_pair(levels: list[int]) -> int:
    """The leftmost pair of equal neighbours with the smallest level.

    Where none are equal, the pair with the smallest sum.
    """
    equal = [k for k in range(len(levels) - 1) if levels[k] == levels[k + 1]]
    if equal:
        return min(equal, key=lambda k: (levels[k], k))
    return min(range(len(levels) - 1), key=lambda k: (levels[k] + levels[k + 1], k))


def _slot_count(slots: Any, capacity: int) -> int:
    words = (
        f"slots={slots!r} is outside 1 … {capacity}, the capacity; a slot holds at least one row."
    )
    count = whole_number(slots, 1, words)
    if count > capacity:
        raise InputError(words)
    return count


def _moved(rows: Dataset, offset: int) -> Dataset:
    return rows.with_columns(ids=rows.ids + offset)

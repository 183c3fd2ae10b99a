"""Merge-reduce: a fixed number of slots, each a coreset of the part of the stream it stands for
(section 5 of the paper)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bicore.data import Array, Dataset, joined
from bicore.errors import InputError, unknown_name
from bicore.memory.buffer import Buffer
from bicore.runtime import Context
from bicore.selectors.base import Selector, finished, labels_of
from bicore.state import fingerprint


@dataclass(frozen=True, eq=False)
class Slot:
    """Rows that stand for ``level`` chunks of the stream; ``built`` counts the chunks seen when it
    was made.

    The weights of the rows sum to the weight of the stream points the slot stands for (the paper's
    β_i).
    """

    data: Dataset
    level: int
    built: int


class MergeReduce(Buffer):
    """A coreset of an endless stream in ``capacity`` rows.

    Every chunk is reduced to a slot of capacity/slots rows by ``selector``. When there is a slot
    too many, two neighbouring slots of equal level become one: the selector chooses again, from the
    rows of both, weighted by how much of the stream each stands for.

    Parameters
    ----------
    selector : how rows are chosen; bilevel selection in the paper. Without labels in the stream,
    one that needs none. capacity : the most rows kept after any update. slots : one slot adapts to
    all of the past at once, several keep parts of it intact; the paper uses 10 for 100 rows.
    weights : "equal" or "learnt"
        Rows of a slot share its weight equally (the paper), or in proportion to the weights the
        selector learnt.
    seed : of the selections.

    An update of at least a slot's size is one chunk; smaller ones wait until they make up a slot.
    Waiting rows are part of the snapshot and of the state. To stay within the capacity, a pair of
    slots merges when the first row waits for a slot too many (with one slot: the rows join it at
    once).

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
        if not isinstance(selector, Selector):
            raise InputError(
                f"selector={selector!r} is not a Selector; for example BilevelSelector(), or "
                "as_selector('uniform')."
            )
        if (
            isinstance(slots, bool)
            or not isinstance(slots, (int, np.integer))
            or not 1 <= slots <= self.capacity
        ):
            raise InputError(
                f"slots={slots!r} is outside 1 … {self.capacity}, the capacity; a slot holds at "
                "least one row."
            )
        if weights not in ("equal", "learnt"):
            raise unknown_name("weights", weights, ("equal", "learnt"))
        self.selector = selector
        self.slot_count = int(slots)
        self.weighting = weights
        self.needs_labels = selector.needs_labels
        self.needs_model = selector.needs_model
        self.slots: list[Slot] = []
        self.pending: Dataset | None = None
        self.chunks = 0
        self.reductions = 0
        self.classes: list[Any] = []
        #: Whatever the owner wants to find again beside the state: JSON values.
        self.mark: dict[str, Any] = {}

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
        self._meet(batch)
        rows = batch if self.pending is None else joined(self.pending, batch)
        if len(rows) >= self.slot_size:
            self.pending = None
            self._append(rows, context)
        else:
            self.pending = rows
            self._make_room(context)
        self._gather()

    def _meet(self, batch: Dataset) -> None:
        """Remember classes in the order they come, so that a chunk without some of them is still
        one problem with the others."""
        known = set(self.classes)
        self.classes = self.classes + [
            label for label in labels_of(batch, self.selector) if label not in known
        ]

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
        first = self.slots[k]
        second = self.slots[k + 1]
        rows = self._reduced(joined(first.data, second.data), context)
        self.slots = [
            *self.slots[:k],
            Slot(rows, first.level + second.level, self.chunks),
            *self.slots[k + 2 :],
        ]

    def _reduced(self, rows: Dataset, context: Context) -> Dataset:
        """At most a slot's size of the rows; their weights sum to what all of them weighed."""
        self.reductions += 1
        total = float(rows.weights.sum())
        if len(rows) <= self.slot_size:
            return rows
        rng = np.random.default_rng((self.seed, self.reductions))
        selector = self.selector.for_classes(self.classes) if self.classes else self.selector
        coreset = finished(selector.select(rows, self.slot_size, rng=rng, context=context))
        picked = coreset.of(rows)
        shares = picked.weights if self.weighting == "learnt" else np.ones(len(picked))
        object.__setattr__(picked, "weight", shares * (total / shares.sum()))
        return picked

    def merge(
        self, other: MergeReduce, *, offset: int | None = None, context: Context | None = None
    ) -> Self:
        """Take in what another buffer of the same kind has seen, as if its stream had come after
        this one's.

        Its ids are moved by ``offset`` (default: the number of rows this buffer has seen, which is
        also the least).
        """
        if not isinstance(other, MergeReduce):
            raise InputError(
                f"other is a {type(other).__name__}; a MergeReduce built like this one is needed."
            )
        own = self._configuration()
        others = other._configuration()
        changed = [name for name in own if name != "seed" and own[name] != others[name]]
        if changed:
            raise InputError(
                f"other has another {', '.join(changed)}; two buffers merge when they are built "
                "alike."
            )
        if offset is not None and offset < self.position:
            raise InputError(
                f"offset={offset} is below the {self.position} rows seen here; ids would occur "
                "twice."
            )
        if self.kept is not None and other.kept is not None:
            joined(self.kept[:0], other.kept[:0])
        context = context or Context()
        before = self._state()
        moved = self.position if offset is None else offset
        try:
            with context.runtime.applied():
                self._absorb(other, moved, context)
            self.position = moved + other.position
            self.counted = self.counted + other.counted
            self.seen += other.seen
        except BaseException:
            self._restore(before)
            raise
        return self

    def _absorb(self, other: MergeReduce, offset: int, context: Context) -> None:
        known = set(self.classes)
        self.classes = self.classes + [label for label in other.classes if label not in known]
        for slot in other.slots:
            self.chunks += slot.level
            self.slots = [*self.slots, Slot(_moved(slot.data, offset), slot.level, self.chunks)]
        waiting = [
            rows
            for rows in (
                self.pending,
                None if other.pending is None else _moved(other.pending, offset),
            )
            if rows is not None
        ]
        self.pending = None
        while len(self.slots) > self.slot_count:
            self._merge(nearest_pair(self.levels), context)
        for rows in waiting:
            self._take(rows, context)
        self._gather()

    def _gather(self) -> None:
        parts = [slot.data for slot in self.slots] + (
            [] if self.pending is None else [self.pending]
        )
        whole = parts[0] if parts else None
        for part in parts[1:]:
            assert whole is not None
            whole = joined(whole, part)
        self.kept = whole

    def _weights(self) -> Array:
        assert self.kept is not None
        return self.kept.weights.copy()

    # State.

    def _configuration(self) -> dict[str, Any]:
        own = {
            "slots": self.slot_count,
            "weights": self.weighting,
            "selector": fingerprint(self.selector),
        }
        return {**super()._configuration(), **own}

    def _extra(self) -> tuple[dict[str, Any], dict[str, Array]]:
        slots = [[slot.level, slot.built, len(slot.data)] for slot in self.slots]
        return {
            "slots": slots,
            "chunks": self.chunks,
            "reductions": self.reductions,
            "classes": list(self.classes),
            "mark": self.mark,
        }, {}

    def _load_extra(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.chunks = values["chunks"]
        self.reductions = values["reductions"]
        self.classes = list(values["classes"])
        self.mark = dict(values["mark"])
        self.slots = []
        start = 0
        for level, built, size in values["slots"]:
            assert self.kept is not None
            self.slots.append(Slot(self.kept[start : start + size], level, built))
            start += size
        self.pending = (
            self.kept[start:] if self.kept is not None and start < len(self.kept) else None
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], selector: Selector | None = None) -> Self:
        """Read what :meth:`save` wrote. A selector may hold a network or a function, which no file
        restores: give it again; one of another configuration is refused.
        """
        if selector is None:
            raise InputError(
                "MergeReduce.load needs selector=…, the one the buffer was built with."
            )
        head, arrays = cls._read(path)
        configuration = dict(head["configuration"])
        known = configuration.pop("selector")
        if known != fingerprint(selector):
            raise InputError(
                f"{path} was written with another selector configuration (fingerprint {known}, "
                f"yours is {fingerprint(selector)}); "
                "give the selector it was built with."
            )
        return cls(selector, **configuration)._loaded(path, head, arrays)


def select_index(levels: list[int]) -> int:
    """Which neighbours merge, algorithm 3 of the paper, counted from 0: the last two if the slot
    before the last full one is larger than it (or there is one slot), else the leftmost pair of
    equal level among those of the smallest level.
    """
    slots = len(levels) - 1
    if slots == 1 or levels[slots - 2] > levels[slots - 1]:
        return slots - 1
    return nearest_pair(levels)


def nearest_pair(levels: list[int]) -> int:
    """The leftmost pair of equal neighbours with the smallest level; where none are equal, the pair
    with the smallest sum."""
    equal = [k for k in range(len(levels) - 1) if levels[k] == levels[k + 1]]
    if equal:
        return min(equal, key=lambda k: (levels[k], k))
    return min(range(len(levels) - 1), key=lambda k: (levels[k] + levels[k + 1], k))


def _moved(rows: Dataset, offset: int) -> Dataset:
    copied = rows[:]
    object.__setattr__(copied, "ids", rows.ids + offset)
    return copied

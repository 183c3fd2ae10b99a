"""Merge-reduce (section 5 of the paper): slots, each a coreset of a part of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

from bicore._deprecated import renamed_fields, selector_second
from bicore.data import Dataset, join_datasets
from bicore.errors import check_integer
from bicore.methods.base import Selector, list_classes
from bicore.runtime.context import Context
from bicore.streaming.base import OLD_WEIGHTING, Arrays, SelectingMemory, State
from bicore.streaming.buffer import MergingBuffer
from bicore.types import RandomState


@dataclass(frozen=True, eq=False)
class Slot:
    """Rows that represent a part of the stream.

    The weights of the rows sum to the weight of that part (the paper's β_i). ``level`` is its
    number of chunks.
    """

    data: Dataset
    level: int


@selector_second
@renamed_fields(values=OLD_WEIGHTING, weights="weighting")
class MergeReduce(SelectingMemory, MergingBuffer):
    """A coreset of an endless stream in ``capacity`` rows.

    Every chunk is reduced to a slot of capacity/slots rows by ``selector``. When there is a slot
    too many, two neighbouring slots of equal level become one: the selector chooses again, from the
    rows of both, weighted by how much of the stream each represents.

    An update of at least a slot's size is one chunk; smaller ones wait until they make up a slot.
    Waiting rows are part of the snapshot and of the state. To stay within the capacity, a pair of
    slots merges when the first row waits for a slot too many (with one slot: the rows join it at
    once).

    Parameters
    ----------
    capacity : int
        Maximum number of rows kept.
    selector : Selector, optional
        Method that selects rows (default: ``BilevelSelector()``). Without labels in the stream,
        use a method that needs none.
    slots : int
        Number of slots: one slot is selected again at every step, more keep parts of the past as
        they are; the paper uses 10 for 100 rows.
    weighting : {"uniform", "learned"}
        Rows of a slot share its weight equally (the paper), or in proportion to the weights the
        selector learned.
    random_state : int, Generator, RandomState or None
        Seed for the selections.

    Raises
    ------
    InputError
        If a parameter is out of its range.

    Examples
    --------
    >>> from bicore.methods import KCenter
    >>> buffer = MergeReduce(6, KCenter(), slots=3)
    >>> for start in range(0, 70, 10):
    ...     _ = buffer.update([float(value) for value in range(start, start + 10)])
    >>> buffer.levels
    [4, 2, 1]
    """

    _own_state = ("reductions", "classes")
    _weighted = True

    def __init__(
        self,
        capacity: int,
        selector: Selector | None = None,
        slots: int = 1,
        weighting: str = "uniform",
        random_state: RandomState = 0,
    ) -> None:
        super().__init__(capacity, selector, weighting, random_state)
        self.slots = check_integer("slots", slots, 1, self.capacity, fix="the capacity")
        self.needs_labels = self.selector.needs_labels
        self.needs_model = self.selector.needs_model
        self.slots_: list[Slot] = []
        self.pending: Dataset | None = None
        self.reductions = 0
        self.classes: list[Any] = []

    @property
    def name(self) -> str:
        return f"MergeReduce with {self.selector.name}"

    @property
    def slot_size(self) -> int:
        """Number of rows of a slot."""
        return self.capacity // self.slots

    @property
    def levels(self) -> list[int]:
        """The number of chunks that each slot represents, oldest first."""
        return [slot.level for slot in self.slots_]

    def _process_batch(self, batch: Dataset, context: Context) -> None:
        self._add_classes(list_classes(batch, self._chooser))
        rows = batch if self.pending is None else join_datasets(self.pending, batch)
        if len(rows) >= self.slot_size:
            self.pending = None
            self.slots_ = [*self.slots_, Slot(self._reduce(rows, context), 1)]
            if len(self.slots_) > self.slots:
                self._merge(select_index(self.levels), context)
        else:
            self.pending = rows
            self._make_room(context)
        self._gather()

    def _add_classes(self, labels: list[Any]) -> None:
        """Record classes in order, because a chunk may lack some of them."""
        self.classes = list(dict.fromkeys([*self.classes, *labels]))

    def _make_room(self, context: Context) -> None:
        """Merge slots if the waiting rows do not fit."""
        assert self.pending is not None
        if sum(len(slot.data) for slot in self.slots_) + len(self.pending) <= self.capacity:
            return
        if len(self.slots_) == 1:
            self.slots_ = [*self.slots_, Slot(self.pending, 1)]
            self.pending = None
        self._merge(nearest_pair(self.levels), context)

    def _merge(self, k: int, context: Context) -> None:
        """Merge slot k with the next one."""
        first, second = self.slots_[k : k + 2]
        rows = self._reduce(join_datasets(first.data, second.data), context)
        merged = Slot(rows, first.level + second.level)
        self.slots_ = [*self.slots_[:k], merged, *self.slots_[k + 2 :]]

    def _reduce(self, rows: Dataset, context: Context) -> Dataset:
        """Select at most a slot's size of the rows; their weights keep the sum."""
        self.reductions += 1
        if len(rows) <= self.slot_size:
            return rows
        total = float(rows.weights.sum())
        seed = (self.random_state, self.reductions)
        picked = self._weigh(self._select(rows, self.slot_size, self.classes, seed, context))
        factor = total / picked.weights.sum()
        return picked.with_columns(sample_weight=picked.weights * factor)

    def _merge_state(self, other: Self, moved: int, context: Context) -> None:
        self._add_classes(other.classes)
        for slot in other.slots_:
            rows = slot.data.with_columns(ids=slot.data.ids + moved)
            self.slots_ = [*self.slots_, Slot(rows, slot.level)]
        waiting = [] if self.pending is None else [self.pending]
        if other.pending is not None:
            waiting.append(other.pending.with_columns(ids=other.pending.ids + moved))
        self.pending = None
        while len(self.slots_) > self.slots:
            self._merge(nearest_pair(self.levels), context)
        for rows in waiting:
            self._process_batch(rows, context)
        if self.slots_:
            self._gather()

    def _gather(self) -> None:
        """Collect the rows of the slots, then the waiting ones."""
        parts = [*(slot.data for slot in self.slots_), self.pending]
        self.kept = reduce(join_datasets, [rows for rows in parts if rows is not None])

    # State.

    def _state(self) -> State:
        head, arrays = super()._state()
        head["values"]["slots"] = [[slot.level, len(slot.data)] for slot in self.slots_]
        return head, arrays

    def _restore(self, head: Mapping[str, Any], arrays: Arrays) -> None:
        super()._restore(head, arrays)
        self.slots_, self.pending = [], self.kept
        for level, *_, size in head["values"]["slots"]:  # earlier versions stored more
            assert self.pending is not None
            self.slots_.append(Slot(self.pending[:size], level))
            # the rows after the slots are waiting
            self.pending = self.pending[size:] if size < len(self.pending) else None


def select_index(levels: list[int]) -> int:
    """Return the index of the slots to merge, by algorithm 3 of the paper.

    The last two if the slot before the last full one is larger than it (or there is one slot), else
    the leftmost pair of equal level among those of the smallest level.
    """
    slots = len(levels) - 1
    if slots == 1 or levels[slots - 2] > levels[slots - 1]:
        return slots - 1
    return nearest_pair(levels)


def nearest_pair(levels: list[int]) -> int:
    """Return the leftmost pair of equal neighbours with the smallest level, else with the
    smallest sum."""
    equal = [k for k in range(len(levels) - 1) if levels[k] == levels[k + 1]]
    if equal:
        return min(equal, key=lambda k: (levels[k], k))
    return min(range(len(levels) - 1), key=lambda k: (levels[k] + levels[k + 1], k))

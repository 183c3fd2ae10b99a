"""A replay memory for continual learning: an equal share of the capacity for every task.

Its rehearsal loss is the term that a training adds for the tasks before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, Dataset, joined
from bicore.errors import InputError
from bicore.memory.buffer import read_columns, stored_columns
from bicore.memory.options import (
    Weighting,
    as_chooser,
    as_weighting,
)
from bicore.memory.rehearsal import Rehearsal
from bicore.memory.state_dict import no_state, packed, unpacked
from bicore.runtime import Context
from bicore.selectors.base import Selector, finished, labels_of
from bicore.state import FORMAT, fingerprint, read_state, write_state


class ReplayMemory(Rehearsal):
    """Summaries of the tasks seen so far, ⌊capacity/t⌋ rows of each of t tasks.

    After a task, :meth:`add_task` chooses its rows and shrinks the earlier summaries: by prefix
    where the selector's order has a meaning and weights are equal (that is what it would choose
    again), else by selecting again from what is kept.

    A task with fewer rows than its share keeps all of them, and the rest of its share stays empty.
    A task whose classes were seen before is a task like any other. More tasks than ``capacity`` are
    refused: some task would lose its last row.

    Parameters
    ----------
    selector : Selector
        How rows of a task are chosen.
    capacity : int
        The most rows kept in all.
    weights : {"equal", "learnt"}
        Rows of a task count equally (the paper), or in proportion to the weights the selector
        learnt.
    seed : int
        Of the selections.

    Raises
    ------
    InputError
        Where a parameter is out of its range.

    Examples
    --------
    >>> from bicore.selectors import Uniform
    >>> memory = ReplayMemory(Uniform(), capacity=10)
    >>> for task in range(3):
    ...     memory.add_task(np.random.default_rng(task).normal(size=(50, 4)), np.full(50, task))
    >>> [len(rows) for rows in memory.tasks]
    [3, 3, 3]

    A training step on a later task adds what the memory still remembers:

    >>> import torch
    >>> network = torch.nn.Linear(4, 3)
    >>> memory.loss(network, torch.nn.CrossEntropyLoss(), beta=0.5).shape
    torch.Size([])
    """

    def __init__(
        self, selector: Selector, capacity: int, weights: str = "equal", seed: int = 0
    ) -> None:
        super().__init__(capacity, seed)
        self.selector = as_chooser(selector)
        self.weighting = as_weighting(weights)

    def __repr__(self) -> str:
        return (
            f"ReplayMemory({len(self)} of {self.capacity} rows kept, {len(self.tasks)} tasks, "
            f"{self.selector.name})"
        )

    def add_task(
        self,
        x: Any,
        y: Any = None,
        weight: Any = None,
        *,
        extra: Mapping[str, Any] | None = None,
        context: Context | None = None,
    ) -> None:
        """Summarise a task and shrink those before it.

        Parameters
        ----------
        x : array (n, …)
            The features of its rows.
        y : array (n,), optional
            Their labels, with every task or with none; :meth:`loss` needs them.
        weight : array (n,), optional
            How much each row counts when they are chosen; by default 1.
        extra : mapping of name to array (n, …), optional
            Further columns of numbers or text to keep with the rows, the same names with every
            task or with none; :meth:`extra` gives them back.
        context : Context, optional
            The current model where the selector needs one, and the runtime.

        Raises
        ------
        InputError
            Where the task cannot follow those before it, or there is no row for it; nothing has
            changed then.
        """
        data = Dataset(x, y, weight, extra=extra)
        count = len(self.tasks) + 1
        share = self.capacity // count
        if share == 0:
            raise InputError(
                f"capacity={self.capacity} has no row for each of {count} tasks; raise the "
                "capacity, or use a stream buffer."
            )
        if self.tasks:
            joined(self.tasks[0][:0], data[:0])  # refuses columns of another kind than those kept
        fresh = self._chosen(data, share, count, context)
        shrunk = [
            self._shrunk(rows, share, place, context) for place, rows in enumerate(self.tasks)
        ]
        self._renew([*shrunk, fresh])

    def _chosen(self, data: Dataset, share: int, number: int, context: Context | None) -> Dataset:
        """The summary of task ``number``, counted from 1."""
        eligible = int((data.weights > 0).sum())
        if eligible <= share and not (self.selector.ordered and eligible > 1):
            return self._weighted(data[np.flatnonzero(data.weights > 0)])
        # also a task that fits is put in order: a later prefix of it then means something
        share = min(share, eligible)
        rng = np.random.default_rng((self.seed, number, share))
        classes = self._classes(data)
        selector = self.selector.for_classes(classes) if classes else self.selector
        # a selector is shown nothing that is to decide nothing
        seen = data.with_columns(extra=None)
        coreset = finished(selector.select(seen, share, rng=rng, context=context))
        return self._weighted(coreset.of(data))

    def _classes(self, data: Dataset) -> list[Any]:
        """The labels of all tasks, this one last, in order of appearance."""
        parts = (*self.tasks, data)
        return list(
            dict.fromkeys(label for part in parts for label in labels_of(part, self.selector))
        )

    def _weighted(self, rows: Dataset) -> Dataset:
        """Rows as they count in the rehearsal loss."""
        weights = rows.weights if self.weighting is Weighting.LEARNT else np.ones(len(rows))
        return rows.with_columns(weight=weights)

    def _shrunk(self, rows: Dataset, share: int, place: int, context: Context | None) -> Dataset:
        if len(rows) <= share:
            return rows
        if self.selector.ordered and self.weighting is Weighting.EQUAL:
            return rows[:share]
        return self._chosen(rows, share, place + 1, context)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the summaries of all tasks to an ``.npz`` without pickle, beside and renamed.

        Parameters
        ----------
        path : path
            Where to.

        Returns
        -------
        Path
            The file.
        """
        return write_state(path, *self._stored())

    def _stored(self) -> tuple[dict[str, Any], dict[str, Array]]:
        arrays: dict[str, Array] = {}
        for number, rows in enumerate(self.tasks):
            arrays |= stored_columns(rows, str(number))
        head = {
            "format": FORMAT,
            "memory": type(self).__name__,
            "tasks": len(self.tasks),
            "passes": self._passes,
            "options": self._options(),
            "selector": fingerprint(self.selector),
        }
        return head, arrays

    def _options(self) -> dict[str, Any]:
        return {"capacity": self.capacity, "weights": self.weighting.value, "seed": self.seed}

    def _configuration(self) -> dict[str, Any]:
        return {**self._options(), "selector": fingerprint(self.selector)}

    def state_dict(self) -> dict[str, Any]:
        """The whole state for a checkpoint of torch, beside those of model and optimiser.

        Returns
        -------
        dict
            Tensors, text and lists, which ``torch.load(…, weights_only=True)`` reads; copies.
        """
        head, arrays = self._stored()
        return packed({**head, "configuration": self._configuration()}, arrays)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the memory stood whose state this is.

        Parameters
        ----------
        state : dict
            What :meth:`state_dict` returned, of a memory that was built like this one.

        Raises
        ------
        InputError
            Where it is of another memory or configuration, or not whole; nothing has changed then.
        """
        head, arrays = unpacked(state, type(self).__name__, self._configuration())
        try:
            tasks = [read_columns(arrays, str(number)) for number in range(head["tasks"])]
            passes = int(head["passes"])
        except (KeyError, TypeError, ValueError) as error:
            raise no_state(repr(error)) from error
        self._renew(tasks)
        self._passes = passes

    @classmethod
    def load(cls, path: str | os.PathLike[str], selector: Selector) -> ReplayMemory:
        """Read what :meth:`save` wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.
        selector : Selector
            The one the memory was built with: it may hold what no file restores.

        Returns
        -------
        ReplayMemory
            As it was saved.

        Raises
        ------
        InputError
            Where the selector is of another configuration, or the file is of another kind or
            format, or damaged.
        """
        head, arrays = read_state(path, "ReplayMemory.save")
        if head.get("format") != FORMAT or head.get("memory") != cls.__name__:
            found = head.get("memory", head.get("buffer"))
            raise InputError(
                f"{path} holds a {found!r} of format {head.get('format')!r}; ReplayMemory.load "
                f"reads format {FORMAT}."
            )
        if head["selector"] != fingerprint(as_chooser(selector)):
            raise InputError(
                f"{path} was written with another selector configuration (fingerprint "
                f"{head['selector']}, yours is {fingerprint(selector)}); give the selector it was "
                "built with."
            )
        memory = cls(selector, **head["options"])
        for number in range(head["tasks"]):
            memory.tasks.append(read_columns(arrays, str(number)))
        # Files from before passes were counted begin their orders anew.
        memory._passes = int(head.get("passes", 0))
        return memory

"""A replay memory for continual learning: an equal share of the capacity for every task.

Its rehearsal loss is the term that a training adds for the tasks before.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, Dataset, as_tensor, joined, of_mean_one
from bicore.errors import InputError, unknown_name
from bicore.memory.buffer import read_columns, stored_columns
from bicore.memory.options import (
    Weighting,
    as_capacity,
    as_chooser,
    as_memory_seed,
    as_weighting,
)
from bicore.runtime import Context
from bicore.selectors.base import Selector, finished, labels_of
from bicore.state import FORMAT, fingerprint, read_state, write_state

Transform = Callable[[Tensor], Tensor]


class ReplayMemory:
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

    >>> network = torch.nn.Linear(4, 3)
    >>> memory.loss(network, torch.nn.CrossEntropyLoss(), beta=0.5).shape
    torch.Size([])
    """

    def __init__(
        self, selector: Selector, capacity: int, weights: str = "equal", seed: int = 0
    ) -> None:
        self.selector = as_chooser(selector)
        self.capacity = as_capacity(capacity)
        self.weighting = as_weighting(weights)
        self.seed = as_memory_seed(seed)
        self.tasks: list[Dataset] = []
        #: What a training step needs, made once a task, and the same as the last model wants it.
        self._held: tuple[Tensor, Tensor, Tensor] | None = None
        self._cast: tuple[Tensor, Tensor, Tensor] | None = None
        self._passes = 0

    def __len__(self) -> int:
        """Rows kept now."""
        return sum(len(rows) for rows in self.tasks)

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
        self.tasks = [*shrunk, fresh]
        self._held = None
        self._cast = None

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

    def loss(
        self, model: Any, criterion: Any, beta: float = 1.0, transform: Transform | None = None
    ) -> Tensor:
        """The rehearsal loss, β Σ_τ (mean loss of the rows of task τ).

        It is the term that the paper adds to the loss of the current task.

        Parameters
        ----------
        model : torch.nn.Module
            The network that is being trained.
        criterion : torch loss or callable
            Such as ``nn.CrossEntropyLoss()``, or a function of outputs and targets that returns one
            loss a row.
        beta : float
            How much the past counts beside the current task.
        transform : callable, optional
            Augments the batch of all kept rows.

        Returns
        -------
        Tensor
            A scalar with gradients; zero while nothing is kept.

        Raises
        ------
        InputError
            Where labels are missing or are no numbers, or the criterion gives no loss for each row.
        """
        parameters = (value for value in model.parameters() if value.is_floating_point())
        like = next(parameters, torch.empty(0))
        if not self.tasks:
            return like.new_zeros(())
        x, y, weight = self._tensors_like(like)
        losses = per_row(criterion)(model(transform(x) if transform is not None else x), y)
        if losses.shape != weight.shape:
            raise InputError(
                f"criterion returned shape {tuple(losses.shape)} for {len(weight)} rows; it must "
                "give one loss a row."
            )
        return beta * (weight.to(losses.dtype) * losses).mean()

    def _tensors_like(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All rows on the model's device and in its precision, moved there once a task."""
        held = self._cast
        if held is None or held[0].device != like.device or held[0].dtype != like.dtype:
            x, y, weight = self.tensors()
            held = x.to(like.device, like.dtype), y.to(like.device), weight.to(like.device)
            self._cast = held
        return held

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All rows, tasks in order.

        Returns
        -------
        x, y, w : Tensor
            Features, labels and weights; the mean of w·loss is the sum over tasks of their mean
            losses.

        Raises
        ------
        InputError
            Where the memory is empty, or labels are missing or are no numbers.
        """
        self._check_tasks()
        if self._held is None:
            x = np.concatenate([rows.x for rows in self.tasks])
            total = len(self)
            weight = np.concatenate(
                [of_mean_one(rows.weights) * (total / len(rows)) for rows in self.tasks]
            )
            self._held = as_tensor(x), _labels(self.tasks), as_tensor(weight)
        return self._held

    def _check_tasks(self) -> None:
        if not self.tasks:
            raise InputError("the memory is empty; add a task first.")

    def extra(self, name: str) -> Tensor:
        """An extra column of all rows, tasks in order.

        Parameters
        ----------
        name : str
            One of the names that :meth:`add_task` was given.

        Returns
        -------
        Tensor
            Its rows are those of :meth:`tensors`.

        Raises
        ------
        InputError
            Where the memory is empty, no task came with that column, or it is no numbers.

        Examples
        --------
        >>> from bicore.selectors import Uniform
        >>> memory = ReplayMemory(Uniform(), capacity=2)
        >>> x = np.arange(9.0)
        >>> memory.add_task(x, extra={"logits": np.stack([x, -x], axis=1)})
        >>> memory.extra("logits").shape
        torch.Size([2, 2])
        """
        self._check_tasks()
        known = self.tasks[0].extra or {}
        if not known:
            raise InputError(
                f"name={name!r} is asked for, and no task came with extra columns; give "
                f"add_task(…, extra={{{name!r}: …}})."
            )
        if name not in known:
            raise unknown_name("name", name, known)
        whole = np.concatenate([(rows.extra or {})[name] for rows in self.tasks])
        if whole.dtype.kind == "U":
            raise InputError(
                f"extra[{name!r}] is text ({whole[0]!r}), which no tensor holds; read it from the "
                "extra of memory.tasks."
            )
        return as_tensor(whole)

    def loader(
        self,
        batch_size: int | None = None,
        *,
        shuffle: bool = True,
        transform: Transform | None = None,
        seed: int | None = None,
        extra: Sequence[str] = (),
    ) -> Iterator[tuple[Tensor, ...]]:
        """One pass over the kept rows in batches.

        Parameters
        ----------
        batch_size : int, optional
            Rows a batch; by default all at once.
        shuffle : bool
            Whether the order is drawn: another one at each call, unless ``seed`` fixes it.
        transform : callable, optional
            Augments each batch of features.
        seed : int, optional
            Of the order.
        extra : sequence of str
            Names of extra columns, which follow the weights in every batch.

        Yields
        ------
        x, y, w, … : Tensor
            As :meth:`tensors` and :meth:`extra` have them.

        Raises
        ------
        InputError
            Where the memory is empty, or labels are missing or are no numbers.
        """
        x, *others = *self.tensors(), *(self.extra(name) for name in extra)
        self._passes += 1
        rng = np.random.default_rng((self.seed, self._passes) if seed is None else seed)
        order = rng.permutation(len(x)) if shuffle else np.arange(len(x))
        size = len(x) if batch_size is None else batch_size
        if size < 1:
            raise InputError(
                f"batch_size={batch_size} is below 1; give rows a batch, or None for all at once."
            )
        for start in range(0, len(x), size):
            rows = torch.from_numpy(order[start : start + size])
            part = x[rows]
            first = transform(part) if transform is not None else part
            yield first, *(column[rows] for column in others)

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
        arrays: dict[str, Array] = {}
        for number, rows in enumerate(self.tasks):
            arrays |= stored_columns(rows, str(number))
        head = {
            "format": FORMAT,
            "memory": type(self).__name__,
            "tasks": len(self.tasks),
            "options": {
                "capacity": self.capacity,
                "weights": self.weighting.value,
                "seed": self.seed,
            },
            "selector": fingerprint(self.selector),
        }
        return write_state(path, head, arrays)

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
        return memory


def per_row(criterion: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The criterion without its mean over rows."""
    if isinstance(criterion, torch.nn.Module) and hasattr(criterion, "reduction"):
        return _without_mean(criterion)
    if not callable(criterion):
        raise InputError(
            f"criterion={criterion!r} is neither a torch loss nor a function of outputs and "
            "targets."
        )
    function: Callable[[Tensor, Tensor], Tensor] = criterion
    return function


def _without_mean(criterion: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """A torch loss that gives one number a row; the targets of a row keep their mean or sum."""
    if getattr(criterion, "weight", None) is not None:
        raise InputError(
            f"criterion={criterion} weighs classes, so its mean over a task is no mean over rows; "
            "give a function of outputs and targets that returns one loss a row."
        )
    plain: Any = copy.copy(criterion)
    plain.reduction = "none"
    mean = criterion.reduction == "mean"

    def apply(outputs: Tensor, targets: Tensor) -> Tensor:
        losses: Tensor = plain(outputs, targets)
        if losses.dim() == 1:
            return losses
        return losses.flatten(1).mean(1) if mean else losses.flatten(1).sum(1)

    return apply


def _labels(tasks: list[Dataset]) -> Tensor:
    """The labels of all tasks as torch's losses take them."""
    columns = [rows.y for rows in tasks if rows.y is not None]
    if len(columns) < len(tasks):
        raise InputError("a task was added without labels; the rehearsal loss needs y.")
    whole = np.concatenate(columns)
    if whole.dtype.kind in "US":
        raise InputError(
            f"labels are text ({whole[0]!r}); number them by the model's outputs before adding a "
            "task."
        )
    kind = np.float32 if whole.dtype.kind == "f" else np.int64
    return as_tensor(whole.astype(kind))

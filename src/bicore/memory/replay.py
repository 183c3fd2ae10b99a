"""A replay memory for continual learning: an equal share of the capacity for every task, and the
rehearsal loss."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, Dataset, as_tensor, joined
from bicore.errors import InputError, unknown_name
from bicore.runtime import Context
from bicore.selectors.base import Selector, finished, labels_of
from bicore.state import FORMAT, fingerprint, read_state, write_state

Transform = Callable[[Tensor], Tensor]


class ReplayMemory:
    """Summaries of the tasks seen so far, ⌊capacity/t⌋ rows of each of t tasks.

    After a task, :meth:`add_task` chooses its rows and shrinks the earlier summaries: by prefix
    where the selector's order has a meaning and weights are equal (that is what it would choose
    again), else by selecting again from what is kept.

    Parameters
    ----------
    selector : how rows of a task are chosen. capacity : the most rows kept in all. weights :
    "equal" (the paper), or "learnt": rows of a task count in proportion to the weights the selector
    learnt. seed : of the selections.

    A task with fewer rows than its share keeps all of them, and the rest of its share stays empty.
    A task whose classes were seen before is a task like any other. More tasks than ``capacity`` are
    refused: some task would lose its last row.

    Examples
    --------
    >>> from bicore.selectors import Uniform
    >>> memory = ReplayMemory(Uniform(), capacity=10)
    >>> for task in range(3):
    ...     memory.add_task(np.random.default_rng(task).normal(size=(50, 4)), np.full(50, task))
    >>> [len(rows) for rows in memory.tasks]
    [3, 3, 3]
    """

    def __init__(
        self, selector: Selector, capacity: int, weights: str = "equal", seed: int = 0
    ) -> None:
        if not isinstance(selector, Selector):
            raise InputError(
                f"selector={selector!r} is not a Selector; for example BilevelSelector(), or "
                "as_selector('uniform')."
            )
        if (
            isinstance(capacity, bool)
            or not isinstance(capacity, (int, np.integer))
            or capacity < 1
        ):
            raise InputError(
                f"capacity={capacity!r} is not a whole number >= 1; give how many rows may be kept."
            )
        if weights not in ("equal", "learnt"):
            raise unknown_name("weights", weights, ("equal", "learnt"))
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise InputError(f"seed={seed!r} is not a whole number >= 0.")
        self.selector = selector
        self.capacity = int(capacity)
        self.weighting = weights
        self.seed = int(seed)
        self.tasks: list[Dataset] = []
        # what a training step needs, made once a task
        self._held: tuple[Tensor, Tensor, Tensor] | None = None
        # the same as the last model wants it
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
        self, x: Any, y: Any = None, weight: Any = None, *, context: Context | None = None
    ) -> None:
        """Summarise a task and shrink those before it. A task that is refused changes nothing."""
        data = Dataset(x, y, weight)
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
        self.tasks = [
            *(self._shrunk(rows, share, place, context) for place, rows in enumerate(self.tasks)),
            fresh,
        ]
        self._held = self._cast = None

    def _chosen(self, data: Dataset, share: int, number: int, context: Context | None) -> Dataset:
        eligible = int((data.weights > 0).sum())
        if eligible <= share and not (self.selector.ordered and eligible > 1):
            picked = data[np.flatnonzero(data.weights > 0)]
            return _weighted(
                picked, picked.weights if self.weighting == "learnt" else np.ones(len(picked))
            )
        # also a task that fits is put in order: a later prefix of it then means something
        share = min(share, eligible)
        rng = np.random.default_rng((self.seed, number, share))
        classes = list(
            dict.fromkeys(
                label for part in (*self.tasks, data) for label in labels_of(part, self.selector)
            )
        )
        selector = self.selector.for_classes(classes) if classes else self.selector
        coreset = finished(selector.select(data, share, rng=rng, context=context))
        picked = coreset.of(data)
        return _weighted(
            picked, coreset.weights if self.weighting == "learnt" else np.ones(len(picked))
        )

    def _shrunk(self, rows: Dataset, share: int, place: int, context: Context | None) -> Dataset:
        if len(rows) <= share:
            return rows
        if self.selector.ordered and self.weighting == "equal":
            return rows[:share]
        return self._chosen(rows, share, place + 1, context)

    def loss(
        self, model: Any, criterion: Any, beta: float = 1.0, transform: Transform | None = None
    ) -> Tensor:
        """β Σ_τ (mean loss of the rows of task τ): the term the paper adds to the loss of the
        current task.

        ``criterion`` is a torch loss such as ``nn.CrossEntropyLoss()``, or a function of outputs
        and targets that returns one loss a row. ``transform`` augments the batch of all kept rows.
        Zero while nothing is kept.
        """
        like = next(
            (value for value in model.parameters() if value.is_floating_point()), torch.empty(0)
        )
        if not self.tasks:
            return like.new_zeros(())
        if (
            self._cast is None
            or self._cast[0].device != like.device
            or self._cast[0].dtype != like.dtype
        ):
            x, y, weight = self.tensors()
            self._cast = x.to(like.device, like.dtype), y.to(like.device), weight.to(like.device)
        x, y, weight = self._cast
        losses = per_row(criterion)(model(transform(x) if transform is not None else x), y)
        if losses.shape != weight.shape:
            raise InputError(
                f"criterion returned shape {tuple(losses.shape)} for {len(weight)} rows; it must "
                "give one loss a row."
            )
        return beta * (weight.to(losses.dtype) * losses).mean()

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """(x, y, w) of all rows, tasks in order; the mean of w·loss is the sum over tasks of their
        mean losses."""
        if not self.tasks:
            raise InputError("the memory is empty; add a task first.")
        if self._held is None:
            x = np.concatenate([rows.x for rows in self.tasks])
            total = len(self)
            weight = np.concatenate(
                [rows.weights * (total / (len(rows) * rows.weights.mean())) for rows in self.tasks]
            )
            self._held = as_tensor(x), _labels(self.tasks), as_tensor(weight)
        return self._held

    def loader(
        self,
        batch_size: int | None = None,
        *,
        shuffle: bool = True,
        transform: Transform | None = None,
        seed: int | None = None,
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches (x, y, w) of the kept rows; ``batch_size`` None gives all at once. One pass; call
        it again for the next, in another order unless ``seed`` fixes it.
        """
        x, y, weight = self.tensors()
        self._passes += 1
        order = np.random.default_rng(
            (self.seed, self._passes) if seed is None else seed
        ).permutation(len(x))
        order = order if shuffle else np.arange(len(x))
        size = len(x) if batch_size is None else batch_size
        if size < 1:
            raise InputError(
                f"batch_size={batch_size} is below 1; give rows a batch, or None for all at once."
            )
        for start in range(0, len(x), size):
            rows = torch.from_numpy(order[start : start + size])
            part = x[rows]
            yield transform(part) if transform is not None else part, y[rows], weight[rows]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the summaries of all tasks to an ``.npz`` without pickle, beside and renamed."""
        arrays: dict[str, Array] = {}
        for number, rows in enumerate(self.tasks):
            columns = {"x": rows.x, "y": rows.y, "weight": rows.weights, "ids": rows.ids}
            arrays |= {
                f"{name}{number}": column for name, column in columns.items() if column is not None
            }
        options = {"capacity": self.capacity, "weights": self.weighting, "seed": self.seed}
        head = {
            "format": FORMAT,
            "memory": type(self).__name__,
            "tasks": len(self.tasks),
            "options": options,
        }
        return write_state(path, {**head, "selector": fingerprint(self.selector)}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], selector: Selector) -> ReplayMemory:
        """Read what :meth:`save` wrote. The selector is given again, because it may hold what no
        file restores; one of another configuration is refused.
        """
        head, arrays = read_state(path, "ReplayMemory.save")
        if head.get("format") != FORMAT or head.get("memory") != cls.__name__:
            found = head.get("memory", head.get("buffer"))
            raise InputError(
                f"{path} holds a {found!r} of format {head.get('format')!r}; ReplayMemory.load "
                f"reads format {FORMAT}."
            )
        if head["selector"] != fingerprint(selector):
            raise InputError(
                f"{path} was written with another selector configuration (fingerprint "
                f"{head['selector']}, yours is "
                f"{fingerprint(selector)}); give the selector it was built with."
            )
        memory = cls(selector, **head["options"])
        for number in range(head["tasks"]):
            x, weight, ids = (arrays[f"{name}{number}"] for name in ("x", "weight", "ids"))
            memory.tasks.append(Dataset(x, arrays.get(f"y{number}"), weight, ids))
        return memory


def per_row(criterion: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The criterion without its mean over rows."""
    if isinstance(criterion, torch.nn.Module) and hasattr(criterion, "reduction"):
        if getattr(criterion, "weight", None) is not None:
            raise InputError(
                f"criterion={criterion} weighs classes, so its mean over a task is no mean over "
                "rows; give a function of outputs "
                "and targets that returns one loss a row."
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
    if not callable(criterion):
        raise InputError(
            f"criterion={criterion!r} is neither a torch loss nor a function of outputs and "
            "targets."
        )
    function: Callable[[Tensor, Tensor], Tensor] = criterion
    return function


def _weighted(rows: Dataset, weight: Array) -> Dataset:
    object.__setattr__(rows, "weight", np.asarray(weight, dtype=np.float64))
    return rows


def _labels(tasks: list[Dataset]) -> Tensor:
    columns = [rows.y for rows in tasks]
    if any(column is None for column in columns):
        raise InputError("a task was added without labels; the rehearsal loss needs y.")
    whole = np.concatenate([column for column in columns if column is not None])
    if whole.dtype.kind in "US":
        raise InputError(
            f"labels are text ({whole[0]!r}); number them by the model's outputs before adding a "
            "task."
        )
    return as_tensor(
        whole.astype(np.float32) if whole.dtype.kind == "f" else whole.astype(np.int64)
    )

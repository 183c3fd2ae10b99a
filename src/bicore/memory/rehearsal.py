"""What memories of tasks share: the rows of each task, and how they are rehearsed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, Dataset, as_tensor, of_mean_one
from bicore.errors import InputError, unknown_name
from bicore.memory.options import as_capacity, as_memory_seed
from bicore.memory.showing import Extra, gathered, shown
from bicore.networks.loading import Fields
from bicore.runtime import Context

Transform = Callable[[Tensor], Tensor]


class Rehearsal:
    """Rows of the tasks seen so far, and the loss that keeps a model to them.

    Parameters
    ----------
    capacity : int
        The most rows kept in all.
    seed : int
        Of what is drawn.

    Raises
    ------
    InputError
        Where a parameter is out of its range.

    Examples
    --------
    >>> memory = Rehearsal(capacity=10)
    >>> memory.tasks = [Dataset([[0.0], [1.0]], [0, 1])]
    >>> [tuple(part.shape) for part in memory.tensors()]
    [(2, 1), (2,), (2,)]
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = as_capacity(capacity)
        self.seed = as_memory_seed(seed)
        self.tasks: list[Dataset] = []
        #: What a training step needs, made once a task, and the same as the last model wants it.
        self._held: tuple[Tensor, Tensor, Tensor] | None = None
        self._cast: tuple[Tensor, Tensor, Tensor] | None = None
        self._passes = 0

    def __len__(self) -> int:
        """Rows kept now."""
        return sum(len(rows) for rows in self.tasks)

    def add_task(
        self,
        x: Any,
        y: Any = None,
        weight: Any = None,
        *,
        extra: Mapping[str, Any] | None = None,
        context: Context | None = None,
    ) -> None:
        """Take in a task.

        Parameters
        ----------
        x : array (n, …)
            The features of its rows.
        y : array (n,), optional
            Their labels, with every task or with none.
        weight : array (n,), optional
            How much each row counts; by default 1.
        extra : mapping of name to array (n, …), optional
            Further columns of numbers or text to keep with the rows.
        context : Context, optional
            The current model where one is needed, and the runtime.
        """
        raise NotImplementedError

    def observe(
        self,
        data: Any,
        *,
        x: str | int | None = None,
        y: str | int | None = None,
        weight: str | int | None = None,
        extra: Extra | None = None,
        context: Context | None = None,
    ) -> None:
        """Take in a task whose rows are tensors, a torch data set or a loader.

        The task is held whole while its rows are chosen.

        Parameters
        ----------
        data : Tensor, tuple of them, torch.utils.data.Dataset or DataLoader
            Rows x, or (x, y), or (x, y, weight); or what gives batches of the task.
        x, y, weight : str or int, optional
            The fields of an item: keys of a dict, or places in a tuple. By default the first two
            of a tuple, and in a dict what is usually called so ("image", "label", …).
        extra : mapping of name to str or int, optional
            Further columns to keep with the rows, and the fields they are.
        context : Context, optional
            The current model where one is needed, and the runtime.

        Raises
        ------
        InputError
            Where the task cannot follow those before it; nothing has changed then.

        Examples
        --------
        >>> from bicore.memory import ReplayMemory
        >>> from bicore.selectors import Uniform
        >>> memory = ReplayMemory(Uniform(), capacity=6)
        >>> rows = torch.utils.data.TensorDataset(torch.rand(50, 4), torch.arange(50) % 2)
        >>> memory.observe(torch.utils.data.DataLoader(rows, batch_size=16))
        >>> len(memory)
        6
        """
        task = gathered(shown(data, Fields(x, y, weight), extra))
        self.add_task(**task, context=context)

    def _renew(self, tasks: list[Dataset]) -> None:
        """Other rows: what training steps held of the old ones is gone."""
        self.tasks = tasks
        self._held = None
        self._cast = None

    def _counted(self) -> Array:
        """How much each row counts, tasks in order: every task the same."""
        total = len(self)
        return np.concatenate(
            [of_mean_one(rows.weights) * (total / len(rows)) for rows in self.tasks]
        )

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
            weight = self._counted()
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
        >>> from bicore.memory import ReplayMemory
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

"""Replay memories for continual learning: a share of the capacity per task, or joint selection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import reduce
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from bicore._deprecated import renamed_fields, renamed_keywords, selector_second
from bicore.arguments import Relative
from bicore.data import Array, Dataset, join_datasets, scale_to_mean_one
from bicore.errors import InputError
from bicore.files import strip_prefix
from bicore.methods.base import Selector, list_classes
from bicore.moments.features import FeatureMap
from bicore.moments.features.registry import map_from_state
from bicore.moments.moments import OLD_PRIORS, Prior
from bicore.networks.observe import Observed
from bicore.runtime.context import Context, Runtime
from bicore.streaming.base import (
    OLD_WEIGHTING,
    Arrays,
    Memory,
    PathLike,
    SelectingMemory,
    State,
    as_context,
    read_columns,
    store_columns,
)
from bicore.streaming.moment_memory import MomentMemory
from bicore.types import Matrix, Numbers, RandomState

if TYPE_CHECKING:
    from bicore.moments.heads import Head

#: Extra column of a joint memory: the number of a row's task.
TASK = "task"


class TaskMemory(Memory):
    """Rows of the tasks seen so far."""

    #: Sums over all rows, for a head.
    memory: MomentMemory | None

    def __init__(self, capacity: int, random_state: RandomState = 0) -> None:
        super().__init__(capacity, random_state)
        self.tasks: list[Dataset] = []

    @renamed_keywords()
    def add_task(
        self,
        x: Matrix,
        y: Numbers | None = None,
        sample_weight: Any = None,
        *,
        extra: Mapping[str, Any] | None = None,
        model: torch.nn.Module | Observed | Context | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        """Add a task and select again among all rows.

        Parameters
        ----------
        x : array (n, …)
            The features of its rows.
        y : array (n,), optional
            Their labels, with every task or with none; :meth:`loss` needs them.
        sample_weight : array (n,), optional
            Weights of the rows when they are chosen (default: 1).
        extra : mapping of name to array (n, …), optional
            Further columns of numbers or text to keep with the rows, the same names with every task
            or with none; :meth:`extra` returns them.
        model : torch.nn.Module, optional
            The current model, if the selector needs one.
        runtime : Runtime, optional
            Device, precision and limits.

        Raises
        ------
        InputError
            If the task does not fit those before it, or there is no room for it; nothing has
            changed then.
        """
        self._add(Dataset(x, y, sample_weight, extra=extra), as_context(model, runtime))

    @abstractmethod
    def _add(self, data: Dataset, context: Context) -> None:
        """Take in the rows of a task."""

    def head(self, alpha: float | str = "auto", prior: Prior | None = None) -> Head:
        """Return the ridge regression on all rows of all tasks.

        Parameters
        ----------
        alpha, prior : object
            As in :meth:`MomentMemory.head`.

        Returns
        -------
        HeadClassifier or HeadRegressor
            A fitted model.

        Raises
        ------
        InputError
            If no task was added, or a ``ReplayMemory`` has no ``feature_map``.
        """
        if self.memory is None:
            raise InputError("a head needs sums over all rows; give feature_map='auto'.")
        return self.memory.head(alpha, prior)

    def __len__(self) -> int:
        """The number of rows kept."""
        return sum(map(len, self.tasks))

    def _rehearsed(self) -> Dataset:
        rows = reduce(join_datasets, self.tasks)
        # A task counts by its mean loss.
        parts = [scale_to_mean_one(one.weights) * (len(self) / len(one)) for one in self.tasks]
        return rows.with_columns(sample_weight=np.concatenate(parts))

    def _add_batches(self, batches: Iterator[dict[str, Any]], context: Context) -> None:
        parts = [dict(batch) for batch in batches]
        if not parts:
            raise InputError("data gives no batch; a task has at least one row.")
        extras = [part.pop("extra", None) or {} for part in parts]
        names = [name for name, column in parts[0].items() if column is not None]
        whole = {name: _concatenate([part[name] for part in parts]) for name in names}
        extra = {name: _concatenate([part[name] for part in extras]) for name in extras[0]}
        self.add_task(**whole, extra=extra or None, model=context)


@selector_second
@renamed_fields(values=OLD_WEIGHTING, weights="weighting")
class ReplayMemory(SelectingMemory, TaskMemory):
    """Coresets of the tasks seen so far, ⌊capacity/t⌋ rows for each of t tasks.

    After a task, :meth:`add_task` chooses its rows and shrinks the earlier summaries: by prefix if
    the selector's order has a meaning and weights are equal (it would choose the same again), else
    by selecting again from the rows kept.

    A task with fewer rows than its share keeps all of them, and the rest of its share stays empty.
    Classes may occur in several tasks. More tasks than ``capacity`` are
    refused: some task would lose its last row.

    Parameters
    ----------
    capacity : int
        Maximum number of rows kept.
    selector : Selector, optional
        Selector of the rows of a task (default: ``BilevelSelector()``).
    weighting : {"uniform", "learned"}
        Rows of a task count equally (the paper), or in proportion to the weights the selector
        learned.
    random_state : int, Generator, RandomState or None
        Seed for the selections.
    feature_map : str, FeatureMap or torch.nn.Module, optional
        Also sum all rows in these features, for :meth:`head` (default: no sums).

    Raises
    ------
    InputError
        If a parameter is out of its range.

    Examples
    --------
    >>> from bicore.methods import Uniform
    >>> memory = ReplayMemory(10, Uniform())
    >>> for task in range(3):
    ...     memory.add_task(np.random.default_rng(task).normal(size=(50, 4)), np.full(50, task))
    >>> [len(rows) for rows in memory.tasks]
    [3, 3, 3]

    A training step on a later task adds the rehearsal loss:

    >>> network = torch.nn.Linear(4, 3)
    >>> memory.loss(network, torch.nn.CrossEntropyLoss(), beta=0.5).shape
    torch.Size([])
    """

    def __init__(
        self,
        capacity: int,
        selector: Selector | None = None,
        weighting: str = "uniform",
        random_state: RandomState = 0,
        feature_map: str | FeatureMap | torch.nn.Module | None = None,
    ) -> None:
        super().__init__(capacity, selector, weighting, random_state)
        self.feature_map, self.memory = feature_map, None
        if feature_map is not None:
            self.memory = MomentMemory(1, feature_map, random_state=self.random_state, keep="lazy")

    def __repr__(self) -> str:
        words = f"{len(self)} of {self.capacity} rows kept, {len(self.tasks)} tasks"
        return f"ReplayMemory({words}, {self.selector.name})"

    def _add(self, data: Dataset, context: Context) -> None:
        count = len(self.tasks) + 1
        share = self.capacity // count
        if share == 0:
            raise InputError(
                f"capacity={self.capacity} must be at least {count}, the number of tasks; raise "
                "it, or use a MomentMemory, whose capacity does not depend on tasks."
            )
        if self.tasks:
            join_datasets(self.tasks[0][:0], data[:0])  # refuses columns of another kind
        sums = nullcontext() if self.memory is None else self.memory._all_or_nothing()
        with self._all_or_nothing(), sums:
            fresh = self._summarise(data, share, count, context)
            shrunk = [self._shrink(rows, share, k, context) for k, rows in enumerate(self.tasks, 1)]
            if self.memory is not None:
                self.memory.update(data.x, data.y, data.sample_weight, runtime=context.runtime)
                self.memory.snapshot()  # empties the pool: only the sums are needed
            self.tasks = [*shrunk, fresh]

    def _summarise(self, data: Dataset, share: int, number: int, context: Context) -> Dataset:
        """Select the rows of task ``number``, counted from 1."""
        eligible = np.flatnonzero(data.weights > 0)
        if len(eligible) <= share and not (self._chooser.ordered and len(eligible) > 1):
            rows = data[eligible]
        else:
            # a task that fits is sorted too, so that its prefixes are coresets
            share = min(share, len(eligible))
            parts = (*self.tasks, data)
            labels = [label for part in parts for label in list_classes(part, self._chooser)]
            classes = list(dict.fromkeys(labels))
            rows = self._select(data, share, classes, (self.random_state, number, share), context)
        return self._weigh(rows)

    def _shrink(self, rows: Dataset, share: int, number: int, context: Context) -> Dataset:
        if len(rows) <= share:
            return rows
        if self._chooser.ordered and self.weighting == "uniform":
            return rows[:share]
        return self._summarise(rows, share, number, context)

    def _state(self) -> State:
        arrays: dict[str, Array] = {}
        for number, rows in enumerate(self.tasks):
            arrays |= store_columns(rows, str(number))
        values: dict[str, Any] = {"tasks": len(self.tasks), "passes": self._passes}
        if self.memory is not None:
            sums, own = self.memory._state()
            values["sums"] = sums
            arrays |= {f"sums.{name}": one for name, one in own.items()}
        return values, arrays

    def _restore(self, head: Mapping[str, Any], arrays: Arrays) -> None:
        self.tasks = [read_columns(arrays, str(number)) for number in range(head["tasks"])]
        self._passes = int(head.get("passes", 0))  # missing in early files
        if self.memory is not None:
            self.memory._restore(head["sums"], strip_prefix("sums.", arrays))

    def _configuration(self) -> dict[str, Any]:
        features = None if self.memory is None else self.memory._stored_map[0]
        return {**super()._configuration(), "feature_map": features}

    @classmethod
    def _from_configuration(cls, configuration: dict[str, Any], arrays: Arrays, given: Any) -> Self:
        if (known := configuration["feature_map"]) is not None:
            stored = strip_prefix("sums.given.", arrays)
            configuration["feature_map"] = map_from_state(known, stored)
        return super()._from_configuration(configuration, arrays, given)


class JointReplay(TaskMemory):
    """The rows of all tasks from which a model learns most about all of them.

    A memory with a share per task shrinks each by choosing again among its rows, and evaluates a
    task by itself. Here a row stays for what it says about everything seen, whichever task it came
    with (:class:`MomentMemory`); a task may end with more rows than another.

    Parameters
    ----------
    capacity : int
        Maximum number of rows kept.
    feature_map : str, FeatureMap or torch.nn.Module
        The features in which rows are compared, as in :class:`MomentMemory`.
    strategy : {"elimination", "gradient", "gain", "exchange"}
        Rule by which rows are chosen.
    inner_reg : float, Relative or "auto"
        Regulariser ρ of the regression, as in :class:`MomentMemory`.
    prior : {"data", "equal"} or mapping
        Importance of each class.
    random_state : int, Generator, RandomState or None
        Seed for random features, and for the order of :meth:`loader`.

    Raises
    ------
    InputError
        If a parameter is out of its range.

    Examples
    --------
    >>> from bicore.sources import digits
    >>> x, y = digits()
    >>> memory = JointReplay(capacity=20)
    >>> for task in range(5):
    ...     own = y // 2 == task
    ...     memory.add_task(x[own], y[own])
    >>> memory
    JointReplay(20 of 20 rows kept, 5 tasks)
    """

    _file_kind = "MomentMemory"
    memory: MomentMemory

    @renamed_keywords(OLD_PRIORS, rule="strategy")
    def __init__(
        self,
        capacity: int,
        feature_map: str | FeatureMap | torch.nn.Module = "auto",
        strategy: str = "elimination",
        inner_reg: float | str | Relative = "auto",
        prior: Prior = "data",
        random_state: RandomState = 0,
    ) -> None:
        super().__init__(capacity, random_state)
        self.memory = MomentMemory(
            capacity, feature_map, strategy, inner_reg, prior, random_state=self.random_state
        )

    def __repr__(self) -> str:
        return f"JointReplay({len(self)} of {self.capacity} rows kept, {self._count} tasks)"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self.memory, name) for name in self._parameters()}

    @property
    def _count(self) -> int:
        return int(self.memory.mark.get("tasks", 0))

    def _add(self, data: Dataset, context: Context) -> None:
        columns = dict(data.extra or {})
        if TASK in columns:
            raise InputError(f"extra has a column {TASK!r}, a reserved name; rename it.")
        columns[TASK] = np.full(len(data), self._count)
        with self._all_or_nothing(), self.memory._all_or_nothing():
            self.memory.update(data.x, data.y, data.sample_weight, extra=columns, model=context)
            self.memory.mark = {**self.memory.mark, "tasks": self._count + 1}
            self.tasks = self._split_tasks()

    def _split_tasks(self) -> list[Dataset]:
        """Split the rows kept by task; tasks without rows are omitted."""
        kept = self.memory.snapshot()
        assert kept.extra is not None
        numbers = kept.extra[TASK]
        rest = {name: column for name, column in kept.extra.items() if name != TASK}
        rows = kept.with_columns(sample_weight=np.ones(len(kept)), extra=rest or None)
        return [rows[np.flatnonzero(numbers == task)] for task in np.unique(numbers)]

    def _rehearsed(self) -> Dataset:
        # All rows count equally; the mean weight is the number of tasks.
        weights = np.full(len(self), float(self._count))
        return super()._rehearsed().with_columns(sample_weight=weights)

    def _configuration(self) -> dict[str, Any]:
        return self.memory._configuration()

    @classmethod
    def _read_configuration(cls, head: Mapping[str, Any]) -> dict[str, Any]:
        return MomentMemory._read_configuration(head)

    def _state(self) -> State:
        self.memory.mark = {**self.memory.mark, "passes": self._passes}
        return self.memory._state()

    def _restore(self, head: Mapping[str, Any], arrays: Arrays) -> None:
        if "x" in arrays and f"extra.{TASK}" not in arrays:
            raise InputError("this is a memory of a stream, not of tasks; use MomentMemory.")
        with self.memory._all_or_nothing():
            self.memory._restore(head, arrays)
            # Checkpoints of earlier versions hold the passes as an array, and early files none.
            self._passes = int(arrays.get("passes", self.memory.mark.get("passes", 0)))
            self.tasks = [] if self.memory.kept is None else self._split_tasks()

    @classmethod
    @renamed_keywords()
    def load(
        cls, path: PathLike, feature_map: str | FeatureMap | torch.nn.Module | None = None
    ) -> Self:
        """Read a file that :meth:`save` wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.
        feature_map : FeatureMap or torch.nn.Module, optional
            The map the memory was built with, if it holds a network.

        Returns
        -------
        JointReplay
            The saved object.

        Raises
        ------
        InputError
            If the file is of another kind, or damaged.
        """
        return cls._load(path, feature_map)

    @classmethod
    def _from_configuration(cls, configuration: dict[str, Any], arrays: Arrays, given: Any) -> Self:
        found = cls(configuration["capacity"], random_state=configuration["random_state"])
        found.memory = MomentMemory._from_configuration(configuration, arrays, given)
        return found


def _concatenate(parts: list[Any]) -> Any:
    return np.concatenate([part.cpu() if torch.is_tensor(part) else part for part in parts])

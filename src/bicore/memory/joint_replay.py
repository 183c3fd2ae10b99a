"""A replay memory whose rows are chosen over all tasks at once, against the moments of all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.memory.moment_memory import MomentMemory
from bicore.memory.rehearsal import Rehearsal
from bicore.memory.state_dict import no_state
from bicore.moments.features import FeatureMap
from bicore.moments.moments import Prior
from bicore.runtime import Context

#: The column that says which task a row came with.
TASK = "task"


class JointReplay(Rehearsal):
    """The rows of all tasks from which a model learns most about all of them.

    A memory with a share a task shrinks each by choosing again among what is left of it, and
    judges a task by itself. Here a row stays for what it says about everything seen, whichever task
    it came with (:class:`MomentMemory`); a task may end with more rows than another.

    Parameters
    ----------
    capacity : int
        The most rows kept in all.
    features : str, FeatureMap or torch.nn.Module
        What rows are compared in, as :class:`MomentMemory` has it.
    rule : {"elimination", "gradient", "gain", "exchange"}
        How rows are chosen.
    inner_reg : float or "auto"
        Regulariser of the regression as a share of the mean of ‖φ‖².
    prior : {"stream", "equal"} or mapping
        How much each class counts.
    seed : int
        Of random features, and of the order of :meth:`loader`.

    Raises
    ------
    InputError
        Where a parameter is out of its range.

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

    def __init__(
        self,
        capacity: int,
        features: str | FeatureMap | torch.nn.Module = "auto",
        rule: str = "elimination",
        inner_reg: float | str = "auto",
        prior: Prior = "stream",
        seed: int = 0,
    ) -> None:
        super().__init__(capacity, seed)
        self.memory = MomentMemory(capacity, features, rule, inner_reg, prior, seed=seed)

    def __repr__(self) -> str:
        return f"JointReplay({len(self)} of {self.capacity} rows kept, {self._count} tasks)"

    @property
    def _count(self) -> int:
        return int(self.memory.mark.get("tasks", 0))

    def add_task(
        self,
        x: Any,
        y: Any = None,
        weight: Any = None,
        *,
        extra: Mapping[str, Any] | None = None,
        context: Context | None = None,
    ) -> None:
        """Take in a task and choose again among all rows.

        Parameters
        ----------
        x : array (n, …)
            The features of its rows.
        y : array (n,), optional
            Their labels, with every task or with none; :meth:`loss` needs them.
        weight : array (n,), optional
            How much each row counts in what is remembered; by default 1.
        extra : mapping of name to array (n, …), optional
            Further columns to keep with the rows, the same names with every task or with none.
        context : Context, optional
            The runtime.

        Raises
        ------
        InputError
            Where the task cannot follow those before it; nothing has changed then.
        """
        columns = dict(extra or {})
        if TASK in columns:
            raise InputError(f"extra has a column {TASK!r}, which says the task here; rename it.")
        data = Dataset(x, y, weight, extra=extra)
        columns[TASK] = np.full(len(data), self._count)
        self.memory.update(data.x, data.y, data.weight, extra=columns, context=context)
        self.memory.mark = {**self.memory.mark, "tasks": self._count + 1}
        self._renew(self._by_task())

    def _by_task(self) -> list[Dataset]:
        """What is kept, task by task; a task of which nothing is left has no rows to rehearse."""
        kept = self.memory.snapshot()
        assert kept.extra is not None
        numbers = kept.extra[TASK]
        rest = {name: column for name, column in kept.extra.items() if name != TASK}
        rows = kept.with_columns(weight=np.ones(len(kept)), extra=rest or None)
        return [rows[np.flatnonzero(numbers == task)] for task in np.unique(numbers)]

    def _counted(self) -> Array:
        """All rows count the same, and together as much as there were tasks."""
        return np.full(len(self), float(self._count))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the memory to an ``.npz`` without pickle, beside and renamed.

        Parameters
        ----------
        path : path
            Where to.

        Returns
        -------
        Path
            The file.
        """
        self.memory.mark = {**self.memory.mark, "passes": self._passes}
        return self.memory.save(path)

    def state_dict(self) -> dict[str, Any]:
        """The whole state for a checkpoint of torch, beside those of model and optimiser.

        Returns
        -------
        dict
            Tensors, text and lists, which ``torch.load(…, weights_only=True)`` reads; copies.
        """
        return {"passes": torch.tensor(self._passes), **self.memory.state_dict()}

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
        rest = dict(state)
        passes = rest.pop("passes", None)
        if passes is None:
            raise no_state("it is not that of a JointReplay")
        self.memory.load_state_dict(rest)
        self._passes = int(passes)
        self._renew([] if self.memory.kept is None else self._by_task())

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        features: str | FeatureMap | torch.nn.Module | None = None,
    ) -> Self:
        """Read what :meth:`save` wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.
        features : FeatureMap or torch.nn.Module, optional
            The map the memory was built with, where it holds a network.

        Returns
        -------
        JointReplay
            As it was saved.

        Raises
        ------
        InputError
            Where the file is of another kind, or damaged.
        """
        memory = MomentMemory.load(path, features)
        found = cls.__new__(cls)
        Rehearsal.__init__(found, memory.capacity, memory.seed)
        found.memory = memory
        found._passes = int(memory.mark.get("passes", 0))
        if memory.kept is not None:
            if memory.kept.extra is None or TASK not in memory.kept.extra:
                raise InputError(
                    f"{path} holds a memory of a stream, not of tasks; use MomentMemory.load."
                )
            found._renew(found._by_task())
        return found

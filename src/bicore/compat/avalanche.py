"""Avalanche (ContinualAI): its replay plugins with rows that bicore keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bicore.compat.torch import Sight
from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.memory.names import as_buffer
from bicore.networks.loading import BATCH, opened
from bicore.runtime import Clock, Context, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.reconstruction import Reconstruction
from bicore.selectors.registry import as_selector

__all__ = ["CoresetBuffer", "CoresetSelection"]

#: The model that the strategy is training.
STRATEGY = "strategy"
#: The extra column of a memory that says which row of the stream one is.
ROW = "row"


def _host() -> Any:
    """Avalanche, to whom the classes here are its own; imported by who builds one, not before."""
    try:
        from avalanche.training import storage_policy
    except ImportError as error:
        raise InputError("this needs Avalanche: pip install 'bicore[avalanche]'.") from error
    storage_policy.ExemplarsBuffer.register(CoresetBuffer)
    storage_policy.ExemplarsSelectionStrategy.register(CoresetSelection)
    return storage_policy


class CoresetSelection:
    """Which rows a ``ParametricBuffer`` of Avalanche keeps: those a selector chooses first.

    To Avalanche it is an ``ExemplarsSelectionStrategy``.

    Parameters
    ----------
    size : int
        How many rows may be asked for: the memory's size. So many are chosen in order, the others
        follow in theirs.
    method : str or Selector
        A method of ``bicore.selectors.METHODS``, or a selector. Where rows are all of one class
        (``groupby="class"``) bilevel selection has no labels to tell apart, and
        :class:`bicore.selectors.Reconstruction` takes its place.
    model : torch.nn.Module or "strategy", optional
        Embeds rows; ``"strategy"`` is the model that is being trained, which methods that look at
        a model need. By default rows are compared as they are, flat.
    layer : str, optional
        The layer whose output is the embedding; see :func:`bicore.compat.torch.select_from`.
    batch_size : int
        Rows that are embedded together.
    seed : int
        Of whatever is drawn.
    **options
        Parameters of the method.

    Raises
    ------
    InputError
        Where Avalanche is not installed, or a parameter is not known.

    Examples
    --------
    >>> from avalanche.training.storage_policy import ParametricBuffer  # doctest: +SKIP
    >>> choice = CoresetSelection(200, method="bilevel")  # doctest: +SKIP
    >>> policy = ParametricBuffer(200, "class", choice)  # doctest: +SKIP
    """

    def __init__(
        self,
        size: int,
        method: str | Selector = "bilevel",
        model: Any = None,
        layer: str | None = None,
        batch_size: int = BATCH,
        seed: int = 0,
        **options: Any,
    ) -> None:
        _host()
        self.size = size
        self.selector = as_selector(method, **options).for_memory()
        self.seed = seed
        self._sight = _Rows(model, layer, batch_size)

    def make_sorted_indices(self, strategy: Any, data: Any) -> list[int]:
        """The rows of some data, those to keep first.

        Parameters
        ----------
        strategy : SupervisedTemplate
            Whose model embeds rows where that is asked for.
        data : AvalancheDataset
            What to choose from.

        Returns
        -------
        list of int
            All its rows, each once.
        """
        looks = self.selector.needs_model or self.selector.fits_model
        rows, context = self._sight.of(data, strategy, looks)
        count = min(self.size, len(rows))
        chooser = self.selector if _tells_apart(self.selector, rows) else Reconstruction()
        chosen = chooser.select(rows, count, rng=self.seed, context=context).indices
        rest = np.setdiff1d(np.arange(len(rows)), chosen)
        order: list[int] = np.concatenate([chosen, rest]).tolist()
        return order


def _tells_apart(selector: Selector, rows: Dataset) -> bool:
    """Whether there is something to predict: bilevel selection needs two classes."""
    several = rows.y is None or len(rows) == 1 or bool((rows.y != rows.y[0]).any())
    return several or type(selector) is not BilevelSelector


class CoresetBuffer:
    """A storage policy whose rows a memory of bicore keeps.

    To Avalanche it is an ``ExemplarsBuffer``, as ``ReplayPlugin(mem_size=n, storage_policy=…)`` and
    others take it. The buffer itself holds the experiences' own items, with their transforms and
    task labels; the memory holds what rows are compared by.

    Parameters
    ----------
    max_size : int
        The most rows that are kept.
    memory : str or callable
        A name of ``bicore.memory.BUFFERS``, or a function that makes a memory of a capacity, such
        as ``lambda capacity: ReplayMemory(selector, capacity)`` for an equal share a task.
    model : torch.nn.Module, optional
        Embeds rows; one that stays as it is, for rows of all experiences are compared. By default
        rows are compared as they are, flat.
    layer : str, optional
        The layer whose output is the embedding; see :func:`bicore.compat.torch.select_from`.
    batch_size : int
        Rows that are read together.

    Raises
    ------
    InputError
        Where Avalanche is not installed, or a parameter is out of its range.

    Examples
    --------
    >>> from avalanche.training.plugins import ReplayPlugin  # doctest: +SKIP
    >>> plugin = ReplayPlugin(200, storage_policy=CoresetBuffer(200))  # doctest: +SKIP
    """

    def __init__(
        self,
        max_size: int,
        memory: str | Callable[[int], Any] = "moments",
        model: torch.nn.Module | None = None,
        layer: str | None = None,
        batch_size: int = BATCH,
    ) -> None:
        host = _host()
        self.max_size = max_size
        self.buffer = host.concat_datasets([])
        self._make = memory if callable(memory) else lambda capacity: as_buffer(memory, capacity)
        self.memory = self._make(max_size)
        self._sight = _Rows(model, layer, batch_size)
        #: Which row of the stream each item of the buffer is, and how many rows there were.
        self._rows = np.empty(0, np.int64)
        self._seen = 0

    def update(self, strategy: Any, **kwargs: Any) -> None:
        """Take in the experience that a strategy was trained on, as Avalanche before 0.7 asks for.

        Parameters
        ----------
        strategy : SupervisedTemplate
            After training.
        **kwargs
            Not looked at.
        """
        self.post_adapt(strategy, strategy.experience)

    def post_adapt(self, agent_state: Any, exp: Any) -> None:
        """Take in an experience, as Avalanche from 0.6 on asks for.

        Parameters
        ----------
        agent_state : object
            Not looked at: rows of all experiences are compared by what stays the same.
        exp : experience
            Whose ``dataset`` is taken in.
        """
        self.update_from_dataset(exp.dataset)

    def update_from_dataset(self, new_data: Any) -> None:
        """Take in the rows of a data set.

        Parameters
        ----------
        new_data : AvalancheDataset
            The next rows.
        """
        rows, _ = self._sight.of(new_data, None, looks=False)
        _show(self.memory, rows, np.arange(len(rows)) + self._seen)
        kept = np.sort(_kept(self.memory))
        fresh = kept[kept >= self._seen]
        place = {int(row): number for number, row in enumerate(self._rows)}
        old = [place[int(row)] for row in kept[kept < self._seen]]
        chosen = new_data.subset((fresh - self._seen).tolist())
        self.buffer = self.buffer.subset(old).concat(chosen) if old else chosen
        self._rows = kept
        self._seen += len(rows)

    def resize(self, strategy: Any, new_size: int) -> None:
        """Go on with another size: what is kept is shown to a memory of that size.

        Parameters
        ----------
        strategy : SupervisedTemplate
            Not looked at.
        new_size : int
            The most rows that are kept from now on.
        """
        self.max_size = new_size
        before = self.memory
        self.memory = self._make(new_size)
        if not len(self._rows):
            return
        for rows in getattr(before, "tasks", None) or [before.snapshot()]:
            assert rows.extra is not None
            _show(self.memory, rows, rows.extra[ROW])
        kept = np.sort(_kept(self.memory))
        self.buffer = self.buffer.subset(np.flatnonzero(np.isin(self._rows, kept)).tolist())
        self._rows = kept


def _show(memory: Any, rows: Dataset, numbers: Array) -> None:
    """A stream is updated, and a memory of tasks gets another one."""
    take = memory.add_task if hasattr(memory, "add_task") else memory.update
    take(rows.x, rows.y, rows.weight, extra={ROW: numbers})


def _kept(memory: Any) -> Array:
    """The numbers of the rows that a memory holds."""
    parts = memory.tasks if hasattr(memory, "tasks") else [memory.snapshot()]
    return np.concatenate([part.extra[ROW] for part in parts])


class _Rows:
    """Items of Avalanche as rows: with the transforms for evaluation, embedded or flat."""

    def __init__(self, model: Any, layer: str | None, batch_size: int) -> None:
        self.model = model
        self.layer = layer
        self.batch_size = batch_size

    def of(self, data: Any, strategy: Any, looks: bool) -> tuple[Dataset, Context]:
        """The rows, and what a method that ``looks`` at the model sees of it."""
        model = strategy.model if self.model == STRATEGY else self.model
        runtime = Runtime(progress=False)
        sight = Sight(torch.nn.Flatten() if model is None else model, self.layer, runtime, Clock())
        reading = opened(data.eval(), batch_size=self.batch_size)
        if not looks:
            return sight.rows(reading), Context(runtime=runtime)
        if model is None:
            raise InputError("method looks at a model, and none is given; give model='strategy'.")
        rows, seen = sight.observed(reading)
        return rows, Context(seen, runtime)

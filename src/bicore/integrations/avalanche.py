"""Avalanche (ContinualAI): storage policies for replay plugins, and predictions of a head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader

from bicore._deprecated import renamed_keywords
from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.integrations.torch import RowEmbedder
from bicore.methods.base import Selector
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.registry import as_selector
from bicore.methods.variants import Reconstruction
from bicore.networks.loading import BATCH, open_data
from bicore.runtime.clock import Clock
from bicore.runtime.context import Runtime
from bicore.streaming.moment_memory import MomentMemory
from bicore.streaming.registry import as_buffer
from bicore.types import RandomState

__all__ = ["CoresetBuffer", "CoresetSelection", "HeadPlugin"]

#: Value of ``model`` that means the model of the strategy.
STRATEGY = "strategy"
#: Extra column of a memory: stream positions of rows.
ROW = "row"
QUIET = Runtime(progress=False)


class Data(Protocol):
    """A data set of Avalanche."""

    def eval(self) -> Any: ...

    def subset(self, indices: list[int]) -> Any: ...


class Experience(Protocol):
    """A part of a stream of Avalanche."""

    dataset: Data


class Strategy(Protocol):
    """A strategy of Avalanche: its model, its experience, and its mini-batch in evaluation."""

    model: torch.nn.Module
    experience: Experience
    mb_x: torch.Tensor
    mb_output: torch.Tensor


def _host() -> Any:
    """Import Avalanche, and register the classes here as subclasses of its own."""
    try:
        from avalanche.training import storage_policy
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision of another build
        wrong = f"bicore.integrations.avalanche needs Avalanche, which cannot be imported ({error})"
        raise InputError(f"{wrong}; 'bicore doctor' prints the install command.") from error
    storage_policy.ExemplarsBuffer.register(CoresetBuffer)
    storage_policy.ExemplarsSelectionStrategy.register(CoresetSelection)
    return storage_policy


class CoresetSelection:
    """Order the rows for a ``ParametricBuffer`` of Avalanche by a selection.

    It is registered as an ``ExemplarsSelectionStrategy``.

    Parameters
    ----------
    size : int
        Number of rows to select: the size of the buffer. The other rows follow in their order.
    method : str or Selector
        A name of ``bicore.methods.METHODS``, or a selector. For rows of a single class
        (``groupby="class"``), :class:`bicore.methods.Reconstruction` replaces bilevel selection.
    model : torch.nn.Module or "strategy", optional
        Embeds rows; ``"strategy"`` is the model in training. Methods that use a model need one.
        By default rows are flattened.
    layer : str, optional
        The layer whose output is the embedding; see :func:`bicore.integrations.torch.select_from`.
    batch_size : int
        Rows per batch.
    random_state : int, Generator, RandomState or None
        Seed for all random draws.

    Raises
    ------
    InputError
        If Avalanche is not installed, or a parameter is unknown.

    Examples
    --------
    >>> from avalanche.training.storage_policy import ParametricBuffer  # doctest: +SKIP
    >>> choice = CoresetSelection(200, method="bilevel")  # doctest: +SKIP
    >>> policy = ParametricBuffer(200, "class", choice)  # doctest: +SKIP
    """

    @renamed_keywords()
    def __init__(
        self,
        size: int,
        method: str | Selector = "bilevel",
        model: torch.nn.Module | str | None = None,
        layer: str | None = None,
        batch_size: int = BATCH,
        random_state: RandomState = 0,
    ) -> None:
        _host()
        self.size = size
        self.selector = as_selector(method).for_memory()
        self.random_state = random_state
        self._rows = _Rows(model, layer, batch_size)

    def make_sorted_indices(self, strategy: Strategy | None, data: Data) -> list[int]:
        """Order the rows of some data, the selected ones first.

        Parameters
        ----------
        strategy : SupervisedTemplate
            Its model embeds rows if ``model="strategy"``.
        data : AvalancheDataset
            The rows.

        Returns
        -------
        list of int
            All rows, each once.
        """
        selector = self.selector
        rows, seen = self._rows.read(data, strategy, selector.needs_model)
        single = rows.y is not None and len(rows) > 1 and bool((rows.y == rows.y[0]).all())
        if single and type(selector) is BilevelSelector:
            selector = Reconstruction()
        count = min(self.size, len(rows))
        chosen = selector.select(
            rows, count, random_state=self.random_state, model=seen, runtime=QUIET
        ).indices
        return [*chosen.tolist(), *np.setdiff1d(np.arange(len(rows)), chosen).tolist()]


class CoresetBuffer:
    """Storage policy that keeps the rows of a memory of bicore.

    It is registered as an ``ExemplarsBuffer``, for ``ReplayPlugin(mem_size=n, storage_policy=…)``
    and other plugins. The buffer holds the items of the experiences, with their transforms and task
    labels; the memory holds the embedded rows, by which they are compared. It can be pickled, and
    saved by ``torch.save``, if ``buffer`` is a name or a function defined in a module.

    Parameters
    ----------
    max_size : int
        Capacity: the number of rows to keep.
    buffer : str or callable
        The memory of rows: a name of ``bicore.streaming.BUFFERS``, or a function from a capacity to
        a memory, such as ``lambda capacity: ReplayMemory(capacity, selector)`` for an equal share
        of each task.
    model : torch.nn.Module, optional
        Embeds rows; it must not change, since rows of all experiences are compared. By default rows
        are flattened.
    layer : str, optional
        The layer whose output is the embedding; see :func:`bicore.integrations.torch.select_from`.
    batch_size : int
        Rows per batch.

    Raises
    ------
    InputError
        If Avalanche is not installed, or a parameter is invalid.

    Examples
    --------
    >>> from avalanche.training.plugins import ReplayPlugin  # doctest: +SKIP
    >>> plugin = ReplayPlugin(200, storage_policy=CoresetBuffer(200))  # doctest: +SKIP
    """

    @renamed_keywords(memory="buffer")
    def __init__(
        self,
        max_size: int,
        buffer: str | Callable[[int], Any] = "moments",
        model: torch.nn.Module | None = None,
        layer: str | None = None,
        batch_size: int = BATCH,
    ) -> None:
        host = _host()
        self.max_size = max_size
        self.buffer = host.concat_datasets([])
        self._kind = buffer
        self.memory = self._new_memory(max_size)
        self._rows = _Rows(model, layer, batch_size)
        #: Stream positions of the buffer's items, and the length of the stream.
        self._kept: Array = np.empty(0, np.int64)
        self._seen = 0

    def _new_memory(self, capacity: int) -> Any:
        kind = self._kind
        return kind(capacity) if callable(kind) else as_buffer(kind, capacity)

    def update(self, strategy: Strategy, **kwargs: Any) -> None:
        """Add the experience that a strategy was trained on (Avalanche before 0.7).

        Parameters
        ----------
        strategy : SupervisedTemplate
            After training.
        **kwargs
            Ignored.
        """
        self.post_adapt(strategy, strategy.experience)

    def post_adapt(self, agent_state: object, exp: Experience) -> None:
        """Add an experience (Avalanche 0.6 and later).

        Parameters
        ----------
        agent_state : object
            Ignored.
        exp : experience
            Its ``dataset`` is added.
        """
        self.update_from_dataset(exp.dataset)

    def update_from_dataset(self, new_data: Data) -> None:
        """Add the rows of a data set.

        Parameters
        ----------
        new_data : AvalancheDataset
            The next rows.
        """
        rows, _ = self._rows.read(new_data, None, needs_model=False)
        _add(self.memory, rows, np.arange(len(rows)) + self._seen)
        kept = _row_numbers(self.memory)
        old = np.flatnonzero(np.isin(self._kept, kept)).tolist()
        chosen = new_data.subset((kept[kept >= self._seen] - self._seen).tolist())
        self.buffer = self.buffer.subset(old).concat(chosen) if old else chosen
        self._kept = kept
        self._seen += len(rows)

    def resize(self, strategy: object, new_size: int) -> None:
        """Change the size: a memory of the new size gets the stored rows.

        Parameters
        ----------
        strategy : SupervisedTemplate
            Ignored.
        new_size : int
            The new capacity.
        """
        self.max_size = new_size
        before = self.memory
        self.memory = self._new_memory(new_size)
        if not len(self._kept):
            return
        for rows in _parts(before):
            _add(self.memory, rows, rows.extra[ROW])
        kept = _row_numbers(self.memory)
        self.buffer = self.buffer.subset(np.flatnonzero(np.isin(self._kept, kept)).tolist())
        self._kept = kept


class HeadPlugin:
    """Plugin that evaluates the head of a memory instead of the network in training.

    It adds the rows of every experience to the memory once, after training. The training of the
    network does not change. ``plugin.memory`` has the rows and the head.

    Parameters
    ----------
    buffer : MomentMemory, optional
        The memory (default: 200 rows, selected when they are read, with features chosen by the
        first batch).
    batch_size : int
        Rows per batch.

    Examples
    --------
    >>> from avalanche.training.supervised import Naive  # doctest: +SKIP
    >>> head = HeadPlugin(MomentMemory(200, "patches:2048", keep="lazy"))  # doctest: +SKIP
    >>> strategy = Naive(plugins=[head], **settings)  # doctest: +SKIP
    """

    @renamed_keywords(memory="buffer")
    def __init__(self, buffer: MomentMemory | None = None, batch_size: int = BATCH) -> None:
        self.memory = MomentMemory(200, keep="lazy") if buffer is None else buffer
        self.batch_size = batch_size
        self._module: torch.nn.Module | None = None

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Add the rows of the experience that a strategy was trained on to the memory.

        Parameters
        ----------
        strategy : SupervisedTemplate
            After training.
        **kwargs
            Ignored.
        """
        for x, y, *_ in DataLoader(strategy.experience.dataset.eval(), self.batch_size):
            self.memory.update(x, y)
        self._module = None

    def after_eval_forward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Replace the outputs of the network by the scores of the head.

        Parameters
        ----------
        strategy : SupervisedTemplate
            Labels must be 0, 1, 2, …, with one output of the network per class.
        **kwargs
            Ignored.
        """
        if self._module is None and self.memory.counted:
            classes = strategy.mb_output.shape[1]
            self._module = self.memory.head().to_torch(classes).to(strategy.mb_x.device)
        if self._module is not None:
            strategy.mb_output = self._module(strategy.mb_x)


def _add(memory: Any, rows: Dataset, numbers: Array) -> None:
    """Update a stream memory, or add a task to a memory of tasks."""
    add = memory.add_task if hasattr(memory, "add_task") else memory.update
    add(rows.x, rows.y, rows.sample_weight, extra={ROW: numbers})


def _parts(memory: Any) -> list[Any]:
    return list(memory.tasks) if hasattr(memory, "tasks") else [memory.snapshot()]


def _row_numbers(memory: Any) -> Array:
    """Return the stream positions of the rows in a memory, sorted."""
    return np.sort(np.concatenate([part.extra[ROW] for part in _parts(memory)]))


@dataclass(frozen=True)
class _Rows:
    """Reads items of Avalanche with the transforms for evaluation, embedded or flattened."""

    model: Any
    layer: str | None
    batch_size: int

    def read(self, data: Data, strategy: Any, needs_model: bool) -> tuple[Dataset, Any]:
        """Return the rows, and the output of the model for methods that use it."""
        model = strategy.model if self.model == STRATEGY else self.model
        if needs_model and model is None:
            raise InputError("this method needs a model; give model='strategy' or a network.")
        module = torch.nn.Flatten() if model is None else model
        embedder = RowEmbedder(module, self.layer, QUIET, Clock())
        reading = open_data(data.eval(), batch_size=self.batch_size)
        return embedder.observe(reading) if needs_model else (embedder.embed(reading), None)

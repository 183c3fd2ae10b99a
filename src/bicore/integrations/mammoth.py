"""Mammoth (aimagelab): a buffer for its rehearsal methods, and a model that predicts with a head.

Mammoth is not a package. In the file of a model, replace ``from utils.buffer import Buffer`` by
``from bicore.integrations.mammoth import Buffer``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Sampler as TorchSampler

from bicore._deprecated import renamed_keywords
from bicore.arguments import as_seed
from bicore.data import Array
from bicore.errors import InputError, check_integer, check_name
from bicore.streaming.buffer import Buffer as Memory
from bicore.streaming.moment_memory import MomentMemory
from bicore.streaming.registry import as_buffer
from bicore.types import Numbers, RandomState

__all__ = ["Buffer", "HeadModel"]

#: Column of a memory: stream positions of rows.
ROW = "row"
#: Mammoth's selection strategies; a memory replaces all but the last, which keeps every row.
STRATEGIES = ("reservoir", "lars", "labrs", "abs", "balancoir", "unlimited")
#: Size of a buffer without limit.
UNLIMITED = 10**9

Device = str | torch.device
Transform = Callable[[Tensor], Tensor]


class Buffer:
    """Replay buffer of ER, DER, DER++, X-DER and similar methods, backed by a memory of bicore.

    It has the methods of Mammoth's own buffer. Places in its tensors are valid until the next
    :meth:`add_data`; values written into the tensors, such as ``buffer.logits[places] = new``, stay
    with their examples. It can be pickled, and saved by ``torch.save``.

    Parameters
    ----------
    buffer_size : int
        Capacity: the number of examples to keep. A change keeps the best of the stored examples.
    device : str or torch.device
        Device of the tensors.
    sample_selection_strategy : str
        Mammoth's argument: "unlimited" keeps all examples; for others ``buffer`` decides.
    buffer : str or callable
        The memory of rows: a name of ``bicore.streaming.BUFFERS``, or a function from a capacity to
        a memory.
    random_state : int, Generator, RandomState or None
        Seed of the draws of :meth:`get_data`.
    dataset, n_tasks : object
        Arguments of Mammoth's strategies; ignored.

    Attributes
    ----------
    examples, labels, logits, task_labels, true_labels : Tensor
        The stored columns; a column that was never given does not exist.
    num_seen_examples : int
        Number of examples of the stream so far.

    Raises
    ------
    InputError
        If a parameter is invalid.

    Examples
    --------
    >>> buffer = Buffer(20)
    >>> buffer.is_empty()
    True
    >>> x, y = torch.rand(100, 1, 8, 8), torch.arange(100) % 5
    >>> buffer.add_data(examples=x, labels=y, logits=torch.rand(100, 5))
    >>> images, labels, logits = buffer.get_data(8)
    >>> images.shape, labels.shape, logits.shape
    (torch.Size([8, 1, 8, 8]), torch.Size([8]), torch.Size([8, 5]))
    """

    examples: Tensor
    labels: Tensor

    @renamed_keywords(memory="buffer")
    def __init__(
        self,
        buffer_size: int,
        device: Device = "cpu",
        sample_selection_strategy: str = "reservoir",
        *,
        buffer: str | Callable[[int], Memory] = "moments",
        random_state: RandomState = 0,
        dataset: object = None,
        n_tasks: object = None,
    ) -> None:
        strategy = sample_selection_strategy.lower()
        check_name("sample_selection_strategy", strategy, STRATEGIES)
        self.sample_selection_strategy = strategy
        self.sample_selection_fn = _Strategy()
        self.attributes = ["examples", "labels", "logits", "task_labels", "true_labels"]
        self.device = torch.device(device)
        self._kind = buffer
        self._rng = np.random.default_rng(as_seed(random_state))
        unlimited = strategy == "unlimited"
        self._size = UNLIMITED if unlimited else check_integer("buffer_size", buffer_size)
        self.empty()

    @property
    def buffer_size(self) -> int:
        """Capacity."""
        return self._size

    @buffer_size.setter
    def buffer_size(self, value: int) -> None:
        if value != self._size and self.sample_selection_strategy != "unlimited":
            self._size = check_integer("buffer_size", value)
            self._restart()

    def empty(self) -> None:
        """Remove all examples and start again."""
        for name in self.used_attributes:
            delattr(self, name)
        self.num_seen_examples = 0
        self._restart()

    def _restart(self) -> None:
        """Give the stored examples to a new memory."""
        make = self._kind
        self.memory = None
        if self._size < UNLIMITED:
            self.memory = make(self._size) if callable(make) else as_buffer(make, self._size)
        #: Stream positions of the stored rows, and of the next one.
        self._rows: Array = np.empty(0, np.int64)
        self._next = 0
        stored = {name: getattr(self, name) for name in self.used_attributes}
        for name in stored:
            delattr(self, name)
        if stored:
            self._add(stored)

    def __len__(self) -> int:
        return len(self.examples) if hasattr(self, "examples") else 0

    @property
    def used_attributes(self) -> list[str]:
        """Names of the stored columns."""
        return [name for name in self.attributes if hasattr(self, name)]

    def to(self, device: Device) -> Buffer:
        """Move the tensors to another device.

        Parameters
        ----------
        device : str or torch.device
            The device.

        Returns
        -------
        Buffer
            The buffer itself.
        """
        self.device = torch.device(device)
        for name, tensor in self.serialize(device).items():
            setattr(self, name, tensor)
        return self

    def serialize(self, out_device: Device = "cpu") -> dict[str, Tensor]:
        """Return the stored columns.

        Parameters
        ----------
        out_device : str or torch.device
            Device of the tensors.

        Returns
        -------
        dict of str to Tensor
            The tensors by their names.
        """
        return {name: getattr(self, name).to(out_device) for name in self.used_attributes}

    def add_data(
        self,
        examples: Tensor,
        labels: Tensor | None = None,
        logits: Tensor | None = None,
        task_labels: Tensor | None = None,
        attention_maps: object = None,
        true_labels: Tensor | None = None,
        sample_selection_scores: object = None,
    ) -> None:
        """Add the next examples of the stream.

        Parameters
        ----------
        examples : Tensor
            Images or vectors, not augmented.
        labels, logits, task_labels : Tensor, optional
            Columns of the examples; give them always or never.
        attention_maps : None
            Not supported.
        true_labels : Tensor, optional
            Another column.
        sample_selection_scores : object
            Ignored: the memory decides.

        Raises
        ------
        InputError
            If the columns differ from earlier ones; the buffer is unchanged then.
        """
        if attention_maps is not None:
            raise InputError("attention_maps are not supported; use Mammoth's own buffer.")
        columns = {"examples": examples, "labels": labels, "logits": logits}
        columns |= {"task_labels": task_labels, "true_labels": true_labels}
        given = {name: one for name, one in columns.items() if one is not None}
        if len(self) and set(given) != set(self.used_attributes):
            earlier = f"earlier examples have {', '.join(self.used_attributes)}"
            fix = "give the same columns each time"
            raise InputError(f"add_data got {', '.join(given)}, and {earlier}; {fix}.")
        if len(self._rows) != len(self):  # tensors were replaced by those of a checkpoint
            self._restart()
        self._add(given)
        self.num_seen_examples += len(examples)

    def _add(self, given: Mapping[str, Tensor]) -> None:
        """Let the memory choose among the stored and the new examples."""
        kinds = {name: torch.int64 if "labels" in name else torch.float32 for name in given}
        new = {name: one.detach().to(self.device, kinds[name]) for name, one in given.items()}
        count = len(new["examples"])
        rows = np.concatenate([self._rows, np.arange(count) + self._next])
        kept = rows
        if self.memory is not None:
            labels = new["labels"].cpu() if "labels" in new else None
            numbers = {ROW: rows[len(self._rows) :]}
            self.memory.update(new["examples"].cpu(), labels, extra=numbers)
            kept = np.asarray((self.memory.snapshot().extra or {})[ROW])
        places = torch.from_numpy(np.flatnonzero(np.isin(rows, kept))).to(self.device)
        for name, tensor in new.items():
            whole = torch.cat([getattr(self, name), tensor]) if len(self._rows) else tensor
            setattr(self, name, whole[places])
        self._rows = rows[places.cpu().numpy()]
        self._next += count

    def get_data(
        self,
        size: int,
        transform: Transform | None = None,
        return_index: bool = False,
        device: Device | None = None,
        mask_task_out: int | None = None,
        cpt: int | None = None,
        return_not_aug: bool = False,
        not_aug_transform: Transform | None = None,
        force_indexes: Numbers | None = None,
    ) -> tuple[Tensor, ...]:
        """Draw examples without replacement.

        Parameters
        ----------
        size : int
            Number of examples; all if fewer are stored.
        transform : callable, optional
            Augments one example, or a batch if it is a transform of kornia.
        return_index : bool
            Whether to return their places first.
        device : str or torch.device, optional
            Device of the result; default: the buffer's.
        mask_task_out : int, optional
            A task to leave out.
        cpt : int, optional
            Classes per task, to find the task of a label if task labels are not stored.
        return_not_aug : bool
            Whether to return the examples without ``transform`` as well, before the others.
        not_aug_transform : callable, optional
            Transform of those examples.
        force_indexes : array of int, optional
            Places to return instead of a draw.

        Returns
        -------
        tuple of Tensor
            Examples, then the other stored columns: labels, logits, task labels, true labels.

        Raises
        ------
        InputError
            If the buffer is empty, or the task of an example is unknown.
        """
        if force_indexes is not None:
            places = np.asarray(force_indexes).reshape(-1)
        else:
            places = np.arange(len(self))
            if mask_task_out is not None:
                places = np.flatnonzero(self._tasks(cpt) != mask_task_out)
            places = self._rng.choice(places, size=min(size, len(places)), replace=False)
        index = torch.from_numpy(places)
        found = self.get_data_by_index(index, transform, device)
        if return_not_aug:
            plain = self.get_data_by_index(index, not_aug_transform, device)
            found = (plain[0], *found)
        return (index.to(device or self.device), *found) if return_index else found

    def _tasks(self, cpt: int | None) -> Array:
        if hasattr(self, "task_labels"):
            return np.asarray(self.task_labels.cpu())
        if cpt is None or not hasattr(self, "labels"):
            raise InputError("mask_task_out needs task_labels, or labels and cpt=.")
        return np.asarray((self.labels // cpt).cpu())

    def get_balanced_data(
        self, size: int, transform: Transform | None = None, n_classes: int = -1
    ) -> tuple[Tensor, ...]:
        """Draw equally many examples of each of some classes.

        Parameters
        ----------
        size : int
            Number of examples; fewer if a class does not have enough.
        transform : callable, optional
            Augments one example, or a batch if it is a transform of kornia.
        n_classes : int
            Number of classes, drawn at random; -1 for all.

        Returns
        -------
        tuple of Tensor
            Examples, then the other stored columns.
        """
        labels = np.asarray(self.labels.cpu())
        classes = np.unique(labels)
        if n_classes > 0:
            classes = self._rng.permutation(classes)[:n_classes]
        places = []
        for number, label in enumerate(classes):
            wanted = len(range(number, size, len(classes)))
            places.append(self._rng.permutation(np.flatnonzero(labels == label))[:wanted])
        return self.get_data_by_index(torch.from_numpy(np.concatenate(places)), transform)

    def get_data_by_index(
        self, indexes: Tensor, transform: Transform | None = None, device: Device | None = None
    ) -> tuple[Tensor, ...]:
        """Return the examples at some places.

        Parameters
        ----------
        indexes : Tensor
            Places, as :meth:`get_data` returns them; valid until the next :meth:`add_data`.
        transform : callable, optional
            Augments one example, or a batch if it is a transform of kornia.
        device : str or torch.device, optional
            Device of the result; default: the buffer's.

        Returns
        -------
        tuple of Tensor
            Examples, then the other stored columns.

        Raises
        ------
        InputError
            If the buffer is empty.
        """
        if self.is_empty():
            raise InputError("the buffer is empty; call add_data first, and check is_empty().")
        index = torch.as_tensor(indexes).to(self.device)
        found = {name: getattr(self, name)[index] for name in self.used_attributes}
        if transform is not None and len(index):
            found["examples"] = _transform(found["examples"], transform)
        return tuple(tensor.to(device or self.device) for tensor in found.values())

    def get_all_data(
        self, transform: Transform | None = None, device: Device | None = None
    ) -> tuple[Tensor, ...]:
        """Return all examples.

        Parameters
        ----------
        transform : callable, optional
            Augments one example, or a batch if it is a transform of kornia.
        device : str or torch.device, optional
            Device of the result; default: the buffer's.

        Returns
        -------
        tuple of Tensor
            Examples, then the other stored columns.
        """
        return self.get_data_by_index(torch.arange(len(self)), transform, device)

    def __getitem__(self, index: int, transform: Transform | None = None) -> list[Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return [one[0] for one in self.get_data_by_index(torch.tensor([index]), transform)]

    def get_dataloader(
        self,
        args: object,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        transform: Transform | None = None,
        sampler: TorchSampler[int] | None = None,
    ) -> DataLoader[Any]:
        """Return a loader of the stored examples.

        Parameters
        ----------
        args : object
            Ignored.
        batch_size : int
            Examples per batch.
        shuffle, drop_last : bool
            As in torch's loader.
        transform : callable, optional
            Augments one example.
        sampler : Sampler, optional
            As in torch's loader.

        Returns
        -------
        DataLoader
            Batches of the stored columns.
        """
        items: Any = _Items(self, transform)
        draws = torch.Generator().manual_seed(int(self._rng.integers(2**31)))
        return DataLoader(items, batch_size, shuffle, sampler, drop_last=drop_last, generator=draws)

    def is_empty(self) -> bool:
        """Whether there are no examples yet.

        Returns
        -------
        bool
            True before the first examples.
        """
        return not len(self)

    def is_full(self) -> bool:
        """Whether as many examples were seen as the buffer holds.

        Returns
        -------
        bool
            True once the capacity was reached.
        """
        return self.num_seen_examples >= self.buffer_size

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint of torch.

        Returns
        -------
        dict
            The state of the memory, the stored columns and the state of the random draws.
        """
        return {
            "memory": None if self.memory is None else self.memory.state_dict(),
            "columns": self.serialize(),
            "rows": torch.from_numpy(self._rows),
            "counts": [self.num_seen_examples, self._next],
            "drawn": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another buffer.

        Parameters
        ----------
        state : dict
            The result of :meth:`state_dict` of a buffer with the same parameters.

        Raises
        ------
        InputError
            If the state is of another kind of buffer, or of an earlier version; the buffer is
            unchanged then.
        """
        if "columns" not in state:
            fix = "fill the buffer again"
            raise InputError(f"state was saved by an earlier version of bicore; {fix}.")
        if self.memory is not None:
            self.memory.load_state_dict(state["memory"])
        for name in self.used_attributes:
            delattr(self, name)
        for name, tensor in state["columns"].items():
            setattr(self, name, tensor.to(self.device))
        self._rows = state["rows"].numpy()
        self.num_seen_examples, self._next = state["counts"]
        self._rng.bit_generator.state = state["drawn"]


class HeadModel:
    """A model of Mammoth that counts each row once and predicts with the head of all rows.

    In ``models/head.py`` of Mammoth::

        class Head(HeadModel, ContinualModel):
            NAME = "head"
            COMPATIBILITY = ["class-il", "domain-il", "task-il", "general-continual"]
            feature_map = "patches:2048"

    Attributes
    ----------
    feature_map : str, FeatureMap or torch.nn.Module
        The features, as in :class:`bicore.streaming.MomentMemory`.
    memory : MomentMemory
        The sums and the rows kept; None before the first rows.

    Examples
    --------
    >>> model = HeadModel()
    >>> model.feature_map, model.num_classes = "rows", 5
    >>> x, y = torch.rand(40, 6), torch.arange(40) % 3
    >>> model.observe(x, y, x)
    0.0
    >>> model.forward(x).shape
    torch.Size([40, 5])
    """

    feature_map: Any = "auto"
    memory: MomentMemory | None = None
    #: Set by Mammoth.
    num_classes: int
    #: The head as a module; in a tuple, which torch does not register.
    _answer: tuple[Any, ...] = ()

    def observe(
        self, inputs: Tensor, labels: Tensor, not_aug_inputs: Tensor, epoch: int | None = None
    ) -> float:
        """Count a batch, in the first epoch only.

        Parameters
        ----------
        inputs : Tensor
            Augmented images; ignored.
        labels : Tensor
            Labels 0, 1, 2, ….
        not_aug_inputs : Tensor
            The images that are counted.
        epoch : int, optional
            The number of the epoch, from 0.

        Returns
        -------
        float
            A loss of 0.
        """
        if not epoch:
            if self.memory is None:
                self.memory = MomentMemory(200, self.feature_map, keep="lazy")
            self.memory.update(not_aug_inputs.cpu(), labels.cpu())
            self._answer = ()
        return 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Compute the scores of all classes.

        Parameters
        ----------
        x : Tensor
            Images, not augmented, of the shape that ``observe`` gets.

        Returns
        -------
        Tensor
            A column for each class; scores of classes without rows are very low.

        Raises
        ------
        InputError
            If no rows were counted.
        """
        if self.memory is None:
            raise InputError("no rows were counted yet; call observe before forward.")
        if not self._answer:
            self._answer = (self.memory.head().to_torch(self.num_classes).to(x.device),)
        scores: Tensor = self._answer[0](x)
        return scores


class _Strategy:
    """Accepts the scores that Mammoth's models give to a strategy; the memory ignores them."""

    device: Device = "cpu"

    def update(self, *_: Any, **__: Any) -> None:
        """Ignore scores."""


@dataclass(frozen=True)
class _Items:
    """The stored examples for a loader of torch."""

    buffer: Buffer
    transform: Transform | None

    def __len__(self) -> int:
        return len(self.buffer)

    def __getitem__(self, index: int) -> list[Tensor]:
        return self.buffer.__getitem__(index, self.transform)


def _transform(examples: Tensor, transform: Transform) -> Tensor:
    """Apply a transform to each example; kornia's get the batch."""
    if any(base.__module__.startswith("kornia") for base in type(transform).__mro__):
        return transform(examples)
    return torch.stack([transform(one) for one in examples.cpu()])

"""Mammoth (aimagelab): the buffer of its rehearsal methods, with rows that bicore keeps.

Mammoth is not a package. In the file of a model, replace ``from utils.buffer import Buffer`` by
``from bicore.integrations.mammoth import Buffer``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, as_tensor
from bicore.errors import InputError, check_integer
from bicore.streaming.buffer import Buffer as Memory
from bicore.streaming.registry import as_buffer

__all__ = ["Buffer"]

#: The columns of an example in the order in which they are returned, and their precision.
_KINDS = {
    "examples": torch.float32,
    "labels": torch.int64,
    "logits": torch.float32,
    "task_labels": torch.int64,
}

Device = str | torch.device
Transform = Callable[[Tensor], Tensor]


class Buffer:
    """Replay buffer of ER, DER, DER++ and similar methods, backed by a memory of bicore.

    It has the methods of mammoth's own buffer, which is a reservoir. Logits and task labels stay
    with their examples. The tensors ``examples``, ``labels``, ``logits`` and ``task_labels`` exist
    once they have been given; places in them are valid until the next :meth:`add_data`.

    Parameters
    ----------
    buffer_size : int
        Capacity: the number of examples to keep.
    device : str or torch.device
        Device of the returned tensors.
    memory : str or callable
        A name of ``bicore.streaming.BUFFERS``, or a function from a capacity to a buffer.
    random_state : int
        Seed of the draws of :meth:`get_data`.

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

    #: The names that mammoth has for the columns.
    attributes = tuple(_KINDS)

    def __init__(
        self,
        buffer_size: int,
        device: Device = "cpu",
        *,
        memory: str | Callable[[int], Memory] = "moments",
        random_state: int = 0,
    ) -> None:
        self.buffer_size = check_integer("buffer_size", buffer_size)
        self.device = torch.device(device)
        self._make = memory if callable(memory) else lambda capacity: as_buffer(memory, capacity)
        self._rng = np.random.default_rng(random_state)
        self.empty()

    def empty(self) -> None:
        """Remove all examples and start again."""
        self.memory = self._make(self.buffer_size)
        self._tensors: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return len(self.memory)

    def __getattr__(self, name: str) -> Tensor:
        # mammoth asks by hasattr which columns exist
        held: dict[str, Tensor] = self.__dict__.get("_tensors", {})
        if name not in held:
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return held[name]

    @property
    def num_seen_examples(self) -> int:
        """Number of examples of the stream so far."""
        return self.memory.position

    @property
    def used_attributes(self) -> list[str]:
        """Names of the stored columns."""
        return [name for name in self.attributes if name in self._tensors]

    def to(self, device: Device) -> Buffer:
        """Return tensors on another device from now on.

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
        self._tensors = {name: tensor.to(device) for name, tensor in self._tensors.items()}
        return self

    def add_data(
        self,
        examples: Tensor,
        labels: Tensor | None = None,
        logits: Tensor | None = None,
        task_labels: Tensor | None = None,
        attention_maps: Any = None,
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

        Raises
        ------
        InputError
            If the columns differ from earlier ones; the buffer is unchanged then.
        """
        if attention_maps is not None:
            raise InputError("attention_maps are not supported; use mammoth's own buffer.")
        extra = {"logits": logits, "task_labels": task_labels}
        given = {name: one.to(_KINDS[name]) for name, one in extra.items() if one is not None}
        classes = None if labels is None else labels.to(torch.int64)
        self.memory.update(examples.to(torch.float32), classes, extra=given or None)
        self._tensors = self._stored()

    def _stored(self) -> dict[str, Tensor]:
        if self.is_empty():
            return {}
        kept = self.memory.snapshot()
        columns: dict[str, Array | None] = {"examples": kept.x, "labels": kept.y}
        return {
            name: as_tensor(column).to(self.device, _KINDS[name])
            for name, column in {**columns, **(kept.extra or {})}.items()
            if column is not None
        }

    def get_data(
        self,
        size: int,
        transform: Transform | None = None,
        return_index: bool = False,
        device: Device | None = None,
        mask_task_out: int | None = None,
        cpt: int | None = None,
    ) -> tuple[Tensor, ...]:
        """Draw examples without replacement.

        Parameters
        ----------
        size : int
            Number of examples; all if fewer are stored.
        transform : callable, optional
            Augments one example.
        return_index : bool
            Whether to return their places first.
        device : str or torch.device, optional
            Device of the result; default: the buffer's.
        mask_task_out : int, optional
            A task to leave out.
        cpt : int, optional
            Classes per task, to find the task of a label if task labels are not stored.

        Returns
        -------
        tuple of Tensor
            Examples, then the other stored columns: labels, logits, task labels.

        Raises
        ------
        InputError
            If the buffer is empty, or the task of an example is unknown.
        """
        places = np.arange(len(self))
        if mask_task_out is not None:
            places = np.flatnonzero(self._tasks(cpt) != mask_task_out)
        chosen = self._rng.choice(places, size=min(size, len(places)), replace=False)
        index = torch.from_numpy(chosen)
        found = self.get_data_by_index(index, transform, device)
        return (index.to(device or self.device), *found) if return_index else found

    def _tasks(self, cpt: int | None) -> Array:
        if "task_labels" in self._tensors:
            return self._tensors["task_labels"].cpu().numpy()
        if cpt is None or "labels" not in self._tensors:
            raise InputError("mask_task_out needs task_labels, or labels and cpt=.")
        return (self._tensors["labels"] // cpt).cpu().numpy()

    def get_data_by_index(
        self, indexes: Tensor, transform: Transform | None = None, device: Device | None = None
    ) -> tuple[Tensor, ...]:
        """Return the examples at some places.

        Parameters
        ----------
        indexes : Tensor
            Places, as :meth:`get_data` returns them; valid until the next :meth:`add_data`.
        transform : callable, optional
            Augments one example.
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
        found = {name: self._tensors[name][index] for name in self.used_attributes}
        if transform is not None and len(index):
            found["examples"] = torch.stack([transform(one) for one in found["examples"].cpu()])
        return tuple(tensor.to(device or self.device) for tensor in found.values())

    def get_all_data(
        self, transform: Transform | None = None, device: Device | None = None
    ) -> tuple[Tensor, ...]:
        """Return all examples.

        Parameters
        ----------
        transform : callable, optional
            Augments one example.
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
        return self.get_data_by_index(torch.arange(len(self)), transform, device)

    def is_empty(self) -> bool:
        """Whether there are no examples yet.

        Returns
        -------
        bool
            True before the first examples.
        """
        return not len(self)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint of torch.

        Returns
        -------
        dict
            The states of the memory and of the random draws.
        """
        return {"memory": self.memory.state_dict(), "drawn": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another buffer.

        Parameters
        ----------
        state : dict
            The result of :meth:`state_dict` of a buffer with the same parameters.

        Raises
        ------
        InputError
            If the state is of another kind of buffer; the buffer is unchanged then.
        """
        self.memory.load_state_dict(state["memory"])
        self._rng.bit_generator.state = state["drawn"]
        self._tensors = self._stored()

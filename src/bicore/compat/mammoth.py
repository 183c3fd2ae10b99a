"""Mammoth (aimagelab): the buffer of its rehearsal methods, with rows that bicore keeps.

Mammoth is no package that could be imported: put ``from bicore.compat.mammoth import Buffer`` in
the place of ``from utils.buffer import Buffer`` in a model's file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array, as_tensor
from bicore.errors import InputError
from bicore.memory.buffer import Buffer as Memory
from bicore.memory.names import as_buffer
from bicore.picking import whole_number

__all__ = ["Buffer"]

#: What may be kept of an example, in the order in which it is given back, and its precision.
_KINDS = {
    "examples": torch.float32,
    "labels": torch.int64,
    "logits": torch.float32,
    "task_labels": torch.int64,
}
#: Those that stay with their rows and decide nothing.
_BESIDE = ("logits", "task_labels")


class Buffer:
    """What ER, DER, DER++ and their kin keep of the past, chosen by a memory of bicore.

    It answers the calls of mammoth's own buffer, whose rows are those of a reservoir; its rows are
    those from which a model learns most about the stream. Logits and task labels stay with their
    examples. Tensors ``examples``, ``labels``, ``logits`` and ``task_labels`` are there once they
    have been given; a place in them holds until the next :meth:`add_data`.

    Parameters
    ----------
    buffer_size : int
        The most examples that are kept.
    device : str or torch.device
        Where tensors are given back.
    memory : str or callable
        A name of ``bicore.memory.BUFFERS``, or a function that makes a buffer of a capacity.
    seed : int
        Of what :meth:`get_data` draws.

    Raises
    ------
    InputError
        Where a parameter is out of its range.

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

    #: What may be kept, by the names that mammoth has for it.
    attributes = tuple(_KINDS)

    def __init__(
        self,
        buffer_size: int,
        device: str | torch.device = "cpu",
        *,
        memory: str | Callable[[int], Memory] = "moments",
        seed: int = 0,
    ) -> None:
        self.buffer_size = whole_number(
            buffer_size, 1, f"buffer_size={buffer_size!r} is not a whole number >= 1."
        )
        self.device = torch.device(device)
        self._make = memory if callable(memory) else lambda capacity: as_buffer(memory, capacity)
        self.memory = self._make(self.buffer_size)
        self._rng = np.random.default_rng(seed)
        self._tensors: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return len(self.memory)

    def __getattr__(self, name: str) -> Tensor:
        # Reached by names that are no others: mammoth asks by hasattr what is kept.
        held = self.__dict__.get("_tensors", {})
        if name not in held:
            raise AttributeError(f"{type(self).__name__} keeps no {name!r}")
        tensor: Tensor = held[name]
        return tensor

    @property
    def num_seen_examples(self) -> int:
        """Examples of the stream so far."""
        return self.memory.position

    @property
    def used_attributes(self) -> list[str]:
        """The names of what is kept."""
        return [name for name in self.attributes if name in self._tensors]

    def to(self, device: str | torch.device) -> Buffer:
        """Give tensors back on another device from now on.

        Parameters
        ----------
        device : str or torch.device
            Which one.

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
        """Show the next examples of the stream.

        Parameters
        ----------
        examples : Tensor
            Images or vectors, not augmented.
        labels, logits, task_labels : Tensor, optional
            What belongs to them, always or never.
        attention_maps : None
            Mammoth's name for what is not kept here.

        Raises
        ------
        InputError
            Where they cannot follow those before; nothing has changed then.
        """
        if attention_maps is not None:
            raise InputError("attention_maps are not kept here; use mammoth's own buffer for them.")
        given = {"logits": logits, "task_labels": task_labels}
        beside = {
            name: column.to(_KINDS[name]) for name, column in given.items() if column is not None
        }
        classes = None if labels is None else labels.to(torch.int64)
        self.memory.update(examples.to(torch.float32), classes, extra=beside or None)
        if len(self.memory):
            self._tensors = self._held()

    def _held(self) -> dict[str, Tensor]:
        kept = self.memory.snapshot()
        columns: dict[str, Array | None] = {"examples": kept.x, "labels": kept.y}
        columns |= {name: (kept.extra or {}).get(name) for name in _BESIDE}
        return {
            name: as_tensor(column).to(self.device, _KINDS[name])
            for name, column in columns.items()
            if column is not None
        }

    def get_data(
        self,
        size: int,
        transform: Callable[[Tensor], Tensor] | None = None,
        return_index: bool = False,
        device: str | torch.device | None = None,
        mask_task_out: int | None = None,
        cpt: int | None = None,
    ) -> tuple[Tensor, ...]:
        """Draw examples without replacement.

        Parameters
        ----------
        size : int
            How many; all where fewer are kept.
        transform : callable, optional
            Augments one example.
        return_index : bool
            Whether their places come first.
        device : str or torch.device, optional
            Where to; by default the buffer's.
        mask_task_out : int, optional
            A task that is left out.
        cpt : int, optional
            Classes a task, which say the task of a label where task labels are not kept.

        Returns
        -------
        tuple of Tensor
            Examples, then what else is kept: labels, logits, task labels.

        Raises
        ------
        InputError
            Where nothing is kept yet, or it is not known which task an example is of.
        """
        self._check()
        places = np.arange(len(self))
        if mask_task_out is not None:
            places = np.flatnonzero(self._tasks(cpt) != mask_task_out)
        chosen = self._rng.choice(places, size=min(size, len(places)), replace=False)
        index = torch.from_numpy(chosen).to(self.device)
        found = self._at(index, transform, device)
        return (index.to(device or self.device), *found) if return_index else found

    def _tasks(self, cpt: int | None) -> Array:
        if "task_labels" in self._tensors:
            return self._tensors["task_labels"].cpu().numpy()
        if cpt is None or "labels" not in self._tensors:
            raise InputError(
                "mask_task_out needs to know the task of an example; give task_labels with every "
                "add_data, or labels and cpt, the classes a task."
            )
        return (self._tensors["labels"] // cpt).cpu().numpy()

    def get_data_by_index(
        self,
        indexes: Tensor,
        transform: Callable[[Tensor], Tensor] | None = None,
        device: str | torch.device | None = None,
    ) -> tuple[Tensor, ...]:
        """The examples at some places.

        Parameters
        ----------
        indexes : Tensor
            Places, as :meth:`get_data` gives them; they hold until the next :meth:`add_data`.
        transform : callable, optional
            Augments one example.
        device : str or torch.device, optional
            Where to; by default the buffer's.

        Returns
        -------
        tuple of Tensor
            Examples, then what else is kept.

        Raises
        ------
        InputError
            Where nothing is kept yet.
        """
        self._check()
        return self._at(torch.as_tensor(indexes).to(self.device), transform, device)

    def get_all_data(
        self,
        transform: Callable[[Tensor], Tensor] | None = None,
        device: str | torch.device | None = None,
    ) -> tuple[Tensor, ...]:
        """All that is kept.

        Parameters
        ----------
        transform : callable, optional
            Augments one example.
        device : str or torch.device, optional
            Where to; by default the buffer's.

        Returns
        -------
        tuple of Tensor
            Examples, then what else is kept.

        Raises
        ------
        InputError
            Where nothing is kept yet.
        """
        self._check()
        return self._at(torch.arange(len(self), device=self.device), transform, device)

    def _check(self) -> None:
        if self.is_empty():
            raise InputError("the buffer is empty; add_data first, and ask is_empty().")

    def _at(
        self,
        index: Tensor,
        transform: Callable[[Tensor], Tensor] | None,
        device: str | torch.device | None,
    ) -> tuple[Tensor, ...]:
        found = {name: self._tensors[name][index] for name in self.used_attributes}
        if transform is not None and len(index):
            found["examples"] = torch.stack([transform(one) for one in found["examples"].cpu()])
        return tuple(tensor.to(device or self.device) for tensor in found.values())

    def is_empty(self) -> bool:
        """Whether nothing is kept.

        Returns
        -------
        bool
            True before the first examples.
        """
        return not len(self)

    def empty(self) -> None:
        """Forget everything and begin anew."""
        self.memory = self._make(self.buffer_size)
        self._tensors = {}

    def state_dict(self) -> dict[str, Any]:
        """The whole state for a checkpoint of torch.

        Returns
        -------
        dict
            That of the memory, and of what is drawn.
        """
        return {"memory": self.memory.state_dict(), "drawn": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the buffer stood whose state this is.

        Parameters
        ----------
        state : dict
            What :meth:`state_dict` returned, of a buffer that was built like this one.

        Raises
        ------
        InputError
            Where it is of another buffer; nothing has changed then.
        """
        self.memory.load_state_dict(state["memory"])
        self._rng.bit_generator.state = state["drawn"]
        self._tensors = self._held() if len(self.memory) else {}

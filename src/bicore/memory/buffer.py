"""What every buffer in front of a stream is."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from bicore.data import Array, Dataset, as_weights, joined
from bicore.errors import DamagedFileError, InputError
from bicore.memory.options import as_capacity, as_memory_seed
from bicore.memory.showing import Extra, shown
from bicore.memory.state_dict import no_state, packed, unpacked
from bicore.networks.loading import Fields
from bicore.runtime import Context
from bicore.state import FORMAT, damaged, read_state, write_state

#: The weight that a memory may see: a priority divides a weight by a random number of at least
#: 2⁻⁵³, and must stay finite.
MOST_WEIGHT = float(np.finfo(np.float64).max) * 2.0**-53


class Buffer(ABC):
    """A bounded memory of a stream.

    :meth:`update` takes a batch of any number of rows, also none; :meth:`snapshot` gives what is
    kept: rows with labels, ids that are positions in the stream, and weights that say how much of
    the stream each row stands for: they sum to the weight seen so far. A batch that is refused
    changes nothing. Rows of weight 0 take a position in the stream and nothing else. Extra columns,
    such as the logits of a model, stay with their rows and decide nothing.

    Parameters
    ----------
    capacity : int
        The most rows that are ever kept.
    seed : int
        Of whatever is drawn at random; the state of the generator is part of what :meth:`save`
        writes.

    Raises
    ------
    InputError
        Where ``capacity`` or ``seed`` is no whole number in its range.

    Examples
    --------
    >>> from bicore.memory import Reservoir
    >>> buffer = Reservoir(capacity=10)
    >>> for start in range(0, 300, 100):
    ...     _ = buffer.update(np.arange(start, start + 100.0))
    >>> buffer
    Reservoir(10 of 10 rows kept, 300 seen)
    """

    #: Whether ``update`` needs labels, or the current model in its context.
    needs_labels: bool = False
    needs_model: bool = False

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = as_capacity(capacity)
        self.seed = as_memory_seed(seed)
        self.rng = np.random.default_rng(self.seed)
        self.kept: Dataset | None = None
        #: Rows seen, those of them with a positive weight, and the sum of their weights.
        self.position = 0
        self.counted = 0
        self.seen = 0.0
        #: Whatever the owner wants to find again beside the state: JSON values.
        self.mark: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The method in words."""
        return type(self).__name__

    def __len__(self) -> int:
        """Rows kept now."""
        return 0 if self.kept is None else len(self.kept)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self)} of {self.capacity} rows kept, {self.position} seen)"
        )

    def update(
        self,
        x: Any,
        y: Any = None,
        weight: Any = None,
        *,
        extra: Mapping[str, Any] | None = None,
        context: Context | None = None,
    ) -> Self:
        """Show the next rows of the stream.

        Parameters
        ----------
        x : array (n, …)
            Their features; n may be 0.
        y : array (n,), optional
            Their labels, with every batch or with none.
        weight : array (n,), optional
            How much each row counts; by default 1.
        extra : mapping of name to array (n, …), optional
            Further columns of numbers or text to keep with the rows, the same names with every
            batch or with none.
        context : Context, optional
            The current model where one is needed, and the runtime.

        Returns
        -------
        Buffer
            The buffer itself.

        Raises
        ------
        InputError
            Where the batch cannot follow those before it; nothing has changed then.
        """
        context = context or Context()
        if _rows(x) == 0:
            return self
        batch = Dataset(x, y, extra=extra)
        self._check(batch, context)
        size = len(batch)
        weights = np.ones(size) if weight is None else as_weights(weight, size, all_zero=True)
        self._check_total(weights)
        rows = np.flatnonzero(weights > 0)
        counted = batch.with_columns(ids=np.arange(size) + self.position, weight=weights)[rows]
        with self._wholly():
            with context.runtime.applied():
                if len(counted):
                    self._take(counted, context)
            self.position += size
            self.counted += len(rows)
            self.seen += float(weights.sum())
        return self

    def observe(
        self,
        data: Any,
        *,
        x: str | int | None = None,
        y: str | int | None = None,
        weight: str | int | None = None,
        extra: Extra | None = None,
        context: Context | None = None,
    ) -> Self:
        """Show the rows of tensors, of a torch data set or of a loader, a batch at a time.

        Parameters
        ----------
        data : Tensor, tuple of them, torch.utils.data.Dataset or DataLoader
            Rows x, or (x, y), or (x, y, weight); or what gives batches. The order in which a loader
            gives rows is that of the stream.
        x, y, weight : str or int, optional
            The fields of an item: keys of a dict, or places in a tuple. By default the first two
            of a tuple, and in a dict what is usually called so ("image", "label", …).
        extra : mapping of name to str or int, optional
            Further columns to keep with the rows, and the fields they are.
        context : Context, optional
            The current model where one is needed, and the runtime.

        Returns
        -------
        Buffer
            The buffer itself.

        Raises
        ------
        InputError
            Where a batch cannot follow those before it; those before it have counted.

        Examples
        --------
        >>> import torch
        >>> from bicore.memory import Reservoir
        >>> rows = torch.utils.data.TensorDataset(torch.rand(100, 4), torch.arange(100) % 3)
        >>> Reservoir(5).observe(torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True))
        Reservoir(5 of 5 rows kept, 100 seen)
        """
        for batch in shown(data, Fields(x, y, weight), extra):
            self.update(**batch, context=context)
        return self

    def snapshot(self) -> Dataset:
        """What is kept now; the arrays are the caller's own.

        Returns
        -------
        Dataset
            Rows whose weights sum to the weight seen so far.

        Raises
        ------
        InputError
            Where no row was seen yet.
        """
        if self.kept is None:
            raise InputError(f"{self.name} has seen no rows yet; update it first.")
        kept = self.kept
        y = None if kept.y is None else kept.y.copy()
        extra = kept.extra and {name: column.copy() for name, column in kept.extra.items()}
        return Dataset(kept.x.copy(), y, self._weights(), kept.ids.copy(), extra)

    def unlike(self, other: Buffer) -> list[str]:
        """The parameters in which another buffer was built differently.

        Parameters
        ----------
        other : Buffer
            The other one.

        Returns
        -------
        list of str
            Their names, ``"buffer"`` where it is of another class; empty where two buffers could
            go on for each other.
        """
        own, others = (
            {"buffer": type(one).__name__, **one._configuration()} for one in (self, other)
        )
        return [name for name in own if name in others and own[name] != others[name]]

    @abstractmethod
    def _take(self, batch: Dataset, context: Context) -> None:
        """Change what is kept.

        ``batch`` holds at least one row, all of positive weight, with stream positions as ids.
        """

    @abstractmethod
    def _weights(self) -> Array:
        """How much of the stream each kept row stands for."""

    def _followed_by(self, batch: Dataset) -> Dataset:
        """The rows kept, then those of the batch."""
        return batch if self.kept is None else joined(self.kept, batch)

    def _check_total(self, weights: Array) -> None:
        """Refuse weights whose sum with those before could overflow in what is made of it."""
        with np.errstate(over="ignore"):
            total = self.seen + weights.sum()
        if total > MOST_WEIGHT:
            raise InputError(
                f"weight brings what was seen to {total:.3g}, and a memory counts up to "
                f"{MOST_WEIGHT:.3g}; scale the weights of the stream down."
            )

    def _check(self, batch: Dataset, context: Context) -> None:
        if self.needs_labels and batch.y is None:
            raise InputError(
                f"{self.name} needs labels; give y with every batch, or use Reservoir."
            )
        if self.needs_model and context.model is None:
            raise InputError(
                f"{self.name} needs the current model, and none was given; pass "
                "context=Context(model=your_network)."
            )
        if self.kept is not None:
            joined(self.kept[:0], batch[:0])  # refuses columns of another kind than those kept

    def _state(self) -> dict[str, Any]:
        """Everything that changes, as values that later changes leave alone."""
        head = {
            "position": self.position,
            "counted": self.counted,
            "seen": self.seen,
            "rng": self.rng.bit_generator.state,
        }
        values, arrays = self._own()
        values = {**values, "mark": dict(self.mark)}
        return {**head, "kept": self.kept, "values": values, "arrays": arrays}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of :meth:`_state`."""
        self.kept = state["kept"]
        self.position = int(state["position"])
        self.counted = int(state["counted"])
        self.seen = float(state["seen"])
        self.rng.bit_generator.state = state["rng"]
        # Files from before every buffer had a mark are without one.
        self.mark = dict(state["values"].get("mark", {}))
        self._load_own(state["values"], state["arrays"])

    @contextmanager
    def _wholly(self) -> Iterator[None]:
        """What happens inside counts wholly or not at all, also where it is interrupted."""
        before = self._state()
        try:
            yield
        except BaseException:
            self._restore(before)
            raise

    def _configuration(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON holds them."""
        return {"capacity": self.capacity, "seed": self.seed}

    def _own(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What a subclass adds to the state: values that JSON can hold, and arrays.

        Copies, where they change in place. The value ``mark`` is taken.
        """
        return {}, {}

    def _load_own(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:  # noqa: B027 (nothing to add is usual)
        """The inverse of :meth:`_own`."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the whole state to an ``.npz`` without pickle, beside and renamed.

        Parameters
        ----------
        path : path
            Where to.

        Returns
        -------
        Path
            The file; a buffer loaded from it goes on as if never stopped.

        Raises
        ------
        InputError
            Where ``mark`` holds what JSON does not.
        """
        return write_state(path, *self._stored())

    def _stored(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Everything that a buffer like this one needs to go on: JSON values, and arrays."""
        _check_mark(self.mark)
        state = self._state()
        kept = state.pop("kept")
        arrays = dict(state.pop("arrays"))
        head = {
            "format": FORMAT,
            "buffer": type(self).__name__,
            "configuration": self._configuration(),
            **state,
        }
        if kept is not None:
            arrays |= stored_columns(kept)
        return head, arrays

    def state_dict(self) -> dict[str, Any]:
        """The whole state for a checkpoint of torch, beside those of model and optimiser.

        Returns
        -------
        dict
            Tensors, text and lists, which ``torch.load(…, weights_only=True)`` reads; copies.

        Raises
        ------
        InputError
            Where ``mark`` holds what JSON does not.

        Examples
        --------
        >>> from bicore.memory import Reservoir
        >>> state = Reservoir(capacity=3).update(np.arange(100.0)).state_dict()
        >>> again = Reservoir(capacity=3)
        >>> again.load_state_dict(state)
        >>> again
        Reservoir(3 of 3 rows kept, 100 seen)
        """
        return packed(*self._stored())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the buffer stood whose state this is.

        Parameters
        ----------
        state : dict
            What :meth:`state_dict` returned, of a buffer that was built like this one.

        Raises
        ------
        InputError
            Where it is of another class or configuration, or not whole; nothing has changed then.
        """
        head, arrays = unpacked(state, type(self).__name__, self._configuration())
        try:
            with self._wholly():
                kept = read_columns(arrays) if "x" in arrays else None
                self._restore({**head, "kept": kept, "arrays": arrays})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise no_state(repr(error)) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` of the same class wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.

        Returns
        -------
        Buffer
            As it was saved.

        Raises
        ------
        InputError
            Where the file is of another class or format, or damaged.
        """
        head, arrays = cls._read(path)
        return cls(**head["configuration"])._loaded(path, head, arrays)

    @classmethod
    def _read(cls, path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
        """The head and the arrays of a file of this class and format, whose checksum holds."""
        head, arrays = read_state(path, "Buffer.save")
        if head.get("format") != FORMAT or head.get("buffer") != cls.__name__:
            raise InputError(
                f"{path} holds a {head.get('buffer')!r} of format {head.get('format')!r}; "
                f"{cls.__name__}.load reads its own, format {FORMAT}."
            )
        return head, arrays

    def _loaded(
        self, path: str | os.PathLike[str], head: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> Self:
        """Take in what a file held."""
        try:
            kept = read_columns(arrays) if "x" in arrays else None
            self._restore({**head, "kept": kept, "arrays": arrays})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(path, "Buffer.save", repr(error)) from error
        if len(self) > self.capacity:
            raise DamagedFileError(
                f"{path} holds {len(self)} rows, above its capacity of {self.capacity}: the file "
                "is damaged."
            )
        return self


def stored_columns(rows: Dataset, part: str = "") -> dict[str, Array]:
    """The columns that a state file holds of some rows; ``part`` tells those of several apart."""
    columns = {"x": rows.x, "y": rows.y, "weight": rows.weights, "ids": rows.ids}
    stored = {f"{name}{part}": column for name, column in columns.items() if column is not None}
    # A point is in no other name, so that no column can pass for another.
    return stored | {f"extra{part}.{name}": column for name, column in (rows.extra or {}).items()}


def read_columns(arrays: Mapping[str, Array], part: str = "") -> Dataset:
    """The rows whose columns :func:`stored_columns` gave."""
    x, weight, ids = (arrays[f"{name}{part}"] for name in ("x", "weight", "ids"))
    start = f"extra{part}."
    extra = {
        name.removeprefix(start): column
        for name, column in arrays.items()
        if name.startswith(start)
    }
    return Dataset(x, arrays.get(f"y{part}"), weight, ids, extra)


def _check_mark(mark: dict[str, Any]) -> None:
    """Refuse a mark that a state file would not give back as it is."""
    try:
        same = json.loads(json.dumps(mark)) == mark
    except (TypeError, ValueError):
        same = False
    if not same:
        raise InputError(
            f"mark={mark!r} is no JSON object; use text as keys, and numbers, text, lists and "
            "dicts of them as values."
        )


def _rows(x: Any) -> int:
    """How many rows x has; -1 for what has no length, which the data's own checks refuse."""
    try:
        return len(x)
    except TypeError:
        return -1

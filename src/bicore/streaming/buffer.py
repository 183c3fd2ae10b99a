"""The base of all buffers of a stream, and a folder for their state."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch

from bicore._deprecated import renamed_keywords
from bicore.data import Array, Dataset, as_weights, join_datasets, read_targets, scale_to_mean_one
from bicore.errors import DamagedFileError, InputError, check_integer, check_type
from bicore.files import LockedFolder, sync_folder
from bicore.networks.observe import Observed
from bicore.runtime.context import Context, Runtime
from bicore.streaming.base import (
    Arrays,
    Memory,
    PathLike,
    State,
    as_context,
    read_columns,
    store_columns,
)
from bicore.types import Matrix, Numbers, RandomState

#: Maximum total weight: a priority divides a weight by a random number of at least 2⁻⁵³, and must
#: stay finite.
MOST_WEIGHT = float(np.finfo(np.float64).max) * 2.0**-53
#: Number of state files in a folder: the newest, and the one before in case of damage.
KEPT_FILES = 2


class Buffer(Memory):
    """A memory of a stream with a fixed capacity.

    :meth:`update` takes a batch of any number of rows, including none. :meth:`snapshot` returns the
    rows kept, with labels, ids and weights. Ids are positions in the stream. The weight of a row is
    the part of the stream that it represents; the weights sum to the weight seen so far. A batch
    that is refused changes nothing. Rows of weight 0 only take a position in the stream. Extra
    columns, such as the logits of a model, stay with their rows and do not influence the choice.
    """

    #: Whether ``update`` needs labels, class labels, or a model.
    needs_labels: bool = False
    needs_classes: bool = False
    needs_model: bool = False
    #: Attributes that a subclass adds to the state: JSON values or arrays.
    _own_state: ClassVar[tuple[str, ...]] = ()
    #: Whether the weights of the rows kept are the parts of the stream that they represent.
    _weighted: ClassVar[bool] = False

    def __init__(self, capacity: int, random_state: RandomState = 0) -> None:
        super().__init__(capacity, random_state)
        self.kept: Dataset | None = None
        #: Numbers of rows seen and of those with positive weight, and the sum of weights.
        self.position = 0
        self.counted = 0
        self.seen = 0.0
        #: Values for JSON that the owner stores with the state.
        self.mark: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The name of the method."""
        return type(self).__name__

    def __len__(self) -> int:
        """The number of rows kept."""
        return 0 if self.kept is None else len(self.kept)

    def __repr__(self) -> str:
        words = f"{len(self)} of {self.capacity} rows kept, {self.position} seen"
        return f"{type(self).__name__}({words})"

    @renamed_keywords()
    def update(
        self,
        x: Matrix,
        y: Numbers | None = None,
        sample_weight: Any = None,
        *,
        extra: Mapping[str, Any] | None = None,
        model: torch.nn.Module | Observed | Context | None = None,
        runtime: Runtime | None = None,
    ) -> Self:
        """Add the next rows of the stream.

        Parameters
        ----------
        x : array (n, …)
            Their features; n may be 0.
        y : array (n,), optional
            Their labels, with every batch or with none.
        sample_weight : array (n,), optional
            Weights of the rows (default: 1).
        extra : mapping of name to array (n, …), optional
            Further columns of numbers or text to keep with the rows, the same names with every
            batch or with none.
        model : torch.nn.Module, optional
            The current model, if the memory needs one.
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        Buffer
            The buffer itself.

        Raises
        ------
        InputError
            If the batch does not match earlier batches. The buffer is unchanged then.
        """
        context = as_context(model, runtime)
        if isinstance(x, Sized) and len(x) == 0:
            return self
        batch = Dataset(x, y, extra=extra)
        self._check(batch, context)
        size = len(batch)
        weights = as_weights(sample_weight, size, all_zero=True)
        self._check_total(weights)
        rows = np.flatnonzero(weights > 0)
        counted = batch.with_columns(ids=np.arange(size) + self.position, sample_weight=weights)[
            rows
        ]
        with self._all_or_nothing(), context.runtime.apply():
            if len(counted):
                self._process_batch(counted, context)
            self.position += size
            self.counted += len(rows)
            self.seen += float(weights.sum())
        return self

    def _add_batches(self, batches: Iterator[dict[str, Any]], context: Context) -> None:
        for batch in batches:
            self.update(**batch, model=context)

    def snapshot(self) -> Dataset:
        """Return a copy of the rows kept.

        Returns
        -------
        Dataset
            Rows whose weights sum to the weight seen so far.

        Raises
        ------
        InputError
            If no row was seen yet.
        """
        if self.kept is None:
            raise InputError(f"{self.name} has seen no rows yet; update it first.")
        copied = self.kept[np.arange(len(self.kept))]
        return copied.with_columns(sample_weight=self._weights(copied))

    def _rehearsed(self) -> Dataset:
        rows = self.snapshot()
        return rows.with_columns(sample_weight=scale_to_mean_one(rows.weights))

    def list_differences(self, other: Buffer) -> list[str]:
        """List the parameters that differ from those of another buffer.

        Parameters
        ----------
        other : Buffer
            The other one.

        Returns
        -------
        list of str
            Their names, with ``"buffer"`` for another class; empty if one buffer could continue for
            the other.
        """
        own, others = (
            {"buffer": type(one).__name__, **one._configuration()} for one in (self, other)
        )
        return [name for name in own if name in others and own[name] != others[name]]

    @abstractmethod
    def _process_batch(self, batch: Dataset, context: Context) -> None:
        """Change the rows kept.

        ``batch`` holds at least one row, all of positive weight, with stream positions as ids.
        """

    def _weights(self, kept: Dataset) -> Array:
        """Return the weights of the kept rows; by default equal shares of the stream."""
        return kept.weights if self._weighted else np.full(len(kept), self.seen / len(kept))

    def _join_kept(self, batch: Dataset) -> Dataset:
        """Return the rows kept, followed by those of the batch."""
        return batch if self.kept is None else join_datasets(self.kept, batch)

    def _check_total(self, weights: Array) -> None:
        with np.errstate(over="ignore"):
            total = self.seen + weights.sum()
        if total > MOST_WEIGHT:
            raise InputError(
                f"sample_weight must sum to at most {MOST_WEIGHT:.3g} over the stream; got "
                f"{total:.3g}. Scale the weights down."
            )

    def _check(self, batch: Dataset, context: Context) -> None:
        if self.needs_labels and batch.y is None:
            raise InputError(f"{self.name} needs labels; give y with every batch.")
        if self.needs_classes and batch.y is not None and read_targets(batch.y).classes is None:
            raise InputError(
                f"{self.name} needs class labels here, but y holds numeric targets; use "
                "Reservoir, or MomentMemory with prior='data'."
            )
        if self.needs_model and context.model is None:
            raise InputError(f"{self.name} needs a network; give model=your_network.")
        self._check_columns(batch)

    def _check_columns(self, rows: Dataset) -> None:
        """Refuse columns of another kind than those kept."""
        if self.kept is not None:
            join_datasets(self.kept[:0], rows[:0])

    # State.

    def _state(self) -> State:
        if not _is_json(self.mark):
            raise InputError(
                f"mark={self.mark!r} is not a JSON object; use text as keys, and numbers, text, "
                "lists and dicts of them as values."
            )
        own = {name: getattr(self, name) for name in self._own_state}
        arrays = {name: value for name, value in own.items() if isinstance(value, np.ndarray)}
        values = {name: value for name, value in own.items() if name not in arrays}
        head = {
            "position": self.position,
            "counted": self.counted,
            "seen": self.seen,
            "rng": self.rng.bit_generator.state,
            "values": {**values, "mark": dict(self.mark)},
        }
        return head, arrays | ({} if self.kept is None else store_columns(self.kept))

    def _restore(self, head: Mapping[str, Any], arrays: Arrays) -> None:
        self.kept = read_columns(arrays) if "x" in arrays else None
        if len(self) > self.capacity:
            raise ValueError(f"{len(self)} rows, above the capacity of {self.capacity}")
        self.position, self.counted = int(head["position"]), int(head["counted"])
        self.seen = float(head["seen"])
        self.rng.bit_generator.state = head["rng"]
        # Early files have no such field.
        self.mark = dict(head["values"].get("mark", {}))
        for name in self._own_state:
            setattr(self, name, arrays[name] if name in arrays else head["values"][name])


class MergingBuffer(Buffer):
    """A buffer that can be merged with another one, as if its stream had come afterwards."""

    @renamed_keywords()
    def merge(
        self,
        other: Self,
        *,
        offset: int | None = None,
        model: torch.nn.Module | Observed | Context | None = None,
        runtime: Runtime | None = None,
    ) -> Self:
        """Merge another buffer of the same kind, as if its stream had come after this one.

        A :class:`MomentMemory` adds the moments, and chooses from the rows of both. Both need the
        same fitted feature map: start one memory, and build the others with
        ``feature_map=memory.feature_map_``.

        Parameters
        ----------
        other : Buffer
            A buffer built like this one; it does not change.
        offset : int, optional
            The number added to its ids; by default, and at least, the number of rows seen here.
        model : torch.nn.Module, optional
            The current model, if the memory needs one.
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        Buffer
            The buffer itself.

        Raises
        ------
        InputError
            If the buffers have different parameters, or ids would occur twice. Nothing is changed.
        """
        check_type("other", other, type(self), f"a {type(self).__name__}")
        changed = self._differences(other)
        if changed:
            raise InputError(
                f"other must be built like this buffer; it differs in {', '.join(changed)}."
            )
        moved = self.position
        if offset is not None:
            moved = check_integer("offset", offset, moved, fix="beyond the ids of this memory")
        if other.kept is not None:
            self._check_columns(other.kept)
        context = as_context(model, runtime)
        with self._all_or_nothing(), context.runtime.apply():
            self._merge_state(other, moved, context)
            self.position = moved + other.position
            self.counted += other.counted
            self.seen += other.seen
        return self

    def _differences(self, other: Self) -> list[str]:
        """Return the parameters that prevent a merge."""
        return [name for name in self.list_differences(other) if name != "random_state"]

    @abstractmethod
    def _merge_state(self, other: Self, moved: int, context: Context) -> None:
        """Merge the rows kept; ``moved`` is added to the other's ids."""


def _is_json(mark: dict[str, Any]) -> bool:
    """Whether JSON gives the value back unchanged."""
    try:
        return bool(json.loads(json.dumps(mark)) == mark)
    except (TypeError, ValueError):
        return False


B = TypeVar("B", bound=Buffer)


class StateFolder(LockedFolder):
    """A folder of state files, locked by one process.

    A file is named after the rows seen when it was written. Loading takes the newest; a damaged one
    is listed in ``notes`` and the one before it is used. A file of another format or configuration
    is refused.
    """

    fix = "give another --state folder"

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        super().__enter__()
        for leftover in self.path.glob(".state-*.part*"):
            leftover.unlink()  # left by a crash; no other process uses the folder
        return self

    def files(self) -> list[Path]:
        """List the state files, newest first."""
        return sorted(self.path.glob("state-*.npz"), reverse=True)

    def load(self, read: Callable[[Path], B]) -> B | None:
        """Load the newest state that is not damaged."""
        files = self.files()
        for path in files:
            try:
                return read(path)
            except DamagedFileError as error:
                self.notes.append(str(error).rstrip("."))
        if files:
            raise InputError(
                f"every state file in {self.path} is damaged ({'; '.join(self.notes)}); restore "
                "one, or empty the folder."
            )
        return None

    def rename_damaged(self, used: int) -> None:
        """Rename damaged files, so that they do not hide new ones."""
        for path in self.files():
            if path.name > f"state-{used:015d}.npz":
                path.rename(path.with_name(f"damaged-{path.name}"))

    def save(self, buffer: Buffer) -> Path:
        """Write the state atomically, then remove all but the two newest files."""
        path = buffer.save(self.path / f"state-{buffer.position:015d}.npz")
        sync_folder(self.path)
        for old in self.files()[KEPT_FILES:]:
            old.unlink()
        return path

"""The base of all memories: state on disk and in checkpoints, and rehearsal."""

from __future__ import annotations

import copy
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from bicore._deprecated import renamed_keywords
from bicore.arguments import as_seed
from bicore.data import Array, Dataset, as_tensor
from bicore.errors import InputError, check_integer, check_name, check_type, unknown_name
from bicore.files import FORMAT, fingerprint, read_state, refuse_damage, strip_prefix, write_state
from bicore.methods.base import Selector, require_complete
from bicore.methods.bilevel import BilevelSelector
from bicore.networks.loading import BATCH, Fields, is_loader, is_torch_data
from bicore.networks.observe import Observed
from bicore.params import Parameters
from bicore.runtime.context import Context, Runtime
from bicore.types import RandomState

Transform = Callable[[Tensor], Tensor]
PathLike = str | os.PathLike[str]
Arrays = Mapping[str, Array]
#: The state of a memory: values for JSON, and arrays.
State = tuple[dict[str, Any], dict[str, Array]]
#: The entry of a state dict that holds the JSON values.
_HEAD = "head"


class Memory(Parameters, ABC):
    """Rows kept within a capacity, with saved state and rehearsal loss."""

    #: The name in state files of memories that share the files of another class.
    _file_kind: ClassVar[str] = ""
    #: Parameters of version 0.2 in states: new names by old ones, and new values by name and old
    #: value.
    _renamed: ClassVar[tuple[Mapping[str, str], Mapping[str, Mapping[Any, Any]]]] = {}, {}

    def __init__(self, capacity: int, random_state: RandomState = 0) -> None:
        self.capacity = check_integer("capacity", capacity)
        self.random_state = as_seed(random_state)
        self.rng = np.random.default_rng(self.random_state)
        self._passes = 0
        #: Cached tensors on the device and in the precision of the last model.
        self._cast: tuple[Tensor, Tensor, Tensor] | None = None

    @abstractmethod
    def __len__(self) -> int:
        """The number of rows kept."""

    @abstractmethod
    def _rehearsed(self) -> Dataset:
        """Return all rows of a memory that has some, with their weights in the mean loss."""

    @abstractmethod
    def _add_batches(self, batches: Iterator[dict[str, Any]], context: Context) -> None:
        """Add batches, each the arguments of ``update`` or ``add_task``."""

    @abstractmethod
    def _state(self) -> State:
        """Return the whole state: JSON values, and arrays."""

    @abstractmethod
    def _restore(self, head: Mapping[str, Any], arrays: Arrays) -> None:
        """Invert :meth:`_state`."""

    def _configuration(self) -> dict[str, Any]:
        """Return the constructor's arguments for JSON."""
        first = {"capacity": self.capacity, "random_state": self.random_state}
        return {**first, **self.get_params(deep=False)}

    @renamed_keywords()
    def observe(
        self,
        data: Any,
        *,
        x: str | int | None = None,
        y: str | int | None = None,
        sample_weight: str | int | None = None,
        extra: Mapping[str, str | int] | None = None,
        model: torch.nn.Module | Observed | Context | None = None,
        runtime: Runtime | None = None,
    ) -> Self:
        """Add the rows of tensors, of a torch data set or of a loader.

        A buffer is updated batch by batch, in the order of the loader. A memory of tasks loads all
        rows as one task.

        Parameters
        ----------
        data : Tensor, tuple of them, torch.utils.data.Dataset or DataLoader
            Rows x, or (x, y), or (x, y, sample_weight); or a source of batches.
        x, y, sample_weight : str or int, optional
            The fields of an item: keys of a dict, or places in a tuple. By default the first two
            of a tuple, and in a dict the usual names ("image", "label", …).
        extra : mapping of name to str or int, optional
            Further columns to keep with the rows, and their fields.
        model : torch.nn.Module, optional
            The current model, if the memory needs one.
        runtime : Runtime, optional
            Device, precision and limits.

        Returns
        -------
        Memory
            The memory itself.

        Raises
        ------
        InputError
            If a batch does not match the rows before it. Earlier batches stay in the memory.

        Examples
        --------
        >>> from bicore.streaming import Reservoir
        >>> rows = torch.utils.data.TensorDataset(torch.rand(100, 4), torch.arange(100) % 3)
        >>> Reservoir(5).observe(torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True))
        Reservoir(5 of 5 rows kept, 100 seen)
        """
        batches = _read_batches(data, Fields(x, y, sample_weight), extra or {})
        self._add_batches(batches, as_context(model, runtime))
        return self

    # Rehearsal.

    def loss(
        self,
        model: Any,
        criterion: Any,
        beta: float = 1.0,
        transform: Transform | None = None,
        weighted: bool = True,
    ) -> Tensor:
        """Compute the rehearsal loss, β times the weighted mean loss of the rows kept.

        For a memory of tasks it is β Σ_τ (mean loss of the rows of task τ), the term that the paper
        adds to the loss of the current task. In a buffer of a stream a row counts by how much of
        the stream it represents (the paper's β_i of its slot).

        Parameters
        ----------
        model : torch.nn.Module
            The network in training.
        criterion : torch loss or callable
            Such as ``nn.CrossEntropyLoss()``, or a function of outputs and targets that returns one
            loss per row.
        beta : float
            The weight of the past relative to the current task.
        transform : callable, optional
            Augments the batch of all kept rows.
        weighted : bool
            False for the plain mean, the paper's β/|M| Σ ℓ of a stream.

        Returns
        -------
        Tensor
            A scalar with gradients; zero for an empty memory.

        Raises
        ------
        InputError
            If labels are missing or not numeric, or the criterion does not return a loss per row.
        """
        parameters = (value for value in model.parameters() if value.is_floating_point())
        like = next(parameters, torch.empty(0))
        if not len(self):
            return like.new_zeros(())
        cast = self._cast
        if cast is None or (cast[0].device, cast[0].dtype) != (like.device, like.dtype):
            x, y, weight = self.tensors()
            cast = x.to(like.device, like.dtype), y.to(like.device), weight.to(like.device)
            self._cast = cast
        x, y, weight = cast
        losses = _as_row_loss(criterion)(model(transform(x) if transform is not None else x), y)
        if losses.shape != weight.shape:
            raise InputError(
                f"criterion must give one loss per row; it returned shape {tuple(losses.shape)} "
                f"for {len(weight)} rows."
            )
        return beta * (weight.to(losses.dtype) * losses if weighted else losses).mean()

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return all rows as tensors, tasks in order.

        Returns
        -------
        x, y, w : Tensor
            Features, labels and weights; the mean of w·loss is the loss of :meth:`loss`.

        Raises
        ------
        InputError
            If the memory is empty, or labels are missing or not numeric.
        """
        rows = self._rows()
        return as_tensor(rows.x), _labels_as_tensor(rows), as_tensor(rows.weights)

    def _rows(self) -> Dataset:
        if not len(self):
            raise InputError("the memory is empty; add rows first.")
        return self._rehearsed()

    def extra(self, name: str) -> Tensor:
        """Return an extra column of all rows, tasks in order.

        Parameters
        ----------
        name : str
            Name of the column, as in ``extra`` when the rows were added.

        Returns
        -------
        Tensor
            Its rows are those of :meth:`tensors`.

        Raises
        ------
        InputError
            If the memory is empty, has no such column, or the column is not numeric.

        Examples
        --------
        >>> from bicore.streaming import ReplayMemory
        >>> from bicore.methods import Uniform
        >>> memory = ReplayMemory(2, Uniform())
        >>> x = np.arange(9.0)
        >>> memory.add_task(x, extra={"logits": np.stack([x, -x], axis=1)})
        >>> memory.extra("logits").shape
        torch.Size([2, 2])
        """
        columns = self._rows().extra
        if not columns:
            raise InputError(f"name={name!r}: the rows have no extra columns; give extra=….")
        if name not in columns:
            raise unknown_name("name", name, columns)
        found = columns[name]
        if found.dtype.kind == "U":
            raise InputError(f"extra[{name!r}] is text ({found[0]!r}), which a tensor cannot hold.")
        return as_tensor(found)

    def loader(
        self,
        batch_size: int | None = None,
        *,
        shuffle: bool = True,
        transform: Transform | None = None,
        random_state: RandomState = None,
        extra: Sequence[str] = (),
    ) -> Iterator[tuple[Tensor, ...]]:
        """Iterate once over the kept rows in batches.

        Parameters
        ----------
        batch_size : int, optional
            Rows per batch (default: all).
        shuffle : bool
            Whether the order is random: another one at each call, unless ``random_state`` is given.
        transform : callable, optional
            Augments each batch of features.
        random_state : int, Generator, RandomState or None
            Seed for the order.
        extra : sequence of str
            Names of extra columns, which follow the weights in every batch.

        Yields
        ------
        x, y, w, … : Tensor
            As :meth:`tensors` and :meth:`extra` return them.

        Raises
        ------
        InputError
            If the memory is empty, or labels are missing or not numeric.
        """
        x, *others = *self.tensors(), *(self.extra(name) for name in extra)
        self._passes += 1
        rng = np.random.default_rng(
            (self.random_state, self._passes) if random_state is None else as_seed(random_state)
        )
        order = rng.permutation(len(x)) if shuffle else np.arange(len(x))
        size = len(x) if batch_size is None else check_integer("batch_size", batch_size)
        for start in range(0, len(x), size):
            rows = torch.from_numpy(order[start : start + size])
            part = x[rows] if transform is None else transform(x[rows])
            yield part, *(column[rows] for column in others)

    # State.

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo all changes if an error or an interrupt ends the block.

        Attributes that change must be replaced, not modified in place.
        """
        before, rng = dict(vars(self)), self.rng.bit_generator.state
        try:
            self._cast = None
            yield
        except BaseException:
            self.__dict__ = before
            self.rng.bit_generator.state = rng
            raise

    def _stored(self) -> State:
        values, arrays = self._state()
        kind = self._file_kind or type(self).__name__
        head = {"format": FORMAT, "buffer": kind, "configuration": self._configuration()}
        return {**head, **values}, arrays

    @renamed_keywords()
    def save(self, path: PathLike) -> Path:
        """Write the whole state to an ``.npz`` file without pickle, atomically.

        Parameters
        ----------
        path : path
            The file to write.

        Returns
        -------
        Path
            The file; a memory loaded from it continues as if never stopped.

        Raises
        ------
        InputError
            If ``mark`` of a buffer holds values that JSON cannot hold.
        """
        return write_state(path, *self._stored())

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state for a checkpoint of torch.

        Returns
        -------
        dict
            Copies: tensors, text and lists, which ``torch.load(…, weights_only=True)`` reads.

        Raises
        ------
        InputError
            If ``mark`` of a buffer holds values that JSON cannot hold.

        Examples
        --------
        >>> from bicore.streaming import Reservoir
        >>> state = Reservoir(capacity=3).update(np.arange(100.0)).state_dict()
        >>> again = Reservoir(capacity=3)
        >>> again.load_state_dict(state)
        >>> again
        Reservoir(3 of 3 rows kept, 100 seen)
        """
        head, arrays = self._stored()
        columns = {
            name: column.tolist()  # text, which a tensor cannot hold
            if column.dtype.kind == "U"
            else torch.from_numpy(np.array(column, order="C"))
            for name, column in arrays.items()
        }
        return {_HEAD: json.dumps(head), **columns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that :meth:`state_dict` returned.

        Parameters
        ----------
        state : dict
            The state of a memory with the same class and parameters.

        Raises
        ------
        InputError
            If it is of another class or configuration, or incomplete. The memory is unchanged then.
        """
        try:
            head = dict(json.loads(state[_HEAD]))
            arrays = {
                name: value.detach().cpu().numpy().copy()
                if torch.is_tensor(value)
                else np.array(value, dtype=np.str_)
                for name, value in state.items()
                if name != _HEAD
            }
            self._check_head(head, "state")
            self._check_configuration(head)
            with self._all_or_nothing():
                self._restore(head, arrays)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"state is not complete ({type(error).__name__}: {error}); give the result of "
                "state_dict()."
            ) from error

    def _check_configuration(self, head: Mapping[str, Any]) -> None:
        own = json.loads(json.dumps(self._configuration()))
        given = self._read_configuration(head)
        changed = [name for name in own if own[name] != given.get(name)]
        if changed:
            found, needed = (
                ", ".join(f"{k}={one.get(k)!r}" for k in changed) for one in (given, own)
            )
            raise InputError(f"state has {found}; this memory was built with {needed}.")

    @classmethod
    def _check_head(cls, head: Mapping[str, Any], source: str) -> None:
        kind = head.get("buffer", head.get("memory"))  # the key of earlier replay memories
        if kind != (cls._file_kind or cls.__name__) or head.get("format") != FORMAT:
            raise InputError(
                f"{source} holds the state of a {kind} in format {head.get('format')!r}; "
                f"{cls.__name__} reads only its own in format {FORMAT}."
            )

    @classmethod
    @renamed_keywords()
    def load(cls, path: PathLike) -> Self:
        """Read a file that :meth:`save` of the same class wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.

        Returns
        -------
        Memory
            The saved object.

        Raises
        ------
        InputError
            If the file is of another class or format, or damaged.
        """
        return cls._load(path)

    @classmethod
    def _load(cls, path: PathLike, given: Any = None) -> Self:
        writer = f"{cls.__name__}.save"
        head, arrays = read_state(path, writer)
        cls._check_head(head, str(path))
        with refuse_damage(path, writer):
            memory = cls._from_configuration(cls._read_configuration(head), arrays, given)
            memory._restore(head, arrays)
        return memory

    @classmethod
    def _read_configuration(cls, head: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor's arguments in a state of this version or an earlier one."""
        names, values = cls._renamed
        new = {"seed": "random_state", **names}
        # Early replay memories stored their arguments in two places.
        stored = head.get("configuration") or {**head["options"], "selector": head["selector"]}
        found = {new.get(name, name): value for name, value in stored.items()}
        for name, table in values.items():
            if isinstance(found.get(name), str):
                found[name] = table.get(found[name], found[name])
        # Earlier versions had fewer arguments.
        return {name: one.default for name, one in cls._parameters().items()} | found

    @classmethod
    def _from_configuration(cls, configuration: dict[str, Any], arrays: Arrays, given: Any) -> Self:
        """Build the memory of a file; ``given`` holds objects that files cannot store."""
        return cls(**configuration)


def as_context(model: Any, runtime: Runtime | None) -> Context:
    """Combine a model and a runtime; a Context in place of either is used unchanged."""
    for given in (model, runtime):
        if isinstance(given, Context):
            return given
    return Context(model, runtime or Runtime())


#: How the weight of all rows is divided among the selected ones.
WEIGHTINGS = ("uniform", "learned")
#: Values of weighting= in version 0.2.
OLD_WEIGHTING = {"weighting": {"equal": "uniform", "learnt": "learned"}}


class SelectingMemory(Memory):
    """A memory whose rows are chosen by a selector."""

    def __init__(
        self, capacity: int, selector: Selector | None, weighting: str, random_state: RandomState
    ) -> None:
        super().__init__(capacity, random_state)
        self.selector = BilevelSelector() if selector is None else selector
        #: The selector with options resolved for a memory.
        self._chooser = _as_memory_selector(self.selector)
        self.weighting = check_name("weighting", weighting, WEIGHTINGS)

    def _select(
        self, rows: Dataset, size: int, classes: list[Any], seed: tuple[int, ...], context: Context
    ) -> Dataset:
        """Select rows; extra columns are hidden from the selector, because they must not matter."""
        selector = self._chooser.for_classes(classes) if classes else self._chooser
        seen, rng = rows.with_columns(extra=None), np.random.default_rng(seed)
        found = selector.select(seen, size, random_state=rng, **context.keywords)
        return require_complete(found).of(rows)

    def _weigh(self, rows: Dataset) -> Dataset:
        """Return selected rows with weight 1 each, or with the weights the selector learned."""
        weights = rows.weights if self.weighting == "learned" else np.ones(len(rows))
        return rows.with_columns(sample_weight=weights)

    def _configuration(self) -> dict[str, Any]:
        return {**super()._configuration(), "selector": fingerprint(self._chooser)}

    @classmethod
    @renamed_keywords()
    def load(cls, path: PathLike, selector: Selector | None = None) -> Self:
        """Read a file that :meth:`save` of the same class wrote; never unpickles.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.
        selector : Selector, optional
            The selector that the memory was built with, which a file cannot hold (default:
            ``BilevelSelector()``).

        Returns
        -------
        Memory
            The saved object.

        Raises
        ------
        InputError
            If the selector has another configuration, or the file is of another class
            or format, or damaged.
        """
        return cls._load(path, BilevelSelector() if selector is None else selector)

    @classmethod
    def _from_configuration(cls, configuration: dict[str, Any], arrays: Arrays, given: Any) -> Self:
        known, own = configuration.pop("selector"), fingerprint(_as_memory_selector(given))
        if known != own:
            raise InputError(
                f"the file was written with another selector configuration (fingerprint {known}, "
                f"yours is {own}); give the selector it was built with."
            )
        return cls(selector=given, **configuration)


def _as_memory_selector(selector: Any) -> Selector:
    words = "a Selector, for example BilevelSelector() or as_selector('uniform')"
    check_type("selector", selector, Selector, words)
    found: Selector = selector.for_memory()
    return found


def store_columns(rows: Dataset, part: str = "") -> dict[str, Array]:
    """Return the columns of rows for a state file; ``part`` distinguishes sets of rows."""
    columns = {"x": rows.x, "y": rows.y, "weight": rows.weights, "ids": rows.ids}
    stored = {f"{name}{part}": column for name, column in columns.items() if column is not None}
    # No other name has a dot, so names cannot clash.
    return stored | {f"extra{part}.{name}": column for name, column in (rows.extra or {}).items()}


def read_columns(arrays: Arrays, part: str = "") -> Dataset:
    """Invert :func:`store_columns`."""
    x, weight, ids = (arrays[f"{name}{part}"] for name in ("x", "weight", "ids"))
    return Dataset(x, arrays.get(f"y{part}"), weight, ids, strip_prefix(f"extra{part}.", arrays))


def _read_batches(
    data: Any, fields: Fields, extra: Mapping[str, str | int]
) -> Iterator[dict[str, Any]]:
    """Read batches as arguments of ``update``; the order of a loader is that of the stream."""
    if not (is_loader(data) or is_torch_data(data)):
        parts = data if isinstance(data, (tuple, list)) else (data,)
        yield dict(zip(("x", "y", "sample_weight"), parts, strict=False))
        return
    for batch in data if is_loader(data) else DataLoader(data, batch_size=BATCH):
        try:
            columns = {name: batch[field] for name, field in extra.items()}
        except (KeyError, IndexError, TypeError) as error:
            raise InputError(
                f"extra={extra!r} names a field that no item has ({error})."
            ) from error
        found = fields.of(batch)
        if "weight" in found:
            found["sample_weight"] = found.pop("weight")
        yield {**found, "extra": columns or None}


def _as_row_loss(criterion: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the criterion without its mean over rows; a row's targets keep their mean or sum."""
    if not callable(criterion):
        raise InputError(
            f"criterion must be a torch loss or a function of outputs and y; got {criterion!r}."
        )
    if not (isinstance(criterion, torch.nn.Module) and hasattr(criterion, "reduction")):
        function: Callable[[Tensor, Tensor], Tensor] = criterion
        return function
    if getattr(criterion, "weight", None) is not None:
        raise InputError(
            f"criterion={criterion} weights the classes, so its mean over a task is not a mean "
            "over rows; give a function of outputs and targets that returns one loss per row."
        )
    plain: Any = copy.copy(criterion)
    plain.reduction = "none"

    def apply(outputs: Tensor, targets: Tensor) -> Tensor:
        losses: Tensor = plain(outputs, targets)
        flat = losses.reshape(len(losses), -1)
        return flat.mean(1) if criterion.reduction == "mean" else flat.sum(1)

    return apply


def _labels_as_tensor(rows: Dataset) -> Tensor:
    """Return labels as torch's losses take them."""
    if rows.y is None:
        raise InputError("the rehearsal loss needs labels; give y with every batch.")
    kind = rows.y.dtype.kind
    if kind == "U":
        raise InputError(
            f"y is text ({rows.y[0]!r}); give the numbers of the outputs of the model instead."
        )
    return as_tensor(rows.y.astype(np.float32 if kind == "f" else np.int64))

"""The result of a selection: rows in order, their weights, and how they were found."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from bicore import frames, notebook
from bicore._deprecated import renamed_fields, renamed_keywords, renamed_methods
from bicore.data import MAX_INTEGER, Array, Dataset, scale_below_one
from bicore.errors import InputError, NumericalWarning, check_integer, import_extra, shown
from bicore.files import damaged_file_error, read_state, write_state
from bicore.types import PathLike, Table

FORMAT = 2
#: The arrays of a file and the kinds of their numbers.
_ARRAYS = {"indices": "iu", "weights": "f", "ids": "iu", "objectives": "f"}
UNVERIFIED_MESSAGE = "the objective could not be verified; see the notes"
#: Number of rows that a notebook shows.
SHOWN = 10


class Status(StrEnum):
    """How a selection ended; ``Coreset.message`` describes it in a sentence."""

    #: All requested rows were selected.
    COMPLETE = "complete"
    #: Fewer rows than requested: no other row may join, or all others would have weight zero.
    FEWER = "fewer"
    #: All rows were selected; the time limit ended the refinement.
    NOT_REFINED = "not refined"
    #: All rows were selected; a second fit did not confirm the objective (see the notes).
    UNVERIFIED = "unverified"
    #: The time limit ended the selection before all rows were selected.
    OUT_OF_TIME = "out of time"
    #: The user ended the selection; the rows so far are returned.
    INTERRUPTED = "interrupted"

    @classmethod
    def _missing_(cls, value: object) -> Status | None:
        """Read the value of files of version 0.2."""
        return cls.NOT_REFINED if value == "less refined" else None

    @property
    def whole(self) -> bool:
        """Whether the selection ended by itself with all available rows."""
        return self not in (Status.OUT_OF_TIME, Status.INTERRUPTED)


@dataclass(frozen=True)
class Provenance:
    """How a coreset was selected, in typed fields."""

    method: str = ""
    rows: int | None = None
    seed: int | None = None
    seconds: float = 0.0
    preparation_seconds: float = 0.0
    fingerprint: str | None = None
    configuration: str | None = None
    empty_objective: float | None = None
    task: str | None = None
    loss: str | None = None
    kernel: str | None = None
    inner_reg: float | None = None
    per_point: bool = False
    automatic: bool = False
    classes: tuple[Any, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def selection_seconds(self) -> float:
        """Seconds of the search, without preparation."""
        return self.seconds - self.preparation_seconds

    @property
    def regulariser(self) -> str | None:
        """Describe ``inner_reg``."""
        if self.inner_reg is None:
            return None
        form = " per row" if self.per_point else ""
        return f"{self.inner_reg:.4g}{form}{' (auto)' if self.automatic else ''}"

    def same_configuration(self, other: Provenance) -> bool:
        """Whether two coresets have the same kernel, losses, regulariser and outer set.

        On the same data their objectives can then be compared.
        """
        return self.configuration is not None and self.configuration == other.configuration

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Provenance:
        """Read the fields of a file; names of later versions are ignored."""
        known: dict[str, Any] = {}
        for one in fields(cls):
            if one.name in stored:
                value = stored[one.name]
                if value is not None or one.default is not None:
                    kind = str(one.type).partition(" ")[0].partition("[")[0]
                    _check_type(one.name, value, *_JSON_TYPES[kind])
                known[one.name] = tuple(value) if isinstance(value, list) else value
        for note in known.get("notes", ()):
            _check_type("notes", note, str)
        return cls(**known)


#: Types of the fields in JSON; numbers of NumPy are written as text.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int, str),
    "float": (int, float),
    "bool": (bool,),
    "tuple": (list,),
}


def _check_type(name: str, value: Any, *kinds: type) -> Any:
    """Return a value of a file; refuse it if its type is not one of these."""
    if type(value) not in kinds:
        raise ValueError(f"its {name} is of type {type(value).__name__}")
    return value


def as_row_numbers(given: Any, name: str, n: int | None = None) -> Array:
    """Check row numbers: distinct integers from 0, below ``n`` if that is known."""
    rows = np.asarray(given).reshape(-1)
    if rows.size and rows.dtype.kind not in "iu":
        fix = "give integer row numbers (for a mask: np.flatnonzero(mask))"
        raise InputError(f"{name} holds {rows[0]!s}; {fix}.")
    rows = rows.astype(np.int64)
    wrong = rows[(rows < 0) | (rows >= (MAX_INTEGER if n is None else n))]
    if len(wrong):
        where = "" if n is None else f", outside 0 … {n - 1}"
        raise InputError(f"{name} holds row {wrong[0]}{where}; rows are counted from 0.")
    values, counts = np.unique(rows, return_counts=True)
    if len(values) != len(rows):
        raise InputError(f"{name} holds a row twice ({values[counts.argmax()]}); give it once.")
    return rows


@renamed_methods(annotated="with_details", normalised="normalise")
@renamed_fields()
@dataclass(frozen=True, eq=False)
class Coreset:
    """An ordered, weighted subset.

    It can be used like an array of row numbers: it is iterated and indexed like one,
    ``np.asarray(coreset)`` returns one, and ``x[coreset]`` and ``frame.iloc[coreset]`` return the
    rows.

    Parameters
    ----------
    indices : array of int
        Row numbers in the data, in order of selection.
    weights : array of float, optional
        One weight >= 0 for each index; exactly 1.0 when binary, which is the default.
    ids : array of int, optional
        Ids of those rows (equal to ``indices`` unless the data had ids of its own).
    objectives : array of float
        Outer objective after each row (empty for methods that have none).
    status : Status
        How the selection ended.
    message : str
        Status as a sentence; empty when it is complete.
    provenance : Provenance
        Method, settings and notes of the selection.
    details : mapping
        Further facts of the method, for display only.

    Examples
    --------
    >>> picked = Coreset(np.array([4, 2, 7]))
    >>> picked.prefix(2).indices.tolist()
    [4, 2]
    >>> picked.status
    <Status.COMPLETE: 'complete'>
    >>> np.arange(10)[picked].tolist(), list(picked)
    ([4, 2, 7], [4, 2, 7])
    """

    indices: Array
    weights: Array = None  # type: ignore[assignment]
    ids: Array = None  # type: ignore[assignment]
    objectives: Array = field(default_factory=lambda: np.empty(0))
    status: Status = Status.COMPLETE
    message: str = ""
    provenance: Provenance = field(default_factory=Provenance)
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        indices = as_row_numbers(self.indices, "indices")
        weights = np.ones(len(indices)) if self.weights is None else np.asarray(self.weights, float)
        ids = indices if self.ids is None else np.asarray(self.ids, dtype=np.int64)
        if weights.shape != indices.shape or ids.shape != indices.shape:
            counts = f"{len(indices)} indices, {len(weights)} weights and {len(ids)} ids"
            raise InputError(f"a coreset has {counts}; give the same number of each.")
        if weights.size and not (np.isfinite(weights).all() and weights.min() >= 0):
            raise InputError(f"weights holds {weights.min()}; weights are finite and >= 0.")
        checked = {
            "indices": indices,
            "weights": weights,
            "ids": ids,
            "objectives": np.asarray(self.objectives, dtype=np.float64),
            "status": Status(self.status),
            "details": dict(self.details),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices.tolist())

    def __getitem__(self, place: Any) -> Any:
        """Return the row number at a place in the order of selection, or several."""
        found = self.indices[place]
        return found.item() if found.ndim == 0 else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        # NumPy 1 has no copy=None; a copy protects the coreset's own indices.
        return np.array(self.indices, dtype=dtype, copy=copy is not False)

    def __repr__(self) -> str:
        kind = "uniform" if self.binary else "learned"
        value = f", objective={self.objective:.6g}" if self.objective is not None else ""
        known = self.provenance
        parts = {"task": known.task, "loss": known.loss, "kernel": known.kernel}
        facts = "".join(f", {name}={part}" for name, part in parts.items() if part is not None)
        total = "?" if known.rows is None else known.rows
        ending = f"status={self.status.value!r}{facts}"
        return f"Coreset({len(self)} of {total} rows, {kind} weights{value}, {ending})"

    @property
    def info(self) -> dict[str, Any]:
        """The provenance and details, for display.

        Returns
        -------
        dict
            Names and values; JSON can hold all but details that the method itself added.
        """
        return {**asdict(self.provenance), **self.details}

    @property
    def binary(self) -> bool:
        """Whether every weight is 1."""
        return bool((self.weights == 1.0).all())

    @property
    def objective(self) -> float | None:
        """The outer objective of the whole coreset."""
        return float(self.objectives[-1]) if len(self.objectives) else None

    @property
    def gains(self) -> Array:
        """The decrease of the outer objective by each row; negative if a row increased it."""
        if not len(self.objectives):
            return np.empty(0)
        start = self.provenance.empty_objective
        first = float(self.objectives[0]) if start is None else start
        return -np.diff(np.concatenate([[first], self.objectives]))

    def prefix(self, size: int) -> Coreset:
        """Return the first rows, in order, with unit weights.

        Learned weights and their objectives are valid for the whole coreset only, so they are
        dropped.

        Parameters
        ----------
        size : int
            Number of rows, from 1 to the size of the coreset.

        Returns
        -------
        Coreset
            A complete coreset of that size.

        Raises
        ------
        InputError
            If ``size`` is below 1, or above the size of the coreset.

        Examples
        --------
        >>> Coreset(np.array([4, 2, 7])).prefix(1).indices.tolist()
        [4]
        """
        check_integer("size", size, most=len(self))
        return replace(
            self,
            indices=self.indices[:size],
            weights=np.ones(size),
            ids=self.ids[:size],
            objectives=self.objectives[:size] if self.binary else np.empty(0),
            status=Status.COMPLETE,
            message="",
        )

    def normalise(self) -> Coreset:
        """Return the same rows with weights of mean 1, for losses that average over rows.

        Returns
        -------
        Coreset
            The same rows with scaled weights.

        Raises
        ------
        InputError
            If all weights are 0.

        Examples
        --------
        >>> Coreset(np.array([4, 2]), np.array([1.0, 3.0])).normalise().weights.tolist()
        [0.5, 1.5]
        """
        if not self.weights.any():
            raise InputError("all weights are 0; normalising them is impossible.")
        scaled = scale_below_one(self.weights)
        return replace(self, weights=scaled * (len(self) / scaled.sum()))

    def of(self, data: Dataset) -> Dataset:
        """Return the selected rows of some data in order of selection, with the weights.

        Parameters
        ----------
        data : Dataset
            The data of the selection.

        Returns
        -------
        Dataset
            The selected rows.

        Raises
        ------
        InputError
            If the data have fewer rows than those of the selection.

        Examples
        --------
        >>> Coreset(np.array([2, 0])).of(Dataset([[0.0], [1.0], [2.0]])).x.ravel().tolist()
        [2.0, 0.0]
        """
        self.check_rows(len(data), "data")
        return data[self.indices].with_columns(sample_weight=self.weights)

    def select(self, table: Table, weight: str | None = "weight") -> Any:
        """Return the selected rows of a table in order of selection, with a column of weights.

        Parameters
        ----------
        table : datasets.Dataset, pandas or polars frame, Arrow table
            The table that the coreset was selected from, with its rows in the same order.
        weight : str or None
            Name of the column of weights; None adds no column.

        Returns
        -------
        datasets.Dataset, frame or table
            A table of the same type.

        Raises
        ------
        InputError
            If the table has too few rows, or a column of that name.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"text": ["a", "b", "c"]})
        >>> Coreset(np.array([2, 0])).select(frame).values.tolist()
        [['c', 1.0], ['a', 1.0]]
        """
        if not hasattr(table, "__len__"):
            raise InputError(f"table must have rows; got {shown(table)}.")
        self.check_rows(len(table), "table")
        rows = frames.take_rows(table, self.indices)
        return rows if weight is None else frames.with_column(rows, weight, self.weights)

    def mask(self, n: int | None = None) -> Array:
        """Return which rows of the data are in the coreset.

        Parameters
        ----------
        n : int, optional
            Number of rows of the data (default: the number at selection).

        Returns
        -------
        array of bool
            True for a selected row.

        Raises
        ------
        InputError
            If ``n`` is too small, or is not given and the coreset does not know it.

        Examples
        --------
        >>> Coreset(np.array([2, 0])).mask(4).tolist()
        [True, False, True, False]
        """
        rows = self.provenance.rows if n is None else n
        if rows is None:
            raise InputError("n is not known to this coreset; give the number of rows: mask(n).")
        self.check_rows(rows, "data")
        chosen = np.zeros(rows, dtype=bool)
        chosen[self.indices] = True
        return chosen

    def to_frame(self) -> Any:
        """Return a pandas frame with one line per selected row, in order of selection.

        Returns
        -------
        pandas.DataFrame
            Columns ``index``, ``id`` and ``weight``; with objectives also ``objective`` and
            ``gain``.

        Raises
        ------
        InputError
            If pandas is not installed.

        Examples
        --------
        >>> Coreset(np.array([4, 2]), np.array([0.5, 2.0])).to_frame().weight.tolist()
        [0.5, 2.0]
        """
        pandas = import_extra("pandas", "to_frame needs pandas", "pandas")
        return pandas.DataFrame(self._columns())

    def _columns(self) -> dict[str, Array]:
        """Return the columns of a table of the rows."""
        columns = {"index": self.indices, "id": self.ids, "weight": self.weights}
        if len(self.objectives) == len(self):
            columns |= {"objective": self.objectives, "gain": self.gains}
        return columns

    def explain_first_gain(self) -> str | None:
        """Explain a negative first gain.

        Returns
        -------
        str or None
            None if the first gain is not negative.
        """
        if not len(self.gains) or not self.gains[0] < 0:
            return None
        return "negative: the first row alone fits worse than none, and later rows make up for it"

    def _repr_html_(self) -> str:
        """Draw the coreset for notebooks."""
        known = self.provenance
        total = "?" if known.rows is None else known.rows
        facts = {
            "method": known.method or None,
            "status": self.message or self.status.value,
            "kernel": known.kernel,
            "loss": known.loss,
            "objective": None if self.objective is None else f"{self.objective:.6g}",
            "weights": "uniform" if self.binary else "learned",
            "first gain": self.explain_first_gain(),
        }
        return notebook.as_html(
            f"Coreset: {len(self)} of {total} rows",
            {name: fact for name, fact in facts.items() if fact is not None},
            self.objectives,
            {name: _format_column(column[:SHOWN]) for name, column in self._columns().items()},
            max(len(self) - SHOWN, 0),
        )

    def check_rows(self, count: int, name: str = "data") -> None:
        """Refuse data with fewer rows than the data of the selection.

        Parameters
        ----------
        count : int
            Number of rows.
        name : str
            Name of the data in the error.

        Raises
        ------
        InputError
            If an index is not below ``count``.
        """
        if len(self) and self.indices.max() >= count:
            beyond = f"index {self.indices.max()} is beyond the {count} rows of {name}"
            raise InputError(f"{beyond}; pass the data it was selected from.")

    def with_details(self, provenance: Mapping[str, Any] | None = None, **details: Any) -> Coreset:
        """Return the same coreset with other provenance and more details.

        Parameters
        ----------
        provenance : mapping, optional
            Fields of :class:`Provenance` that change.
        **details
            Additional facts for display.

        Returns
        -------
        Coreset
            The same rows with the new details.

        Examples
        --------
        >>> Coreset(np.array([4])).with_details({"method": "by hand"}, why="a test").info["why"]
        'a test'
        """
        changed = replace(self.provenance, **(provenance or {}))
        return replace(self, provenance=changed, details={**self.details, **details})

    @renamed_keywords()
    def save(self, path: PathLike) -> Path:
        """Write an ``.npz`` that plain NumPy opens without pickle.

        It is written to a new file and renamed, so that a crash loses nothing.

        Parameters
        ----------
        path : path
            Output file.

        Returns
        -------
        Path
            The file.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Coreset(np.array([4, 2])).save(folder + "/picks.npz")
        ...     Coreset.load(file).indices.tolist()
        [4, 2]
        """
        head = {
            "format": FORMAT,
            "status": self.status.value,
            "message": self.message,
            "provenance": asdict(self.provenance),
            "details": self.details,
        }
        return write_state(path, head, {name: getattr(self, name) for name in _ARRAYS}, default=str)

    @classmethod
    @renamed_keywords()
    def load(cls, path: PathLike) -> Coreset:
        """Read a file of :meth:`save`; nothing is unpickled.

        Parameters
        ----------
        path : path
            A file written by :meth:`save`.

        Returns
        -------
        Coreset
            The saved coreset.

        Raises
        ------
        InputError
            If the file is of another kind or version.

        Examples
        --------
        See :meth:`save`.
        """
        writer = "bicore select --out or Coreset.save"
        head, arrays = read_state(path, writer, FORMAT)
        try:
            for name, kinds in _ARRAYS.items():
                if arrays[name].ndim != 1 or arrays[name].dtype.kind not in kinds:
                    raise ValueError(f"its {name} are not a list of numbers")
            return cls(
                **{name: arrays[name] for name in _ARRAYS},
                status=Status(head["status"]),
                message=_check_type("message", head["message"], str),
                provenance=Provenance.read(_check_type("provenance", head["provenance"], dict)),
                details=_check_type("details", head["details"], dict),
            )
        except Exception as error:  # changed bytes can raise any error
            raise damaged_file_error(path, writer, error) from error


def _format_column(column: Array) -> list[str]:
    """Format numbers for a notebook: row numbers as integers."""
    form = ".6g" if column.dtype.kind == "f" else "d"
    return [format(cell, form) for cell in column.tolist()]


def mark_unverified(coreset: Coreset, note: str, objective: float | None = None) -> Coreset:
    """Mark a coreset whose objective a second computation did not confirm, and warn.

    A status other than complete is kept, because it says more about the rows. ``objective``
    replaces the last objective.
    """
    warnings.warn(note, NumericalWarning, stacklevel=2)
    complete = coreset.status is Status.COMPLETE
    objectives = coreset.objectives
    if objective is not None:
        objectives = np.append(objectives[:-1], objective)
    return replace(
        coreset,
        objectives=objectives,
        status=Status.UNVERIFIED if complete else coreset.status,
        message=UNVERIFIED_MESSAGE if complete else coreset.message,
        provenance=replace(coreset.provenance, notes=(*coreset.provenance.notes, note)),
    )


def describe_early_end(status: Status, taken: int, size: int) -> str:
    """Describe a selection that ended early, after ``taken`` of ``size`` rows."""
    how = "interrupted" if status is Status.INTERRUPTED else "stopped by max_seconds"
    return f"{how} after {taken} of {size} rows"


def labels_in(values: Sequence[Any] | Array | None) -> tuple[Any, ...] | None:
    """Return class labels as plain values, which JSON can hold."""
    return None if values is None else tuple(np.asarray(values).tolist())

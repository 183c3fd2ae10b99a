"""The data a selector sees: one frozen value whose columns are sliced together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from bicore import frames
from bicore.errors import InputError, as_option
from bicore.sparse import SparseRows, is_sparse, sparse_rows

__all__ = ["Array", "Dataset", "Targets", "Task", "joined", "read_targets"]

Array = npt.NDArray[Any]


class Task(StrEnum):
    """How labels are read.

    Examples
    --------
    >>> read_targets(np.array([0.5, 1.5])).task
    <Task.REGRESSION: 'regression'>
    """

    #: Integers, strings and booleans are classes, floats are targets.
    AUTO = "auto"
    CLASSIFICATION = "classification"
    REGRESSION = "regression"


_COLUMNS = ("x", "y", "weight", "ids")
#: What an extra column may hold, by NumPy's letters: truth values, whole numbers, floats, text.
_EXTRA_KINDS = "biufU"
#: Rows checked for non-finite values at a time, so that the check needs no second copy of the data.
_CHECK_ROWS = 65536


@dataclass(frozen=True, eq=False)
class Dataset:
    """Points, their labels or targets, their weights, their ids and what else travels with them.

    Parameters
    ----------
    x : array (n, …)
        Features; images as (n, channels, height, width). Integers and float16 are converted, one
        column may be 1-D, and so may a column of lists (pandas, polars, Arrow). A sparse matrix
        of SciPy stays sparse: for bilevel selection by the linear and the RBF kernel.
    y : array (n,) or (n, targets), optional
        Labels (integers, strings, booleans) or targets (floats).
    weight : array (n,), optional
        How much each point counts in the outer objective. A point of weight 0 is never selected.
    ids : array of int (n,), optional
        A name for each row that survives slicing and shuffling; ties go to the smallest id.
        Default: the row number.
    extra : mapping of name to array (n, …), optional
        Further columns of numbers or text, such as the logits of a model. They go wherever their
        rows go; no selector looks at them.

    Raises
    ------
    InputError
        Where a column does not fit, or holds a value that is missing or not finite.

    Examples
    --------
    >>> data = Dataset([[0.0], [1.0], [2.0]], ["a", "b", "b"])
    >>> data[[2, 0]].ids.tolist()
    [2, 0]
    >>> Dataset([[0.0], [1.0]], extra={"depth": [3, 5]})[[1]].extra
    {'depth': array([5])}
    """

    x: Array
    y: Array | None = None
    weight: Array | None = None
    ids: Array = None  # type: ignore[assignment]  # filled in below
    extra: Mapping[str, Array] | None = None

    def __post_init__(self) -> None:
        x = as_features(self.x, "x")
        n = len(x)
        checked = {
            "x": x,
            "y": None if self.y is None else as_labels(self.y, n),
            "weight": None if self.weight is None else as_weights(self.weight, n),
            "ids": np.arange(n) if self.ids is None else as_ids(self.ids, n),
        }
        for name, column in checked.items():
            object.__setattr__(self, name, column)
        object.__setattr__(self, "extra", as_extra(self.extra, n))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> Dataset:
        """The rows asked for, with every column; what was checked once is not checked again."""
        # To NumPy a tuple is a place along every axis; here it is rows like any other sequence.
        places = list(rows) if isinstance(rows, tuple) else rows
        columns = {name: getattr(self, name) for name in _COLUMNS}
        kept = {name: None if one is None else one[places] for name, one in columns.items()}
        extra = self.extra and {name: one[places] for name, one in self.extra.items()}
        return Dataset._of(**kept, extra=extra)

    @classmethod
    def _of(cls, **columns: Array | Mapping[str, Array] | None) -> Dataset:
        """A data set of columns that are known to be sound, without another look at them."""
        found = object.__new__(cls)
        found.__dict__.update(columns)
        return found

    def with_columns(self, **columns: Array | Mapping[str, Array] | None) -> Dataset:
        """The same rows with other columns, which are taken as they are.

        Parameters
        ----------
        **columns : array
            Any of ``x``, ``y``, ``weight`` and ``ids``, one entry for each row; ``extra`` as a
            mapping.

        Returns
        -------
        Dataset
            With the other columns as they were.

        Examples
        --------
        >>> Dataset([[0.0], [1.0]]).with_columns(weight=np.array([1.0, 2.0])).weights.tolist()
        [1.0, 2.0]
        """
        return Dataset._of(**{name: getattr(self, name) for name in (*_COLUMNS, "extra")} | columns)

    @property
    def weights(self) -> Array:
        """The weights, 1 where none were given."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def fingerprint(self) -> str:
        """A digest of what a selection depends on: every column but the ids and the extra ones.

        Returns
        -------
        str
            Sixteen characters, the same for the same data on any machine.
        """
        if hasattr(self.x, "fingerprint"):  # rows that are read when needed
            return str(self.x.fingerprint())
        digest = hashlib.sha256()
        if is_sparse(self.x):
            _rows_of(self.x).digest_into(digest)
        for column in (self.x, self.y, self.weight):
            if column is not None and not is_sparse(column):
                digest.update(f"{column.dtype.str}{column.shape}".encode())
                if column.size:
                    digest.update(np.ascontiguousarray(column).view(np.uint8).data)
        return digest.hexdigest()[:16]


def joined(first: Dataset, second: Dataset) -> Dataset:
    """The rows of both data sets.

    Parameters
    ----------
    first, second : Dataset
        Their columns must be of the same kind, and their ids must differ.

    Returns
    -------
    Dataset
        First then second; ids are kept.

    Raises
    ------
    InputError
        Where rows, labels or extra columns of the two are not of one kind.

    Examples
    --------
    >>> both = joined(Dataset([[0.0]], ids=[7]), Dataset([[1.0]], ids=[3]))
    >>> both.ids.tolist()
    [7, 3]
    """
    if first.x.shape[1:] != second.x.shape[1:]:
        raise InputError(
            f"x has rows of shape {second.x.shape[1:]}, and those before had {first.x.shape[1:]}; "
            "they must match."
        )
    if (first.y is None) != (second.y is None):
        words = ("no labels", "labels") if second.y is None else ("labels", "no labels")
        raise InputError(
            f"these rows have {words[0]} and those before had {words[1]}; give labels always or "
            "never."
        )
    y = None
    if first.y is not None and second.y is not None:
        y = _joined_labels(first.y, second.y)
    return Dataset._of(
        x=_joined_rows(first.x, second.x),
        y=y,
        weight=np.concatenate([first.weights, second.weights]),
        ids=np.concatenate([first.ids, second.ids]),
        extra=_joined_extra(first.extra or {}, second.extra or {}),
    )


def _joined_rows(first: Array, second: Array) -> Array:
    if is_sparse(first) and is_sparse(second):
        return cast(Array, _rows_of(first).joined(_rows_of(second)))
    return np.concatenate([first, second])


def _rows_of(x: Array) -> SparseRows:
    """Sparse rows by their own name: elsewhere they stand as an array whose numbers nobody sees."""
    return cast(SparseRows, x)


def _joined_labels(first: Array, second: Array) -> Array:
    # Integers of any kind are labels alike.
    kinds = [
        {"u": "i", "b": "i"}.get(column.dtype.kind, column.dtype.kind) for column in (first, second)
    ]
    if kinds[0] != kinds[1] or first.shape[1:] != second.shape[1:]:
        raise InputError(
            f"y holds {second.dtype} of shape {second.shape[1:]} a row, and before it held "
            f"{first.dtype} of shape {first.shape[1:]}; use one kind of label throughout."
        )
    # Strings grow to the longer kind; nothing is cut off.
    return np.concatenate([first, second])


def _joined_extra(
    first: Mapping[str, Array], second: Mapping[str, Array]
) -> dict[str, Array] | None:
    if set(first) != set(second):
        raise InputError(
            f"these rows have {_listed(second)}, and those before had {_listed(first)}; give the "
            "same extra columns always, or none ever."
        )
    for name, column in first.items():
        other = second[name]
        # Whole numbers with and without a sign would become floats together.
        if column.dtype.kind != other.dtype.kind or column.shape[1:] != other.shape[1:]:
            raise InputError(
                f"extra[{name!r}] holds {other.dtype} of shape {other.shape[1:]} a row, and before "
                f"it held {column.dtype} of shape {column.shape[1:]}; use one kind and shape "
                "throughout."
            )
    return {name: np.concatenate([first[name], second[name]]) for name in first} or None


def _listed(extra: Mapping[str, Array]) -> str:
    names = ", ".join(map(repr, sorted(extra)))
    return f"the extra columns {names}" if names else "no extra columns"


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels or targets as the losses read them.

    Parameters
    ----------
    task : "classification" or "regression"
        Which of the two they are.
    values : array
        Codes 0 … C−1 (n,), or a matrix of floats (n, targets).
    classes : array, optional
        The labels that the codes stand for.

    Examples
    --------
    >>> targets = read_targets(np.array(["cat", "dog", "cat"]))
    >>> targets.values.tolist(), targets.outputs
    ([0, 1, 0], 2)
    """

    task: Task
    values: Array
    classes: Array | None = None

    @property
    def outputs(self) -> int:
        """Number of classes, or of target columns."""
        return len(self.classes) if self.classes is not None else int(self.values.shape[1])


def read_targets(y: Array, task: str = "auto", classes: Array | None = None) -> Targets:
    """Decide what ``y`` is and encode it.

    Parameters
    ----------
    y : array
        Labels or targets, row by row.
    task : "auto", "classification" or "regression"
        ``"auto"``: integers, strings and booleans are classes, floats are targets.
    classes : array, optional
        Fixes the set of classes, for a part of the data that may lack some of them.

    Returns
    -------
    Targets
        Codes and classes, or a matrix of floats.

    Raises
    ------
    InputError
        Where ``y`` cannot be what ``task`` says, or holds a class that is not among ``classes``.

    Examples
    --------
    >>> read_targets(np.array([0.5, 2.0])).values.tolist()
    [[0.5], [2.0]]
    >>> read_targets(np.array([1, 1]), classes=np.array([0, 1, 2])).outputs
    3
    """
    kind = as_option("task", task, Task)
    if kind is Task.AUTO:
        kind = Task.REGRESSION if y.dtype.kind == "f" else Task.CLASSIFICATION
    if kind is Task.REGRESSION:
        return _regression(y)
    return _classification(y, classes)


def _regression(y: Array) -> Targets:
    if y.dtype.kind not in "fiub":
        raise InputError(
            f"y has dtype {y.dtype} and cannot be a target; give numbers, or task='classification'."
        )
    values = y.astype(np.float64).reshape(len(y), -1)
    _refuse_non_finite(values, "y")
    return Targets(Task.REGRESSION, values)


def _classification(y: Array, classes: Array | None) -> Targets:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise InputError(
            f"y has shape {y.shape} and cannot be a column of labels; give one label a row, or for "
            "several targets floats or task='regression'."
        )
    if y.dtype.kind == "f":
        _refuse_non_finite(y[:, None], "y")
        wrong = np.flatnonzero(y != np.round(y))
        if len(wrong):
            raise InputError(
                f"y[{wrong[0]}] = {y[wrong[0]]} cannot be a class label under "
                "task='classification'; give integers or strings, or task='regression'."
            )
    known, codes = np.unique(y, return_inverse=True)
    if classes is None:
        return Targets(Task.CLASSIFICATION, codes.astype(np.int64), known)
    fixed = np.unique(np.asarray(classes))
    extra = np.setdiff1d(known, fixed)
    if len(extra):
        raise InputError(
            f"y holds the class {extra[0]!r}, which is not among the {len(fixed)} known classes; "
            "drop those rows or add the class."
        )
    return Targets(Task.CLASSIFICATION, np.searchsorted(fixed, y).astype(np.int64), fixed)


def as_features(x: Any, name: str) -> Array:
    """Numbers without NaN or infinity, at least one row, rows first.

    The caller's array is never written to. Sparse rows stay sparse.
    """
    if is_sparse(x):
        return cast(Array, x)
    if hasattr(x, "tocsr"):
        return cast(Array, sparse_rows(x, name))
    array = frames.arrow_lists(x, name)
    if array is None:
        array = _to_numpy(x, name)
    if array.ndim == 0:
        raise InputError(f"{name} is a single value; give an array with one row a point.")
    array = _as_floats(array, name)
    if array.ndim == 1:
        array = array[:, None]
    if len(array) == 0 or array[0].size == 0:
        raise InputError(
            f"{name} has shape {array.shape}; at least one row and one column are needed."
        )
    _refuse_non_finite(array, name)
    return array


def _as_floats(array: Array, name: str) -> Array:
    """float32 or float64 in the machine's byte order, without a copy where it is that already."""
    if array.dtype.kind == "O":
        rows = frames.stacked(array, name)
        array = _objects_to_floats(array, name) if rows is None else rows
    if array.dtype.kind in "biu":
        return array.astype(np.float64)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype.kind != "f":
        raise InputError(
            f"{name} has dtype {array.dtype}; give numbers (encode text and dates first)."
        )
    # Other byte orders and long doubles become what torch knows.
    native = np.dtype(np.float32 if array.dtype.itemsize == 4 else np.float64)
    return array if array.dtype == native else array.astype(native)


def as_labels(y: Any, n: int) -> Array:
    """Integers, floats or text, one entry (or row of floats) for each of the n rows."""
    array = _to_numpy(y, "y")
    if array.ndim == 0 or len(array) != n:
        size = 1 if array.ndim == 0 else len(array)
        raise InputError(
            f"y has {size} rows and x has {n}; they must have the same length, row by row."
        )
    if array.dtype.kind == "O":
        array = _objects_to_labels(array)
    if array.dtype.kind == "b" or (array.dtype.kind == "u" and array.size and array.max() < 2**63):
        array = array.astype(np.int64)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind not in "iufU":
        raise InputError(
            f"y has dtype {array.dtype} and cannot be a label; give integers, strings, booleans or "
            "floats."
        )
    if array.dtype.kind == "f":
        _refuse_non_finite(array.reshape(n, -1), "y")
    return array


def as_weights(weight: Any, n: int, name: str = "weight", all_zero: bool = False) -> Array:
    """Finite numbers >= 0, one for each of the n rows; ``all_zero`` lets none of them count."""
    array = _to_numpy(weight, name)
    if array.shape not in ((n,), (n, 1)):
        raise InputError(
            f"{name} has shape {array.shape}; one number for each of the {n} rows is needed."
        )
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} has dtype {array.dtype}; give numbers >= 0.")
    array = array.astype(np.float64).reshape(n)
    _refuse_non_finite(array[:, None], name)
    if array.min() < 0:
        row = int(array.argmin())
        raise InputError(
            f"{name}[{row}] = {array[row]} is negative; weights are >= 0 (drop the row or set it "
            "to 0)."
        )
    if array.max() == 0 and not all_zero:
        raise InputError(f"{name} is zero for all {n} rows; at least one point must count.")
    return array


def as_extra(extra: Any, n: int) -> dict[str, Array] | None:
    """Named columns of numbers or text, one entry (or array) for each of the n rows, or None."""
    if extra is None:
        return None
    if not isinstance(extra, Mapping):
        raise InputError(
            f"extra is a {type(extra).__name__}; give names with their columns, such as "
            "extra={'logits': array}."
        )
    for name in extra:
        if not str(name).isidentifier() or name in _COLUMNS or name != str(name):
            raise InputError(
                f"extra holds a column named {name!r}; use a word of letters, digits and "
                f"underscores other than {', '.join(_COLUMNS)}."
            )
    return {
        name: _as_extra_column(column, n, f"extra[{name!r}]") for name, column in extra.items()
    } or None


def _as_extra_column(column: Any, n: int, name: str) -> Array:
    array = _to_numpy(column, name)
    if array.ndim == 0 or len(array) != n:
        size = 1 if array.ndim == 0 else len(array)
        raise InputError(
            f"{name} has {size} rows and x has {n}; they must have the same length, row by row."
        )
    if array.dtype.kind == "O":
        array = _objects_to_labels(array, name, "value")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind not in _EXTRA_KINDS:
        raise InputError(f"{name} has dtype {array.dtype}; give numbers, truth values or text.")
    if array.dtype.kind == "f":
        _refuse_non_finite(array.reshape(n, -1), name)
    # Long doubles and other byte orders become what every machine and torch know.
    long = array.dtype.kind == "f" and array.dtype.itemsize > np.dtype(np.float64).itemsize
    return array.astype(np.float64 if long else array.dtype.newbyteorder("="), copy=False)


def summable(weights: Array) -> Array:
    """The weights in units in which the largest is below 1 and at least ½: their sum is finite, and
    float32 holds them. The unit is a power of two, so that no digit changes."""
    exponent = np.frexp(np.max(weights))[1]
    scaled: Array = np.ldexp(weights, -exponent)
    return scaled


def of_mean_one(weights: Array) -> Array:
    """The weights over their mean."""
    scaled = summable(weights)
    relative: Array = scaled / scaled.mean()
    return relative


def as_ids(ids: Any, n: int) -> Array:
    """Whole numbers, a different one for each of the n rows."""
    array = _to_numpy(ids, "ids")
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise InputError(
            f"ids has shape {array.shape} and dtype {array.dtype}; one integer for each of {n} "
            "rows is needed."
        )
    if len(np.unique(array)) != n:
        raise InputError("ids holds a value twice; each row needs an id of its own.")
    return array.astype(np.int64)


def as_tensor(array: Array) -> torch.Tensor:
    """The array as a tensor, without a copy where torch can share its memory; of sparse rows the
    points that stand for one."""
    if is_sparse(array):
        return cast(torch.Tensor, _rows_of(array).points())
    array = np.asarray(array)  # reads rows that are not loaded
    shareable = array.flags.writeable and array.flags.c_contiguous
    return torch.from_numpy(array if shareable else np.array(array, order="C"))


def _to_numpy(value: Any, name: str) -> Array:
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu()
        return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())
    if hasattr(value, "toarray"):
        raise InputError(
            f"{name} is a sparse matrix, and only x may be one; pass {name}.toarray() if it fits."
        )
    if hasattr(value, "with_format") and hasattr(value, "select_columns"):
        raise InputError(
            f"{name} is a {type(value).__module__.partition('.')[0]}.{type(value).__name__}; name "
            "its columns: bicore.compat.huggingface.from_hf(dataset, x='embedding', y='label')."
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InputError(
            f"{name} is not a rectangular array ({error}); give rows of equal length."
        ) from error


def _objects_to_floats(array: Array, name: str) -> Array:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} holds values that are not numbers ({error}); encode text and dates first."
        ) from error


#: What may stand in a column of objects, and the dtype that a column of it becomes. Order matters:
#: a bool is an int to Python.
_LABEL_TYPES: dict[type, type] = {
    bool: np.bool_,
    np.bool_: np.bool_,
    int: np.int64,
    np.integer: np.int64,
    str: np.str_,
    float: np.float64,
    np.floating: np.float64,
}


def _label_type(value: Any) -> type | None:
    return next((kind for base, kind in _LABEL_TYPES.items() if isinstance(value, base)), None)


def _objects_to_labels(array: Array, name: str = "y", role: str = "label") -> Array:
    """An object column (pandas strings, mixed lists) as one plain dtype, or an error."""
    if array.size == 0:
        return array.astype(np.str_)
    first = _label_type(array.flat[0])
    for position, value in enumerate(array.ravel()):
        if first is None or _label_type(value) is not first:
            raise InputError(
                f"{name}[{position}] = {value!r} cannot be a {role} beside {array.flat[0]!r}; "
                "give one kind of value (integers, strings, booleans or floats) and no missing "
                "ones."
            )
    return array.astype(first)


def _refuse_non_finite(array: Array, name: str) -> None:
    for start in range(0, len(array), _CHECK_ROWS):
        part = array[start : start + _CHECK_ROWS]
        bad = ~np.isfinite(part)
        if bad.any():
            place = np.argwhere(bad)[0]
            value = part[tuple(place)]
            where = f"row {start + place[0]}"
            if part.shape[1:] != (1,):
                where += f", column {', '.join(map(str, place[1:]))}"
            raise InputError(
                f"{name} holds {value} at {where}; every value must be finite (fill or drop it "
                "first)."
            )

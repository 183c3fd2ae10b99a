"""The data of a selection: rows with their labels, weights and ids, and checks of each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch

from bicore import frames
from bicore._deprecated import renamed_fields
from bicore.errors import InputError, as_option, check_type, shown
from bicore.sparse import SparseRows, is_sparse, sparse_rows
from bicore.types import Labels, Matrix, Numbers, Weights

Array = npt.NDArray[Any]


class Task(StrEnum):
    """Kind of labels."""

    #: Integers, strings and booleans are classes, floats are targets.
    AUTO = "auto"
    CLASSIFICATION = "classification"
    REGRESSION = "regression"


_COLUMNS = ("x", "y", "sample_weight", "ids")
#: Kinds of labels and extra columns, by NumPy's letters: booleans, integers, floats, text.
_KINDS = {"b": "booleans", "i": "integers", "u": "unsigned integers", "f": "floats", "U": "text"}
#: Number of rows checked for non-finite values at a time, so that the check needs no copy of the
#: data.
_CHECK_ROWS = 65536
MAX_INTEGER = 2**63 - 1


@renamed_fields(weight="sample_weight")
@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with labels or targets, weights, ids and extra columns.

    Parameters
    ----------
    x : array (n, …)
        Features; images as (n, channels, height, width). Integers and float16 are converted, one
        column may be 1-D, and so may a column of lists (pandas, polars, Arrow). A sparse matrix
        of SciPy stays sparse: for bilevel selection by the linear and the RBF kernel.
    y : array (n,) or (n, targets), optional
        Labels (integers, strings, booleans) or targets (floats).
    sample_weight : array (n,), optional
        Importance of each row in the outer objective. A row of weight 0 is never selected.
    ids : array of int (n,), optional
        Ids of the rows, kept by slicing and shuffling; ties go to the smallest id.
        Default: the row number.
    extra : mapping of name to array (n, …), optional
        Further columns of numbers or text, such as the logits of a model. Selected rows keep
        them; selectors ignore them.

    Raises
    ------
    InputError
        If a column has another length, or a value is missing or not finite.

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
    sample_weight: Array | None = None
    ids: Array = None  # type: ignore[assignment]  # filled in below
    extra: Mapping[str, Array] | None = field(default=None, metadata={"in_fingerprint": False})

    if TYPE_CHECKING:  # columns are arrays once they are checked

        def __init__(
            self,
            x: Matrix,
            y: Labels | None = None,
            sample_weight: Weights | None = None,
            ids: Numbers | None = None,
            extra: Mapping[str, Numbers] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        x = as_features(self.x, "x")
        n = len(x)
        checks: Any = (as_labels, as_weights, as_ids, as_extra)
        vars(self)["x"] = x
        for name, check in zip((*_COLUMNS[1:], "extra"), checks, strict=True):
            given = getattr(self, name)
            vars(self)[name] = None if given is None else check(given, n)
        if self.ids is None:
            vars(self)["ids"] = np.arange(n)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> Dataset:
        """Return some rows with all columns, which are not checked again."""
        # To NumPy a tuple is an index per axis; here it is a sequence of rows.
        places = list(rows) if isinstance(rows, tuple) else rows
        columns = {name: getattr(self, name) for name in _COLUMNS}
        kept = {name: None if one is None else one[places] for name, one in columns.items()}
        extra = self.extra and {name: one[places] for name, one in self.extra.items()}
        return Dataset._of(**kept, extra=extra)

    @classmethod
    def _of(cls, **columns: Array | Mapping[str, Array] | None) -> Dataset:
        """Return a data set of columns that were already checked."""
        found = object.__new__(cls)
        found.__dict__.update(columns)
        return found

    def with_columns(self, **columns: Array | Mapping[str, Array] | None) -> Dataset:
        """Replace columns, without checks.

        Parameters
        ----------
        **columns : array
            Any of ``x``, ``y``, ``sample_weight`` and ``ids``, one entry for each row; ``extra``
            as a mapping.

        Returns
        -------
        Dataset
            The same rows; columns that are not given are unchanged.

        Examples
        --------
        >>> data = Dataset([[0.0], [1.0]]).with_columns(sample_weight=np.array([1.0, 2.0]))
        >>> data.weights.tolist()
        [1.0, 2.0]
        """
        return Dataset._of(**{name: getattr(self, name) for name in (*_COLUMNS, "extra")} | columns)

    @property
    def weights(self) -> Array:
        """The weights; 1 if none were given."""
        return np.ones(len(self)) if self.sample_weight is None else self.sample_weight

    def fingerprint(self) -> str:
        """Compute a digest of the features, labels and weights.

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
        for column in (self.x, self.y, self.sample_weight):
            if column is not None and not is_sparse(column):
                digest.update(f"{column.dtype.str}{column.shape}".encode())
                if column.size:
                    digest.update(np.ascontiguousarray(column).view(np.uint8).data)
        return digest.hexdigest()[:16]


def join_datasets(first: Dataset, second: Dataset) -> Dataset:
    """Join the rows of two data sets."""
    if first.x.shape[1:] != second.x.shape[1:]:
        shapes = f"{second.x.shape[1:]}, and those before had {first.x.shape[1:]}"
        raise InputError(f"x has rows of shape {shapes}; all rows must have one shape.")
    if (first.y is None) != (second.y is None):
        fix = "give y for all rows or for none"
        raise InputError(f"some rows have labels and others have none; {fix}.")
    y = None
    if first.y is not None and second.y is not None:
        y = _concatenate("y", first.y, second.y)
    extra, other = first.extra or {}, second.extra or {}
    if set(extra) != set(other):
        names = f"{sorted(other)}, and those before had {sorted(extra)}"
        raise InputError(f"extra has the columns {names}; give the same columns each time.")
    columns = {name: _concatenate(f"extra[{name!r}]", extra[name], other[name]) for name in extra}
    return Dataset._of(
        x=_join_rows(first.x, second.x),
        y=y,
        sample_weight=np.concatenate([first.weights, second.weights]),
        ids=np.concatenate([first.ids, second.ids]),
        extra=columns or None,
    )


def _join_rows(first: Array, second: Array) -> Array:
    if is_sparse(first) and is_sparse(second):
        return cast(Array, _rows_of(first).join(_rows_of(second)))
    return np.concatenate([first, second])


def _rows_of(x: Array) -> SparseRows:
    """Return sparse rows with their own type; ``Dataset.x`` is annotated as an array."""
    return cast(SparseRows, x)


def _concatenate(name: str, first: Array, second: Array) -> Array:
    """Concatenate two columns of one kind; text gets the longer dtype.

    Signed and unsigned integers are two kinds, because NumPy would convert them to floats.
    """
    if first.dtype.kind != second.dtype.kind or first.shape[1:] != second.shape[1:]:
        now, before = (
            _KINDS[one.dtype.kind] + (f" of shape {one.shape[1:]}" if one.ndim > 1 else "")
            for one in (second, first)
        )
        fix = "use one kind of label or value throughout"
        raise InputError(f"{name} holds {now}, and before it held {before}; {fix}.")
    return np.concatenate([first, second])


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels or targets in the form that losses read."""

    task: Task
    values: Array
    classes: Array | None = None

    @property
    def outputs(self) -> int:
        """Number of classes, or of target columns."""
        return len(self.classes) if self.classes is not None else int(self.values.shape[1])


def read_targets(
    y: Array, task: str = "auto", classes: Array | None = None, name: str = "y"
) -> Targets:
    """Determine the kind of ``y`` and encode it."""
    kind = as_option("task", task, Task)
    if kind is Task.AUTO:
        kind = Task.REGRESSION if y.dtype.kind == "f" else Task.CLASSIFICATION
    if kind is Task.REGRESSION:
        return _regression(y)
    return _classification(y, classes, name)


def _regression(y: Array) -> Targets:
    if y.dtype.kind not in "fiub":
        wrong = f"task='regression' needs numbers; y has dtype {y.dtype}"
        raise InputError(f"{wrong}. Use task='classification'.")
    values = y.astype(np.float64).reshape(len(y), -1)
    _refuse_non_finite(values, "y")
    return Targets(Task.REGRESSION, values)


def _classification(y: Array, classes: Array | None, name: str) -> Targets:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise InputError(f"y has shape {y.shape}; give one label per row, or task='regression'.")
    if y.dtype.kind == "f":
        _refuse_non_finite(y[:, None], "y")
        wrong = np.flatnonzero(y != np.round(y))
        if len(wrong):
            value = f"y[{wrong[0]}] = {y[wrong[0]]}"
            fix = "give integers or text, or task='regression'"
            raise InputError(f"{value} is not a class; {fix}.")
    present, codes = np.unique(y, return_inverse=True)
    if classes is None:
        return Targets(Task.CLASSIFICATION, codes.astype(np.int64), present)
    known = np.unique(np.asarray(classes))
    unknown = np.setdiff1d(present, known).tolist()
    if unknown:
        others = f"which is not among the {len(known)} known classes"
        fix = "drop those rows, or add the class to classes"
        raise InputError(f"{name} holds the class {unknown[0]!r}, {others}; {fix}.")
    return Targets(Task.CLASSIFICATION, np.searchsorted(known, y).astype(np.int64), known)


def as_features(x: Any, name: str) -> Array:
    """Check features: finite numbers, at least one row.

    The caller's array is never written to. Sparse rows stay sparse.
    """
    if is_sparse(x):
        return cast(Array, x)
    if hasattr(x, "tocsr"):
        return cast(Array, sparse_rows(x, name))
    lists = frames.arrow_lists(x, name)
    array = _to_numpy(x, name) if lists is None else lists
    if array.ndim == 0:
        words = "an array with one row per example"
        raise InputError(f"{name} must be {words}; got {shown(x)}.")
    array = _as_floats(array, name)
    if array.ndim == 1:
        array = array[:, None]
    if len(array) == 0 or array[0].size == 0:
        raise InputError(f"{name} has shape {array.shape}; give at least one row and one column.")
    _refuse_non_finite(array, name)
    return array


def _as_floats(array: Array, name: str) -> Array:
    """Convert to float32 or float64 in native byte order, without a copy if possible."""
    if array.dtype.kind == "O":
        rows = frames.stack_column(array, name)
        array = _objects_to_floats(array, name) if rows is None else rows
    if array.dtype.kind in "biu":
        return array.astype(np.float64)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype.kind != "f":
        fix = "encode text as numbers, or give a data frame"
        raise InputError(f"{name} has dtype {array.dtype}; {fix}.")
    # Other byte orders and long doubles are converted to what torch supports.
    native = np.dtype(np.float32 if array.dtype.itemsize == 4 else np.float64)
    return array if array.dtype == native else array.astype(native)


def as_labels(y: Any, n: int) -> Array:
    """Check labels: integers, floats or text, one entry (or row of floats) per row."""
    array = _as_column(y, n, "y", "label")
    small = array.dtype.kind == "u" and array.size and array.max() <= MAX_INTEGER
    return array.astype(np.int64) if small or array.dtype.kind == "b" else array


def as_extra(extra: Any, n: int) -> dict[str, Array] | None:
    """Check extra columns of numbers or text, one entry (or array) per row; None if empty."""
    check_type("extra", extra, Mapping, "a mapping of names to columns")
    for name in extra:
        if not str(name).isidentifier() or name in _COLUMNS or name != str(name):
            raise InputError(f"extra has the column {name!r}; use an identifier not in {_COLUMNS}.")
    found = {name: _as_column(one, n, f"extra[{name!r}]", "value") for name, one in extra.items()}
    # Long doubles and other byte orders are converted to what every machine and torch support.
    for name, array in found.items():
        long = array.dtype.kind == "f" and array.dtype.itemsize > np.dtype(np.float64).itemsize
        kind = np.float64 if long else array.dtype.newbyteorder("=")
        found[name] = array.astype(kind, copy=False)
    return found or None


def _as_column(column: Any, n: int, name: str, role: str) -> Array:
    """Check a column of numbers, booleans or text with n finite entries."""
    array = _to_numpy(column, name)
    if array.ndim == 0:
        raise InputError(f"{name} must be an array with one value per row; got {shown(column)}.")
    if len(array) != n:
        size = len(array)
        raise InputError(f"{name} has {size} rows and x has {n}; give one value per row of x.")
    if array.dtype.kind == "O":
        array = _objects_to_labels(array, name, role)
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} holds bytes that are not UTF-8; give text.") from error
    if array.dtype.kind not in _KINDS:
        raise InputError(f"{name} has dtype {array.dtype}; give numbers, truth values or text.")
    if array.dtype.kind == "f":
        _refuse_non_finite(array.reshape(n, -1), name)
    return array


def as_weights(weight: Any, n: int, name: str = "sample_weight", all_zero: bool = False) -> Array:
    """Check weights: finite numbers ≥ 0, one per row; 1 if None.

    With ``all_zero`` all of them may be 0.
    """
    if weight is None:
        return np.ones(n)
    array = _to_numpy(weight, name)
    if array.shape not in ((n,), (n, 1)):
        raise InputError(f"{name} has shape {array.shape}; give one number for each of {n} rows.")
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} has dtype {array.dtype}; give numbers >= 0.")
    array = array.astype(np.float64).reshape(n)
    _refuse_non_finite(array[:, None], name)
    if array.min() < 0:
        row = int(array.argmin())
        raise InputError(f"{name}[{row}] = {array[row]} is negative; drop the row or set it to 0.")
    if array.max() == 0 and not all_zero:
        fix = "give at least one row a positive weight"
        raise InputError(f"{name} is zero for all {n} rows; {fix}.")
    return array


def scale_below_one(weights: Array) -> Array:
    """Scale weights so that the largest is in [½, 1): their sum is finite, and float32 holds them.

    The factor is a power of two, so there is no rounding.
    """
    exponent = np.frexp(np.max(weights))[1]
    scaled: Array = np.ldexp(weights, -exponent)
    return scaled


def scale_to_mean_one(weights: Array) -> Array:
    """Divide weights by their mean."""
    scaled = scale_below_one(weights)
    relative: Array = scaled / scaled.mean()
    return relative


def as_ids(ids: Any, n: int) -> Array:
    """Check ids: distinct integers of 64 bits, one per row."""
    array = _to_numpy(ids, "ids")
    if array.shape != (n,) or array.dtype.kind not in "iu":
        found = f"shape {array.shape} and dtype {array.dtype}"
        raise InputError(f"ids has {found}; give one integer for each of the {n} rows.")
    if len(np.unique(array)) != n:
        raise InputError("ids holds a value twice; each row needs an id of its own.")
    if array.dtype.kind == "u" and n and array.max() > MAX_INTEGER:
        raise InputError(f"ids holds {array.max()}; give integers of at most 2**63 - 1.")
    return array.astype(np.int64)


def as_tensor(array: Array) -> torch.Tensor:
    """Convert an array to a tensor, sharing memory if possible; sparse rows stay sparse."""
    if is_sparse(array):
        return cast(torch.Tensor, _rows_of(array).points())
    array = np.asarray(array)  # reads rows that are not loaded
    shareable = array.flags.writeable and array.flags.c_contiguous
    return torch.from_numpy(array if shareable else np.array(array, order="C"))


def _to_numpy(value: Any, name: str) -> Array:
    frames.refuse_hidden(value, name)
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu()
        if plain.layout != torch.strided:
            raise InputError(
                f"{name} is a sparse tensor; give {name}.to_dense(), or a SciPy matrix as x."
            )
        return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())
    if hasattr(value, "toarray"):
        raise InputError(f"{name} is sparse, and only x may be; pass {name}.toarray() if it fits.")
    if hasattr(value, "with_format") and hasattr(value, "select_columns"):
        raise InputError(
            f"{name} is a {type(value).__module__.partition('.')[0]}.{type(value).__name__}; name "
            "its columns: bicore.integrations.huggingface.from_hf(dataset, x='emb', y='label')."
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} needs rows of equal length ({error}).") from error


def _objects_to_floats(array: Array, name: str) -> Array:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if "NAType" in str(error):
            fix = "fill it, or drop the row"
            raise InputError(f"{name} holds NA, a missing value; {fix}.") from None
        fix = "encode text and dates first"
        raise InputError(f"{name} holds values that are not numbers ({error}); {fix}.") from error


#: Values in a column of objects, and the dtype of a column of them. Order matters: a bool is an int
#: to Python.
_LABEL_TYPES: dict[tuple[type, type], type] = {
    (bool, np.bool_): np.bool_,
    (int, np.integer): np.int64,
    (str, str): np.str_,
    (float, np.floating): np.float64,
}


def _label_type(value: Any) -> type | None:
    return next((kind for base, kind in _LABEL_TYPES.items() if isinstance(value, base)), None)


def _objects_to_labels(array: Array, name: str, role: str) -> Array:
    """Convert a column of objects, such as strings of pandas, to one plain dtype."""
    if array.size == 0:
        return array.astype(np.str_)
    first = _label_type(array.flat[0])
    if first is None:
        fix = "give numbers or text, and drop missing values"
        raise InputError(f"{name}[0] = {array.flat[0]!r} is not a {role}; {fix}.")
    for position, value in enumerate(array.ravel()):
        if _label_type(value) is not first:
            wrong = f"{name}[{position}] = {value!r} cannot be a {role}"
            fix = "give values of one kind, and drop missing ones"
            raise InputError(f"{wrong} next to {name}[0] = {array.flat[0]!r}; {fix}.")
    try:
        return array.astype(first)
    except OverflowError as error:
        fix = "give smaller integers, or text"
        raise InputError(f"{name} holds an integer beyond 64 bits; {fix}.") from error


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
            raise InputError(f"{name} holds {value} at {where}; impute the value or drop the row.")

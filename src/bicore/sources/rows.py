"""Rows of a source as a data set: checked, and loaded if they fit the memory limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bicore.data import Array, Dataset, as_features
from bicore.errors import InputError
from bicore.runtime.clock import checkpoint
from bicore.runtime.context import Runtime
from bicore.sources.parts import Chunk, Part, ShardSource
from bicore.sources.reading import COPIES, NUMBER

#: Rows that are checked together, so that the check needs no second copy of a part.
_BLOCK = 2048
#: The exponent of float16; all ones is infinity or NaN. Reading bits is ten times as fast as
#: ``isfinite``, which converts each value.
_EXPONENT16 = 0x7C00


def checked(chunk: Chunk, part: Part, skip_bad: bool = False) -> tuple[Chunk, int]:
    """Check that every value is finite, every label there and every weight >= 0.

    Parameters
    ----------
    chunk : Chunk
        As a source gave it; missing labels are masked.
    part : Part
        Where it lies, for errors.
    skip_bad : bool
        Whether bad rows stay in their places with zeros and a weight of 0; else they are an error.

    Returns
    -------
    tuple of Chunk and int
        The chunk, and the number of bad rows.

    Raises
    ------
    InputError
        If a row is bad and ``skip_bad`` is false: names the file and the row.

    Examples
    --------
    >>> import numpy as np
    >>> chunk = Chunk(np.array([[1.0], [np.nan], [2.0]]))
    >>> clean, bad = checked(chunk, Part(0, 0, 3, "a.npy"), skip_bad=True)
    >>> clean.weight.tolist(), bad
    ([1.0, 0.0, 1.0], 1)
    """
    bad = np.zeros(len(chunk), dtype=bool)
    for name, column in (("x", chunk.x), ("y", chunk.y), ("weight", chunk.weight)):
        if column is None:
            continue
        wrong = _bad_rows(column, name == "weight")
        if wrong.any() and not skip_bad:
            raise _refusal(column, name, int(wrong.argmax()), part)
        bad |= wrong
    y = None if chunk.y is None else np.array(chunk.y) if bad.any() else np.asarray(chunk.y)
    if not bad.any():
        return replace(chunk, y=y), 0
    x = np.array(chunk.x)
    weight = np.ones(len(x)) if chunk.weight is None else np.array(chunk.weight)
    x[bad] = weight[bad] = 0
    if y is not None:
        # Bad rows get the label of a good one, so that no new class appears.
        y[bad] = y[np.argmin(bad)] if not bad.all() else np.zeros((), dtype=y.dtype)
    return Chunk(x, y, weight), int(bad.sum())


def _bad_rows(column: Array, weights: bool) -> Array:
    """Mark rows with a value that is missing, not finite or, as a weight, negative."""
    found: Array = np.any(np.ma.getmaskarray(column).reshape(len(column), -1), axis=1)
    values = np.ma.getdata(column)
    if values.dtype.kind == "f":
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            if not _all_finite(block):
                finite = np.isfinite(block).reshape(len(block), -1)
                found[start : start + _BLOCK] |= ~finite.all(axis=1)
    if weights:
        found |= values < 0
    return found


def _all_finite(block: Array) -> bool:
    if block.dtype == np.float16 and block.flags.c_contiguous and block.size:
        return int((block.view(np.uint16) & _EXPONENT16).max()) != _EXPONENT16
    return bool(np.isfinite(block).all())


def _refusal(column: Array, name: str, row: int, part: Part) -> InputError:
    values = column[row]
    if np.ma.getmaskarray(values).any():
        what = "no value"
    else:
        flat = np.ravel(np.ma.getdata(values))
        place = int(np.argmax(~np.isfinite(flat) | ((flat < 0) & (name == "weight"))))
        what = str(flat[place]) + (f" in column {place}" if len(flat) > 1 else "")
    return InputError(
        f"{part.place or 'the source'}: row {part.offset + row} (row {part.start + row} of the "
        f"source) holds {what} in {name}; fill or drop the row, or skip bad rows "
        "(skip_bad=True, --skip-bad)."
    )


class LazyRows:
    """The features of a source as an array that reads rows when they are indexed."""

    def __init__(self, source: ShardSource) -> None:
        self.source = source
        self.shape = (source.rows, *source.shape)
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        wanted = np.arange(len(self))[rows]
        order = np.argsort(wanted, kind="stable")
        places = wanted[order]
        found = []
        for part in self.source.parts:
            low, high = np.searchsorted(places, (part.start, part.stop))
            if low < high:
                checkpoint()
                chunk = self.source.read(part).x
                found.append(_features(chunk[places[low:high] - part.start], self.source))
        gathered = np.concatenate(found) if found else np.zeros((0, *self.shape[1:]))
        result: Array = np.empty_like(gathered)
        result[order] = gathered
        return result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read all rows."""
        return np.asarray(self[:], dtype=dtype)

    def reshape(self, *shape: int) -> Array:
        """Read all rows in another shape."""
        return np.asarray(self).reshape(*shape)

    def fingerprint(self) -> str:
        """Digest the source; the rows are not all read."""
        return self.source.fingerprint()


def _features(x: Array, source: ShardSource) -> Array:
    """Features as an array has them: parts hold short integers as float32."""
    x = as_features(x, "x")
    return x.astype(np.float64) if source.shards[0].kind in ("integers", "booleans") else x


def fits(source: ShardSource, runtime: Runtime) -> bool:
    """Whether all rows of a source fit the memory limit."""
    numbers = source.rows * int(np.prod(source.shape))
    return numbers * NUMBER * COPIES <= runtime.memory_bytes()


def rows_of(source: ShardSource, runtime: Runtime | None = None) -> Dataset:
    """Read a source as a data set.

    Labels and weights are always loaded, and every row is checked. Features that do not fit the
    memory limit of a runtime are read again when a selection asks for them.
    """
    loaded = runtime is None or fits(source, runtime)
    x = np.zeros((source.rows if loaded else 0, *source.shape), np.float32)
    columns: dict[str, list[Array]] = {"y": [], "weight": []}
    for part in source.parts:
        checkpoint(part.start / max(source.rows, 1))
        chunk, _ = checked(source.read(part), part)
        if loaded:  # into one array, so that memory holds the rows once
            rows = _features(chunk.x, source)
            x = x.astype(np.result_type(x, rows), copy=False)
            x[part.start : part.stop] = rows
        for name, pieces in columns.items():
            pieces += [] if getattr(chunk, name) is None else [getattr(chunk, name)]
    y, weight = (np.concatenate(one) if one else None for one in columns.values())
    if loaded:
        return Dataset(x, y, weight)
    if y is None:
        raise InputError(
            f"{source.name} has no labels and does not fit the memory limit; give labels "
            "(target=…, labels=…) or raise Runtime(memory=…)."
        )
    narrow = Dataset(np.zeros((source.rows, 1)), y, weight)
    return narrow.with_columns(x=LazyRows(source))  # type: ignore[arg-type]  # read on demand

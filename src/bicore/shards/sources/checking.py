"""Rows that no arithmetic should see: found, named, or set aside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.shards.source import Chunk, Part

#: Rows looked at together, so that the search needs no second copy of a part.
_BLOCK = 2048
#: The exponent of float16; all ones is infinity or NaN. Reading bits is ten times as fast as
#: ``isfinite``, which converts each value.
_EXPONENT16 = 0x7C00


def checked(chunk: Chunk, part: Part, skip_bad: bool = False) -> tuple[Chunk, int]:
    """A chunk in which every value is finite, every label there and every weight >= 0.

    Parameters
    ----------
    chunk : Chunk
        As a source gave it; labels that are missing are masked.
    part : Part
        What it is, for errors.
    skip_bad : bool
        Whether bad rows stay in their places with zeros and a weight of 0; else they are an error.

    Returns
    -------
    tuple of Chunk and int
        The same chunk where nothing is wrong, and how many rows were set aside.

    Raises
    ------
    InputError
        Where a row is bad and none may be skipped: the file, the row in it and in the source.

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
        wrong = _not_usable(column, name == "weight")
        if len(wrong) and not skip_bad:
            raise _refusal(column, name, int(wrong[0]), part)
        bad[wrong] = True
    count = int(bad.sum())
    if not count:
        return replace(chunk, y=None if chunk.y is None else np.asarray(chunk.y)), 0
    weight = np.ones(len(chunk)) if chunk.weight is None else chunk.weight
    return Chunk(
        _zeroed(chunk.x, bad),
        None if chunk.y is None else _relabelled(chunk.y, bad),
        _zeroed(weight, bad),
    ), count


def _not_usable(column: Array, weights: bool) -> Array:
    """Rows that hold something not finite or not there, or as a weight below 0."""
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
    return np.flatnonzero(found)


def _all_finite(block: Array) -> bool:
    if block.dtype == np.float16 and block.flags.c_contiguous and block.size:
        return int((block.view(np.uint16) & _EXPONENT16).max()) != _EXPONENT16
    return bool(np.isfinite(block).all())


def _zeroed(column: Array, bad: Array) -> Array:
    clean = np.array(column)
    clean[bad] = 0
    return clean


def _relabelled(y: Array, bad: Array) -> Array:
    """Labels in which bad rows have the label of a good one, so that no new class appears."""
    clean = np.array(np.ma.getdata(y))
    good = np.flatnonzero(~bad)
    clean[bad] = clean[good[0]] if len(good) else np.zeros((), dtype=clean.dtype)
    return clean


def _refusal(column: Array, name: str, row: int, part: Part) -> InputError:
    values = column[row]
    if np.ma.getmaskarray(values).any():
        what = "no value"
    else:
        flat = np.ravel(np.ma.getdata(values))
        wrong = ~np.isfinite(flat) | ((flat < 0) & (name == "weight"))
        place = int(np.flatnonzero(wrong)[0])
        what = str(flat[place]) + (f" in column {place}" if len(flat) > 1 else "")
    return InputError(
        f"{part.place or 'the source'}: row {part.offset + row} (row {part.start + row} of the "
        f"source) holds {what} in {name}; fill or drop the row, or skip bad rows "
        "(skip_bad=True, --skip-bad)."
    )

"""Stored numbers and labels as parts hand them on."""

from __future__ import annotations

import numpy as np

from bicore.data import Array
from bicore.errors import InputError

#: Whole numbers of at most so many bytes have their exact value in float32.
_SHORT = 2
#: Kinds of labels that are the same to a reader, by NumPy's letters.
_FAMILIES = {
    "b": "truth values",
    "i": "whole numbers",
    "u": "whole numbers",
    "f": "floats",
    "U": "text",
    "S": "text",
}


def family(dtype: np.dtype[np.generic]) -> str:
    """What values of this dtype are, in words; "" for what can be neither feature nor label."""
    return _FAMILIES.get(dtype.kind, "")


def need_numbers(dtype: np.dtype[np.generic], place: str) -> None:
    """Refuse features that are not numbers."""
    if dtype.kind not in "biuf":
        raise InputError(
            f"{place} holds features of dtype {dtype}; give numbers (float16, float32 or float64; "
            "whole numbers are converted), encode text and save without pickles."
        )


def need_labels(dtype: np.dtype[np.generic], place: str) -> None:
    """Refuse labels of a kind that has no meaning as one."""
    if not family(dtype):
        raise InputError(
            f"{place} holds labels of dtype {dtype}; give integers, text, booleans or floats, "
            "saved without pickles."
        )


def as_floats(stored: Array) -> Array:
    """float16, float32 or float64 in the machine's byte order; no copy where it is that already.

    Whole numbers become the shorter float that holds them: float32 up to 16 bits.
    """
    if stored.dtype.kind in "biu":
        return stored.astype(np.float32 if stored.dtype.itemsize <= _SHORT else np.float64)
    size = min(stored.dtype.itemsize, np.dtype(np.float64).itemsize)
    return np.asarray(stored, dtype=np.dtype(f"=f{size}"))


def as_stored_labels(stored: Array) -> Array:
    """Labels as they are; bytes as text."""
    return np.char.decode(stored, "utf-8") if stored.dtype.kind == "S" else np.asarray(stored)

"""Numbers as people write them: with a decimal point, a decimal comma, or commas at thousands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from bicore.data import Array


class Numerals(StrEnum):
    """How the numbers of a column are written."""

    POINT = "point"
    COMMA = "comma"
    THOUSANDS = "thousands"


_EXPONENT = r"(?:[eE][+-]?\d+)?"
#: 3,14 and 1.234,5; beside them whole numbers, with or without points at thousands.
_DECIMAL_COMMA = re.compile(rf"[+-]?(?:\d{{1,3}}(?:\.\d{{3}})+|\d+)(?:,\d+)?{_EXPONENT}")
#: 1,001 and 12,345.6; beside them numbers without commas.
_AT_THOUSANDS = re.compile(rf"[+-]?(?:[1-9]\d{{0,2}}(?:,\d{{3}})+|\d+)(?:\.\d*)?{_EXPONENT}")
_PATTERNS = {Numerals.COMMA: _DECIMAL_COMMA, Numerals.THOUSANDS: _AT_THOUSANDS}


def ways_of(values: Sequence[str]) -> list[Numerals]:
    """How texts with commas in them can be read as numbers: none, one or either way."""
    texts = [value.strip() for value in values]
    if not any("," in text for text in texts):
        return []
    return [
        way for way, pattern in _PATTERNS.items() if all(pattern.fullmatch(one) for one in texts)
    ]


def possible(values: Sequence[str]) -> bool:
    """Whether some texts leave open that a column holds numbers with commas."""
    texts = [value.strip() for value in values]
    return any(all(one.fullmatch(text) for text in texts) for one in _PATTERNS.values())


def read(values: Sequence[str], way: Numerals) -> Array | None:
    """Texts as numbers; None where one of them is none."""
    try:
        return np.array([_float(value.strip(), way) for value in values], dtype=np.float64)
    except ValueError:
        return None


def _float(text: str, way: Numerals) -> float:
    if way is Numerals.POINT:
        return float(text)
    if not _PATTERNS[way].fullmatch(text):
        raise ValueError(text)
    if way is Numerals.COMMA:
        text = text.replace(".", "").replace(",", ".")
    return float(text.replace(",", ""))

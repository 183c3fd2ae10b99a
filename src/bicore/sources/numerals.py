"""Numbers in text: with a decimal point, a decimal comma or commas at thousands, and with units."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from bicore.frames import arrow
from bicore.sources.cells import sample


class Numerals(StrEnum):
    """How the numbers of a column are written."""

    POINT = "point"
    COMMA = "comma"
    THOUSANDS = "thousands"


_EXPONENT = r"(?:[eE][+-]?\d+)?"
_PATTERNS = {
    Numerals.POINT: rf"^[+-]?(?:(?:\d[\d_]*\.?\d*|\.\d+){_EXPONENT}|(?i:inf|infinity))$",
    # 3,14 and 1.234,5
    Numerals.COMMA: rf"^[+-]?(?:\d{{1,3}}(?:\.\d{{3}})+|\d+)(?:,\d+)?{_EXPONENT}$",
    # 1,001 and 12,345.6
    Numerals.THOUSANDS: rf"^[+-]?(?:[1-9]\d{{0,2}}(?:,\d{{3}})+|\d+)(?:\.\d*)?{_EXPONENT}$",
}
#: Currencies and the percent sign: before or after a number, they are left out.
_UNITS = ((r"^([+-]?)[$€£¥] ?([+-]?)", r"\1\2"), (r" ?[%$€£¥]$", ""))
#: Characters of a number that pyarrow does not read.
_PLAIN = ((r"^\+", ""), ("_", ""))
_REWRITES = {
    Numerals.POINT: _PLAIN,
    Numerals.COMMA: ((r"\.", ""), (",", "."), *_PLAIN),
    Numerals.THOUSANDS: ((",", ""), *_PLAIN),
}
#: In a column of numbers one cell in so many may be something else.
STRAY = 100


def find_ways(text: Any, decimal: str | None, tolerant: bool) -> list[Numerals]:
    """The ways in which text can be read as numbers: none, one, or two if commas are ambiguous.

    ``tolerant`` allows one stray cell in a hundred.
    """
    some = sample(text)
    if not len(some) or 2 * max(_count(some).values()) < len(some):
        return []
    if _cast(text) is not None:
        return [Numerals.POINT]
    there = len(text) - text.null_count
    counts = _count(text)
    most = max(counts.values())
    if most < there - (there // STRAY if tolerant else 0):
        return []
    ways = [way for way, count in counts.items() if count == most]
    if Numerals.POINT in ways:
        return [Numerals.POINT]
    wanted = {"comma": Numerals.COMMA, "point": Numerals.THOUSANDS}.get(decimal or "")
    return [wanted] if wanted in ways else ways


def parse_numbers(text: Any, way: Numerals) -> Any:
    """Text as float64; null where a cell is no number."""
    found = _cast(text) if way == Numerals.POINT else None
    if found is not None:
        return found
    bare = _matching(_without_units(text), way)
    return _rewrite(bare, _REWRITES[way]).cast("float64")


def _cast(text: Any) -> Any:
    """Text as float64 if every cell is a plain number, else None; faster than a pattern."""
    try:
        return text.cast("float64")
    except arrow().ArrowInvalid:
        return None


def _count(text: Any) -> dict[Numerals, int]:
    """How many cells each way reads."""
    bare = _without_units(text)
    return {way: len(text) - _matching(bare, way).null_count for way in Numerals}


def _matching(bare: Any, way: Numerals) -> Any:
    pyarrow = arrow()
    fits = pyarrow.compute.match_substring_regex(bare, _PATTERNS[way])
    return pyarrow.compute.if_else(fits, bare, pyarrow.scalar(None, bare.type))


def _without_units(text: Any) -> Any:
    return _rewrite(text, _UNITS)


def _rewrite(text: Any, rules: tuple[tuple[str, str], ...]) -> Any:
    for pattern, new in rules:
        text = arrow().compute.replace_substring_regex(text, pattern=pattern, replacement=new)
    return text

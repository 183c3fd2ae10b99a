"""Dates and times: how they are written, and the numbers that stand for them.

Told apart without asking: 2013-01-05 and 2013/1/5 with or without a time (T or a space between, a
zone behind), 5.1.2013, 1/5/2013 where some row says which of the two is the month, and 17:30.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import numpy as np

from bicore.data import Array

_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
_REST = rf"(?:[T ]\s?{_CLOCK}(?:\s?(?P<half>[AaPp][Mm]))?\s?(?P<zone>Z|UTC|[+-]\d{{2}}:?\d{{2}})?)?"
_FORMS = {
    "ymd": re.compile(rf"(?P<a>\d{{4}})[-/](?P<b>\d{{1,2}})[-/](?P<c>\d{{1,2}}){_REST}"),
    "dmy": re.compile(rf"(?P<a>\d{{1,2}})\.(?P<b>\d{{1,2}})\.(?P<c>\d{{4}}){_REST}"),
    "?": re.compile(rf"(?P<a>\d{{1,2}})/(?P<b>\d{{1,2}})/(?P<c>\d{{4}}){_REST}"),
    "clock": re.compile(rf"{_CLOCK}(?:\s?(?P<half>[AaPp][Mm]))?"),
}
_EPOCH = datetime(1970, 1, 1)
DAY = 86_400_000_000  # microseconds
#: Days of a mean year of the calendar.
YEAR = 365.2425
WEEK = 7
MONTHS = 12


class Sort(StrEnum):
    """What a column of times tells."""

    DATES = "dates"
    MOMENTS = "dates with times"
    CLOCK = "times of day"


#: The cycles in which a time has a place.
CYCLES = {
    Sort.DATES: ("year", "week"),
    Sort.MOMENTS: ("year", "week", "day"),
    Sort.CLOCK: ("day",),
}


def possible(values: Sequence[str]) -> bool:
    """Whether some texts leave open that a column holds times."""
    texts = [value.strip() for value in values]
    return bool(texts) and any(
        all(pattern.fullmatch(text) for text in texts) for pattern in _FORMS.values()
    )


def form_of(values: Sequence[str]) -> str | None:
    """How texts are written as times; None where one of them is none, or may be two."""
    for name, pattern in _FORMS.items():
        found = [pattern.fullmatch(value.strip()) for value in values]
        if values and all(found):
            return _order(found) if name == "?" else name
    return None


def _order(found: Sequence[re.Match[str] | None]) -> str | None:
    """Which of two numbers is the month, where some row can tell."""
    first = max(int(one["a"]) for one in found if one is not None)
    second = max(int(one["b"]) for one in found if one is not None)
    if (first > MONTHS) == (second > MONTHS):
        return None
    return "dmy/" if first > MONTHS else "mdy/"


def read(values: Sequence[str], form: str) -> Array | None:
    """Texts as microseconds since 1970; None where one of them is no such time."""
    pattern = _FORMS["?" if form.endswith("/") else form]
    try:
        return np.array([_microseconds(pattern, one.strip(), form) for one in values], np.int64)
    except (ValueError, OverflowError):
        return None


def _microseconds(pattern: re.Pattern[str], text: str, form: str) -> int:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(text)
    found = match.groupdict()
    hour = int(found["hour"] or 0)
    if found["half"]:
        if not 1 <= hour <= MONTHS:
            raise ValueError(text)
        hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
    year, month, day = 1970, 1, 1
    if form != "clock":
        year, month, day = (int(found["abc"[form.index(part)]]) for part in "ymd")
    moment = datetime(year, month, day, hour, int(found["minute"] or 0), int(found["second"] or 0))
    part = int((found["part"] or "0").ljust(6, "0")[:6])
    zone = found.get("zone") or "Z"
    shift = timedelta()
    if zone[0] in "+-":
        shift = timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[-2:]))
    return (moment - _EPOCH - shift) // timedelta(microseconds=1) + part


def sort_of(microseconds: Array, clock: bool) -> Sort:
    """What these times tell: of a day, or of dates, with a time where one of them has it."""
    if clock:
        return Sort.CLOCK
    return Sort.MOMENTS if (microseconds % DAY).any() else Sort.DATES


def features(microseconds: Array, sort: Sort) -> Array:
    """Days since 1970, and the place in each cycle as a point of a circle: cosine and sine."""
    days = microseconds / DAY
    whole = np.floor_divide(microseconds, DAY)
    dates = whole.astype("datetime64[D]")
    places = {
        "year": (dates - dates.astype("datetime64[Y]")).astype(np.int64) / YEAR,
        "week": (whole % WEEK) / WEEK,
        "day": days - whole,
    }
    columns = [days]
    for cycle in CYCLES[sort]:
        angle = 2 * np.pi * places[cycle]
        columns += [np.cos(angle), np.sin(angle)]
    return np.stack(columns, axis=1)

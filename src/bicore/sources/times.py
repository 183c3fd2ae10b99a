"""Dates and times: how text writes them, and the numbers that represent them.

Recognised: 2013-01-05 and 2013/1/5 with or without a time (after a T or a space, with or without a
zone), 5.1.2013, 1/5/2013 if some row shows which number is the month, and 17:30.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.frames import arrow
from bicore.sources.cells import moments, sample

_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
_HALF = r"(?:\s?(?P<half>[AaPp][Mm]))?"
_REST = rf"(?:[T ]\s?{_CLOCK}{_HALF}\s?(?P<zone>Z|UTC|[+-]\d{{2}}:?\d{{2}})?)?"
_FORMS = {
    "ymd": rf"^(?P<y>\d{{4}})[-/](?P<m>\d{{1,2}})[-/](?P<d>\d{{1,2}}){_REST}$",
    "dmy": rf"^(?P<d>\d{{1,2}})\.(?P<m>\d{{1,2}})\.(?P<y>\d{{4}}){_REST}$",
    "dmy/": rf"^(?P<d>\d{{1,2}})/(?P<m>\d{{1,2}})/(?P<y>\d{{4}}){_REST}$",
    "mdy/": rf"^(?P<m>\d{{1,2}})/(?P<d>\d{{1,2}})/(?P<y>\d{{4}}){_REST}$",
    "clock": rf"^(?P<y>)(?P<m>)(?P<d>){_CLOCK}{_HALF}(?P<zone>)$",
}
_PARTS = ("y", "m", "d", "hour", "minute", "second", "part", "half", "zone")
DAY = 86_400_000_000  # microseconds
#: Days of a mean year of the calendar.
YEAR = 365.2425
WEEK = 7


class Sort(StrEnum):
    """What a column of times holds."""

    DATES = "dates"
    MOMENTS = "dates with times"
    CLOCK = "times of day"


#: The cycles in which a time has a place.
CYCLES = {
    Sort.DATES: ("year", "week"),
    Sort.MOMENTS: ("year", "week", "day"),
    Sort.CLOCK: ("day",),
}


def infer_times(text: Any) -> tuple[Array, str] | None:
    """Text as times, and the form it is in; None if there is no such form, or more than one."""
    some = sample(text)
    forms = [form for form in _FORMS if len(some) and parse_times(some, form) is not None]
    parsed = {form: parse_times(text, form) for form in forms}
    found = [(times, form) for form, times in parsed.items() if times is not None]
    return found[0] if len(found) == 1 else None


def parse_times(text: Any, form: str) -> Array | None:
    """Text as microseconds since 1970, NaT where null; None if a cell is no such time."""
    pyarrow = arrow()
    compute = pyarrow.compute
    match = compute.extract_regex(text, pattern=_FORMS[form])
    if match.null_count > text.null_count:
        return None
    field = {name: compute.struct_field(match, name).cast("string") for name in _PARTS}
    year = _or(field["y"], "1970")
    month, day = (_padded(_or(field[name], "1")) for name in "md")
    hour = _hours(_or(field["hour"], "0"), compute.utf8_lower(field["half"]))
    if hour is None:
        return None
    minute, second = (_or(field[name], "00") for name in ("minute", "second"))
    part = compute.utf8_slice_codeunits(compute.utf8_rpad(field["part"], 6, "0"), 0, 6)
    zone = compute.replace_substring(_or(field["zone"], "Z"), "UTC", "Z")
    date = compute.binary_join_element_wise(year, month, day, "-")
    time = compute.binary_join_element_wise(hour, minute, second, ":")
    whole = compute.binary_join_element_wise(date, "T", time, ".", part, zone, "")
    try:
        return moments(whole.cast(pyarrow.timestamp("us", "UTC")))
    except pyarrow.ArrowInvalid:  # the 31st of June
        return None


def _or(text: Any, default: str) -> Any:
    return arrow().compute.if_else(arrow().compute.equal(text, ""), default, text)


def _padded(text: Any) -> Any:
    return arrow().compute.utf8_lpad(text, 2, "0")


def _hours(hour: Any, half: Any) -> Any:
    """Hours of 24; None if an hour of 12 is not one of 1 … 12."""
    compute = arrow().compute
    number = hour.cast("int64")
    halved = compute.not_equal(half, "")
    wrong = compute.or_(compute.less(number, 1), compute.greater(number, 12))
    if compute.any(compute.and_(halved, wrong)).as_py():
        return None
    twelve = compute.if_else(compute.equal(number, 12), 0, number)
    shifted = compute.if_else(compute.equal(half, "pm"), compute.add(twelve, 12), twelve)
    return _padded(compute.if_else(halved, shifted, number).cast("string"))


def sort_of(moments: Array, clock: bool) -> Sort:
    """What these times are: of a day, or dates with or without a time."""
    if clock:
        return Sort.CLOCK
    there = moments[~np.isnat(moments)].astype(np.int64)
    return Sort.MOMENTS if (there % DAY).any() else Sort.DATES


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

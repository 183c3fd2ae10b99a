"""The section of docs/benchmarks.md on threads, busy cores and floors."""

from __future__ import annotations

from typing import Any

from benchmarks.common import read_record, table, told


def section(record: dict[str, Any]) -> str:
    """What ``python -m benchmarks busy`` measured, beside what it had measured before."""
    before = {one["problem"]: one for one in read_record("busy_before")["rows"]}
    rows = [_row(one, before.get(one["problem"], {})) for one in record["rows"]]
    worst = max(record["rows"], key=lambda one: one["ratio"])
    missed = [one for one in record["rows"] if one["goal"] and one["one_thread"] > one["goal"]]
    head = [
        "problem",
        "before, one thread",
        "one thread",
        "default threads",
        "beside a busy core",
        "ratio",
        "goal",
        "floor",
    ]
    rates = record["rates"]
    return f"""## Threads, a busy core, and floors

{told(record)}

Seconds of whole calls in float64, kernel matrix and final check of the objective included, the least of several; each run is a
process of its own, and the busy core is another process that only counts. *Ratio* is the time beside the busy core over the time
on one thread; it should not be above {record["allowed"]:g}, and is {worst["ratio"]:.2f} at most ({worst["problem"]}). *Before* is
the same benchmark on the version before threads were kept to large products. *Floor* is what the largest product of a problem
takes by itself on one thread: the bytes it must read at {rates["bytes"] / 1e9:.1f} GB/s (half of a stored matrix a point, which is
symmetric; all features once a point), or for the cross-entropy the products of K with ten columns at
{rates["operations"] / 1e9:.1f} · 10⁹ operations a second.

{table(head, rows)}
{_words(missed)}
"""


def _row(one: dict[str, Any], before: dict[str, Any]) -> list[str]:
    return [
        one["problem"],
        _seconds(before.get("one_thread")),
        _seconds(one["one_thread"]),
        _seconds(one["default_threads"]),
        _seconds(one["beside_a_busy_core"]),
        f"{one['ratio']:.2f}",
        "" if one["goal"] is None else f"{one['goal']:g} s",
        _seconds(one["floor"]),
    ]


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _words(missed: list[dict[str, Any]]) -> str:
    if not missed:
        return "All goals are met."
    parts = [
        f"{one['problem']} ({one['one_thread']:.2f} s for {one['goal']:g} s)" for one in missed
    ]
    return f"Short of its goal: {'; '.join(parts)}."

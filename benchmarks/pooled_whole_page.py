"""The section of the pooled regression from all images, from its record and that of exact slopes."""

from __future__ import annotations

from typing import Any

from benchmarks.common import read_record, spaced, table, told
from benchmarks.pooled_regression_page import _cell

CORESET = "coreset, optimised weights"
LINES = (
    ("uniform", 50_000),
    ("uniform, optimised weights", 50_000),
    (CORESET, 10_000),
    (CORESET, 50_000),
)


def section(record: dict[str, Any]) -> str:
    rows = record["rows"]
    sizes = sorted({row["size"] for row in rows})
    most = max(sizes)
    body = [
        [f"{method}, of {spaced(pool)}", *(_cell(rows, method, pool, size) for size in sizes)]
        for method, pool in LINES
    ]
    drawn = {pool: found(rows, pool, most) for pool in (10_000, 50_000)}
    exact = next(
        100 * row["accuracy"]
        for row in read_record("pooled_regression")["rows"]
        if (row["method"], row["pool"], row["size"]) == (CORESET, 10_000, most)
    )
    first = _mean(drawn[10_000], "accuracy_first")
    gained = _mean(drawn[50_000][:1], "accuracy") - _mean(drawn[10_000], "accuracy")
    seeds = len(drawn[50_000])
    samples = len({row["seed"] for row in rows if row["method"] == "uniform"})
    blocks = record["kernel"]
    pairs, seconds = (sum(one[name] for one in blocks) for name in ("pairs", "seconds"))
    return f"""### From all 50 000 images

{told(record)}

The slope of a candidate needs its column of all images, three hours of a GPU for all of them. Here the kernel is seen from
{record["landmarks"]} landmarks, the uniform sample: points are chosen and weighted in its Nyström features, from 250 random candidates a step after ten
random points; the regression on them is by the kernel itself. Percent of all {spaced(record["tested"])} test images: the coreset of all images with {seeds} seeds, uniform samples with {samples}
(mean ± standard error), that of 10 000 with one. {pairs / 1e6:.1f} million pairs took
{seconds:.0f} s.

{table(["method", *(str(size) for size in sizes)], body)}
What landmarks and random candidates cost: from the first 10 000 images they reach {first:.1f}% of the first {record["tested_first"]} test images with {most}
points, exact slopes of all candidates {exact:.1f}%, {exact - first:.1f} points more. What the pool gives: {gained:+.1f} points from 10 000 to 50 000, both seen from landmarks, with
the same seed.
"""


def found(rows: list[dict[str, Any]], pool: int, size: int) -> list[dict[str, Any]]:
    """The coreset's rows, one a seed."""
    wanted = (CORESET, pool, size)
    return [row for row in rows if (row["method"], row["pool"], row["size"]) == wanted]


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    return 100 * sum(row[name] for row in rows) / len(rows)

"""docs/comparison.md, its figure and docs/tables/comparison.md, from the records of ``comparison``,
``comparison_embedding``, ``comparison_images`` and ``baselines``."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from benchmarks import pages
from benchmarks.pages import DOCS, FIGURES, read_record, table, where
from bicore.evaluate.comparison import WHOLE
from bicore.evaluate.records import Entry, Result, paired_difference, results_with_score, summarise
from bicore.report.figures import draw_curves

DEFAULT = "bilevel"
#: The reference on MNIST, whose record is older than the default and calls it ``bilevel``.
OLDER = "bilevel-ntk"
#: Names that say what a method does.
NAMES = {
    "glister": "identity Hessian (`glister`)",
    "k-means-features": "k-means++, features",
    "k-means-embedding": "k-means++, embedding",
    "k-means-gradients": "k-means++, gradients",
}
#: The methods of the figure: thirty lines would show nothing.
SHOWN = (
    *(OLDER, "bilevel-cross-entropy", "reducible-loss", "glister", "icarl", "frcl"),
    *("facility-location", "class-balanced", "uniform", "k-center-embedding"),
    *("gradient-matching", "hardest", "apricot facility location", "coreax kernel herding"),
    "skactiveml MaxHerding",
)
#: The baselines that methods are compared with on images.
CHANCE = ("uniform", "class-balanced")
#: The records were made in several runs; these commands make them at once.
COMMAND = "python -m benchmarks {} --data DIR {}--seeds 10 {}--rows ROWS.jsonl --record"
COMMANDS = {
    "comparison_embedding": COMMAND.format("comparison_embedding", "", ""),
    "comparison_images": COMMAND.format("comparison_images", "--device cuda ", "--workers 15 "),
}


def read_comparison(name: str) -> dict[str, Any]:
    return read_record(name) | {"command": COMMANDS[name]}


@cache
def read_mnist() -> dict[str, Any]:
    """The record of MNIST, with the names that methods have today."""
    record = read_record("comparison")
    names = {DEFAULT: OLDER}
    rows = [{**row, "method": names.get(row["method"], row["method"])} for row in record["rows"]]
    return {**record, "rows": rows}


def draw_mnist() -> None:
    rows = complete_rows(read_mnist())["rows"]
    title = "MNIST, pools of 1,000 rows, the paper's CNN: mean ± standard error of ten seeds"
    methods = list(dict.fromkeys(row.method for row in rows))
    summary = summarise(rows, methods, read_mnist()["sizes"])
    draw_curves(summary, SHOWN, title, "test accuracy", DOCS / "comparison.png")


FIGURES["comparison.png"] = draw_mnist


def gap(rows: Sequence[Result], first: str, second: str, size: int) -> str:
    """The mean difference of two methods, in points."""
    found = paired_difference(by_seed(rows, first, size), by_seed(rows, second, size))
    return f"{100 * found[0]:.1f}"


def selection_seconds() -> list[list[str]]:
    """Seconds of one selection of 250 of 1000 MNIST images, the fastest first."""
    timed = where(read_record("baselines")["rows"], part="MNIST pool of 1000, 250 points")
    found = {row["method"]: row["seconds"] for row in timed}
    for name in read_mnist()["peers"]:
        own = where(read_mnist()["rows"], method=name, size=250)
        found[name] = float(np.mean([row["selection_seconds"] for row in own]))
    return [[name, f"{found[name]:.2g}"] for name in sorted(found, key=lambda name: found[name])]


def peer_notes() -> dict[str, list[str]]:
    """Methods of other libraries, by their versions and how they were run."""
    notes: dict[str, list[str]] = {}
    for method, facts in read_mnist()["peers"].items():
        versions = [f"{name} {facts[name]}" for name in facts if name not in ("notes", "python")]
        notes.setdefault(f"{', '.join(versions)}. {facts['notes']}", []).append(method)
    return notes


def embedding_gaps() -> dict[str, np.ndarray]:
    """Default minus every other method on the embedding in points, one per seed, for each head and
    size; methods of this package that solve the same problem in another way are left out."""
    own = complete_rows(read_comparison("comparison_embedding")["parts"]["pools"])
    found = {}
    for head in ("logistic", "ridge"):
        rows = results_with_score(own["rows"], head, "accuracy")
        for size in own["sizes"]:
            ours = by_seed(rows, DEFAULT, size)
            for method in dict.fromkeys(row.method for row in rows):
                theirs = by_seed(rows, method, size)
                if len(theirs) > 1 and not method.startswith((DEFAULT, OLDER)):
                    pairs = [ours[seed].score - theirs[seed].score for seed in sorted(theirs)]
                    found[f"{head}, {size} points, {method}"] = 100 * np.array(pairs)
    return found


def by_seed(rows: Sequence[Result], method: str, size: int) -> dict[int, Result]:
    return {row.seed: row for row in rows if (row.method, row.size) == (method, size)}


def complete_seeds(rows: Sequence[Result], size: int) -> list[int]:
    """Seeds that have every method that most seeds have at a size."""
    have: dict[int, set[str]] = {}
    for row in rows:
        if row.size == size:
            have.setdefault(row.seed, set()).add(row.method)
    methods = set().union(*have.values())
    usual = {name for name in methods if 2 * sum(name in own for own in have.values()) > len(have)}
    return sorted(seed for seed, own in have.items() if usual <= own)


def complete_rows(record: pages.Row) -> dict[str, Any]:
    """Rows of seeds that every method has, the sizes that have some, and the heads of columns."""
    rows = [Result.read(row) for row in record["rows"] if row["method"] != WHOLE]
    whole = {size: complete_seeds(rows, size) for size in record["sizes"]}
    sizes = [size for size in whole if whole[size]]
    heads = [f"{size} rows, {len(whole[size])} seeds" for size in sizes]
    kept = [row for row in rows if row.seed in whole[row.size]]
    return {"rows": kept, "sizes": sizes, "heads": heads}


def fraction_table(part: pages.Row) -> str:
    heads = [f"{100 * size / part['pool']:g}% ({size})" for size in part["sizes"]]
    return method_table([Result.read(row) for row in part["rows"]], part["sizes"], heads)


def method_table(
    rows: Sequence[Result],
    sizes: Sequence[int],
    heads: Sequence[str],
    references: Sequence[str] = (DEFAULT,),
) -> str:
    """One column per size, the best at the smallest first, with a mark for each reference; a
    second reference adds columns that count how often a method is above each of them."""
    methods = list(dict.fromkeys(row.method for row in rows))
    summary = summarise(list(rows), methods, list(sizes))
    best = {entry.method: entry.mean for entry in summary.entries if entry.size == sizes[0]}
    counted = references if len(references) > 1 else ()
    body = [
        [f"**{name}**" if name in (DEFAULT, OLDER) else NAMES.get(name, name)]
        + [_cell(summary.of(name, size), _marks(rows, name, size, references)) for size in sizes]
        + [_count_above(rows, name, other, sizes) for other in counted]
        for name in sorted(methods, key=lambda name: best.get(name, 0.0), reverse=True)
    ]
    return table(["method", *heads, *(f"above {other}" for other in counted)], body)


def _cell(entry: Entry | None, mark: str) -> str:
    if entry is None:
        return "–"
    error = f" ± {100 * entry.error:.2f}" if entry.seeds > 1 else ""
    fewer = "" if entry.complete else " †"
    return f"{100 * entry.mean:.2f}{error} {mark}".strip() + fewer


def _marks(rows: Sequence[Result], method: str, size: int, others: Sequence[str]) -> str:
    """A mark for each method it is compared with; a dot in the place of itself."""
    marks = [_mark(rows, method, size, other) or "·" for other in others]
    return "" if set(marks) == {"·"} else "".join(marks)


def _mark(rows: Sequence[Result], method: str, size: int, other: str) -> str:
    """Below, above or no difference; nothing with fewer than two seeds in common."""
    gap, half, deviation = paired_difference(
        by_seed(rows, method, size), by_seed(rows, other, size)
    )
    if method == other or math.isnan(deviation):
        return ""
    return "↑" if gap > half else "↓" if gap < -half else "≈"


def _count_above(rows: Sequence[Result], method: str, other: str, sizes: Sequence[int]) -> str:
    """In how many seeds and sizes of both a method is above another."""
    if method == other:
        return ""
    pairs = []
    for size in sizes:
        own, theirs = by_seed(rows, method, size), by_seed(rows, other, size)
        pairs += [(own[seed].score, theirs[seed].score) for seed in own if seed in theirs]
    return f"{sum(ours > chance for ours, chance in pairs)} of {len(pairs)}"

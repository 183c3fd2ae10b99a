"""The part of docs/comparison.md that is on a frozen embedding, from the record of
``comparison_embedding``."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.common import read_record, table, told
from benchmarks.comparison_embedding import QUADRATIC
from bicore.evaluate.records import Row
from bicore.evaluate.statistics import Entry, paired_difference, scored, summarise
from bicore.selectors.registry import METHODS

#: What the doors take where nothing is said: the others are compared with it.
OURS = "bilevel"
BELOW, ABOVE, LEVEL = "↓", "↑", "≈"
#: Whatever pieces it was run in.
COMMAND = (
    "python -m benchmarks comparison_embedding --data DIR --seeds 10 --rows ROWS.jsonl --record"
)
#: Heads by the order of their tables.
HEADS = {"logistic": "a logistic head", "ridge": "a ridge head"}


def section() -> str:
    record = read_record("comparison_embedding")
    pools, fractions = record["parts"]["pools"], record["parts"]["fractions"]
    return f"""## CIFAR-10 through a frozen network, linear heads

{told(record | {"command": COMMAND})}
Rows of CIFAR-10 as a frozen network embeds them (256 numbers each), every column as it comes; selections are judged by linear heads
whose settings 300 rows of the pool choose, tested on all {pools["test"]} test rows. Methods that look at a network get a perceptron
trained on the pool. `bilevel` is what `bicore.select` takes where nothing is said, `paper` the paper's setting. The embedding is one of
the sets on which [the defaults of `bilevel` were tried](choosing.md): for it this is not unseen data.
Runs are kept row by row and the command goes on where it was stopped: a table says how many seeds it has.

{_pools(pools)}
{_fractions(fractions)}"""


def _pools(part: dict[str, Any]) -> str:
    rows = [Row(**row) for row in part["rows"]]
    sizes = part["sizes"]
    whole = {size: complete(rows, size) for size in sizes}
    kept = [row for row in rows if row.seed in whole[row.size]]
    heads = [f"{size} points, {len(whole[size])} seeds" for size in sizes]
    words = [
        f"""### Pools of {part["pool"]}

Mean ± standard error over the seeds that every method has; all selections of a seed come from the same rows. Marks compare with
`{OURS}` by the paired 95% interval: {BELOW} below, {ABOVE} above, {LEVEL} not told apart; of {len(METHODS) - 1} comparisons a column one or two would
be told apart by chance. † has fewer seeds, no ± one; – takes minutes a selection.
"""
    ]
    for head, name in HEADS.items():
        shown = _table(scored(kept, head, "accuracy"), sizes, sizes[0], heads)
        words += [f"Judged by {name}:\n", shown]
    return "\n".join(words)


def complete(rows: list[Row], size: int) -> list[int]:
    """Seeds that have every method that most seeds have at a size."""
    have: dict[int, set[str]] = {row.seed: set() for row in rows if row.size == size}
    for row in rows:
        if row.size == size:
            have[row.seed].add(row.method)
    methods = set().union(*have.values())
    usual = {name for name in methods if 2 * sum(name in own for own in have.values()) > len(have)}
    return sorted(seed for seed, own in have.items() if usual <= own)


def _table(rows: list[Row], sizes: list[int], by: int, heads: list[str]) -> str:
    """A column a size, the best at the size ``by`` first."""
    summary = summarise(rows, list(METHODS), sizes)
    present = [name for name in METHODS if any(summary.of(name, size) for size in sizes)]
    best = {entry.method: entry.mean for entry in summary.entries if entry.size == by}
    body = [
        [
            f"**{name}**" if name == OURS else name,
            *(cell(summary.of(name, size), mark(rows, name, size, OURS)) for size in sizes),
        ]
        for name in sorted(present, key=lambda name: best.get(name, 0.0), reverse=True)
    ]
    return table(["method", *heads], body)


def cell(entry: Entry | None, mark: str) -> str:
    if entry is None:
        return "–"
    error = f" ± {100 * entry.error:.2f}" if entry.seeds > 1 else ""
    fewer = "" if entry.complete else " †"
    return f"{100 * entry.mean:.2f}{error} {mark}".strip() + fewer


def mark(rows: list[Row], method: str, size: int, other: str) -> str:
    """Where a method stands beside another; nothing with fewer than two seeds in common."""
    gap, half, spread = paired_difference(by_seed(rows, method, size), by_seed(rows, other, size))
    if method == other or math.isnan(spread):
        return ""
    return ABOVE if gap > half else BELOW if gap < -half else LEVEL


def by_seed(rows: list[Row], method: str, size: int) -> dict[int, Row]:
    return {row.seed: row for row in rows if (row.method, row.size) == (method, size)}


def _fractions(part: dict[str, Any]) -> str:
    rows = [Row(**row) for row in part["rows"]]
    sizes = part["sizes"]
    seeds = {row.seed for row in rows}
    heads = [f"{100 * size / part['pool']:g}% ({size})" for size in sizes]
    many = f"up to {len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    return f"""### All {part["pool"]} rows, DeepCore's fractions, {many}

A ridge head; † has fewer seeds than others of its column. Seeds shuffle the same rows: a method that draws nothing chooses almost the
same ones with each. `{OURS}` exchanges points up to 1% and is greedy beyond ([choosing](choosing.md)). Not run, because their time grows
with the square of the rows or of the points chosen: {", ".join(f"`{name}`" for name in QUADRATIC)}.

{_table(rows, sizes, sizes[0], heads)}"""

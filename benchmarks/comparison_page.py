"""docs/comparison.md and its figure, from the records of ``comparison``, ``comparison_embedding``,
``comparison_images`` and ``rivals``."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import pages
from benchmarks.comparison_embedding import QUADRATIC
from benchmarks.pages import DOCS, read_record, render, table, where
from bicore.evaluate.comparison import WHOLE
from bicore.evaluate.records import Entry, Row, Summary, paired_difference, scored, summarise
from bicore.report.figures import draw_curves
from bicore.selectors.registry import METHODS

PAGE = DOCS / "comparison.md"
FIGURE = PAGE.with_suffix(".png")
DEFAULT = "bilevel"
#: The methods of the figure: thirty lines would show nothing.
SHOWN = (
    *("bilevel", "bilevel-cross-entropy", "reducible-loss", "glister", "icarl", "frcl"),
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


def text() -> str:
    embedding = read_record("comparison_embedding")
    command = {"command": COMMANDS["comparison_embedding"]}
    names = {"METHODS": METHODS, "QUADRATIC": QUADRATIC, "findings": Findings()}
    helpers = (whole_seeds, method_table, scored, fraction_table)
    names |= {one.__name__: one for one in helpers}
    images = partial(images_section, read_record("comparison_images"))
    return render("comparison.md", embedding=embedding | command, images_section=images, **names)


def images_section(record: dict[str, Any]) -> str:
    names = {"METHODS": METHODS, "CHANCE": CHANCE, "WHOLE": WHOLE, "whole_seeds": whole_seeds}
    own = record | {"command": COMMANDS["comparison_images"]}
    return render("comparison_images.md", r=own, method_table=method_table, **names)


def draw() -> None:
    findings = Findings()
    title = (
        f"MNIST, pools of 1000, the paper's CNN: mean over {findings.seeds} seeds ± one standard "
        "error"
    )
    draw_curves(findings.summary, SHOWN, title, "test accuracy", FIGURE)


class Findings:
    """The comparison on MNIST, by method and size."""

    def __init__(self) -> None:
        self.record = read_record("comparison")
        rows = [Row(**row) for row in self.record["rows"]]
        self.whole = float(np.mean([row.accuracy for row in rows if row.method == WHOLE]))
        self.rows = [row for row in rows if row.method != WHOLE]
        self.methods = list(dict.fromkeys(row.method for row in self.rows))
        self.sizes: list[int] = self.record["sizes"]
        self.summary: Summary = summarise(self.rows, self.methods, self.sizes)
        self.seeds = len({row.seed for row in rows})
        timed = where(read_record("rivals")["rows"], part="MNIST pool of 1000, 250 points")
        self.seconds = {row["method"]: row["seconds"] for row in timed}
        for name in self.record["peers"]:
            self.seconds[name] = self.entry(name, self.sizes[-1]).seconds

    def entry(self, method: str, size: int) -> Entry:
        found = self.summary.of(method, size)
        assert found is not None
        return found

    def gap(self, first: str, second: str, size: int) -> str:
        return f"{100 * (self.entry(first, size).mean - self.entry(second, size).mean):.1f}"

    def best_peer(self, size: int) -> str:
        return max(self.record["peers"], key=lambda name: self.entry(name, size).mean)

    def verdicts(self, size: int) -> dict[str, list[tuple[str, float]]]:
        """Methods that the default beats, ties and loses to, with the mean difference in points of
        accuracy."""
        found: dict[str, list[tuple[str, float]]] = {"wins": [], "ties": [], "loses": []}
        own = by_seed(self.rows, DEFAULT, size)
        for method in self.methods:
            if method != DEFAULT:
                mean, half, _ = paired_difference(own, by_seed(self.rows, method, size))
                verdict = "wins" if mean > half else "loses" if mean < -half else "ties"
                found[verdict].append((method, 100 * mean))
        return {name: sorted(pairs, key=lambda pair: pair[1]) for name, pairs in found.items()}

    def method_table(self) -> str:
        """The best at 100 points first."""
        body = []
        for name in sorted(self.methods, key=lambda name: -self.entry(name, 100).mean):
            mark = "**" if name == DEFAULT else "*" if name in self.record["peers"] else ""
            entries = [self.entry(name, size) for size in self.sizes]
            cells = [
                f"{100 * one.mean:.2f} ± {100 * one.error:.2f}"
                + (" ★" if one.best else " ≈" if one.tied else "")
                for one in entries
            ]
            body.append([f"{mark}{name}{mark}", *cells, f"{self.seconds[name]:.2g}"])
        sizes = (f"{size} points" for size in self.sizes)
        return table(["method (peers in italics)", *sizes, "seconds"], body)

    def peer_notes(self) -> dict[str, list[str]]:
        """Methods of other libraries, by their versions and how they were run."""
        notes: dict[str, list[str]] = {}
        for method, facts in self.record["peers"].items():
            versions = [
                f"{name} {facts[name]}" for name in facts if name not in ("notes", "python")
            ]
            notes.setdefault(f"{', '.join(versions)}. {facts['notes']}", []).append(method)
        return notes


def by_seed(rows: Sequence[Row], method: str, size: int) -> dict[int, Row]:
    return {row.seed: row for row in rows if (row.method, row.size) == (method, size)}


def complete_seeds(rows: Sequence[Row], size: int) -> list[int]:
    """Seeds that have every method that most seeds have at a size."""
    have: dict[int, set[str]] = {}
    for row in rows:
        if row.size == size:
            have.setdefault(row.seed, set()).add(row.method)
    methods = set().union(*have.values())
    usual = {name for name in methods if 2 * sum(name in own for own in have.values()) > len(have)}
    return sorted(seed for seed, own in have.items() if usual <= own)


def whole_seeds(record: pages.Row) -> dict[str, Any]:
    """Rows of seeds that every method has, the sizes that have some, and the heads of columns."""
    rows = [Row(**row) for row in record["rows"] if row["method"] != WHOLE]
    whole = {size: complete_seeds(rows, size) for size in record["sizes"]}
    sizes = [size for size in whole if whole[size]]
    heads = [f"{size} points, {len(whole[size])} seeds" for size in sizes]
    kept = [row for row in rows if row.seed in whole[row.size]]
    return {"rows": kept, "sizes": sizes, "heads": heads}


def fraction_table(part: pages.Row) -> str:
    heads = [f"{100 * size / part['pool']:g}% ({size})" for size in part["sizes"]]
    return method_table([Row(**row) for row in part["rows"]], part["sizes"], heads)


def method_table(
    rows: Sequence[Row], sizes: Sequence[int], heads: Sequence[str], chance: Sequence[str] = ()
) -> str:
    """A column for each size, the best at the smallest first; methods are compared with the
    default, or with ``chance``, of which a column tells how often they are above it."""
    summary = summarise(list(rows), list(METHODS), list(sizes))
    best = {entry.method: entry.mean for entry in summary.entries if entry.size == sizes[0]}
    present = {row.method for row in rows}
    known = [name for name in METHODS if name in present]
    body = [
        [
            f"**{name}**" if name == DEFAULT else name,
            *(
                _cell(summary.of(name, size), _marks(rows, name, size, chance or (DEFAULT,)))
                for size in sizes
            ),
            *(_count_above(rows, name, other, sizes) for other in chance),
        ]
        for name in sorted(known, key=lambda name: best.get(name, 0.0), reverse=True)
    ]
    return table(["method", *heads, *(f"above {other}" for other in chance)], body)


def _cell(entry: Entry | None, mark: str) -> str:
    if entry is None:
        return "–"
    error = f" ± {100 * entry.error:.2f}" if entry.seeds > 1 else ""
    fewer = "" if entry.complete else " †"
    return f"{100 * entry.mean:.2f}{error} {mark}".strip() + fewer


def _marks(rows: Sequence[Row], method: str, size: int, others: Sequence[str]) -> str:
    """A mark for each method it is compared with; a dot in the place of itself."""
    marks = [_mark(rows, method, size, other) or "·" for other in others]
    return "" if set(marks) == {"·"} else "".join(marks)


def _mark(rows: Sequence[Row], method: str, size: int, other: str) -> str:
    """Below, above or no difference; nothing with fewer than two seeds in common."""
    gap, half, deviation = paired_difference(
        by_seed(rows, method, size), by_seed(rows, other, size)
    )
    if method == other or math.isnan(deviation):
        return ""
    return "↑" if gap > half else "↓" if gap < -half else "≈"


def _count_above(rows: Sequence[Row], method: str, other: str, sizes: Sequence[int]) -> str:
    """In how many seeds and sizes of both a method is above another."""
    if method == other:
        return ""
    pairs = []
    for size in sizes:
        own, theirs = by_seed(rows, method, size), by_seed(rows, other, size)
        pairs += [(own[seed].accuracy, theirs[seed].accuracy) for seed in own if seed in theirs]
    return f"{sum(ours > chance for ours, chance in pairs)} of {len(pairs)}"

"""The answer of ``bicore compare`` as a table in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bicore.evaluate.comparison import BaseComparison
from bicore.evaluate.findings import Findings
from bicore.evaluate.statistics import Entry, Summary


@dataclass(frozen=True)
class Words:
    """What the sizes and the seconds of a table are."""

    sizes: str = "points"
    seconds: str = "one selection, largest size"


SELECTIONS = Words()
STREAMS = Words("rows", "all updates; a column is judged after so many rows of the stream")


def table(run: BaseComparison[Any], found: Findings, words: Words = SELECTIONS) -> list[str]:
    """The table in words, a line each: best first by the largest size, then what nobody chose."""
    summary = found.summary
    sizes = [size for size in run.grid.sizes if size in summary.detectable]
    if not sizes:
        return ["no rows yet"]
    names = _best_first(found, sizes[-1])
    references = _references(run, found)
    width = max(len(name) for name in [*names, *references]) + 2
    head = "".join(f"{f'{size} {words.sizes}':>20}" for size in sizes)
    lines = [
        f"{found.measure.title} of the {found.judge.title(run.pools.classification)} judge, mean ± "
        "standard error over seeds",
        f"{'':<{width}}{head}{'seconds':>12}{'  worth' if found.worth else ''}",
        *(f"{name:<{width}}{_cells(summary, name, sizes)}{_worth(found, name)}" for name in names),
        *(f"{name:<{width}}{_value(entry):>18}" for name, entry in references.items()),
    ]
    return [*lines, "", *_legend(summary, sizes, words), *_worth_legend(found)]


def tables(several: Iterable[list[str]]) -> list[str]:
    """The lines of several tables with an empty one between two."""
    lines: list[str] = []
    for one in several:
        lines += ["", *one] if lines else one
    return lines


def _references(run: BaseComparison[Any], found: Findings) -> dict[str, Entry]:
    """Beside which the methods are read: all of the pool, and nothing of it but one number."""
    plain = "majority class" if run.pools.classification else "mean of the targets"
    entries = {f"all data ({run.pools.size})": found.whole, plain: found.majority}
    key = found.measure.key
    return {name: own[key] for name, own in entries.items() if key in own}


def _best_first(found: Findings, size: int) -> list[str]:
    """The methods by their mean at one size, those without one last."""

    def rank(name: str) -> float:
        entry = found.summary.of(name, size)
        if entry is None:
            return math.inf
        return -entry.mean if found.measure.larger else entry.mean

    return sorted(dict.fromkeys(entry.method for entry in found.summary.entries), key=rank)


def _cells(summary: Summary, name: str, sizes: list[int]) -> str:
    """The line of a method after its name; the seconds are those of its largest size."""
    entries = [summary.of(name, size) for size in sizes]
    last = next(entry for entry in reversed(entries) if entry is not None)
    model = f" + {last.model_seconds:.1f}" if last.model_seconds else ""
    return "".join(f"{_cell(entry):>20}" for entry in entries) + f"{last.seconds:>12.3g}{model}"


def _worth(found: Findings, name: str) -> str:
    """Uniform rows of the same mean score, size by size."""
    parts = [
        equivalent.short() for (method, _), equivalent in found.worth.items() if method == name
    ]
    return f"  {' / '.join(parts)}" if parts else ""


def _worth_legend(found: Findings) -> list[str]:
    if not found.worth:
        return []
    return [
        "worth: uniform rows of the same mean score, a number a size, as far as the sizes compared "
        "tell (bicore worth judges more of them, and gives an interval)"
    ]


def _cell(entry: Entry | None) -> str:
    return "—" if entry is None else f"{_value(entry)} {_mark(entry)}"


def _value(entry: Entry) -> str:
    error = f" ± {entry.error:.4f}" if math.isfinite(entry.error) else ""
    return f"{entry.mean:.4f}{error}"


def _mark(entry: Entry) -> str:
    """What the legend explains."""
    if entry.best:
        return "★"
    if entry.tied:
        return "≈"
    return " " if entry.complete else f"({entry.seeds})"


def _legend(summary: Summary, sizes: list[int], words: Words) -> list[str]:
    lines = [
        "★ best mean; ≈ the paired 95% interval of its distance to the best includes zero; "
        f"seconds: {words.seconds}"
    ]
    if any(entry.model_seconds for entry in summary.entries):
        lines.append("+ seconds: training the model that the method looks at, once a pool")
    if any(not entry.complete for entry in summary.entries):
        lines.append("(n) only n seeds are there: not compared with the others")
    found = {
        size: summary.detectable[size] for size in sizes if math.isfinite(summary.detectable[size])
    }
    if found:
        differences = ", ".join(f"{value:.4f} at {size}" for size, value in found.items())
        lines.append(
            "smallest difference these seeds would find (95% confidence, chance about 80%): "
            f"{differences} {words.sizes}"
        )
    elif all(entry.seeds < 2 for entry in summary.entries):
        lines.append("one seed tells nothing about differences; give --seeds 5 or more")
    return lines

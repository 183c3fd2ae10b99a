"""Rules that give claims their verdicts, and marks of differences in tables, by intervals alone."""

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

from experiments.statistics import Gap
from experiments.tables import Cell, welch


class Verdict(StrEnum):
    """Of a claim."""

    HOLDS = "holds"
    EQUAL = "no difference larger than δ"
    OPEN = "not resolved"
    FAILS = "fails"


#: A difference, and δ: the smallest difference that is worth knowing.
Part = tuple[Gap, float]


def better(parts: Sequence[Part]) -> Verdict:
    """*Above*: holds if every interval lies above zero and fails if one lies below. If none does,
    a single part that is shown to be smaller than δ refutes a claim about all of them."""
    if any(gap.below for gap, _ in parts):
        return Verdict.FAILS
    if all(gap.above for gap, _ in parts):
        return Verdict.HOLDS
    return Verdict.EQUAL if equal_parts(parts) else Verdict.OPEN


def no_worse(parts: Sequence[Part]) -> Verdict:
    """*Not below*: holds if every difference is shown to lie above −δ."""
    short = [gap for gap, margin in parts if not gap.not_below(margin)]
    if not short:
        return Verdict.HOLDS
    return Verdict.FAILS if any(gap.below for gap in short) else Verdict.OPEN


def equal_parts(parts: Sequence[Part]) -> list[Part]:
    """Those within ±δ whose interval does not lie above zero."""
    return [(gap, margin) for gap, margin in parts if gap.within(margin) and not gap.above]


#: Up to so many gaps are shown one by one.
FEW = 3


def describe_parts(parts: Sequence[Part]) -> str:
    """Each difference if there are few, else how many are above, below and within δ."""
    gaps = [gap for gap, _ in parts]
    if len(gaps) <= FEW:
        return ", ".join(map(str, gaps))
    counts = {
        "below": sum(gap.below for gap in gaps),
        "within δ": len(equal_parts(parts)),
    }
    others = "".join(f", {count} {word}" for word, count in counts.items() if count)
    lowest = min(gaps, key=lambda gap: gap.value - gap.half())
    return f"{sum(gap.above for gap in gaps)} of {len(gaps)} above{others}; lowest {lowest}"


#: How a row compares with another: its interval lies below, above, or includes zero.
BELOW, ABOVE, LEVEL = "↓", "↑", "≈"
#: Known causes of differences from the paper, by experiment, then "data: key of the row".
CAUSES: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("causes.json").read_text())
UNKNOWN = "no cause has been found"


def mark(cell: Cell, reference: Cell) -> str:
    """How a row compares with another; empty if one has a single seed, is the same, or has
    another network."""
    same = cell is reference or cell.row.normalised != reference.row.normalised
    if same or min(cell.seeds, reference.seeds) < 2:
        return ""
    gap = welch(cell.measured, reference.measured)
    return ABOVE if gap.above else BELOW if gap.below else LEVEL


def by_cause(cells: Iterable[tuple[str, str, Cell]]) -> dict[str, str]:
    """Rows that differ significantly from the paper, by the cause that is known; each comes with
    its experiment and its label."""
    found: dict[str, dict[str, list[str]]] = {}
    for experiment, label, cell in cells:
        gap = cell.difference
        if gap is not None and (gap.above or gap.below):
            cause = CAUSES.get(experiment, {}).get(f"{cell.problem}: {cell.row.key}", UNKNOWN)
            words = f"{cell.problem} {gap.value:+.2f}"
            found.setdefault(cause, {}).setdefault(label, []).append(words)
    return {
        cause: "; ".join(f"{label} ({', '.join(gaps)})" for label, gaps in rows.items())
        for cause, rows in found.items()
    }

"""Rules that decide claims, and marks of differences in tables, by intervals alone."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from experiments.paper import PAPER_SEEDS
from experiments.tables import Cell, welch


class Verdict(StrEnum):
    """Of a claim."""

    HOLDS = "holds"
    OPEN = "not resolved"
    FAILS = "fails"


@dataclass(frozen=True)
class Gap:
    """A difference, positive where the claim has it so, and the half-width of its 95% interval."""

    value: float
    half: float

    @property
    def above(self) -> bool:
        """Told apart, as claimed."""
        return self.value > self.half

    @property
    def below(self) -> bool:
        """Told apart, the other way."""
        return self.value < -self.half

    def __str__(self) -> str:
        return f"{self.value:+.2f} ± {self.half:.2f}"


def better(gaps: Sequence[Gap]) -> Verdict:
    """*Above*: holds where every interval lies above zero, fails where one lies below."""
    if any(gap.below for gap in gaps):
        return Verdict.FAILS
    return Verdict.HOLDS if all(gap.above for gap in gaps) else Verdict.OPEN


def no_worse(gaps: Sequence[Gap]) -> Verdict:
    """*Not below*: holds unless an interval lies below zero."""
    return Verdict.FAILS if any(gap.below for gap in gaps) else Verdict.HOLDS


#: Up to so many gaps are shown one by one.
FEW = 3


def shown(gaps: Sequence[Gap]) -> str:
    """The gaps in words: each where they are few, else how many are told apart, and the least."""
    if len(gaps) <= FEW:
        return ", ".join(map(str, gaps))
    above, below = sum(gap.above for gap in gaps), sum(gap.below for gap in gaps)
    least = min(gaps, key=lambda gap: gap.value)
    other = f", {below} below" if below else ""
    return f"{above} of {len(gaps)} above{other}; least {least}"


#: A row beside the one it is compared with: its interval lies below, above, or holds zero.
BELOW, ABOVE, LEVEL = "↓", "↑", "≈"
#: Why a row differs from the paper, above or below, as far as it has been found out; by experiment,
#: then "data: key of the row".
CAUSES: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("causes.json").read_text())
UNKNOWN = "no cause has been found"


def mark(cell: Cell, reference: Cell) -> str:
    """Where a row stands beside another; nothing where one has a single seed, is the same, or has
    another network."""
    same = cell is reference or cell.row.normalised != reference.row.normalised
    if same or min(cell.seeds, reference.seeds) < 2:
        return ""
    gap, half = welch(cell.measured, reference.measured)
    return ABOVE if gap > half else BELOW if gap < -half else LEVEL


def told_apart(cell: Cell) -> bool:
    """From the paper, whichever way."""
    gap = cell.difference
    return gap is not None and abs(gap[0]) > gap[1]


def by_cause(cells: Iterable[tuple[str, str, Cell]]) -> dict[str, str]:
    """Rows that are told apart from the paper, under what is known to be the cause; each comes with
    its experiment and what people call it."""
    found: dict[str, dict[str, list[str]]] = {}
    for experiment, label, cell in cells:
        if told_apart(cell):
            assert cell.difference is not None
            cause = CAUSES.get(experiment, {}).get(f"{cell.problem}: {cell.row.key}", UNKNOWN)
            gap = f"{cell.problem} {cell.difference[0]:+.2f}"
            found.setdefault(cause, {}).setdefault(label, []).append(gap)
    return {
        cause: "; ".join(f"{label} ({', '.join(gaps)})" for label, gaps in rows.items())
        for cause, rows in found.items()
    }


def agreement(reference: Cell, cells: Sequence[Cell]) -> tuple[int, list[Cell]]:
    """How many rows the paper tells apart from one of its own by twice the standard error of their
    gap, and those of them whose means are in the other order here."""
    told, turned = 0, []
    for cell in cells:
        if reference.paper is None or cell.paper is None:
            continue
        gap = reference.paper["mean"] - cell.paper["mean"]
        # deviations are over n
        error = math.hypot(reference.paper["std"], cell.paper["std"]) / math.sqrt(PAPER_SEEDS - 1)
        if abs(gap) > 2 * error:
            told += 1
            turned += [cell] if gap * (reference.mean - cell.mean) <= 0 else []
    return told, turned

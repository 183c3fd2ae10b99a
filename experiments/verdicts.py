"""What becomes of a claim, by rules that look at differences and their intervals alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


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

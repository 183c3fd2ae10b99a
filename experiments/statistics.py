"""Differences of means over seeds: intervals, verdicts of claims, and required seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

#: A mean, its standard deviation over n as the paper has it, and n.
Measured = tuple[float, float, int]
#: Probability of detecting a difference, for which seeds are planned.
POWER = 0.8


@dataclass(frozen=True)
class Gap:
    """A difference of means in percentage points, positive if it is as claimed."""

    value: float
    error: float = 0.0
    freedom: float = math.inf

    def half(self, level: float = 0.95) -> float:
        """Half of the width of the confidence interval."""
        return _quantile((1 + level) / 2, self.freedom) * self.error

    @property
    def above(self) -> bool:
        """Whether the 95% interval lies above zero."""
        return self.value > self.half()

    @property
    def below(self) -> bool:
        """Whether the 95% interval lies below zero."""
        return self.value < -self.half()

    def within(self, margin: float) -> bool:
        """Whether two one-sided tests at 5% place the difference inside ±margin."""
        return abs(self.value) + self.half(0.9) < margin

    def not_below(self, margin: float) -> bool:
        """Whether a one-sided test at 5% places the difference above −margin."""
        return self.value - self.half(0.9) > -margin

    def __format__(self, spec: str) -> str:
        spec = spec or ".2f"
        return f"{self.value:+{spec}} ± {self.half():{spec}}"

    def __str__(self) -> str:
        return format(self)


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


#: The most gaps that are shown one by one.
FEW = 3


def describe_parts(parts: Sequence[Part]) -> str:
    """Each difference if there are few, else how many are above, below and within δ."""
    gaps = [gap for gap, _ in parts]
    if len(gaps) <= FEW:
        return ", ".join(map(str, gaps))
    counts = {"below": sum(gap.below for gap in gaps), "within δ": len(equal_parts(parts))}
    others = "".join(f", {count} {word}" for word, count in counts.items() if count)
    lowest = min(gaps, key=lambda gap: gap.value - gap.half())
    return f"{sum(gap.above for gap in gaps)} of {len(gaps)} above{others}; lowest {lowest}"


def contrast(terms: Sequence[tuple[int, Measured]]) -> Gap:
    """A sum of means with signs; errors after Welch and Satterthwaite."""
    value = sum(sign * mean for sign, (mean, _, _) in terms)
    # variances of the means, from deviations over n
    variances = [(std**2 / (seeds - 1), seeds) for _, (_, std, seeds) in terms]
    total = sum(variance for variance, _ in variances)
    if total == 0:
        return Gap(value)
    freedom = total**2 / sum(variance**2 / (seeds - 1) for variance, seeds in variances)
    return Gap(value, math.sqrt(total), freedom)


def paired_gap(differences: Sequence[float] | np.ndarray) -> Gap:
    """The mean of differences, one for each seed."""
    count = len(differences)
    error = float(np.std(differences, ddof=1)) / count**0.5
    return Gap(float(np.mean(differences)), error, count - 1)


def measure(values: Sequence[float] | np.ndarray) -> Measured:
    return float(np.mean(values)), float(np.std(values)), len(values)


def seeds_needed(effect: float, spread: float, rows: int) -> int:
    """Seeds of each row so that a two-sided test at 5% detects ``effect`` with 80% power, if a
    contrast of ``rows`` rows has the deviation ``spread`` for one seed of each."""
    normal = special.ndtri(0.975) + special.ndtri(POWER)  # t tests need a few seeds more
    seeds = max(2, math.floor((normal * spread / effect) ** 2))
    while _power(abs(effect), spread, rows, seeds) < POWER:
        seeds += 1
    return seeds


def _power(effect: float, spread: float, rows: int, seeds: int) -> float:
    freedom = rows * (seeds - 1)
    shift = effect * math.sqrt(seeds) / spread
    return 1 - float(special.nctdtr(freedom, shift, _quantile(0.975, freedom)))


def _quantile(probability: float, freedom: float) -> float:
    """Of Student's t distribution."""
    if math.isinf(freedom):
        return float(special.ndtri(probability))
    return float(special.stdtrit(freedom, probability))

"""What the rows say: means with standard errors, who is best, and who cannot be told from the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bicore.comparison.records import Row

#: Two-sided confidence of the paired interval, and the power at which a difference counts as
#: detectable.
CONFIDENCE = 0.95
POWER = 0.8


@dataclass(frozen=True)
class Entry:
    """One method at one size. ``gap`` is how far its mean lies below the best one's, over the seeds
    both have; one that is not ``complete`` lacks seeds that others have, and is neither best nor
    tied.
    """

    method: str
    size: int
    seeds: int
    mean: float
    error: float
    seconds: float
    model_seconds: float
    gap: float
    interval: float
    best: bool
    tied: bool
    complete: bool = True


@dataclass(frozen=True)
class Summary:
    """Entries of all sizes, and for each size the smallest difference the seeds could detect (nan
    with fewer than two)."""

    entries: tuple[Entry, ...]
    detectable: dict[int, float]

    def of(self, method: str, size: int) -> Entry | None:
        return next(
            (entry for entry in self.entries if (entry.method, entry.size) == (method, size)), None
        )


def summarise(rows: Iterable[Row], methods: Sequence[str], sizes: Sequence[int]) -> Summary:
    """Paired by seed: a difference of two methods is looked at within seeds, where pools and judges
    are the same."""
    table: dict[tuple[str, int], dict[int, Row]] = {}
    for row in rows:
        table.setdefault((row.method, row.size), {})[row.seed] = row
    entries: list[Entry] = []
    detectable: dict[int, float] = {}
    for size in sizes:
        present = {method: table[method, size] for method in methods if (method, size) in table}
        if present:
            found, detectable[size] = _of_size(present, size)
            entries += found
    return Summary(tuple(entries), detectable)


def _of_size(present: dict[str, dict[int, Row]], size: int) -> tuple[list[Entry], float]:
    """Only methods that have all the seeds any of them has can be best or tied: means over
    different seeds do not compare."""
    most = max(len(own) for own in present.values())
    whole = {
        method: own
        for method, own in present.items()
        if len(own) == most and set(own) == set(_largest(present))
    }
    means = {
        method: float(np.mean([row.accuracy for row in own.values()]))
        for method, own in present.items()
    }
    best = max(whole, key=lambda method: means[method])
    entries = []
    spreads = []
    for method, own in present.items():
        values = np.array([row.accuracy for row in own.values()])
        gap, interval, spread = paired_difference(present[best], own)
        if method in whole and method != best:
            spreads.append(spread)
        entries.append(
            Entry(
                method,
                size,
                len(values),
                means[method],
                _standard_error(values),
                float(np.mean([row.selection_seconds for row in own.values()])),
                float(np.mean([row.model_seconds for row in own.values()])),
                gap,
                interval,
                method == best,
                method in whole and method != best and bool(gap - interval <= 0),
                method in whole,
            )
        )
    finite = [spread for spread in spreads if np.isfinite(spread)]
    return entries, smallest_detectable(float(np.median(finite)), most) if finite else float("nan")


def _largest(present: dict[str, dict[int, Row]]) -> dict[int, Row]:
    return max(present.values(), key=len)


def _standard_error(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def paired_difference(first: dict[int, Row], second: dict[int, Row]) -> tuple[float, float, float]:
    """First less second: mean over common seeds, half width of its interval, and the standard
    deviation of the differences."""
    common = sorted(set(first) & set(second))
    differences = np.array([first[seed].accuracy - second[seed].accuracy for seed in common])
    if len(common) < 2:
        return (
            float(differences.mean()) if len(common) else float("nan"),
            float("inf"),
            float("nan"),
        )
    spread = float(differences.std(ddof=1))
    return (
        float(differences.mean()),
        _quantile(0.5 + CONFIDENCE / 2, len(common)) * spread / np.sqrt(len(common)),
        spread,
    )


def smallest_detectable(spread: float, seeds: int) -> float:
    """The paired difference that the seeds would find at 95% confidence with a chance of about 80%,
    given its deviation."""
    if seeds < 2:
        return float("nan")
    return (
        (_quantile(0.5 + CONFIDENCE / 2, seeds) + _quantile(POWER, seeds))
        * spread
        / float(np.sqrt(seeds))
    )


def _quantile(level: float, seeds: int) -> float:
    from scipy.stats import t  # here: importing bicore stays light

    return float(t.ppf(level, seeds - 1))

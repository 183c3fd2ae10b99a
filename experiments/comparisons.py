"""Comparisons of rows: their difference, the margin δ, and the seeds that would resolve them."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.statistics import Gap, Measured, Part, contrast, measure, seeds_needed
from experiments.tables import Absent, Book, Place

#: δ in percentage points: the smallest difference worth knowing. It was fixed after the first five
#: seeds, for all claims alike, and before any seed that was added since.
MARGIN, CIFAR_MARGIN = 1.0, 2.0
#: Signs of the places of a difference.
SIGNS = (1, -1, -1, 1)


@dataclass(frozen=True)
class Comparison:
    """Rows with signs, their sum positive if it is as claimed: two, or four for a difference of
    differences; of all tasks or of one."""

    places: tuple[Place, ...]
    task: int | None = None

    @classmethod
    def parse(cls, words: Sequence[str]) -> "Comparison":
        return cls(tuple(map(Place.parse, words)))

    @property
    def key(self) -> tuple[frozenset[Place], int | None]:
        """The same for either direction: tables and claims share comparisons."""
        return frozenset(self.places), self.task

    @property
    def margin(self) -> float:
        """δ, twice as large for a difference of differences."""
        on_cifar = any("CIFAR" in place.problem for place in self.places)
        return (CIFAR_MARGIN if on_cifar else MARGIN) * len(self.places) / 2

    @property
    def label(self) -> str:
        first, second = self.places[:2]
        task = "" if self.task is None else f", task {self.task + 1}"
        size = "" if len(self.places) == 2 else ", gain by size"
        return f"{first.problem}{task}: {first.key} − {second.key}{size}"

    def gap(self, look: Callable[[Place], Measured]) -> Gap:
        return contrast(list(zip(SIGNS, map(look, self.places), strict=False)))

    def part(self, book: Book) -> Part:
        if self.task is None:
            return self.gap(book.ours), self.margin
        return self.gap(
            lambda place: measure(list(self._scores(book, place).values()))
        ), self.margin

    def paper_part(self, book: Book) -> Part:
        if self.task is not None:
            raise Absent(self.places[0])
        return self.gap(book.find_published), self.margin

    def _scores(self, book: Book, place: Place) -> dict[int, float]:
        """Percent of test points by seed."""
        tests = {run["seed"]: run["test"] for run in book.runs(place)}
        task = slice(None) if self.task is None else self.task
        return {seed: 100 * float(np.mean(np.array(test)[task])) for seed, test in tests.items()}

    def plan(self, book: Book) -> "Plan":
        rows = [self._scores(book, place) for place in self.places]
        common = set.intersection(*map(set, rows))
        signed = list(zip(SIGNS, rows, strict=False))
        differences = [sum(sign * row[seed] for sign, row in signed) for seed in sorted(common)]
        spread = math.sqrt(sum(float(np.var(list(row.values()), ddof=1)) for row in rows))
        gap, margin = self.part(book)
        needed = seeds_needed(margin, spread, len(rows))
        minutes: dict[Hashable, float] = {
            place: max(0, needed - len(row)) * _mean_seconds(book, place) / 60
            for place, row in zip(self.places, rows, strict=True)
        }
        return Plan(
            label=self.label,
            seeds="/".join(str(len(row)) for row in rows[:2]),
            gap=str(gap),
            paired_spread=float(np.std(differences, ddof=1)) if len(common) > 1 else math.nan,
            margin=f"{margin:g}",
            needed=needed,
            at_effect=seeds_needed(gap.value, spread, len(rows)),
            minutes=minutes,
        )


@dataclass(frozen=True)
class Plan:
    """What would resolve a comparison: seeds of each row for 80% power at δ and at the difference
    that was observed, and by row the minutes of the seeds that are missing at δ."""

    label: str
    seeds: str
    gap: str
    paired_spread: float
    margin: str
    needed: int
    at_effect: int
    minutes: Mapping[Hashable, float]


def compare(first: Place, second: Place, task: int | None = None) -> Comparison:
    return Comparison((first, second), task)


def _mean_seconds(book: Book, place: Place) -> float:
    return float(np.mean([run["seconds"] for run in book.runs(place)]))


def total_minutes(plans: Sequence[Plan]) -> float:
    """Of all comparisons of a claim; rows that several of them need are run once."""
    longest: dict[Hashable, float] = {}
    for plan in plans:
        for row, minutes in plan.minutes.items():
            longest[row] = max(longest.get(row, 0.0), minutes)
    return sum(longest.values())

"""Rows of a comparison: stored one per line, and summarised with paired differences."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError, check_integer
from bicore.files import replacing

#: The first bytes of every file.
HEAD = b'{"settings": {'


@dataclass(frozen=True)
class Row:
    """One selection with its scores."""

    method: str
    size: int
    seed: int
    accuracy: float
    selection_seconds: float
    model_seconds: float = 0.0
    measures: dict[str, dict[str, float]] = field(default_factory=dict)
    classes: dict[str, list[float | None]] = field(default_factory=dict)
    picks: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    @property
    def cell(self) -> tuple[str, int, int]:
        """The method, size and seed."""
        return self.method, self.size, self.seed


def digest(settings: Mapping[str, Any]) -> str:
    """Return eight characters that identify settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


class Records:
    """Rows of a comparison, in memory or in a file of JSON lines that starts with the settings."""

    def __init__(self, path: Path | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.path, self.settings = path, dict(settings or {})
        self.rows: dict[tuple[str, int, int], Row] = {}
        if path is None:
            return
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"records={str(path)!r} must be a file name in a folder that exists.")
        *lines, rest = path.read_bytes().split(b"\n") if path.exists() else [HEAD]
        if lines or not (HEAD.startswith(rest) or rest.startswith(HEAD)):
            self._read(lines, path)
        if rest or not lines:  # a new file, or a crash truncated the last line
            self._rewrite(path)

    def add(self, row: Row) -> None:
        """Add a row, and write it to the file."""
        self.rows[row.cell] = row
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def _read(self, lines: list[bytes], path: Path) -> None:
        """Read the settings, which must be equal, and the rows."""
        fix, own = "give another file as records, or remove it.", self.settings
        try:
            found = json.loads(lines[0])["settings"]
            changed = sorted(key for key in {*found, *own} if found.get(key) != own.get(key))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise InputError(f"{path} is not a file of comparison records; {fix}") from None
        if changed:
            names = ", ".join(changed)
            raise InputError(f"{path} holds records made with other settings ({names}); {fix}")
        for number, line in enumerate(lines[1:], 2):
            try:
                row = _row(json.loads(line))
            except (ValueError, TypeError, AttributeError) as error:
                wrong = f"{path}, line {number} is not a row ({error})"
                raise InputError(f"{wrong}; remove that line.") from error
            self.rows[row.cell] = row

    def _rewrite(self, path: Path) -> None:
        """Write the settings and all rows."""
        rows = ({"settings": self.settings}, *map(asdict, self.rows.values()))
        with replacing(path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _row(values: dict[str, Any]) -> Row:
    """Return a row if its values have the right types."""
    row = Row(**values)
    for value, least in ((row.size, 1), (row.seed, 0), *((pick, 0) for pick in row.picks)):
        check_integer("a value", value, least)
    if len(row.weights) not in (0, len(row.picks)):
        raise ValueError("the numbers of weights and picks differ")
    numbers = [row.accuracy, row.selection_seconds, row.model_seconds, *row.weights]
    numbers += [value for own in row.measures.values() for value in own.values()]
    numbers += [value for own in row.classes.values() for value in own if value is not None]
    if not isinstance(row.method, str) or not all(isinstance(one, Real) for one in numbers):
        raise ValueError("a value has the wrong type")
    return row


#: Two-sided confidence of the paired interval, and the power at which a difference counts as
#: detectable.
CONFIDENCE = 0.95
POWER = 0.8


@dataclass(frozen=True)
class Entry:
    """One method at one size."""

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

    def as_json(self) -> dict[str, Any]:
        """Return the fields for JSON, which has neither nan nor infinity."""
        numbers = ("mean", "error", "seconds", "model_seconds", "gap", "interval")
        values = vars(self)
        return {**values, **{name: finite(values[name]) for name in numbers}}


@dataclass(frozen=True)
class Summary:
    """Entries of all sizes, and the smallest detectable differences."""

    entries: tuple[Entry, ...]
    detectable: dict[int, float]

    def of(self, method: str, size: int) -> Entry | None:
        """Return the entry of a method at a size."""
        found = {(entry.method, entry.size): entry for entry in self.entries}
        return found.get((method, size))


def summarise(
    rows: Iterable[Row], methods: Sequence[str], sizes: Sequence[int], larger: bool = True
) -> Summary:
    """Compute means, errors and differences, paired by seed.

    Methods are compared within seeds, for which pools and trainings are the same.
    """
    table: dict[tuple[str, int], dict[int, Row]] = {}
    for row in rows:
        table.setdefault((row.method, row.size), {})[row.seed] = row
    entries: list[Entry] = []
    detectable: dict[int, float] = {}
    for size in sizes:
        present = {method: table[method, size] for method in methods if (method, size) in table}
        if present:
            found, detectable[size] = _of_size(present, size, 1 if larger else -1)
            entries += found
    return Summary(tuple(entries), detectable)


def _of_size(present: dict[str, dict[int, Row]], size: int, sign: int) -> tuple[list[Entry], float]:
    """Return the entries of one size, and the smallest detectable difference.

    Only methods with all seeds can be best or tied, because means over different seeds are not
    comparable.
    """
    most = max(present.values(), key=len)
    complete = [method for method, own in present.items() if set(own) == set(most)]
    scores = {name: [row.accuracy for row in own.values()] for name, own in present.items()}
    best = max(complete, key=lambda method: sign * np.mean(scores[method]))
    entries, spreads = [], []
    for method, own in present.items():
        gap, interval, spread = paired_difference(present[best], own)
        baseline = method in complete and method != best
        if baseline and np.isfinite(spread):
            spreads.append(spread)
        entry = Entry(
            method,
            size,
            len(own),
            float(np.mean(scores[method])),
            standard_error(scores[method]),
            float(np.mean([row.selection_seconds for row in own.values()])),
            float(np.mean([row.model_seconds for row in own.values()])),
            sign * gap,
            interval,
            best=method == best,
            tied=baseline and bool(sign * gap - interval <= 0),
            complete=method in complete,
        )
        entries.append(entry)
    found = smallest_detectable(float(np.median(spreads)), len(most)) if spreads else float("nan")
    return entries, found


def standard_error(values: Sequence[float] | Array) -> float:
    """Return the standard error of a mean; nan for one value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def half_width(differences: Sequence[float] | Array) -> float:
    """Return half the width of the 95% interval of a mean; infinity for fewer than two values."""
    if len(differences) < 2:
        return float("inf")
    return t_quantile(0.5 + CONFIDENCE / 2, len(differences)) * standard_error(differences)


def paired_difference(first: dict[int, Row], second: dict[int, Row]) -> tuple[float, float, float]:
    """Return mean, half-width and standard deviation of first minus second, by common seeds."""
    common = sorted(set(first) & set(second))
    differences = np.array([first[seed].accuracy - second[seed].accuracy for seed in common])
    mean = float(differences.mean()) if common else float("nan")
    spread = float(differences.std(ddof=1)) if len(common) > 1 else float("nan")
    return mean, half_width(differences), spread


def smallest_detectable(spread: float, seeds: int) -> float:
    """Return the paired difference that this number of seeds detects with about 80% power."""
    if seeds < 2:
        return float("nan")
    # so that the mean exceeds the half-width of the interval in 80% of experiments
    bound = t_quantile(0.5 + CONFIDENCE / 2, seeds) + t_quantile(POWER, seeds)
    return bound * spread / float(np.sqrt(seeds))


def rows_with_score(rows: Iterable[Row], judge: str, measure: str) -> list[Row]:
    """Return the rows with the score of another model or metric."""
    known = (row for row in rows if measure in row.measures.get(judge, {}))
    return [replace(row, accuracy=row.measures[judge][measure]) for row in known]


def finite(value: float) -> float | None:
    """Return the number, or None if JSON cannot hold it."""
    return value if math.isfinite(value) else None


@cache
def t_quantile(level: float, seeds: int) -> float:
    """Return the quantile of Student's distribution for the mean over some seeds."""
    from scipy.stats import t  # imported late: it takes time

    return float(t.ppf(level, seeds - 1))

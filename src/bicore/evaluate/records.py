"""Results of a comparison: stored one per line, and summarised with paired differences."""

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

from bicore._deprecated import renamed_fields, renamed_keywords, renamed_methods
from bicore.data import Array
from bicore.errors import InputError, check_integer
from bicore.files import replacing

#: The first bytes of every file.
HEAD = b'{"settings": {'


@renamed_fields(accuracy="score")
@dataclass(frozen=True)
class Result:
    """One selection with its scores; ``score`` is that of the first evaluation model."""

    method: str
    size: int
    seed: int
    score: float
    selection_seconds: float
    model_seconds: float = 0.0
    #: The metrics of each evaluation model, and its recall of each class (None if unknown).
    measures: dict[str, dict[str, float]] = field(default_factory=dict)
    classes: dict[str, list[float | None]] = field(default_factory=dict)
    picks: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    @property
    def cell(self) -> tuple[str, int, int]:
        """The method, size and seed."""
        return self.method, self.size, self.seed

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Result:
        """Return a result from the fields of a file, where the score is called accuracy."""
        return cls(**{"score" if name == "accuracy" else name: one for name, one in fields.items()})

    def as_record(self) -> dict[str, Any]:
        """Return the fields for a file."""
        return {"accuracy" if name == "score" else name: one for name, one in asdict(self).items()}


def digest(settings: Mapping[str, Any]) -> str:
    """Return eight characters that identify settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


@renamed_methods(rows="results")
class Records:
    """Results, in memory or in a file of JSON lines that starts with the settings."""

    def __init__(self, path: Path | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.path, self.settings = path, dict(settings or {})
        self.results: dict[tuple[str, int, int], Result] = {}
        if path is None:
            return
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"records={str(path)!r} must be a file name in a folder that exists.")
        *lines, rest = path.read_bytes().split(b"\n") if path.exists() else [HEAD]
        if lines or not (HEAD.startswith(rest) or rest.startswith(HEAD)):
            self._read(lines, path)
        if rest or not lines:  # a new file, or a crash truncated the last line
            self._rewrite(path)

    def add(self, result: Result) -> None:
        """Add a result, and write it to the file."""
        self.results[result.cell] = result
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(result.as_record()) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def _read(self, lines: list[bytes], path: Path) -> None:
        """Read the settings, which must be equal, and the results."""
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
                result = _read_checked(json.loads(line))
            except (ValueError, TypeError, AttributeError) as error:
                wrong = f"{path}, line {number} is not a result ({error})"
                raise InputError(f"{wrong}; remove that line.") from error
            self.results[result.cell] = result

    def _rewrite(self, path: Path) -> None:
        """Write the settings and all results."""
        lines = ({"settings": self.settings}, *map(Result.as_record, self.results.values()))
        with replacing(path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _read_checked(fields: dict[str, Any]) -> Result:
    """Return a result if its values have the right types."""
    result = Result.read(fields)
    for value, least in ((result.size, 1), (result.seed, 0), *((pick, 0) for pick in result.picks)):
        check_integer("a value", value, least)
    if len(result.weights) not in (0, len(result.picks)):
        raise ValueError("the numbers of weights and picks differ")
    numbers = [result.score, result.selection_seconds, result.model_seconds, *result.weights]
    numbers += [value for own in result.measures.values() for value in own.values()]
    numbers += [value for own in result.classes.values() for value in own if value is not None]
    if not isinstance(result.method, str) or not all(isinstance(one, Real) for one in numbers):
        raise ValueError("a value has the wrong type")
    return result


#: Two-sided confidence of the paired interval, and the power at which a difference counts as
#: detectable.
CONFIDENCE = 0.95
POWER = 0.8


@dataclass(frozen=True)
class Entry:
    """The results of one method at one size, compared with the best method."""

    method: str
    size: int
    #: Number of seeds, and the mean score over them with its standard error.
    seeds: int
    mean: float
    error: float
    #: Mean seconds of a selection, and of fitting the network that it needs.
    seconds: float
    model_seconds: float
    #: How much worse the mean is than that of the best method on the same seeds, and half the width
    #: of the paired 95% interval.
    gap: float
    interval: float
    #: Whether it is the best method, or not significantly worse.
    best: bool
    tied: bool
    #: Whether it has the seeds of the method with the most; only then can it be best or tied.
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


@renamed_keywords(larger="higher_is_better")
def summarise(
    results: Iterable[Result],
    methods: Sequence[str],
    sizes: Sequence[int],
    higher_is_better: bool = True,
) -> Summary:
    """Compute means, errors and differences, paired by seed.

    Methods are compared within seeds, for which pools and trainings are the same.
    """
    table: dict[tuple[str, int], dict[int, Result]] = {}
    for result in results:
        table.setdefault((result.method, result.size), {})[result.seed] = result
    entries: list[Entry] = []
    detectable: dict[int, float] = {}
    for size in sizes:
        present = {method: table[method, size] for method in methods if (method, size) in table}
        if present:
            found, detectable[size] = _of_size(present, size, 1 if higher_is_better else -1)
            entries += found
    return Summary(tuple(entries), detectable)


def _of_size(
    present: dict[str, dict[int, Result]], size: int, sign: int
) -> tuple[list[Entry], float]:
    """Return the entries of one size, and the smallest detectable difference.

    Only methods with the seeds of the method that has the most can be best or tied, because means
    over different seeds are not comparable.
    """
    most = max(present.values(), key=len)
    complete = [method for method, own in present.items() if set(own) == set(most)]
    scores = {name: [one.score for one in own.values()] for name, own in present.items()}
    best = max(complete, key=lambda method: sign * np.mean(scores[method]))
    entries, spreads = [], []
    for method, own in present.items():
        gap, interval, spread = paired_difference(present[best], own)
        comparable = method in complete and method != best
        if comparable and np.isfinite(spread):
            spreads.append(spread)
        entry = Entry(
            method,
            size,
            len(own),
            float(np.mean(scores[method])),
            standard_error(scores[method]),
            float(np.mean([one.selection_seconds for one in own.values()])),
            float(np.mean([one.model_seconds for one in own.values()])),
            sign * gap,
            interval,
            best=method == best,
            tied=comparable and bool(sign * gap - interval <= 0),
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


def paired_difference(
    first: dict[int, Result], second: dict[int, Result]
) -> tuple[float, float, float]:
    """Return mean, half-width and standard deviation of first minus second, by common seeds."""
    common = sorted(set(first) & set(second))
    differences = np.array([first[seed].score - second[seed].score for seed in common])
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


def results_with_score(results: Iterable[Result], judge: str, measure: str) -> list[Result]:
    """Return the results with the score of another model or metric."""
    known = (one for one in results if measure in one.measures.get(judge, {}))
    return [replace(one, score=one.measures[judge][measure]) for one in known]


def finite(value: float) -> float | None:
    """Return the number, or None if JSON cannot hold it."""
    return value if math.isfinite(value) else None


@cache
def t_quantile(level: float, seeds: int) -> float:
    """Return the quantile of Student's distribution for the mean over some seeds."""
    from scipy.stats import t  # imported late: it takes time

    return float(t.ppf(level, seeds - 1))

"""Notes below tables and the list of deviations, with numbers from the records.

A note says ``{A | B}`` for the mean of row A less that of row B, and Welch's 95% interval; if a
table has several sizes or data sets ``{A | B | 50}`` or ``{A | B | SplitMNIST}``.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.pages import read_record
from experiments.catalogue import EXPERIMENTS
from experiments.layout import published
from experiments.methods import FRESH
from experiments.stores import GSS_BATCH
from experiments.streaming import StreamRow
from experiments.tables import Book, Cell, less, spread
from experiments.tasks import BATCH
from experiments.verdicts import by_cause

NOTES: dict[str, str] = json.loads(Path(__file__).with_name("notes.json").read_text())
_DIFFERENCE = re.compile(r"\{([^{}|]+) \| ([^{}|]+?)(?: \| ([\w-]+))?\}")


def note(name: str, found: Sequence[Cell]) -> str:
    """Of an experiment; nothing where there is none."""
    return _DIFFERENCE.sub(lambda match: _told(name, found, match), NOTES.get(name, ""))


def _told(name: str, found: Sequence[Cell], match: re.Match[str]) -> str:
    first, second = (_cells(name, found, match[place], match[3]) for place in (1, 2))
    if not (first and second):
        return "not measured"  # by these records
    return less(first[0], second[0])


def _cells(name: str, found: Sequence[Cell], key: str, where: str | None) -> list[Cell]:
    """The row as it was measured, if it was with several seeds."""
    cells = [
        cell
        for cell in found
        if cell.row.key == key
        and where in (None, str(cell.memory), cell.problem)
        and cell.seeds > 1
    ]
    known = any(row.key == key for row in EXPERIMENTS[name].rows())
    if len(cells) > 1 or not known:
        raise LookupError(
            f"notes.json, {name}: {key!r}{f' of {where}' if where else ''} is no one row of its "
            "table; name a row, and where there are several sizes or data sets one of them."
        )
    return cells


#: What networks made of the rows that the authors' own code kept.
AUTHORS = Path(__file__).with_name("authors.json")
#: What was done in another way.
WORDS: list[str] = json.loads(Path(__file__).with_name("deviations.json").read_text())


def list_deviations(book: Book) -> list[str]:
    """What was done in another way, then the published numbers that are told apart from ours with
    the cause, above the paper as well as below."""
    return [*_protocol(book), *_causes(book)]


def _protocol(book: Book) -> list[str]:
    steps = StreamRow.steps
    facts = {
        "steps": steps,
        "batch": BATCH,
        "gss_batch": GSS_BATCH,
        "gss_steps": steps * GSS_BATCH // BATCH,
        "mixed": _mixed(book),
        "authors": _authors(),
        "tested": read_record("pooled_regression")["tested"],
    }
    return [words.format(**facts).strip() for words in WORDS]


def _authors() -> str:
    """What networks make of rows that the authors' own code kept, β by held-out points."""
    rows = json.loads(AUTHORS.read_text())["rows"]
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        runs: dict[float, list[dict[str, float]]] = {}
        for row in rows:
            if row["method"] == method:
                runs.setdefault(row["beta"], []).append(row)
        chosen = max(runs.values(), key=lambda one: np.mean([run["held"] for run in one]))
        scores = 100 * np.array([run["test"] for run in chosen])
        words = spread(float(scores.mean()), float(scores.std()), len(scores))
        variant = method.partition(f"{FRESH}, ")[2]
        found.append(f"{words} ({variant})" if variant else words)
    return " and ".join(found)


def _mixed(book: Book) -> str:
    """Rows whose runs were made with several precisions."""
    found = []
    for name in ("imbalanced", "streaming", "streaming-fresh", "continual"):
        kinds: dict[tuple[str, str], Counter[str]] = {}
        for record in book.records(name):
            row = (record["dataset"], record["method"])
            kinds.setdefault(row, Counter())[record.get("precision", "")] += 1
        for (problem, key), counts in kinds.items():
            if len(counts) > 1:
                parts = " and ".join(f"{count} in {kind}" for kind, count in sorted(counts.items()))
                found.append(f"{key} of the table {name!r} on {problem} mixes them: {parts}.")
    return " ".join(found)


def _causes(book: Book) -> list[str]:
    rows = [
        (
            place.experiment,
            line.label if place.memory is None else f"{line.label}, {place.memory} rows",
            book.cell(place),
        )
        for _, line, _, place in published()
    ]
    return [f"{labels}: {cause}." for cause, labels in by_cause(rows).items()]

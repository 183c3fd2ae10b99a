"""Deviations from the paper and causes of differences, with numbers from the records."""

import json
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.pages import read_record, where
from experiments.layout import published
from experiments.methods import FRESH
from experiments.stores import GSS_BATCH
from experiments.streaming import StreamRow
from experiments.tables import Book, spread
from experiments.tasks import BATCH
from experiments.verdicts import by_cause

#: Accuracies of networks trained on the rows that the authors' own code kept.
AUTHORS = Path(__file__).with_name("authors.json")
#: Numbers of labels for which BatchBALD's own paper gives an accuracy.
PUBLISHED_LABELS = (90, 200)
#: What was done in another way.
WORDS: list[str] = json.loads(Path(__file__).with_name("deviations.json").read_text())


def list_deviations(book: Book) -> list[str]:
    steps = StreamRow.steps
    facts = {
        "steps": steps,
        "batch": BATCH,
        "gss_batch": GSS_BATCH,
        "gss_steps": steps * GSS_BATCH // BATCH,
        "mixed": _mixed(book),
        "authors": _authors(),
        "acquiring": _acquiring(book),
        "tested": read_record("pooled_regression")["tested"],
    }
    return [words.format(**facts).strip() for words in WORDS]


def _authors() -> str:
    """Accuracies of the rows that the authors' own code kept, β by held-out points."""
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


def _acquiring(book: Book) -> str:
    """Accuracies of the networks by which BatchBALD acquires, with the labels of its own paper."""
    runs = where(book.records("summary"), method="BatchBALD")
    most = max(run["memory"] for run in runs)
    found = []
    for labels in PUBLISHED_LABELS:
        scores = [dict(run["acquisition"])[labels] for run in where(runs, memory=most)]
        mean, std = 100 * np.mean(scores), 100 * np.std(scores)
        found.append(f"{spread(float(mean), float(std), len(scores))} with {labels} labels")
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


def list_causes(book: Book) -> list[str]:
    """Published numbers that differ significantly from ours, with the cause if it is known."""
    rows = [
        (
            place.experiment,
            line.label if place.memory is None else f"{line.label}, {place.memory} rows",
            book.cell(place),
        )
        for _, line, _, place in published()
    ]
    return [f"{labels}: {cause}." for cause, labels in by_cause(rows).items()]

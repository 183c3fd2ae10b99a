"""docs/reproduction.md: what the paper claims, what we get, and how to run it again; made from
records alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.catalogue import EXPERIMENTS
from experiments.groups import NORMALISED_WORDS, PAPER
from experiments.records import FOLDER, Records
from experiments.streaming import FRESH_WORDS
from experiments.tables import OTHERS, PAPER_SEEDS, Row, gathered, progress, rows, table, welch

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
#: Why a row falls short of the paper, as far as it has been found out; by experiment, then "data:
#: method".
CAUSES: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("causes.json").read_text())
#: The paper's own method in its tables.
REFERENCES = ("coreset", "streaming coreset", "cl coreset")
#: Rows with another network are compared with each other.
JUDGED = f", {NORMALISED_WORDS}"
INTRODUCTION = """# The paper, reproduced

Every number here comes from a record under `experiments/records`, one file a run; `python -m experiments page` writes the page.
Percent of test points, mean over tasks, mean ± standard deviation (over n, as in the paper) over seeds 0 … 4, which were fixed in
advance; all runs of the rows shown are kept, but where a note says otherwise. **The number we stand by** is the one whose β was
chosen on held-out training points; the next column chooses β on the test set, as the paper did. The difference is ours (held-out)
minus the paper's, with Welch's 95% interval. Below a table, the paper's method is compared with the other rows as we measured
them: gaps in brackets, and a ranking only where Welch's 95% interval of the gap leaves out zero; where the paper's own gap exceeds
twice its standard error, also whether our means, told apart or not, have its order. *Short of the paper* is a row below the
published mean by more than the published standard deviation. A table says how many of its runs are done; seeds that are missing
were not run. Minutes are added up over processes, of which up to 15 shared the card at a time.
"""
#: What the reader of a table must know.
NOTES: dict[str, str] = json.loads(Path(__file__).with_name("notes.json").read_text())


DRAWN = """## Merge-reduce and the imbalanced stream (figures 1 and 2)

![The slots of a buffer of three after each of seven batches](images/reproduction_merge-reduce.png)

`python -m experiments figure merge-reduce` draws figure 2 from a live buffer; figure 1 is
[the demonstration on an imbalanced stream](streams.md).
"""


#: The record behind figure 3b, which is a benchmark of the GPU.
REGRESSION = Path(__file__).parents[1] / "benchmarks" / "records" / "pooled_regression.json"


def _regression() -> str:
    record = json.loads(REGRESSION.read_text())
    runs = record["rows"]
    size = max(row["size"] for row in record["rows"])
    scores: dict[tuple[str, int], list[float]] = {}
    for row in runs:
        if row["size"] == size:
            scores.setdefault((row["method"], row["pool"]), []).append(100 * row["accuracy"])
    lines = [
        f"| {method} | {pool} | {len(found)} | {np.mean(found):.2f} |"
        for (method, pool), found in sorted(scores.items(), key=lambda item: np.mean(item[1]))
    ]
    claim = PAPER["claims"]["figure 3b, KRR CIFAR-10, 400 points"]
    return "\n".join(
        [
            "## Kernel regression on CIFAR-10 (figure 3b)\n",
            f"`{record['command']}` on {record['machine']['gpu']}: percent of the first "
            f"{record['tested']} test images with {size} "
            f"points. The paper: {claim}, from a pool of 50 000. All sizes are under "
            "[benchmarks](benchmarks.md).\n",
            "| method | pool | seeds | ours |\n|---|---|---|---|",
            *lines,
            "\n![Accuracy against size](images/pooled_regression.png)\n",
        ]
    )


def text(folder: Path = FOLDER) -> str | None:
    """The page, or None while there is no record."""
    parts = []
    for name, experiment in EXPERIMENTS.items():
        records = gathered(name, folder)
        if not records:
            continue
        hardware = sorted(
            {record["machine"]["gpu"] or record["machine"]["processor"] for record in records}
        )
        minutes = sum(record["seconds"] for record in records) / 60
        done, wanted = progress(name, folder)
        # of some the time before is not known
        least = "at least " if any(record.get("resumed") for record in records) else ""
        parts.append(
            f"## {experiment.title}\n\n`python -m experiments run {name} --data DIR`: {done} of "
            f"{wanted} runs; "
            f"{least}{minutes:.1f} minutes of computing on {', '.join(hardware)}.\n"
        )
        parts.append(table(name, records))
        if name not in OTHERS:
            parts.append(_verdicts(name, records))
        if name in NOTES:
            parts.append(NOTES[name] + "\n")
        parts.append(_precision(name, folder))
        parts.append(_figure(name))
    return "\n".join([INTRODUCTION, *parts, _regression(), DRAWN]) if parts else None


def _verdicts(name: str, records: list[dict[str, Any]]) -> str:
    """What the seeds can tell apart, and where ours falls short of the paper by more than its
    standard deviation."""
    found = rows(name, records)
    parts = [*_rankings(found), *(_shortfall(name, row) for row in found if _short(row))]
    return "\n".join(f"* {part}" for part in parts) + "\n" if parts else ""


def _short(row: Row) -> bool:
    return row.paper is not None and row.mean < row.paper["mean"] - row.paper["std"]


def _shortfall(name: str, row: Row) -> str:
    """The cause found, as written down beside the records."""
    assert row.paper is not None
    gap = row.difference
    unsure = gap is not None and abs(gap[0]) <= gap[1]
    open_question = (
        "the interval of the difference holds zero, so these seeds do not tell"
        if unsure
        else "no cause has been found yet"
    )
    cause = CAUSES.get(name, {}).get(f"{row.dataset}: {row.method}", open_question)
    return (
        f"**Short of the paper**, {row.dataset}, {row.method}, memory {row.memory} "
        f"({row.mean - row.paper['mean']:+.2f}): {cause}."
    )


def _rankings(found: list[Row]) -> Iterator[str]:
    """The paper's coreset against every other row of its table; a ranking only where the interval
    of the gap leaves out zero."""
    for dataset, memory in dict.fromkeys((row.dataset, row.memory) for row in found):
        table = [
            row for row in found if (row.dataset, row.memory) == (dataset, memory) and row.seeds > 1
        ]
        for ours in (
            row
            for row in table
            if row.method.split(JUDGED)[0].removesuffix(FRESH_WORDS).lower() in REFERENCES
        ):
            above = []
            level = []
            below = []
            for other in (
                row
                for row in table
                if row is not ours and (JUDGED in row.method) == (JUDGED in ours.method)
            ):
                gap, half = welch(ours.measured, other.measured)
                (above if gap > half else below if gap < -half else level).append(
                    f"{other.method} ({gap:+.2f})"
                )
            told = (("above", above), ("not told apart from", level), ("below", below))
            shown = "; ".join(f"{words} {', '.join(names)}" for words, names in told if names)
            yield f"{dataset}, memory {memory}: {ours.method} is {shown}.{_agreement(ours, table)}"


def _agreement(ours: Row, table: list[Row]) -> str:
    """Whether our means have the order of the paper's where those differ by more than twice the
    standard error of their gap."""
    told = 0
    turned = []
    for row in table:
        if ours.paper is None or row.paper is None:
            continue
        gap = ours.paper["mean"] - row.paper["mean"]
        # deviations are over n
        error = math.hypot(ours.paper["std"], row.paper["std"]) / math.sqrt(PAPER_SEEDS - 1)
        if abs(gap) > 2 * error:
            told += 1
            turned += [row.method] if gap * (ours.mean - row.mean) <= 0 else []
    order = f"in the same order here: {told - len(turned)}" + (
        f", not {', '.join(turned)}" if turned else ""
    )
    return (
        f" Rows that the paper tells apart from it by two standard errors: {told}; {order}."
        if told
        else ""
    )


def _precision(name: str, folder: Path) -> str:
    """The same runs with products in float32 beside those of the table, where there are some."""
    fast = {_key(record): record for record in Records(name, folder).all()}
    pairs = [
        (exact, fast[_key(exact)])
        for exact in Records(f"{name}-float32", folder).all()
        if _key(exact) in fast
    ]
    if not pairs:
        return ""
    gaps = np.array([100 * (np.mean(one["test"]) - np.mean(other["test"])) for one, other in pairs])
    error = (
        f" ± {gaps.std(ddof=1) / math.sqrt(len(gaps)):.2f} points (mean and its standard error)"
        if len(gaps) > 1
        else " points"
    )
    runs = f"{len(gaps)} of these runs" if len(gaps) > 1 else "One of these runs"
    kinds = " and ".join(sorted({other["precision"] for _, other in pairs}))
    which = "; ".join(dict.fromkeys(exact["method"] for exact, _ in pairs))
    return (
        f"Products are computed in {kinds}, weights and sums in float32. {runs} with products in "
        "float32 (`--precision "
        f"float32`: {which}): float32 minus {kinds}, {gaps.mean():+.2f}{error}.\n"
    )


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("dataset", "method", "memory", "beta", "seed"))


def _figure(name: str) -> str:
    path = PAGE.parent / "images" / f"reproduction_{name}.png"
    return f"![{name}](images/{path.name})\n" if path.exists() else ""

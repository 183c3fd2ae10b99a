"""docs/reproduction.md: what the paper claims, what we get, and how to run it again; made from
records alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments.catalogue import EXPERIMENTS
from experiments.paper import PAPER, PAPER_SEEDS
from experiments.records import FOLDER, Record, Records, identity
from experiments.tables import (
    OTHERS,
    Cell,
    cells,
    gathered,
    progress,
    table,
    titles,
    welch,
)

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
#: Why a row falls short of the paper, as far as it has been found out; by experiment, then "data:
#: key of the row".
CAUSES: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("causes.json").read_text())
INTRODUCTION = """# The paper, reproduced

Every number here comes from a record under `experiments/records`, one line a run; `python -m experiments page` writes the page.
Percent of test points, mean over tasks, mean ± standard deviation (over n, as in the paper) over seeds 0 … 4, which were fixed in
advance; all runs of the rows shown are kept, but where a note says otherwise. **The number we stand by** is the one whose β was
chosen on held-out training points; the next column chooses β on the test set, as the paper did. The difference is ours (held-out)
minus the paper's, with Welch's 95% interval. Below a table, the paper's method (and ours, where a table has one) is compared with
the other rows as we measured them: gaps in brackets, and a ranking only where Welch's 95% interval of the gap leaves out zero;
where the paper's own gap exceeds twice its standard error, also whether our means, told apart or not, have its order. *Short of the
paper* is a row below the published mean by more than the published standard deviation. A table says how many of its runs are done;
seeds that are missing were not run. Minutes are added up over processes, of which up to 15 shared the card at a time.
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
    parts = [
        part
        for name in EXPERIMENTS
        if (records := gathered(name, folder))
        for part in _section(name, records, folder)
    ]
    return "\n".join([INTRODUCTION, *parts, _regression(), DRAWN]) if parts else None


def _section(name: str, records: list[Record], folder: Path) -> Iterator[str]:
    """An experiment: how it was run, its table, what that says, notes and a figure."""
    machines = [record["machine"] for record in records]
    hardware = sorted({machine["gpu"] or machine["processor"] for machine in machines})
    minutes = sum(record["seconds"] for record in records) / 60
    done, wanted = progress(name, folder)
    # of some the time before is not known
    least = "at least " if any(record.get("resumed") for record in records) else ""
    yield (
        f"## {EXPERIMENTS[name].title}\n\n`python -m experiments run {name} --data DIR`: {done} of "
        f"{wanted} runs; "
        f"{least}{minutes:.1f} minutes of computing on {', '.join(hardware)}.\n"
    )
    yield table(name, records)
    if name not in OTHERS:
        yield _verdicts(name, records)
    if name in NOTES:
        yield NOTES[name] + "\n"
    yield _precision(name, folder)
    yield _figure(name)


def _verdicts(name: str, records: list[Record]) -> str:
    """What the seeds can tell apart, and where ours falls short of the paper by more than its
    standard deviation."""
    found = cells(name, records)
    parts = [*_rankings(found), *(_shortfall(name, cell) for cell in found if _short(cell))]
    return "\n".join(f"* {part}" for part in parts) + "\n" if parts else ""


def _short(cell: Cell) -> bool:
    return cell.paper is not None and cell.mean < cell.paper["mean"] - cell.paper["std"]


def _shortfall(name: str, cell: Cell) -> str:
    """The cause found, as written down beside the records."""
    assert cell.paper is not None
    gap = cell.difference
    unsure = gap is not None and abs(gap[0]) <= gap[1]
    open_question = (
        "the interval of the difference holds zero, so these seeds do not tell"
        if unsure
        else "no cause has been found yet"
    )
    cause = CAUSES.get(name, {}).get(f"{cell.problem}: {cell.row.key}", open_question)
    return (
        f"**Short of the paper**, {cell.problem}, {cell.title}, memory {cell.memory} "
        f"({cell.mean - cell.paper['mean']:+.2f}): {cause}."
    )


def _rankings(found: list[Cell]) -> Iterator[str]:
    """The paper's own method, and ours where it has one, against every other row of their table."""
    for problem, memory in dict.fromkeys((cell.problem, cell.memory) for cell in found):
        table = [
            cell
            for cell in found
            if (cell.problem, cell.memory) == (problem, memory) and cell.seeds > 1
        ]
        for ours in table:
            if ours.row.reference:
                told = f"{ours.title} is {_ranked(ours, table)}.{_agreement(ours, table)}"
                yield f"{problem}, memory {memory}: {told}"


def _ranked(ours: Cell, table: list[Cell]) -> str:
    """Which rows it is above, level with and below: a ranking only where the interval of the gap
    leaves out zero. Rows with another network are compared with each other."""
    places: dict[str, list[str]] = {"above": [], "not told apart from": [], "below": []}
    for other in table:
        if other is ours or other.row.normalised != ours.row.normalised:
            continue
        gap, half = welch(ours.measured, other.measured)
        place = "above" if gap > half else "below" if gap < -half else "not told apart from"
        places[place].append(f"{other.title} ({gap:+.2f})")
    return "; ".join(f"{words} {', '.join(names)}" for words, names in places.items() if names)


def _agreement(ours: Cell, table: list[Cell]) -> str:
    """Whether our means have the order of the paper's where those differ by more than twice the
    standard error of their gap."""
    told = 0
    turned = []
    for cell in table:
        if ours.paper is None or cell.paper is None:
            continue
        gap = ours.paper["mean"] - cell.paper["mean"]
        # deviations are over n
        error = math.hypot(ours.paper["std"], cell.paper["std"]) / math.sqrt(PAPER_SEEDS - 1)
        if abs(gap) > 2 * error:
            told += 1
            turned += [cell.title] if gap * (ours.mean - cell.mean) <= 0 else []
    if not told:
        return ""
    but = f", not {', '.join(turned)}" if turned else ""
    return (
        f" Rows that the paper tells apart from it by two standard errors: {told}; in the same "
        f"order here: {told - len(turned)}{but}."
    )


def _precision(name: str, folder: Path) -> str:
    """The same runs with products in float32 beside those of the table, where there are some."""
    fast = {identity(record): record for record in Records(name, folder).all()}
    pairs = [
        (exact, fast[identity(exact)])
        for exact in Records(f"{name}-float32", folder).all()
        if identity(exact) in fast
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
    shown = titles(name)
    which = "; ".join(dict.fromkeys(shown[exact["method"]] for exact, _ in pairs))
    return (
        f"Products are computed in {kinds}, weights and sums in float32. {runs} with products in "
        "float32 (`--precision "
        f"float32`: {which}): float32 minus {kinds}, {gaps.mean():+.2f}{error}.\n"
    )


def _figure(name: str) -> str:
    path = PAGE.parent / "images" / f"reproduction_{name}.png"
    return f"![{name}](images/{path.name})\n" if path.exists() else ""

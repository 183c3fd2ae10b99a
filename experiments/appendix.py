"""docs/reproduction_appendix.md: every table with all of its rows, both choices of β, the searches
of λ and β, and rows that the paper does not have; made from records alone."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.pages import DOCS, render
from experiments.catalogue import EXPERIMENTS
from experiments.notes import note
from experiments.paper import PAPER_SEEDS
from experiments.records import FOLDER, Record, Records, identity
from experiments.tables import (
    AGAIN,
    OTHERS,
    Cell,
    cell_table,
    cells,
    progress,
    read_runs,
    table,
    titles,
)
from experiments.verdicts import by_cause, mark

PAGE = DOCS / "reproduction_appendix.md"


def text(folder: Path = FOLDER) -> str | None:
    """The page, or None while there is no record."""
    parts = [
        part
        for name in EXPERIMENTS
        if (records := read_runs(name, folder))
        for part in _section(name, records, folder)
    ]
    return render("reproduction_appendix.md", sections=parts) if parts else None


def _section(name: str, records: list[Record], folder: Path) -> Iterator[str]:
    """An experiment: how it was run, its table, what is told apart from the paper, and notes."""
    yield f"## {EXPERIMENTS[name].title}\n\n{command([name], folder)}; {_cost(records)}.\n"
    found = [] if name in OTHERS else cells(name, records)
    if name in OTHERS:
        yield table(name, records)
    else:
        compared = any(cell.row.reference for cell in found)
        yield cell_table(found, partial(_marks, found) if compared else None)
        yield _legend(found)
        yield _causes(name, found)
    if said := note(name, found):
        yield said + "\n"
    yield _precision(name, folder)


def command(names: Sequence[str], folder: Path) -> str:
    """What makes a table, and how much of it is done."""
    counts = [progress(name, folder) for name in names]
    done, wanted = (sum(count) for count in zip(*counts, strict=True))
    further = sum(
        record["seed"] >= PAPER_SEEDS for name in names for record in Records(name, folder).all()
    )
    more = f", {further} with further seeds" if further else ""
    return (
        f"`python -m experiments run {' '.join(names)} --data DIR`: {done} of {wanted} runs{more}"
    )


def _cost(records: list[Record]) -> str:
    records = [record for record in records if AGAIN not in record]
    machines = [record["machine"] for record in records]
    hardware = sorted({machine["gpu"] or machine["processor"] for machine in machines})
    minutes = sum(record["seconds"] for record in records) / 60
    # of some the time before is not known
    least = "at least " if any(record.get("resumed") for record in records) else ""
    return f"{least}{minutes:.1f} minutes of computing on {', '.join(hardware)}"


def _references(found: list[Cell], cell: Cell) -> list[Cell]:
    """What a row is compared with: the paper's method and ours, with the same data, size and
    network."""
    return [
        other
        for other in found
        if other.row.reference
        and other.seeds > 1
        and (other.problem, other.memory, other.row.normalised)
        == (cell.problem, cell.memory, cell.row.normalised)
    ]


def _marks(found: list[Cell], cell: Cell) -> str:
    """One for each row that it is compared with; a point where that is itself."""
    return "".join(mark(cell, other) or "·" for other in _references(found, cell))


def _legend(found: list[Cell]) -> str:
    """Which rows the marks compare with, and how many comparisons that makes."""
    names = list(dict.fromkeys(other.title for cell in found for other in _references(found, cell)))
    count = sum(bool(mark(cell, other)) for cell in found for other in _references(found, cell))
    if not count:
        return ""
    return f"Marks: against {', then '.join(f'*{name}*' for name in names)}; {count} comparisons.\n"


def _causes(name: str, found: list[Cell]) -> str:
    rows = [(name, f"{cell.title}, {cell.memory} rows", cell) for cell in found]
    lines = [f"* {labels}: {cause}." for cause, labels in by_cause(rows).items()]
    return "Told apart from the paper:\n\n" + "\n".join(lines) + "\n" if lines else ""


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

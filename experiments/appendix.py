"""docs/tables/experiments.md: every experiment with all of its rows, both choices of β, and the
searches of λ and β."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from experiments.catalogue import EXPERIMENTS
from experiments.paper import PAPER_SEEDS
from experiments.records import Record, Records, identity
from experiments.tables import (
    AGAIN,
    OTHERS,
    Cell,
    cell_table,
    cells,
    progress,
    read_runs,
    table,
)
from experiments.verdicts import mark


def list_sections(folder: Path) -> list[str]:
    return [
        part
        for name in EXPERIMENTS
        if (records := read_runs(name, folder))
        for part in _section(name, records, folder)
    ]


def _section(name: str, records: list[Record], folder: Path) -> Iterator[str]:
    """An experiment: how it was run, and its table."""
    yield f"## {EXPERIMENTS[name].title}\n\n{command([name], folder)}; {_cost(records)}.\n"
    if name in OTHERS:
        yield table(name, records)
    else:
        found = cells(name, records)
        compared = any(cell.row.reference for cell in found)
        yield cell_table(found, partial(_marks, found) if compared else None)
        yield _legend(found)
    yield _precision(name, folder)


def command(names: Sequence[str], folder: Path) -> str:
    """The command of a table, and how many of its runs are done."""
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
    # the time of a resumed run before it was stopped is not known
    least = "at least " if any(record.get("resumed") for record in records) else ""
    return f"{least}{minutes:.1f} minutes of computing on {', '.join(hardware)}"


def _references(found: list[Cell], cell: Cell) -> list[Cell]:
    """The rows it is compared with: the paper's method and ours, with the same data, size and
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
    """One for each row that it is compared with; a dot for itself."""
    return "".join(mark(cell, other) or "·" for other in _references(found, cell))


def _legend(found: list[Cell]) -> str:
    """Which rows the marks compare with, and how many comparisons that makes."""
    pairs = [(cell, other) for cell in found for other in _references(found, cell)]
    count = sum(bool(mark(*pair)) for pair in pairs)
    if not count:
        return ""
    compared = ", then ".join(f"*{key}*" for key in dict.fromkeys(one.row.key for _, one in pairs))
    return f"Marks: compared with {compared}; {count} comparisons.\n"


def _precision(name: str, folder: Path) -> str:
    """Runs with products in float32 compared with the same runs of the table."""
    fast = {identity(record): record for record in Records(name, folder).all()}
    pairs = [
        (exact, fast[identity(exact)])
        for exact in Records(f"{name}-float32", folder).all()
        if identity(exact) in fast
    ]
    if not pairs:
        return ""
    gap = np.mean([100 * (np.mean(one["test"]) - np.mean(other["test"])) for one, other in pairs])
    kinds = " and ".join(sorted({other["precision"] for _, other in pairs}))
    runs = f"{len(pairs)} of these runs" if len(pairs) > 1 else "one of these runs"
    return f"Float32 minus {kinds} products, {runs}: {gap:+.2f} points.\n"

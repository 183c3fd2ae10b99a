"""Tables from records: β chosen on held-out rows or, as in the paper, on the test set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks import pages
from experiments.catalogue import EXPERIMENTS
from experiments.paper import PAPER, PAPER_SEEDS
from experiments.records import FOLDER, Record, RecordError, Records
from experiments.rows import Number, Row, Source, toy_memory
from experiments.selections import paper_time
from experiments.statistics import Gap, Measured, contrast

#: What a record has that is another measurement of a run, and no run of its own.
AGAIN = "measured"
#: The records of a row, by what was tried.
Tried = dict[float, list[Record]]


@dataclass(frozen=True)
class Cell:
    """A row of a table as it was measured: percent, the spread as the paper has it (over n), and
    what was chosen. Toys and summaries have another memory than their row, and no ``paper``.
    """

    row: Row
    memory: int
    seeds: int
    chosen: float
    mean: float
    std: float
    best_chosen: float
    best_mean: float
    best_std: float
    paper: Number | None
    choices: int

    @property
    def problem(self) -> str:
        return self.row.problem.name

    @property
    def difference(self) -> Gap | None:
        """Ours minus the paper's."""
        if self.paper is None or self.seeds < 2:
            return None
        return welch(self.measurement, (self.paper["mean"], self.paper["std"], PAPER_SEEDS))

    @property
    def measurement(self) -> Measured:
        return self.mean, self.std, self.seeds

    def __format__(self, spec: str) -> str:
        return show_spread(*self.measurement, spec)


def welch(ours: Measured, theirs: Measured) -> Gap:
    """The difference of two means."""
    return contrast([(1, ours), (-1, theirs)])


def less(first: Cell, second: Cell) -> str:
    """The mean of one row less that of another, with its interval."""
    return f"{welch(first.measurement, second.measurement):.1f}"


#: How a row compares with another: its interval lies below, above, or includes zero.
BELOW, ABOVE, LEVEL = "↓", "↑", "≈"


def mark(cell: Cell | None, other: Cell | None) -> str:
    """How a row compares with another; empty if there is none, one has a single seed, they are the
    same, or they have another network."""
    if cell is None or other is None or cell is other or min(cell.seeds, other.seeds) < 2:
        return ""
    if cell.row.normalisation != other.row.normalisation:
        return ""
    gap = welch(cell.measurement, other.measurement)
    return ABOVE if gap.above else BELOW if gap.below else LEVEL


def table(name: str, records: Iterable[Record]) -> str:
    """The table of an experiment in Markdown."""
    return OTHERS[name](list(records)) if name in OTHERS else cell_table(cells(name, records))


def _runtime(records: list[Record]) -> str:
    """Selections run on one thread, kernels on what there is."""
    body = []
    for record in records:
        place = record["machine"]["gpu"] or record["machine"]["processor"]
        for work in record:
            if work.startswith(("kernel", "coreset")):
                known = PAPER["runtime_seconds_1000_points"].get(paper_time(work), {})
                theirs = f"{known[record['method']]} s" if record["method"] in known else ""
                where = place if work == "kernel" else "one thread"
                body.append([record["method"], work, where, f"{record[work]:.3f} s", theirs])
    return pages.table(["network", "work", "on", "ours", "paper"], body)


def _picks(records: list[Record]) -> str:
    """The paper: the first ten picks come from ten classes; about twice as many eights as ones."""
    head = ["method", "seed", "classes among the first ten rows", "eights and ones among all"]
    patterns = "{method} | {seed} | {classes_in_first_ten} | {eights} and {ones}"
    return pages.table(head, records, patterns)


def _penalties(records: list[Record]) -> str:
    body = []
    for one in sorted(records, key=lambda one: float(one["penalty"])):
        losses = one["held_loss"]
        each = ", ".join(f"{loss:.3f}" for loss in losses)
        body.append([one["method"], f"{one['penalty']:g}", f"{np.mean(losses):.4f}", each])
    return pages.table(["method", "λ", "held-out loss of the proxy", "loss of each task"], body)


def _betas(name: str, records: list[Record]) -> str:
    """Accuracy on held-out points by β, the highest of a row in bold."""
    order = [row.key for row in EXPERIMENTS[name].rows()]
    rows = [{**one, "held": 100 * float(np.mean(one["held"]))} for one in records]
    rows.sort(key=lambda one: order.index(one["method"]))

    def show(own: list[Record]) -> str:
        if not own:
            return ""
        best = max(one["held"] for one in pages.where(rows, method=own[0]["method"]))
        value = own[0]["held"]
        return f"**{value:.2f}**" if value == best else f"{value:.2f}"

    return pages.pivot(rows, "method", "beta", show, "β = {:g}".format)


#: Tables that do not compare methods by their accuracy.
OTHERS: dict[str, Callable[[list[Record]], str]] = {
    "runtime": _runtime,
    "picks": _picks,
    "cifar-penalty": _penalties,
    **{name: partial(_betas, name) for name in ("cifar-betas", "cifar-stream-betas")},
}


def read_runs(name: str, folder: Path = FOLDER) -> list[Record]:
    """The records of an experiment, with those that other experiments hold for it, under its own
    keys."""
    rows = EXPERIMENTS[name].rows()
    shown = {(row.problem.name, row.key) for row in rows}
    everything = Records(name, folder).all()
    # not of rows there are no more
    found = [record for record in everything if (record["dataset"], record["method"]) in shown]
    borrowing = [(row, row.source) for row in rows if row.source is not None]
    for experiment in dict.fromkeys(source.experiment for _, source in borrowing):
        for record in Records(experiment, folder).all():
            lent = (experiment, record["method"], record["dataset"], record["memory"])
            for row, source in borrowing:
                own = (source.experiment, source.key, row.problem.name, row.memory)
                if own == lent and source.measured in ("", *record):
                    measured = {AGAIN: source.measured} if source.measured else {}
                    measured |= record.get(source.measured, {})
                    found.append({**record, **measured, "method": row.key})
    return found


def progress(name: str, folder: Path = FOLDER, seeds: int = 5) -> tuple[int, int]:
    """How many of an experiment's runs are recorded, and how many it has."""
    experiment = EXPERIMENTS[name]
    places: dict[str, Records] = {}
    done = wanted = 0
    for row in experiment.rows():
        source = row.source or Source(name, row.key)
        if source.measured:
            continue  # runs that are counted already
        records = places.setdefault(source.experiment, Records(source.experiment, folder))
        recorded = row.variant(source.key)
        for seed in experiment.seeds(seeds):
            values = recorded.trials.values
            done += sum(records.has(recorded.configuration(seed, value)) for value in values)
            wanted += len(values)
    return done, wanted


def choice(record: Record) -> float:
    """What a run tried: β, or the weight of VCL's divergence."""
    return float(record.get("beta", record.get("penalty", 0)))


def cells(name: str, records: Iterable[Record]) -> list[Cell]:
    """The rows of an experiment in the order of its catalogue, as far as there are records."""
    runs: dict[tuple[str, str], dict[int, Tried]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for record in records:
        by_memory = runs[record["dataset"], record["method"]]
        by_memory[record["memory"]][choice(record)].append(record)
    found = []
    for row in EXPERIMENTS[name].rows():
        for memory, tried in sorted(runs[row.problem.name, row.key].items()):
            quick = all(run["quick"] for one in tried.values() for run in one)
            toy = quick and memory == toy_memory(row.memory)
            if row.memory in (memory, 0) or toy:
                found.append(_cell(row, memory, tried))
    return found


def _cell(row: Row, memory: int, tried: Tried) -> Cell:
    """Choices are compared where they have the most seeds; records of several λ do not mix."""
    if len({run["lambda"] for runs in tried.values() for run in runs if "lambda" in run}) > 1:
        raise RecordError(
            f"{row.key} on {row.problem.name}: its records have several λ; keep those of one."
        )
    most = max(len(runs) for runs in tried.values())
    tried = {choice: runs for choice, runs in tried.items() if len(runs) == most}
    held, tested = (
        {one: np.array([np.mean(run[part]) for run in runs]) for one, runs in tried.items()}
        for part in ("held", "test")
    )
    tested = {one: 100 * scores for one, scores in tested.items()}
    chosen = max(held, key=lambda choice: held[choice].mean())
    best = max(tested, key=lambda choice: tested[choice].mean())
    return Cell(
        row=row,
        memory=memory,
        seeds=len(tested[chosen]),
        chosen=chosen,
        mean=float(tested[chosen].mean()),
        std=float(tested[chosen].std()),
        best_chosen=best,
        best_mean=float(tested[best].mean()),
        best_std=float(tested[best].std()),
        paper=row.paper if memory == row.memory else None,
        choices=len(tried),
    )


def spread(scores: np.ndarray) -> str:
    """Mean and deviation over n; one seed has none."""
    return show_spread(float(scores.mean()), float(scores.std()), len(scores))


def show_spread(mean: float, std: float, seeds: int, spec: str = ".2f") -> str:
    return f"{mean:{spec}} ± {std:{spec}}" if seeds > 1 else f"{mean:{spec}}"


def cell_table(found: list[Cell], marks: Callable[[Cell], str] | None = None) -> str:
    """The rows as a Markdown table, with a column of marks where there are some."""
    shown = ["marks"] if marks else []
    head = ["data", "method", "memory", "seeds", "β", "ours, β from held-out rows", *shown]
    head += ["ours, β from the test set", "paper", "difference"]
    return pages.table(head, [_line(cell, [marks(cell)] if marks else []) for cell in found])


def _line(cell: Cell, marks: list[str]) -> list[str]:
    best = show_spread(cell.best_mean, cell.best_std, cell.seeds) + f" ({cell.best_chosen:g})"
    run = [cell.problem, cell.row.key, str(cell.memory), str(cell.seeds), f"{cell.chosen:g}"]
    ours = [f"{cell:.2f}", *marks, best if cell.choices > 1 else ""]
    return [*run, *ours, show_paper(cell), difference(cell)]


def show_paper(cell: Cell) -> str:
    paper = cell.paper
    return "" if paper is None else f"{paper['mean']:.2f} ± {paper['std']:.2f}"


def difference(cell: Cell) -> str:
    """Ours minus the paper's with its interval; bold where that leaves out zero."""
    gap = cell.difference
    if gap is None:
        return ""
    return f"**{gap}**" if gap.above or gap.below else str(gap)


@dataclass(frozen=True)
class Place:
    """Where a cell stands: the experiment, the data, the key of its row, and the size where the row
    has several or another row has the same key."""

    experiment: str
    problem: str
    key: str
    memory: int | None = None

    @classmethod
    def parse(cls, words: str) -> Place:
        """From ``experiment | data | key | memory``, the last where there is one."""
        experiment, problem, key, *memory = words.split(" | ")
        return cls(experiment, problem, key, int(memory[0]) if memory else None)


class Absent(Exception):
    """No record, or no published number, stands at a place."""


class Book:
    """What the records of a folder say."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self.records = cache(lambda name: read_runs(name, folder))
        self.cells = cache(lambda name: cells(name, self.records(name)))
        self.runs = cache(self._runs)

    def cell(self, place: Place) -> Cell:
        for cell in self.cells(place.experiment):
            found = (cell.problem, cell.row.key) == (place.problem, place.key)
            if found and cell.memory == (place.memory or cell.row.memory):
                return cell
        raise Absent(place)

    def find(self, place: Place | None) -> Cell | None:
        try:
            return None if place is None else self.cell(place)
        except Absent:
            return None

    def _runs(self, place: Place) -> list[Record]:
        """The runs behind a cell, with what was chosen for it."""
        cell = self.cell(place)
        own = {"dataset": place.problem, "method": place.key, "memory": cell.memory}
        found = pages.where(self.records(place.experiment), **own)
        return [one for one in found if choice(one) == cell.chosen]

    def ours(self, place: Place) -> Measured:
        """As we measured it; a spread needs two seeds."""
        cell = self.cell(place)
        if cell.seeds < 2:
            raise Absent(place)
        return cell.measurement

    def find_published(self, place: Place) -> Measured:
        """As the paper has it."""
        paper = self.cell(place).paper
        if paper is None:
            raise Absent(place)
        return paper["mean"], paper["std"], PAPER_SEEDS


@cache
def read_book(folder: Path = FOLDER) -> Book:
    """The records, read once for all pages."""
    return Book(folder)

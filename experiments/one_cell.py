"""Find the runs behind a row of docs/reproduction.md: experiments, rows, seeds and β."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.pages import where
from bicore import InputError
from experiments.catalogue import EXPERIMENTS
from experiments.layout import LAYOUTS, Layout, Line
from experiments.paper import PAPER_SEEDS
from experiments.rows import Row
from experiments.running import Order
from experiments.tables import Book, Cell, Place, cells, choice, read_runs, show_paper


@dataclass(frozen=True)
class PageCell:
    """A cell of the page: its column, its place, and where its runs are recorded."""

    column: str
    place: Place
    recorded: Place
    row: Row

    def order(self, order: Order, book: Book) -> Order:
        """The runs behind it, with the seeds and β that the page has; toys have one."""
        seeds, values = _count_seeds(book, self.recorded)
        varied = self.row.trials.name == "memory"
        if varied and self.recorded.memory is not None:
            values = (float(self.recorded.memory),)
        return replace(
            order,
            names=(self.recorded.experiment,),
            only=(self.recorded.key,),
            on=self.recorded.problem,
            memory=None if varied else self.row.memory,
            seeds=seeds,
            values=() if order.quick else values,
        )

    def describe(self, order: Order, book: Book) -> str:
        """What came out, and what the page has."""
        new = _find_new(order, self.recorded)
        words = "not run" if new is None else _show(new)
        if order.quick:
            return f"{self.column}, a toy: {words}"
        before = book.find(self.place)
        if before is None:
            return f"{self.column}: {words}"
        theirs = "" if before.paper is None else f", the paper {show_paper(before)}"
        return f"{self.column}: {words}; the page has {_show(before)}{theirs}"


def find_cells(table: str, row: str, column: str | None = None) -> list[PageCell]:
    """The cells of a row, or one of them, by the words that stand on the page."""
    layouts = [one for one in LAYOUTS if _words(table) <= _words(one.title)]
    if not layouts:
        raise InputError(
            f"no table is called {table!r}; there are {'; '.join(one.title for one in LAYOUTS)}."
        )
    found = [(one, line) for one in layouts for line in one.lines if _is_same(line.label, row)]
    if len(found) != 1:
        known = "; ".join(line.label for one in layouts for line in one.lines if not line.hidden)
        many = "several rows are" if found else "no row is"
        raise InputError(f"{many} called {row!r} in {table!r}; there are {known}.")
    return list(_columns(*found[0], column))


def _columns(layout: Layout, line: Line, column: str | None) -> Iterator[PageCell]:
    found = 0
    for name, place in zip(layout.columns, line.places, strict=True):
        if place is not None and (column is None or _is_same(name, column)):
            found += 1
            yield PageCell(name, place, *_find_recorded(place))
    if not found:
        known = ", ".join(layout.columns)
        raise InputError(f"{line.label!r} has no number in a column {column!r}; there are {known}.")


def _find_recorded(place: Place) -> tuple[Place, Row]:
    """Where the runs of a place are made: its own row, or the one that lends its runs."""
    for row in EXPERIMENTS[place.experiment].rows():
        known = (row.problem.name, row.key) == (place.problem, place.key)
        if known and (place.memory is None or row.memory in (place.memory, 0)):
            if row.source is None:
                return place, row
            memory = place.memory if row.memory == 0 else row.memory
            return _find_recorded(
                Place(row.source.experiment, place.problem, row.source.key, memory)
            )
    raise LookupError(f"{place}: no experiment has such a row")


def _count_seeds(book: Book, place: Place) -> tuple[int, tuple[float, ...]]:
    """How many seeds the records of a place have, and what was tried with as many."""
    cell = book.find(place)
    if cell is None:
        return PAPER_SEEDS, ()
    own = {"dataset": place.problem, "method": place.key, "memory": cell.memory}
    runs = Counter(map(choice, where(book.records(place.experiment), **own)))
    tried = tuple(sorted(value for value, count in runs.items() if count == cell.seeds))
    return cell.seeds, tried if cell.row.trials.name in ("beta", "penalty") else ()


def _find_new(order: Order, place: Place) -> Cell | None:
    """What the runs of an order came to; a toy has a memory of its own."""
    found: Sequence[Cell] = cells(place.experiment, read_runs(place.experiment, order.folder))
    for cell in found:
        same = (cell.problem, cell.row.key) == (place.problem, place.key)
        if same and (order.quick or cell.memory == (place.memory or cell.row.memory)):
            return cell
    return None


def _show(cell: Cell) -> str:
    seeds = "1 seed" if cell.seeds == 1 else f"{cell.seeds} seeds"
    return f"{cell:.2f} ({seeds})"


def _words(title: str) -> set[str]:
    """Of a heading: words, and numbers with the letter behind them; one table or several are the
    same."""
    found = re.findall(r"[a-z]+|[0-9]+[a-z]?", title.lower())
    return {"table" if word == "tables" else word for word in found}


def _is_same(one: str, other: str) -> bool:
    return one.strip().lower() == other.strip().lower()

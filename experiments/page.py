"""docs/reproduction.md (claims and deviations) and docs/tables/reproduction.md (the paper's tables
with ours), from records alone."""

from collections import Counter
from collections.abc import Hashable, Iterator
from functools import cache
from pathlib import Path

from benchmarks.pages import table
from experiments.claims import CLAIMS, Answer, Claim, answer_claims
from experiments.comparisons import compare, total_minutes
from experiments.layout import FIGURE_A, FIGURE_C, TABLES, Layout, Line, published
from experiments.paper import PAPER_SEEDS
from experiments.records import FOLDER
from experiments.statistics import Gap
from experiments.tables import Absent, Book, Cell, Place, difference, spread
from experiments.tables import published as paper_number
from experiments.verdicts import Verdict, mark


@cache
def read_book(folder: Path = FOLDER) -> Book:
    """The records, read once for all pages."""
    return Book(folder)


def published_gaps(book: Book) -> list[Gap]:
    return [cell.difference for cell in published_cells(book)]


def count_comparisons(book: Book, answered: list[tuple[Claim, Answer]]) -> int:
    """Those with published numbers, of claims, and of marks in tables."""
    marks = _marks(book).union(*(answer.compared for _, answer in answered))
    return len(published_gaps(book)) + len(marks)


def count_verdicts() -> dict[str, int]:
    """The number of the paper's claims by their verdict."""
    found = Counter(answer.verdict for _, answer in answer_claims(read_book(), CLAIMS))
    return {verdict.name: found[verdict] for verdict in Verdict}


def plan_table(claims: list[tuple[Claim, Answer]]) -> str:
    """For each claim that is not resolved the comparison that needs the most seeds."""
    head = ["claim", "comparison", "seeds", "difference", "paired spread", "δ", "seeds at δ"]
    head += ["at the difference", "minutes, all comparisons"]
    body = []
    for claim, answer in claims:
        if answer.verdict is Verdict.OPEN and answer.plans:
            plan = max(answer.plans, key=lambda one: one.needed)
            known = [plan.label, plan.seeds, plan.gap, f"{plan.paired_spread:.2f}"]
            minutes = f"{total_minutes(answer.plans):.0f}"
            seeds = [plan.margin, str(plan.needed), str(plan.at_effect), minutes]
            body.append([claim.words, *known, *seeds])
    return table(head, body)


def published_cells(book: Book) -> Iterator[Cell]:
    """Our cell for every published number."""
    for _, _, _, place in published():
        cell = _found(book, place)
        if cell is not None and cell.difference is not None:
            yield cell


def layout_table(layout: Layout, book: Book) -> str:
    """A table of the paper; columns of differences only if there are published numbers."""
    rows = [_line(line, layout, book) for line in layout.lines if not line.hidden]
    has_paper = any(cell for row in rows for cell in row[2::3])
    head = [""]
    for column in layout.columns:
        head += [column, "paper", "difference"] if has_paper else [column]
    return table(head, rows if has_paper else [[row[0], *row[1::3]] for row in rows])


def _line(line: Line, layout: Layout, book: Book) -> list[str]:
    shown = [line.label]
    for column, place in enumerate(line.places):
        cell = _found(book, place)
        if cell is None:
            shown += ["", "", ""]
            continue
        reference = _found(book, _against(line, layout, column))
        sign = "" if reference is None else mark(cell, reference)
        seeds = "" if cell.seeds == PAPER_SEEDS else f"({cell.seeds})"
        ours = " ".join(filter(None, [spread(cell.mean, cell.std, cell.seeds), seeds, sign]))
        shown += [ours, paper_number(cell), difference(cell)]
    return shown


def _found(book: Book, place: Place | None) -> Cell | None:
    try:
        return None if place is None else book.cell(place)
    except Absent:
        return None


def _against(line: Line, layout: Layout, column: int) -> Place | None:
    """The place that a line's marks compare with, in the same column."""
    for other in layout.lines:
        if other.label == line.against:
            return other.places[column]
    return None


def _marks(book: Book) -> frozenset[Hashable]:
    """The comparisons that the marks of all tables make."""
    pairs: set[Hashable] = set()
    for layout in (*TABLES, FIGURE_A, FIGURE_C):
        for line, column, place in layout.numbered():
            other = _against(line, layout, column)
            cell, reference = _found(book, place), _found(book, other)
            if other and cell is not None and reference is not None and mark(cell, reference):
                pairs.add(compare(other, place).key)
    return frozenset(pairs)

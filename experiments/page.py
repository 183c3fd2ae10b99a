"""docs/reproduction.md: the paper's claims and whether they hold, every published number next to
ours, and how to run it again; from records alone."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pages import DOCS, render, table
from experiments.appendix import command
from experiments.claims import OURS, Compared, above, answer_claims, compared, runtimes
from experiments.layout import FIGURE_A, FIGURE_C, TABLES, Layout, Line, published
from experiments.notes import list_deviations
from experiments.paper import PAPER, PAPER_SEEDS
from experiments.records import FOLDER
from experiments.tables import Absent, Book, Cell, Place, difference, spread
from experiments.tables import published as paper_number
from experiments.verdicts import Verdict, agreement, mark

PAGE = DOCS / "reproduction.md"


def text(folder: Path = FOLDER) -> str | None:
    """The page, or None while there is no record of a published number."""
    book = Book(folder)
    gaps = [cell.difference for cell in published_cells(book) if cell.difference is not None]
    if not gaps:
        return None
    claims = answer_claims(book)
    verdicts = Counter(answer.verdict for claim, answer in claims if claim is not OURS)
    marks = _marks(book).union(*(answer.compared for _, answer in claims))
    told, turned = _order(book)
    return render(
        "reproduction.md",
        book=book,
        claims=claims,
        verdicts=[verdicts[one] for one in (Verdict.HOLDS, Verdict.OPEN, Verdict.FAILS)],
        gaps=gaps,
        reached=sum(gap >= 0 for gap, _ in gaps),
        short=sum(gap < -half for gap, half in gaps),
        comparisons=len(gaps) + len(marks),
        told=told,
        turned=turned,
        tables=TABLES,
        figure_a=FIGURE_A,
        figure_c=FIGURE_C,
        figure_b=PAPER["claims"]["figure 3b, KRR CIFAR-10, 400 points"],
        seconds=list(runtimes(book)),
        deviations=list_deviations(book),
        command=command,
        layout_table=layout_table,
    )


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


def _marks(book: Book) -> Compared:
    """The comparisons that the marks of all tables are."""
    pairs = []
    for layout in (*TABLES, FIGURE_A, FIGURE_C):
        for line, column, place in layout.numbered():
            other = _against(line, layout, column)
            cell, reference = _found(book, place), _found(book, other)
            if other and cell is not None and reference is not None and mark(cell, reference):
                pairs.append(above(other, place))
    return compared(pairs)


def _order(book: Book) -> tuple[int, list[str]]:
    """How many rows the paper's means put in an order, and those that have another order here."""
    told, turned = 0, []
    for layout, line, column, place in published():
        cell, reference = _found(book, place), _found(book, _against(line, layout, column))
        if cell is not None and reference is not None:
            count, other = agreement(reference, [cell])
            told += count
            turned += [f"{line.label} on {cell.problem}" for _ in other]
    return told, turned

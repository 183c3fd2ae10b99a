"""docs/reproduction.md: what the paper claims and whether it holds, every published number beside
ours, and how to run it again; made from records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.pages import read_record
from experiments.appendix import command
from experiments.book import Absent, Book, Place
from experiments.claims import (
    OURS,
    Answer,
    Claim,
    Compared,
    above,
    answered,
    compared,
    runtimes,
)
from experiments.deviations import listed
from experiments.layout import FIGURE_A, FIGURE_C, TABLES, Layout, Line, published
from experiments.marks import ABOVE, BELOW, LEVEL, agreement, mark
from experiments.paper import PAPER, PAPER_SEEDS
from experiments.reading import filled, slug
from experiments.records import FOLDER
from experiments.tables import Cell, difference, markdown, spread
from experiments.tables import published as paper_number
from experiments.verdicts import Verdict

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
#: Of 95% intervals around nothing, one in so many leaves out zero.
CHANCE = 20
#: How many tables come before that of run time.
FIRST = 4


def text(folder: Path = FOLDER) -> str | None:
    """The page, or None while there is no record of a published number."""
    book = Book(folder)
    cells = list(published_cells(book))
    if not cells:
        return None
    claims = answered(book)
    parts = [
        _introduction(claims, cells, _marks(book), _order(book)),
        _claims(claims),
        "![Ours minus the paper](images/reproduction_differences.png)\n\nOurs minus the paper, all "
        "published numbers: ○ the interval holds zero, ▲ lies above, ▼ below.\n",
        *(_section(layout, book) for layout in TABLES[:FIRST]),
        _runtime(book),
        *(_section(layout, book) for layout in TABLES[FIRST:]),
        _section(FIGURE_A, book),
        _regression(),
        _section(FIGURE_C, book),
        _picks(book),
        _drawn(),
        "## Deviations\n\n" + "\n".join(f"* {one}" for one in listed(book)) + "\n",
    ]
    return "\n".join(parts)


def published_cells(book: Book) -> Iterator[Cell]:
    """Our cell for every published number."""
    for _, _, _, place in published():
        try:
            cell = book.cell(place)
        except Absent:
            continue
        if cell.difference is not None:
            yield cell


def _introduction(
    claims: list[tuple[Claim, Answer]], cells: list[Cell], marks: Compared, order: str
) -> str:
    verdicts = Counter(answer.verdict for claim, answer in claims if claim is not OURS)
    gaps = [cell.difference for cell in cells if cell.difference is not None]
    reached = sum(gap >= 0 for gap, _ in gaps)
    short = sum(gap < -half for gap, half in gaps)
    total = len(gaps) + len(marks.union(*(answer.compared for _, answer in claims)))
    paragraphs = [
        f"Of {sum(verdicts.values())} claims **{verdicts[Verdict.HOLDS]} hold, "
        f"{verdicts[Verdict.OPEN]} are not resolved, {verdicts[Verdict.FAILS]} "
        f"{'fails' if verdicts[Verdict.FAILS] == 1 else 'fail'}**. Of {len(gaps)} published numbers "
        f"{reached} are reached, {len(gaps) - reached - short} lie below within the interval, "
        f"{short} short of it. [Deviations](#deviations) has causes, [the "
        "appendix](reproduction_appendix.md) all rows and searches.",
        "`python -m experiments page` writes this from `experiments/records`, "
        "`python -m experiments cell table3 CBRS --data DIR` runs a row anew. Percent of test points, mean over tasks, "
        "mean ± standard deviation (over n) over seeds 0 … 4, or as many as stand in brackets, on an NVIDIA H200; intervals are Welch's, 95%. *Above* "
        "holds where all intervals lie above zero, *not below* where none lies below; either fails "
        "where one lies on the other side. Claims' numbers are positive in their favour. Marks compare a row with its table's coreset: "
        f"{BELOW} told apart and below, {ABOVE} above, {LEVEL} not told apart. {order} Of {total} "
        f"comparisons here ({len(gaps)} with the paper) about {total / CHANCE:.0f} would leave out "
        "zero by chance.",
    ]
    return "\n\n".join(["# The paper, reproduced", *map(filled, paragraphs)]) + "\n"


def _claims(claims: list[tuple[Claim, Answer]]) -> str:
    body = [
        [
            f"[{claim.words}]({_address(claim.heading)})",
            f"**{answer.verdict}**",
            answer.number,
            answer.theirs,
        ]
        for claim, answer in claims
    ]
    head = ["claim", "verdict", "number", "by the paper's own numbers"]
    return "## Claims\n\n" + markdown(head, body)


def _address(heading: str) -> str:
    return heading if heading == OURS.heading else f"#{slug(heading)}"


def _section(layout: Layout, book: Book) -> str:
    """A table of the paper: how it is run, its rows, and a picture."""
    made = command(layout.experiments, book.folder)
    rows = [_line(line, layout, book) for line in layout.lines if not line.hidden]
    compared = any(cell for row in rows for cell in row[2::3])
    head = [""]
    for column in layout.columns:
        head += [column, "paper", "difference"] if compared else [column]
    body = rows if compared else [[row[0], *row[1::3]] for row in rows]
    picture = f"![{layout.title}](images/reproduction_{layout.picture}.png)\n"
    return "\n".join(
        [
            f"## {layout.title}\n",
            f"{made}.\n",
            markdown(head, body),
            *([layout.note + "\n"] if layout.note else []),
            *([picture] if layout.picture else []),
        ]
    )


def _line(line: Line, layout: Layout, book: Book) -> list[str]:
    shown = [line.label]
    for column, place in enumerate(line.places):
        cell = _found(book, place)
        if cell is None:
            shown += ["", "", ""]
            continue
        reference = _reference(line, layout, column, book)
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


def _reference(line: Line, layout: Layout, column: int, book: Book) -> Cell | None:
    """The cell that a line's marks compare with, in the same column."""
    return _found(book, _against(line, layout, column))


def _against(line: Line, layout: Layout, column: int) -> Place | None:
    """Where that stands."""
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


def _order(book: Book) -> str:
    """Whether our means have the order of the paper's where that tells rows apart."""
    told, turned = 0, []
    for layout in TABLES:
        for line, column, place in layout.numbered():
            cell, reference = _found(book, place), _reference(line, layout, column, book)
            if cell is None or reference is None or not line.counted:
                continue
            count, other = agreement(reference, [cell])
            told += count
            turned += [f"{line.label} on {cell.problem}" for _ in other]
    but = f", not of {', '.join(turned)}" if turned else ""
    return (
        f"The paper tells {told} rows from its coreset by two standard errors; {told - len(turned)} "
        f"have the same order here{but}."
    )


def _runtime(book: Book) -> str:
    body = [
        [network, work, f"{ours:.3f} s", f"{theirs} s"]
        for network, work, ours, theirs in runtimes(book)
    ]
    if not body:
        return ""
    return (
        f"## Table 4: run time\n\n{command(['runtime'], book.folder)}. Kernels on an H200 (the paper's on a "
        "GTX 1080 Ti), coresets on one thread.\n\n"
        + markdown(["network", "1000 points", "ours", "paper"], body)
    )


def _regression() -> str:
    """The largest pools; the page of benchmarks has the others."""
    exact, seen = read_record("pooled_regression"), read_record("pooled_whole")
    size = max(row["size"] for row in exact["rows"])
    scores: dict[tuple[str, str, int], list[float]] = {}
    for slopes, record in {"exact": exact, "landmarks": seen}.items():
        for row in record["rows"]:
            if row["size"] == size:
                key = (row["method"], slopes, row["pool"])
                scores.setdefault(key, []).append(100 * row["accuracy"])
    shown = [
        ("uniform, optimised weights", "exact", 5000),
        ("coreset, optimised weights", "landmarks", 10_000),
        ("coreset, optimised weights", "landmarks", 50_000),
        ("coreset, optimised weights", "exact", 10_000),
    ]
    body = [
        [key[0], key[1], str(key[2]), str(len(scores[key])), _spread(scores[key])] for key in shown
    ]
    claim = PAPER["claims"]["figure 3b, KRR CIFAR-10, 400 points"]
    return (
        f"## Figure 3b: kernel regression on CIFAR-10\n\n`{exact['command']}`; `{seen['command']}`. Percent of {exact['tested']} images "
        f"(landmarks: all), {size} points. The paper: {claim}. [All sizes](benchmarks.md).\n\n"
        + markdown(["method", "slopes", "images", "seeds", "ours"], body)
        + "\n![Accuracy against size](images/pooled_regression.png)\n"
    )


def _spread(scores: list[float]) -> str:
    found = np.array(scores)
    return f"{found.mean():.2f}" + (f" ± {found.std():.2f}" if len(found) > 1 else "")


def _picks(book: Book) -> str:
    runs = [one for one in book.records("picks") if one["method"] == "Coreset"]
    if not runs:
        return ""
    head = ["seed", *(str(one["seed"]) for one in runs)]
    body = [
        ["classes among the first ten", *(str(one["classes_in_first_ten"]) for one in runs)],
        ["eights, ones", *(f"{one['eights']}, {one['ones']}" for one in runs)],
    ]
    return (
        f"## Figure 5: forty picks of MNIST\n\n{command(['picks'], book.folder)}.\n\n"
        + markdown(head, body)
        + "\n![The picks in order](images/reproduction_picks.png)\n"
    )


def _drawn() -> str:
    return (
        "## Figures 1 and 2\n\nFigure 1 is drawn from [MNIST](streams.md), not iCub World; figure 2 by "
        "`python -m experiments figure merge-reduce` from a live buffer.\n\n"
        "![The slots of a buffer of three after each of seven batches]"
        "(images/reproduction_merge-reduce.png)\n"
    )

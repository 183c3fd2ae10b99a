"""docs/reproduction.md, docs/tables/reproduction.md and docs/tables/experiments.md, from
records."""

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.pages import read_record, where
from experiments.catalogue import EXPERIMENTS
from experiments.claims import CLAIMS, Answer, Claim, answer_claims
from experiments.comparisons import compare, total_minutes
from experiments.layout import LAYOUTS, Layout, Line, list_published
from experiments.methods import FRESH
from experiments.paper import PAPER_SEEDS
from experiments.records import Record, Records, identity
from experiments.statistics import Gap, Verdict
from experiments.stores import GSS_BATCH
from experiments.streaming import StreamRow
from experiments.tables import (
    AGAIN,
    OTHERS,
    Book,
    Cell,
    cell_table,
    cells,
    difference,
    mark,
    progress,
    read_book,
    read_runs,
    show_paper,
    spread,
    table,
)
from experiments.tasks import BATCH

#: Known causes of differences from the paper, by experiment, then "data: key of the row".
CAUSES, WORDS, AUTHORS = (
    json.loads(Path(__file__).with_name(f"{name}.json").read_text())
    for name in ("causes", "deviations", "authors")
)
UNKNOWN = "no cause has been found"
#: Numbers of labels for which BatchBALD's own paper gives an accuracy.
PUBLISHED_LABELS = (90, 200)


def published_gaps(book: Book) -> list[Gap]:
    return [cell.difference for cell in published_cells(book)]


def count_comparisons(book: Book, answered: list[tuple[Claim, Answer]]) -> int:
    """Those with published numbers, of claims, and of marks in tables."""
    marks = _find_compared(book).union(*(answer.compared for _, answer in answered))
    return len(published_gaps(book)) + len(marks)


def count_verdicts() -> dict[str, int]:
    """The number of the paper's claims by their verdict."""
    found = Counter(answer.verdict for _, answer in answer_claims(read_book(), CLAIMS))
    return {verdict.name: found[verdict] for verdict in Verdict}


def plan_table(claims: list[tuple[Claim, Answer]]) -> str:
    """For each claim that is not resolved the comparison that needs the most seeds."""
    head = ["claim", "comparison", "seeds", "difference", "paired spread", "δ", "seeds at δ"]
    head += ["at the difference", "minutes"]
    patterns = "{claim} | {label} | {seeds} | {gap} | {paired_spread:.2f} | {margin} | {needed}"
    body = []
    for claim, answer in claims:
        if answer.verdict is Verdict.OPEN and answer.plans:
            plan = max(answer.plans, key=lambda one: one.needed)
            minutes = total_minutes(answer.plans)
            body.append({**vars(plan), "claim": claim.words, "all_minutes": minutes})
    return pages.table(head, body, patterns + " | {at_effect} | {all_minutes:.0f}")


def published_cells(book: Book) -> Iterator[Cell]:
    """Our cell for every published number."""
    for _, _, place in list_published():
        cell = book.find(place)
        if cell is not None and cell.difference is not None:
            yield cell


def layout_table(layout: Layout, book: Book) -> str:
    """A table of the paper; columns of differences only if there are published numbers."""
    rows = [_line(line, layout, book) for line in layout.lines if not line.hidden]
    has_paper = any(cell for row in rows for cell in row[2::3])
    head = [""]
    for column in layout.columns:
        head += [column, "paper", "difference"] if has_paper else [column]
    return pages.table(head, rows if has_paper else [[row[0], *row[1::3]] for row in rows])


def _line(line: Line, layout: Layout, book: Book) -> list[str]:
    shown = [line.label]
    for place, other in zip(line.places, layout.references(line), strict=True):
        cell = book.find(place)
        if cell is None:
            shown += ["", "", ""]
            continue
        seeds = "" if cell.seeds == PAPER_SEEDS else f"({cell.seeds})"
        ours = " ".join(filter(None, [f"{cell:.2f}", seeds, mark(cell, book.find(other))]))
        shown += [ours, show_paper(cell), difference(cell)]
    return shown


def _find_compared(book: Book) -> frozenset[Hashable]:
    """The comparisons that the marks of all tables make."""
    pairs: set[Hashable] = set()
    for layout in LAYOUTS:
        for line in layout.lines:
            for place, other in zip(line.places, layout.references(line), strict=True):
                if mark(book.find(place), book.find(other)):
                    pairs.add(compare(other, place).key)
    return frozenset(pairs)


def list_deviations(book: Book) -> list[str]:
    steps = StreamRow.steps
    facts = {
        "steps": steps,
        "batch": BATCH,
        "gss_batch": GSS_BATCH,
        "gss_steps": steps * GSS_BATCH // BATCH,
        "mixed": _list_mixed(book),
        "authors": _score_authors(),
        "acquiring": _score_acquiring(book),
        "tested": pages.format_count(read_record("pooled_regression")["tested"]),
    }
    return [words.format(**facts).strip() for words in WORDS]


def _score_authors() -> str:
    """Accuracies of networks trained on the rows that the authors' own code kept, β by held-out
    points."""
    found = []
    for method in pages.unique(AUTHORS["rows"], "method"):
        rows = where(AUTHORS["rows"], method=method)
        runs = [where(rows, beta=beta) for beta in pages.unique(rows, "beta")]
        chosen = max(runs, key=lambda one: np.mean([run["held"] for run in one]))
        variant = method.partition(f"{FRESH}, ")[2]
        found.append(spread(pages.percent(chosen, "test")) + (f" ({variant})" if variant else ""))
    return " and ".join(found)


def _score_acquiring(book: Book) -> str:
    """Accuracies of the networks by which BatchBALD acquires, with the labels of its own paper."""
    runs = where(book.records("summary"), method="BatchBALD")
    runs = where(runs, memory=max(run["memory"] for run in runs))
    found = []
    for labels in PUBLISHED_LABELS:
        scores = 100 * np.array([dict(run["acquisition"])[labels] for run in runs])
        found.append(f"{spread(scores)} with {labels} labels")
    return " and ".join(found)


def _list_mixed(book: Book) -> str:
    """Rows whose runs were made with several precisions."""
    found = []
    for name in ("imbalanced", "streaming", "streaming-fresh", "continual"):
        kinds: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for record in book.records(name):
            kinds[record["dataset"], record["method"]][record.get("precision", "")] += 1
        for (problem, key), counts in kinds.items():
            if len(counts) > 1:
                parts = " and ".join(f"{count} in {kind}" for kind, count in sorted(counts.items()))
                found.append(
                    f"The runs of {key} on the {name} stream of {problem} mix them: {parts}."
                )
    return " ".join(found)


def list_causes(book: Book) -> list[str]:
    """Published numbers that differ significantly from ours, with the cause if it is known."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for _, label, place in list_published():
        cell = book.cell(place)
        gap = cell.difference
        if gap is not None and (gap.above or gap.below):
            known = CAUSES.get(place.experiment, {})
            cause = known.get(f"{cell.problem}: {cell.row.key}", UNKNOWN)
            found[cause][label].append(f"{cell.problem} {gap.value:+.2f}")
    return [
        "; ".join(f"{label} ({', '.join(gaps)})" for label, gaps in rows.items()) + f": {cause}."
        for cause, rows in found.items()
    ]


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
    records = [record for name in names for record in Records(name, folder).all()]
    further = sum(record["seed"] >= PAPER_SEEDS for record in records)
    more = f", and {further} runs with further seeds" if further else ""
    words = f"`python -m experiments run {' '.join(names)} --data DIR`"
    return f"{words}: {done} of {wanted} runs{more}"


def _cost(records: list[Record]) -> str:
    records = [record for record in records if AGAIN not in record]
    machines = [record["machine"] for record in records]
    hardware = sorted({machine["gpu"] or machine["processor"] for machine in machines})
    minutes = sum(record["seconds"] for record in records) / 60
    # the time of a resumed run before it was stopped is not known
    least = "at least " if any(record.get("resumed") for record in records) else ""
    return f"{least}{minutes:.1f} minutes on {', '.join(hardware)}"


def _references(found: list[Cell], cell: Cell) -> list[Cell]:
    """The rows it is compared with: the paper's method and ours, with the same data, size and
    network."""
    known = [other for other in found if other.row.reference and other.seeds > 1]
    same = [other for other in known if other.row.normalisation == cell.row.normalisation]
    own = (cell.problem, cell.memory)
    return [other for other in same if (other.problem, other.memory) == own]


def _marks(found: list[Cell], cell: Cell) -> str:
    """One for each row that it is compared with; a dot for itself."""
    return "".join(mark(cell, other) or "·" for other in _references(found, cell))


def _legend(found: list[Cell]) -> str:
    """Which rows the marks compare with, and how many comparisons that makes."""
    pairs = [(cell, other) for cell in found for other in _references(found, cell)]
    count = sum(bool(mark(*pair)) for pair in pairs)
    if not count:
        return ""
    known = "; ".join(f"*{key}*" for key in dict.fromkeys(one.row.key for _, one in pairs))
    return f"References of the marks: {known} ({count} comparisons).\n"


def _precision(name: str, folder: Path) -> str:
    """Runs with products in float32 compared with the same runs of the table."""
    fast = {identity(record): record for record in Records(name, folder).all()}
    exact = Records(f"{name}-float32", folder).all()
    pairs = [(one, fast[identity(one)]) for one in exact if identity(one) in fast]
    if not pairs:
        return ""
    gap = np.mean([100 * (np.mean(one["test"]) - np.mean(other["test"])) for one, other in pairs])
    kinds = " and ".join(sorted({other["precision"] for _, other in pairs}))
    runs = f"{len(pairs)} runs" if len(pairs) > 1 else "one run"
    return f"Float32 instead of {kinds} products changed {runs} by {gap:+.2f} points on average.\n"

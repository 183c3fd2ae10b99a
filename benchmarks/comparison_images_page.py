"""The part of docs/comparison.md that is on images, from the record of ``comparison_images``; there
is none as long as there is no record."""

from __future__ import annotations

from typing import Any

from benchmarks.common import RECORDS, read_record, table, told
from benchmarks.comparison_embedding_page import ABOVE, BELOW, LEVEL, OURS, by_seed, cell, mark
from benchmarks.comparison_embedding_page import complete as seeds_of
from bicore.evaluate.comparison import WHOLE
from bicore.evaluate.records import Row
from bicore.evaluate.statistics import summarise
from bicore.selectors.registry import METHODS

RECORD = "comparison_images"
#: Whatever pieces it was run in.
COMMAND = (
    "python -m benchmarks comparison_images --data DIR --device cuda --seeds 10 --workers 15 --rows "
    "ROWS.jsonl --record"
)
#: What needs no method: methods are compared with both.
CHANCE = ("uniform", "class-balanced")
LINK = " and on [its images](#cifar-10-images-the-papers-resnet-18)"


def recorded() -> bool:
    return (RECORDS / f"{RECORD}.json").exists()


def link() -> str:
    """Where the page's first sentence leads beside its other parts."""
    return LINK if recorded() else ""


def apart() -> str:
    """Where the methods are that came after MNIST."""
    return "CIFAR-10" if recorded() else "the embedding"


def section() -> str:
    """The part, with an empty line behind it; nothing without a record."""
    return _section(read_record(RECORD)) if recorded() else ""


def _section(record: dict[str, Any]) -> str:
    settings = record["settings"]
    every = [Row(**row) for row in record["rows"]]
    whole = [row.accuracy for row in every if row.method == WHOLE]
    rows, sizes, heads = _whole_seeds([row for row in every if row.method != WHOLE], record)
    reached = f"{100 * sum(whole) / len(whole):.2f}%" if whole else "–"
    return f"""## CIFAR-10 images, the paper's ResNet-18

{told(record | {"command": COMMAND})}
For each seed a pool of {settings["pool"]} random training images is drawn, standardised by the constants of the set. Every method selects some of
them; the paper's ResNet-18, which has no normalisation, is trained from scratch on each selection ({settings["steps"]} steps of Adam, 5e-4, all
points a step, random crops and mirror images, {settings["arithmetic"]}) and tested on all {settings["test"]} test images. All networks of a seed start from the
same weights and see the same crops. The same network trained on the whole pool, in batches of 256, reaches {reached}; methods that look
at a network get that one. `bilevel` is what `bicore.select` takes where nothing is said, `paper` the paper's setting; their kernels
know nothing of the judge.

Accuracy in percent, mean ± standard error over the seeds that every method has; all selections of a seed come from the same images.
Two marks compare with `{CHANCE[0]}` and with `{CHANCE[1]}` by the paired 95% interval: {BELOW} below, {ABOVE} above, {LEVEL} not told apart; of
some {2 * (len(METHODS) - 2)} comparisons a column about {(len(METHODS) - 2) / 10:.0f} would be told apart by chance. † has fewer seeds. The last columns count the seeds and sizes
in which a method is above each of the two. {_left_out(record)}

{_table(rows, sizes, heads)}
"""


def _whole_seeds(rows: list[Row], record: dict[str, Any]) -> tuple[list[Row], list[int], list[str]]:
    """Rows of seeds that every method has, the sizes that have some, and how many each has."""
    whole = {size: seeds_of(rows, size) for size in record["sizes"]}
    sizes = [size for size in whole if whole[size]]
    heads = [f"{size} points, {len(whole[size])} seeds" for size in sizes]
    return [row for row in rows if row.seed in whole[row.size]], sizes, heads


def _table(rows: list[Row], sizes: list[int], heads: list[str]) -> str:
    """A column a size, the best at the smallest first."""
    summary = summarise(rows, list(METHODS), sizes)
    best = {entry.method: entry.mean for entry in summary.entries if entry.size == sizes[0]}
    present = {row.method for row in rows}
    order = sorted(
        (name for name in METHODS if name in present),
        key=lambda name: best.get(name, 0.0),
        reverse=True,
    )
    body = [
        [
            f"**{name}**" if name == OURS else name,
            *(cell(summary.of(name, size), _marks(rows, name, size)) for size in sizes),
            *(_above(rows, name, other, sizes) for other in CHANCE),
        ]
        for name in order
    ]
    return table(["method", *heads, *(f"above {other}" for other in CHANCE)], body)


def _marks(rows: list[Row], method: str, size: int) -> str:
    """Against both; a dot in the place of itself."""
    marks = [mark(rows, method, size, other) or "·" for other in CHANCE]
    return "" if set(marks) == {"·"} else "".join(marks)


def _above(rows: list[Row], method: str, other: str, sizes: list[int]) -> str:
    """In how many seeds and sizes that both have."""
    if method == other:
        return ""
    pairs = [
        (row.accuracy, beside[seed].accuracy)
        for size in sizes
        for beside in [by_seed(rows, other, size)]
        for seed, row in by_seed(rows, method, size).items()
        if seed in beside
    ]
    return f"{sum(own > theirs for own, theirs in pairs)} of {len(pairs)}"


def _left_out(record: dict[str, Any]) -> str:
    """Who is not there, and why."""
    there = {row["method"] for row in record["rows"]}
    absent = [name for name in METHODS if name not in there and name != "batchbald"]
    words = ["`batchbald` draws networks by dropout, which this one does not have."]
    words += [f"`{name}` is not there: {record['failed'].get(name, 'not run')}." for name in absent]
    return " ".join(words)

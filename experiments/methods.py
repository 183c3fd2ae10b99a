"""Rows shared by several tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.continual import ContinualRow
from experiments.paper import find_published
from experiments.problems import Problem
from experiments.rows import Row
from experiments.selectors import CORESET, UNIFORM, Named, Picker
from experiments.stores import BALANCED_RESERVOIR, RESERVOIR, ByMoments, Picked, Slots, Store
from experiments.streaming import StreamRow, Weighting
from experiments.summary import CoresetChoice, Recipe, SummaryRow, UniformChoice

#: What the keys of streams that are run as the authors' code runs them end in.
FRESH, BY_BATCHES = ", fresh optimiser", ", slots by their batches"
GSS_ROW = "GSS (Aljundi et al. 2019)"
#: The paper's rows of table 1 that rehearse a memory, and how it is chosen.
REHEARSED: dict[str, Picker] = {
    "Uniform sampling": UNIFORM,
    "k-means of features": Named("k-means-features"),
    "k-means of embeddings": Named("k-means-embedding"),
    "k-means of grads": Named("k-means-gradients"),
    "k-center of features": Named("k-center-features"),
    "k-center of embeddings": Named("k-center-embedding"),
    "k-center of grads": Named("k-center-gradients"),
    "Gradient matching": Named("gradient-matching"),
    "Max entropy samples": Named("max-entropy"),
    "Hardest samples": Named("hardest"),
    "FRCL's selection": Named("frcl"),
    "iCaRL's selection": Named("icarl"),
    "Coreset": CORESET,
}
#: Those that train at the end.
AT_END: dict[str, Picker] = {
    "Uniform sampling, train at the end": UNIFORM,
    "Per task coreset, train at the end": CORESET,
}


def by_key(rows: Sequence[Any]) -> dict[str, Any]:
    return {row.key: row for row in rows}


def add_paper(table: str, rows: Sequence[Row]) -> list[Any]:
    """The rows with the numbers that the paper has for them."""
    return [replace(row, paper=find_published(table, row.key, row.problem)) for row in rows]


def continual_row(
    problem: Problem, memory: int, key: str, how: Picker | Store | None, **facts: Any
) -> ContinualRow:
    """With the network of the problem, unless the facts have another; a picker gives every task an
    equal share."""
    facts = {"network": problem.network, **facts}
    store = Picked(how) if isinstance(how, Picker) else how
    return ContinualRow(problem=problem, memory=memory, key=key, store=store, **facts)


def continual_rows(problem: Problem, memory: int) -> list[ContinualRow]:
    """The paper's sixteen rows of table 1."""
    ends = [continual_row(problem, memory, *one, at_end=True) for one in AT_END.items()]
    rows = [continual_row(problem, memory, *one) for one in REHEARSED.items()]
    rows[-1] = replace(rows[-1], reference=True)
    none = continual_row(problem, memory, "Training w/o replay", None)
    return add_paper("continual_learning", [none, *ends, *rows])


def joint_rows(problem: Problem, memory: int, ways: Mapping[str, ByMoments]) -> list[ContinualRow]:
    """One choice over all tasks by moments, in these ways."""
    ours = ByMoments(jointly=True)
    return [continual_row(problem, memory, *one, reference=one[1] == ours) for one in ways.items()]


def stream_row(
    problem: Problem, memory: int, key: str, how: Picker | Store, **facts: Any
) -> StreamRow:
    """With the network of the problem. A picker fills a merge-reduce buffer, whose slots count for
    their share of the stream; what is sampled is rehearsed equally, unless the facts say
    otherwise."""
    picked = isinstance(how, Picker)
    weighting = Weighting.SHARE if picked else Weighting.EQUAL
    facts = {"network": problem.network, "weighting": weighting, **facts}
    store = Slots(how) if picked else how
    return StreamRow(problem=problem, memory=memory, key=key, store=store, **facts)


def moment_rows(
    problem: Problem, memory: int, stores: Mapping[str, Store], ours: Store, **facts: Any
) -> list[StreamRow]:
    """Memories by moments, by their keys; ``ours`` is the one that a table is compared with."""
    return [
        stream_row(problem, memory, key, store, reference=store == ours, **facts)
        for key, store in stores.items()
    ]


def with_fresh_optimiser(row: StreamRow) -> StreamRow:
    """The same row with a fresh optimiser a batch."""
    return row.variant(row.key + FRESH, fresh=True)


def with_counted_batches(row: StreamRow) -> StreamRow:
    """The same row with slots that count for their batches, as the authors' do."""
    return row.variant(row.key + BY_BATCHES, weighting=Weighting.BATCHES, reference=False)


def imbalanced_rows(problem: Problem, memory: int) -> list[StreamRow]:
    """The paper's three rows of an imbalanced stream."""
    rows = [
        stream_row(problem, memory, "Reservoir", RESERVOIR),
        stream_row(problem, memory, "CBRS", BALANCED_RESERVOIR),
        stream_row(problem, memory, "Coreset", CORESET, reference=True),
    ]
    return add_paper("imbalanced_streaming", rows)


def summary_rows(problem: Problem, recipe: Recipe) -> list[SummaryRow]:
    """The paper's coreset and random samples."""
    facts = {"problem": problem, "recipe": recipe, "network": problem.network}
    uniform = SummaryRow(key="Uniform", choice=UniformChoice(), **facts)
    return [uniform, uniform.variant("Coreset", choice=CoresetChoice(), reference=True)]

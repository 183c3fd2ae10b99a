"""The rows that several tables have in common, before they are given to a table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from experiments.continual import ContinualRow
from experiments.paper import published
from experiments.problems import Problem
from experiments.rows import Row
from experiments.selectors import CORESET, UNIFORM, Named, Picker
from experiments.stores import BALANCED_RESERVOIR, RESERVOIR, ByMoments, Slots, Store
from experiments.streaming import Optimiser, StreamRow, Weighting
from experiments.summary import CrossEntropyChoice, Recipe, SummaryRow, UniformChoice

Kind = TypeVar("Kind", bound=Row)

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
UNIFORM_AT_END = "Uniform sampling, train at the end"
CORESET_AT_END = "Per task coreset, train at the end"


def by_key(rows: Sequence[Kind]) -> dict[str, Kind]:
    return {row.key: row for row in rows}


def continual_row(
    problem: Problem, memory: int, key: str, picker: Picker | None, **facts: Any
) -> ContinualRow:
    """With the network of the problem, unless the facts have another."""
    facts = {"network": problem.network, **facts}
    return ContinualRow(problem=problem, memory=memory, key=key, picker=picker, **facts)


def continual_rows(problem: Problem, memory: int) -> list[ContinualRow]:
    """The paper's sixteen rows of table 1."""
    rows = [
        continual_row(problem, memory, "Training w/o replay", None),
        continual_row(problem, memory, UNIFORM_AT_END, UNIFORM, at_end=True),
        continual_row(problem, memory, CORESET_AT_END, CORESET, at_end=True),
        *(continual_row(problem, memory, key, picker) for key, picker in REHEARSED.items()),
    ]
    return [
        replace(
            row,
            paper=published("continual_learning", row.key, problem),
            reference=row.picker is CORESET and row.rehearsed,
        )
        for row in rows
    ]


def joint_rows(problem: Problem, memory: int, ways: Mapping[str, ByMoments]) -> list[ContinualRow]:
    """One choice over all tasks by moments, in these ways."""
    return [
        continual_row(problem, memory, key, None, jointly=how, reference=how == ByMoments())
        for key, how in ways.items()
    ]


def stream_row(problem: Problem, memory: int, key: str, store: Store, **facts: Any) -> StreamRow:
    """With the network of the problem; what is sampled is rehearsed equally, unless the facts have
    it otherwise."""
    facts = {"network": problem.network, "weighting": Weighting.EQUAL, **facts}
    return StreamRow(problem=problem, memory=memory, key=key, store=store, **facts)


def coreset_row(problem: Problem, memory: int, key: str, picker: Picker, **facts: Any) -> StreamRow:
    """A merge-reduce buffer, whose slots count for their share of the stream unless the facts have
    it otherwise."""
    facts = {"weighting": Weighting.SHARE, **facts}
    return stream_row(problem, memory, key, Slots(picker), **facts)


def moment_rows(
    problem: Problem, memory: int, stores: Mapping[str, Store], ours: Store, **facts: Any
) -> list[StreamRow]:
    """Memories by moments, by their keys; ``ours`` is the one that a table is compared with."""
    return [
        stream_row(problem, memory, key, store, reference=store == ours, **facts)
        for key, store in stores.items()
    ]


def fresh(row: StreamRow) -> StreamRow:
    """The same row with a fresh optimiser a batch."""
    return row.variant(row.key + FRESH, optimiser=Optimiser.FRESH)


def counted(row: StreamRow) -> StreamRow:
    """The same row with slots that count for the batches they stand for, as the authors' do."""
    return row.variant(row.key + BY_BATCHES, weighting=Weighting.BATCHES, reference=False)


def imbalanced_rows(problem: Problem, memory: int) -> list[StreamRow]:
    """The paper's three rows of an imbalanced stream."""
    rows = [
        stream_row(problem, memory, "Reservoir", RESERVOIR),
        stream_row(problem, memory, "CBRS", BALANCED_RESERVOIR),
        coreset_row(problem, memory, "Coreset", CORESET, reference=True),
    ]
    return [replace(row, paper=published("imbalanced_streaming", row.key, problem)) for row in rows]


def summary_rows(problem: Problem, recipe: Recipe) -> list[SummaryRow]:
    """The paper's coreset and uniform samples."""
    uniform = SummaryRow(
        problem=problem,
        key="Uniform",
        choice=UniformChoice(),
        recipe=recipe,
        network=problem.network,
    )
    coreset = uniform.variant("Coreset", choice=CrossEntropyChoice(), reference=True)
    return [uniform, coreset]

"""The rows of every experiment on MNIST."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from experiments import methods, selectors, stores, summary, variational
from experiments.methods import (
    FRESH,
    GSS_ROW,
    by_key,
    continual_row,
    stream_row,
    with_counted_batches,
    with_fresh_optimiser,
)
from experiments.paper import PAPER, find_published
from experiments.problems import (
    CIFAR_POOL,
    IMBALANCED_MNIST,
    MNIST_POOL,
    PERM_MNIST,
    SPLIT_MNIST,
    Problem,
)
from experiments.rows import Row, Source, experiment
from experiments.selections import PicksRow, RuntimeRow
from experiments.selectors import CORESET, RBF_CORESET, SQUARED_CORESET, WEIGHTED_CORESET, Named
from experiments.stores import EQUAL_MOMENTS, MOMENTS, ByMoments
from experiments.streaming import StreamRow, Weighting

MEMORY = 100
SIZES = (50, MEMORY, 200)
PROBLEMS = (PERM_MNIST, SPLIT_MNIST)
#: The imbalanced stream has one slot, and a λ of its own.
IMBALANCED: dict[str, Any] = {"slots": 1, "penalty": 1e-4}
#: Buffers that are compared at every size of memory and with both optimisers.
COMPARED = ("Reservoir sampling", "CBRS", GSS_ROW, "ExStream", "Streaming coreset", *MOMENTS)
#: Further rows of the streams as the authors' code runs them.
AS_THE_AUTHORS = ("Streaming coreset RBF", "Streaming coreset, balanced classes")
#: Names of streams in the table of memory sizes, which holds their runs.
IN_MEMORY_TABLE = {
    "Reservoir sampling": "Streaming reservoir sampling",
    "Streaming coreset": "Streaming coreset",
}
#: Baselines as the authors' code runs them, to find the cause of a difference.
TRAPS = {
    "k-means of grads": ("dropout on", Named("k-means-gradients")),
    "k-center of grads": ("dropout on", Named("k-center-gradients")),
    "Gradient matching": ("dropout on, normalised", Named("gradient-matching", scaled=True)),
    "Max entropy samples": ("dropout on", Named("max-entropy")),
    "Hardest samples": ("dropout on", Named("hardest")),
    "k-center of features": ("from the first point", Named("k-center-features", from_first=True)),
}


@experiment("continual", "Continual learning with a memory of 100 (table 1, appendix)", PROBLEMS)
def continual(problem: Problem) -> Sequence[Row]:
    """The paper's rows, and our own: every point a candidate, the squared error instead of the
    cross-entropy, weights kept in the memory; and one choice over all tasks by moments."""
    variants = {
        "Coreset, all candidates": selectors.ByProxy(all_candidates=True),
        "Coreset, squared error": SQUARED_CORESET,
        "Coreset, weights kept": WEIGHTED_CORESET,
    }
    # permuted pixels have no neighbours
    images = stores.JOINT_IMAGES if problem is SPLIT_MNIST else {}
    return [
        *methods.continual_rows(problem, MEMORY),
        *(continual_row(problem, MEMORY, key, picker) for key, picker in variants.items()),
        *methods.joint_rows(problem, MEMORY, stores.JOINT_MOMENTS | images),
    ]


@experiment("traps", "Continual learning: baselines as in the authors' code", PROBLEMS)
def traps(problem: Problem) -> Iterator[Row]:
    """Networks are looked at with dropout on, gradient matching scales gradients to length 1, and
    k-center begins with the first point of a task."""
    for method, (variant, picker) in TRAPS.items():
        facts = {"noisy": True, "paper": find_published("continual_learning", method, problem)}
        yield continual_row(problem, MEMORY, f"{method}, {variant}", picker, **facts)


@experiment("memory", "Memory sizes on SplitMNIST")
def memory_sizes() -> Iterator[Row]:
    """Three sizes; the runs of the middle one are those of other tables."""
    for memory in SIZES:
        learning = by_key(methods.continual_rows(SPLIT_MNIST, memory))
        streams = by_key(streaming(SPLIT_MNIST, memory))
        rows = [
            learning["Uniform sampling"].borrow("continual", "CL uniform sampling"),
            learning["Coreset"].borrow("continual", "CL coreset"),
            *(streams[key].borrow("streaming", own) for key, own in IN_MEMORY_TABLE.items()),
        ]
        for row in rows:
            paper = PAPER["memory_size_splitmnist"][row.key].get(str(memory))
            source = row.source if memory == MEMORY else None
            yield replace(row, paper=paper, source=source)


@experiment("proxy", "An RBF kernel as the proxy", PROBLEMS)
def proxies(problem: Problem) -> Sequence[Row]:
    """The RBF kernel next to the network's own in three settings; all but one row are runs of the
    other tables."""
    learning = by_key(methods.continual_rows(problem, MEMORY))
    posteriors, streams = by_key(posterior(problem)), by_key(streaming(problem))
    paper = find_published("rbf_proxy", "CL Coreset RBF", problem)
    rows = [
        learning["Coreset"].borrow("continual", "CL Coreset CNTK"),
        continual_row(problem, MEMORY, "CL Coreset RBF", RBF_CORESET, paper=paper),
        posteriors["Coreset"].borrow("vcl", "VCL Coreset CNTK"),
        posteriors["Coreset RBF"].borrow("vcl", "VCL Coreset RBF"),
        streams["Streaming coreset"].borrow("streaming", "Streaming Coreset CNTK"),
        streams["Streaming coreset RBF"].borrow("streaming", "Streaming Coreset RBF"),
    ]
    return [replace(row, reference=False) for row in rows]


@experiment("vcl", "Variational continual learning with 20 rows per task", PROBLEMS)
def posterior(problem: Problem) -> Sequence[variational.VariationalRow]:
    """The paper's four rows and one of our own."""
    recipe = variational.PERMUTED if problem is PERM_MNIST else variational.SPLIT
    row = partial(variational.VariationalRow, problem=problem, recipe=recipe)
    rows = [
        row(key="k-center", picker=Named("k-center-features")),
        row(key="Uniform", picker=selectors.UNIFORM),
        row(key="Coreset", picker=CORESET, reference=True),
        row(key="Coreset RBF", picker=RBF_CORESET),
        row(key="Coreset, squared error", picker=SQUARED_CORESET),
    ]
    return methods.add_paper("vcl", rows)


@experiment("streaming", "Streams with a memory of 100 (figure 4)", PROBLEMS)
def streaming(problem: Problem, memory: int = MEMORY) -> Sequence[StreamRow]:
    """The paper's six rows and six of our own."""
    row = partial(stream_row, problem, memory)
    rows = [
        row("Train on coreset only", CORESET, at_end=True),
        row("Reservoir sampling", stores.RESERVOIR),
        *_other_buffers(problem, memory),
        row("Streaming coreset", CORESET, reference=True),
        row("Streaming coreset RBF", RBF_CORESET),
        row("Streaming coreset, squared error", SQUARED_CORESET),
        row("Streaming coreset, weights kept", WEIGHTED_CORESET),
        row("Streaming coreset, balanced classes", selectors.BALANCED_CORESET),
        row("CBRS", stores.BALANCED_RESERVOIR),
        *methods.moment_rows(problem, memory, MOMENTS, ByMoments()),
    ]
    return methods.add_paper("streaming", rows)


def _other_buffers(problem: Problem, memory: int) -> list[StreamRow]:
    return [
        stream_row(problem, memory, GSS_ROW, stores.GSS),
        stream_row(problem, memory, "ExStream", stores.PROTOTYPES, weighting=Weighting.SHARE),
    ]


@experiment(
    "streaming-fresh",
    "Streams with a fresh optimiser for each batch, as in the authors' code",
    PROBLEMS,
)
def fresh_streams(problem: Problem, memory: int = MEMORY) -> Sequence[StreamRow]:
    """As the authors' code runs them: every batch of the stream begins with a fresh optimiser, and
    in the last row slots count for their batches."""
    streams = by_key(streaming(problem, memory))
    rows = [with_fresh_optimiser(streams[key]) for key in (*COMPARED, *AS_THE_AUTHORS)]
    coreset = with_fresh_optimiser(streams["Streaming coreset"])
    return [*rows, with_counted_batches(coreset)]


@experiment(
    "streaming-fresh-sizes",
    "Streams with a fresh optimiser for each batch: memories of 50, 100 and 200",
    PROBLEMS,
)
def fresh_sizes(problem: Problem) -> Iterator[Row]:
    """Three sizes of memory; the runs of the middle one are those of another table, and of
    SplitMNIST the table of sizes has published numbers."""
    for size in SIZES:
        for row in fresh_streams(problem, size):
            held = Source("streaming-fresh", row.key) if size == MEMORY else None
            known = IN_MEMORY_TABLE.get(row.key.removesuffix(FRESH))
            paper = None
            if problem is SPLIT_MNIST and known and size != MEMORY:
                paper = PAPER["memory_size_splitmnist"][known].get(str(size))
            yield replace(row, paper=paper, source=held)


@experiment("streaming-sizes", "Streams with memories of 50, 100 and 200", PROBLEMS)
def stream_sizes(problem: Problem) -> Iterator[Row]:
    """Three sizes of memory; runs that other tables hold are theirs."""
    for size in SIZES:
        streams = by_key(streaming(problem, size))
        for row in _of_size(size, [streams[key] for key in COMPARED], "streaming"):
            known = IN_MEMORY_TABLE.get(row.key) if problem is SPLIT_MNIST else None
            yield replace(row, source=row.source or (Source("memory", known) if known else None))


@experiment("imbalanced", "An imbalanced stream of SplitMNIST")
def imbalanced_experiment() -> list[Row]:
    """The paper's rows, and our own: the last a class-balanced reservoir that is rehearsed in the
    proportions of the stream."""
    row = partial(stream_row, IMBALANCED_MNIST, MEMORY, **IMBALANCED)
    share = {"weighting": Weighting.SHARE}
    return [
        *_imbalanced_rows(),
        row("Coreset, squared error", SQUARED_CORESET),
        row("Coreset, weights kept", WEIGHTED_CORESET),
        row("CBRS, weights of the stream", stores.BALANCED_RESERVOIR, **share),
    ]


@experiment("imbalanced-fresh", "The imbalanced stream with a fresh optimiser for each batch")
def imbalanced_fresh() -> list[Row]:
    return list(map(with_fresh_optimiser, _imbalanced_rows()))


@experiment("imbalanced-sizes", "The imbalanced stream with memories of 50, 100 and 200")
def imbalanced_sizes() -> Iterator[Row]:
    for size in SIZES:
        yield from _of_size(size, _imbalanced_rows(size), "imbalanced")


@experiment(
    "imbalanced-fresh-sizes",
    "The imbalanced stream with a fresh optimiser for each batch: memories of 50, 100 and 200",
)
def imbalanced_fresh_sizes() -> Iterator[Row]:
    for size in SIZES:
        yield from _of_size(
            size, map(with_fresh_optimiser, _imbalanced_rows(size)), "imbalanced-fresh"
        )


def _of_size(size: int, rows: Iterable[StreamRow], held: str) -> Iterator[StreamRow]:
    """Rows of one size of memory; the runs of the middle one are held by the table of that name."""
    for row in rows:
        source = Source(held, row.key) if size == MEMORY else None
        ours = row.reference and row.key.startswith("Moments")
        yield replace(row, paper=None, source=source, reference=ours)


def _imbalanced_rows(memory: int = MEMORY) -> Sequence[StreamRow]:
    """The paper's rows, the buffers of the other streams, and memories by moments that count
    classes as they came or alike."""
    problem = IMBALANCED_MNIST
    moments = (MOMENTS | EQUAL_MOMENTS, ByMoments(prior="equal"))
    rows = [
        *methods.imbalanced_rows(problem, memory),
        *_other_buffers(problem, memory),
        *methods.moment_rows(problem, memory, *moments),
    ]
    return [replace(row, **IMBALANCED) for row in rows]


@experiment("summary", "MNIST: 75 to 250 rows for the CNN (figure 3a)")
def summaries() -> list[Row]:
    uniform, coreset = methods.summary_rows(MNIST_POOL, summary.MNIST)
    squared = uniform.variant("Coreset, squared error", choice=summary.CoresetChoice(squared=True))
    return [
        uniform,
        coreset,
        squared,
        uniform.variant("BatchBALD", choice=summary.BatchBALDChoice()),
    ]


@experiment("picks", "Classes of the 40 selected rows of figure 5")
def picks() -> list[Row]:
    return [
        PicksRow(problem=MNIST_POOL, key="Coreset", reference=True),
        PicksRow(problem=MNIST_POOL, key="Coreset, squared error", squared=True),
    ]


@experiment("runtime", "Seconds for kernels and coresets of 1000 points", one_seed=True)
def runtimes() -> list[Row]:
    return [
        RuntimeRow(problem=MNIST_POOL, key="CNN"),
        RuntimeRow(problem=CIFAR_POOL, key="ResNet-18"),
    ]

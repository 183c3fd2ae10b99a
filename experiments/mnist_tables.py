"""The rows of every experiment on MNIST."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from experiments import summary, variational
from experiments.methods import (
    FRESH,
    GSS_ROW,
    by_key,
    continual_row,
    continual_rows,
    coreset_row,
    counted,
    fresh,
    imbalanced_rows,
    joint_rows,
    moment_rows,
    stream_row,
    summary_rows,
)
from experiments.paper import PAPER, published
from experiments.picks import PicksRow
from experiments.problems import (
    CIFAR_POOL,
    IMBALANCED_MNIST,
    MNIST_POOL,
    PERM_MNIST,
    SPLIT_MNIST,
    Problem,
)
from experiments.rows import Number, Row, Source
from experiments.runtime import RuntimeRow
from experiments.selectors import (
    BALANCED_CORESET,
    CORESET,
    RBF_CORESET,
    SQUARED_CORESET,
    UNIFORM,
    WEIGHTED_CORESET,
    ByKernel,
    Named,
)
from experiments.stores import (
    BALANCED_RESERVOIR,
    EQUAL_MOMENTS,
    GSS,
    JOINT_IMAGES,
    JOINT_MOMENTS,
    MOMENTS,
    PROTOTYPES,
    RESERVOIR,
    ByMoments,
)
from experiments.streaming import StreamRow, Weighting
from experiments.summary import SquaredChoice, SummaryRow
from experiments.variational import VariationalRow

MEMORY = 100
SIZES = (50, MEMORY, 200)
PROBLEMS = (PERM_MNIST, SPLIT_MNIST)
#: Of the imbalanced stream: one slot, and a λ of its own.
IMBALANCED: dict[str, Any] = {"slots": 1, "penalty": 1e-4}
#: Buffers that are compared at every size of memory and with both optimisers.
COMPARED = ("Reservoir sampling", "CBRS", GSS_ROW, "ExStream", "Streaming coreset", *MOMENTS)
#: Further rows of the streams as the authors' code runs them.
AS_THE_AUTHORS = ("Streaming coreset RBF", "Streaming coreset, balanced classes")
#: What the table of memory sizes calls the runs that it holds.
IN_MEMORY_TABLE = {
    "Reservoir sampling": "Streaming reservoir sampling",
    "Streaming coreset": "Streaming coreset",
}


def on_each(made: Callable[[Problem], Sequence[Row]]) -> list[Row]:
    """The rows of both problems."""
    return [row for problem in PROBLEMS for row in made(problem)]


def continual_table() -> list[Row]:
    return on_each(_continual)


def _continual(problem: Problem) -> Sequence[Row]:
    """The paper's rows, and variants of our own: every point a candidate, the squared error in
    place of the cross-entropy, weights kept in the memory; and one choice over all tasks by
    moments."""
    return [
        *continual_rows(problem, MEMORY),
        continual_row(problem, MEMORY, "Coreset, all candidates", ByKernel(all_candidates=True)),
        continual_row(problem, MEMORY, "Coreset, squared error", SQUARED_CORESET),
        continual_row(problem, MEMORY, "Coreset, weights kept", WEIGHTED_CORESET),
        *joint_rows(problem, MEMORY, JOINT_MOMENTS),
        # where pixels are permuted nothing lies beside anything
        *joint_rows(problem, MEMORY, JOINT_IMAGES if problem is SPLIT_MNIST else {}),
    ]


def trap_table() -> list[Row]:
    return on_each(_traps)


def _traps(problem: Problem) -> Sequence[Row]:
    """Rows as the authors' code runs them, to find the cause of a difference: networks are looked
    at with dropout on, gradient matching scales gradients to length 1, and k-center begins with the
    first point of a task."""
    rows = {
        "k-means of grads": ("dropout on", Named("k-means-gradients")),
        "k-center of grads": ("dropout on", Named("k-center-gradients")),
        "Gradient matching": ("dropout on, normalised", Named("gradient-matching", scaled=True)),
        "Max entropy samples": ("dropout on", Named("max-entropy")),
        "Hardest samples": ("dropout on", Named("hardest")),
        "k-center of features": (
            "from the first point",
            Named("k-center-features", from_the_first=True),
        ),
    }
    return [
        continual_row(
            problem,
            MEMORY,
            f"{method}, {variant}",
            picker,
            noisy=True,
            paper=published("continual_learning", method, problem),
        )
        for method, (variant, picker) in rows.items()
    ]


def memory_table() -> list[Row]:
    """Three sizes; the runs of the middle one are those of other tables."""
    return [row for memory in SIZES for row in _of_size(memory)]


def _of_size(memory: int) -> Sequence[Row]:
    learning = by_key(continual_rows(SPLIT_MNIST, memory))
    streams = by_key(_streaming(SPLIT_MNIST, memory))
    rows = [
        learning["Uniform sampling"].borrowed("continual", "CL uniform sampling"),
        learning["Coreset"].borrowed("continual", "CL coreset"),
        streams["Reservoir sampling"].borrowed("streaming", "Streaming reservoir sampling"),
        streams["Streaming coreset"].borrowed("streaming", "Streaming coreset"),
    ]
    return [
        replace(
            row,
            paper=PAPER["memory_size_splitmnist"][row.key].get(str(memory)),
            source=row.source if memory == MEMORY else None,
        )
        for row in rows
    ]


def proxy_table() -> list[Row]:
    return on_each(_proxies)


def _proxies(problem: Problem) -> Sequence[Row]:
    """The RBF kernel beside the network's own in three settings; all but one row are runs of the
    other tables."""
    learning = by_key(continual_rows(problem, MEMORY))
    posteriors = by_key(_variational(problem))
    streams = by_key(_streaming(problem))
    rbf = "CL Coreset RBF"
    rows = [
        learning["Coreset"].borrowed("continual", "CL Coreset CNTK"),
        continual_row(
            problem, MEMORY, rbf, RBF_CORESET, paper=published("rbf_proxy", rbf, problem)
        ),
        posteriors["Coreset"].borrowed("vcl", "VCL Coreset CNTK"),
        posteriors["Coreset RBF"].borrowed("vcl", "VCL Coreset RBF"),
        streams["Streaming coreset"].borrowed("streaming", "Streaming Coreset CNTK"),
        streams["Streaming coreset RBF"].borrowed("streaming", "Streaming Coreset RBF"),
    ]
    return [replace(row, reference=False) for row in rows]


def variational_table() -> list[Row]:
    return on_each(_variational)


def _variational(problem: Problem) -> Sequence[VariationalRow]:
    """The paper's four rows and one of our own."""
    recipe = variational.PERMUTED if problem is PERM_MNIST else variational.SPLIT
    pickers = {
        "k-center": Named("k-center-features"),
        "Uniform": UNIFORM,
        "Coreset": CORESET,
        "Coreset RBF": RBF_CORESET,
        "Coreset, squared error": SQUARED_CORESET,
    }
    return [
        VariationalRow(
            problem=problem,
            key=key,
            picker=picker,
            recipe=recipe,
            paper=published("vcl", key, problem),
            reference=picker is CORESET,
        )
        for key, picker in pickers.items()
    ]


def streaming_table() -> list[Row]:
    return on_each(_streaming)


def _streaming(problem: Problem, memory: int = MEMORY) -> Sequence[StreamRow]:
    """The paper's six rows and six of our own."""
    rows = [
        coreset_row(problem, memory, "Train on coreset only", CORESET, at_end=True),
        stream_row(problem, memory, "Reservoir sampling", RESERVOIR),
        stream_row(problem, memory, GSS_ROW, GSS),
        stream_row(problem, memory, "ExStream", PROTOTYPES, weighting=Weighting.SHARE),
        coreset_row(problem, memory, "Streaming coreset", CORESET, reference=True),
        coreset_row(problem, memory, "Streaming coreset RBF", RBF_CORESET),
        coreset_row(problem, memory, "Streaming coreset, squared error", SQUARED_CORESET),
        coreset_row(problem, memory, "Streaming coreset, weights kept", WEIGHTED_CORESET),
        coreset_row(problem, memory, "Streaming coreset, balanced classes", BALANCED_CORESET),
        stream_row(problem, memory, "CBRS", BALANCED_RESERVOIR),
        *moment_rows(problem, memory, MOMENTS, ByMoments()),
    ]
    return [replace(row, paper=published("streaming", row.key, problem)) for row in rows]


def stream_size_table() -> list[Row]:
    """Three sizes of memory; runs that other tables hold are theirs."""
    return on_each(lambda problem: [row for size in SIZES for row in _sized(problem, size)])


def _sized(problem: Problem, memory: int) -> Sequence[Row]:
    streams = by_key(_streaming(problem, memory))
    return [
        replace(
            streams[key],
            paper=None,
            source=_held(problem, memory, key),
            reference=streams[key].reference and key in MOMENTS,
        )
        for key in COMPARED
    ]


def _held(problem: Problem, memory: int, key: str) -> Source | None:
    """Where the runs of a stream are, if another table has them."""
    if memory == MEMORY:
        return Source("streaming", key)
    if problem is SPLIT_MNIST and key in IN_MEMORY_TABLE:
        return Source("memory", IN_MEMORY_TABLE[key])
    return None


def fresh_table() -> list[Row]:
    return on_each(_fresh)


def _fresh(problem: Problem, memory: int = MEMORY) -> Sequence[StreamRow]:
    """As the authors' code runs them: every batch of the stream begins with a fresh optimiser, and
    in the last row slots count for the batches they stand for."""
    streams = by_key(_streaming(problem, memory))
    return [
        *(fresh(streams[key]) for key in (*COMPARED, *AS_THE_AUTHORS)),
        counted(fresh(streams["Streaming coreset"])),
    ]


def fresh_size_table() -> list[Row]:
    """Three sizes of memory; the runs of the middle one are those of another table."""
    return on_each(
        lambda problem: [_fresh_of(row) for size in SIZES for row in _fresh(problem, size)]
    )


def _fresh_of(row: StreamRow) -> StreamRow:
    held = Source("streaming-fresh", row.key) if row.memory == MEMORY else None
    return replace(row, paper=_published_size(row), source=held)


def _published_size(row: StreamRow) -> Number | None:
    """Of SplitMNIST alone, in the table of sizes."""
    known = {key + FRESH: shown for key, shown in IN_MEMORY_TABLE.items()}
    if row.problem is not SPLIT_MNIST or row.key not in known or row.memory == MEMORY:
        return None
    paper: Number | None = PAPER["memory_size_splitmnist"][known[row.key]].get(str(row.memory))
    return paper


def imbalanced_table() -> list[Row]:
    """The paper's rows, and our own: the last a class-balanced reservoir that is rehearsed in the
    proportions of the stream."""
    return [
        *_imbalanced(),
        coreset_row(
            IMBALANCED_MNIST, MEMORY, "Coreset, squared error", SQUARED_CORESET, **IMBALANCED
        ),
        coreset_row(
            IMBALANCED_MNIST, MEMORY, "Coreset, weights kept", WEIGHTED_CORESET, **IMBALANCED
        ),
        stream_row(
            IMBALANCED_MNIST,
            MEMORY,
            "CBRS, weights of the stream",
            BALANCED_RESERVOIR,
            weighting=Weighting.SHARE,
            **IMBALANCED,
        ),
    ]


def imbalanced_fresh_table() -> list[Row]:
    return [fresh(row) for row in _imbalanced()]


def imbalanced_size_table() -> list[Row]:
    return [row for size in SIZES for row in _imbalanced_of(size, _imbalanced(size), "imbalanced")]


def imbalanced_fresh_size_table() -> list[Row]:
    return [
        row
        for size in SIZES
        for row in _imbalanced_of(size, map(fresh, _imbalanced(size)), "imbalanced-fresh")
    ]


def _imbalanced_of(size: int, rows: Iterable[StreamRow], held: str) -> list[Row]:
    """Of one size of memory; the runs of the middle one are held by the table of that name."""
    return [
        replace(
            row,
            paper=None,
            source=Source(held, row.key) if size == MEMORY else None,
            reference=row.reference and row.key.removesuffix(FRESH) in EQUAL_MOMENTS,
        )
        for row in rows
    ]


def _imbalanced(memory: int = MEMORY) -> Sequence[StreamRow]:
    """The paper's rows, the buffers of the other streams, and memories by moments that count
    classes as they came or alike."""
    problem = IMBALANCED_MNIST
    rows = [
        *imbalanced_rows(problem, memory),
        stream_row(problem, memory, GSS_ROW, GSS),
        stream_row(problem, memory, "ExStream", PROTOTYPES, weighting=Weighting.SHARE),
        *moment_rows(problem, memory, MOMENTS | EQUAL_MOMENTS, ByMoments(prior="equal")),
    ]
    return [replace(row, **IMBALANCED) for row in rows]


def summary_table() -> list[Row]:
    return [
        *summary_rows(MNIST_POOL, summary.MNIST),
        SummaryRow(
            problem=MNIST_POOL,
            key="Coreset, squared error",
            choice=SquaredChoice(),
            recipe=summary.MNIST,
            network=MNIST_POOL.network,
        ),
    ]


def runtime_table() -> list[Row]:
    return [
        RuntimeRow(problem=MNIST_POOL, key="CNN"),
        RuntimeRow(problem=CIFAR_POOL, key="ResNet-18"),
    ]


def picks_table() -> list[Row]:
    return [
        PicksRow(problem=MNIST_POOL, key="Coreset", reference=True),
        PicksRow(problem=MNIST_POOL, key="Coreset, squared error", squared=True),
    ]

"""The paper's tables as they stand in front: which run of ours stands for which published number.

Streams are those with a fresh optimiser a batch, as the authors run them, wherever such runs are
made; the others follow below them. Slips of the authors' code are not repeated here: rows that do
stand in the appendix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.book import Place
from experiments.methods import BY_BATCHES, FRESH, GSS_ROW
from experiments.mnist_tables import IN_MEMORY_TABLE
from experiments.paper import PAPER
from experiments.problems import PERM_MNIST, SPLIT_CIFAR, SPLIT_MNIST

PERM, SPLIT, CIFAR = PERM_MNIST.name, SPLIT_MNIST.name, SPLIT_CIFAR.name
#: Where continual learning is recorded.
CONTINUAL = {PERM: "continual", SPLIT: "continual", CIFAR: "cifar-continual"}
ON_MNIST = (PERM, SPLIT)
#: The rows of table 5 that are no ways to choose a memory.
PLAIN = (
    "Training w/o replay",
    "Uniform sampling, train at the end",
    "Per task coreset, train at the end",
)


@dataclass(frozen=True)
class Line:
    """A row: what people read, a place for every column, the name of the row its marks compare it
    with, whether its numbers are published here and nowhere above, and whether it is there for
    marks alone, because it stands in another table."""

    label: str
    places: Sequence[Place | None]
    against: str | None = None
    counted: bool = True
    hidden: bool = False


@dataclass(frozen=True)
class Layout:
    """A table: its number and name, the experiments that are its runs, the words above its columns,
    and its lines."""

    title: str
    experiments: Sequence[str]
    columns: Sequence[str]
    lines: Sequence[Line]
    note: str = ""
    #: Of the file, where the table has one.
    picture: str = ""

    def numbered(self) -> Iterator[tuple[Line, int, Place]]:
        """Every place with its line and column."""
        for line in self.lines:
            for column, place in enumerate(line.places):
                if place is not None:
                    yield line, column, place


def across(label: str, experiments: Mapping[str, str], key: str, **facts: object) -> Line:
    """A row of the same key in several data sets."""
    places = [Place(experiment, problem, key) for problem, experiment in experiments.items()]
    return Line(label, places, **facts)  # type: ignore[arg-type]


def _continual() -> Layout:
    return Layout(
        "Tables 1 and 5: continual learning",
        ("continual", "cifar-continual"),
        tuple(CONTINUAL),
        [
            across(key, CONTINUAL, key, against=None if key == "Coreset" else "Coreset")
            for key in PAPER["continual_learning"]
        ],
    )


def _variational() -> Layout:
    where = dict.fromkeys(ON_MNIST, "vcl")
    return Layout(
        "Table 2, upper part: variational continual learning",
        ("vcl",),
        ON_MNIST,
        [
            across("k-center", where, "k-center", against="Coreset"),
            across("Uniform", where, "Uniform", against="Coreset"),
            across("Coreset", where, "Coreset"),
        ],
    )


def _streams() -> Layout:
    once, fresh = (dict.fromkeys(ON_MNIST, name) for name in ("streaming", "streaming-fresh"))
    ours, lasting = "Streaming coreset", "Streaming coreset, one optimiser"
    return Layout(
        "Table 2, lower part: streams",
        ("streaming-fresh", "streaming"),
        ON_MNIST,
        [
            across("Train on coreset only", once, "Train on coreset only", against=ours),
            across("Reservoir sampling", fresh, f"Reservoir sampling{FRESH}", against=ours),
            across("GSS", fresh, GSS_ROW + FRESH, against=ours),
            across(ours, fresh, f"Streaming coreset{FRESH}"),
            across(
                f"{ours}{BY_BATCHES}",
                fresh,
                f"Streaming coreset{FRESH}{BY_BATCHES}",
                against=ours,
                counted=False,
            ),
            across(
                "Reservoir sampling, one optimiser",
                once,
                "Reservoir sampling",
                against=lasting,
                counted=False,
            ),
            across("GSS, one optimiser", once, GSS_ROW, against=lasting, counted=False),
            across(lasting, once, "Streaming coreset", counted=False),
        ],
        note="A fresh optimiser a batch, as the authors have it, unless one is named. Below: "
        "figure 4, bands of one deviation.",
        picture="tasks",
    )


def _imbalanced() -> Layout:
    rows = ("Reservoir", "CBRS", "Coreset")
    return Layout(
        "Table 3: imbalanced streams",
        ("imbalanced-fresh", "cifar-imbalanced"),
        (SPLIT, CIFAR),
        [
            *(
                Line(
                    key,
                    (
                        Place("imbalanced-fresh", SPLIT, key + FRESH),
                        Place("cifar-imbalanced", CIFAR, key),
                    ),
                    None if key == "Coreset" else "Coreset",
                )
                for key in rows
            ),
            Line(
                f"Coreset{BY_BATCHES}",
                (None, Place("cifar-imbalanced", CIFAR, f"Coreset{BY_BATCHES}")),
                "Coreset",
                counted=False,
            ),
        ],
    )


def _sizes() -> Layout:
    """Those of 100 rows are published above."""
    sizes = (50, 200)
    against = {
        "CL uniform sampling": "CL coreset",
        "Streaming reservoir sampling": "Streaming coreset",
    }
    return Layout(
        "Table 6: sizes of the memory, SplitMNIST",
        ("memory", "streaming-fresh-sizes"),
        [f"{size} rows" for size in sizes],
        [
            Line(key, [of_size(key, size) for size in sizes], against.get(key))
            for key in PAPER["memory_size_splitmnist"]
        ],
    )


def of_size(key: str, size: int) -> Place:
    """A row of table 6; its streams are those with a fresh optimiser."""
    streams = {shown: stream for stream, shown in IN_MEMORY_TABLE.items()}
    if key in streams:
        return Place("streaming-fresh-sizes", SPLIT, streams[key] + FRESH, size)
    return Place("memory", SPLIT, key, size)


def _proxies() -> Layout:
    """The network's kernel stands in the tables above."""
    return Layout(
        "Table 7: an RBF kernel as the proxy",
        ("proxy", "streaming-fresh"),
        ON_MNIST,
        [
            Line(
                f"{kind}, {kernel}",
                [proxied(kind, kernel, problem) for problem in ON_MNIST],
                against=f"{kind}, CNTK" if kernel == "RBF" else None,
                counted=kernel == "RBF",
                hidden=kernel == "CNTK",
            )
            for kind in ("CL", "VCL", "Streaming")
            for kernel in ("CNTK", "RBF")
        ],
        note="Marks are against the network's own kernel.",
    )


def proxied(kind: str, kernel: str, problem: str) -> Place:
    """A row of table 7; its streams are those with a fresh optimiser."""
    if kind == "Streaming":
        key = "Streaming coreset RBF" if kernel == "RBF" else "Streaming coreset"
        return Place("streaming-fresh", problem, key + FRESH)
    return Place("proxy", problem, f"{kind} Coreset {kernel}")


def _balanced_cifar() -> Layout:
    where = {CIFAR: "cifar-streaming"}
    ours = "Streaming coreset"
    return Layout(
        "Section 6.3: a balanced stream of SplitCIFAR-10",
        ("cifar-streaming",),
        (CIFAR,),
        [
            across("Reservoir sampling", where, "Reservoir sampling", against=ours, counted=False),
            across(ours, where, ours, counted=False),
            across("Streaming coreset RBF", where, f"{ours} RBF", against=ours, counted=False),
        ],
    )


def _summary(title: str, experiment: str, problem: str, sizes: Sequence[int]) -> Layout:
    return Layout(
        title,
        (experiment,),
        [str(size) for size in sizes],
        [
            Line(
                key,
                [Place(experiment, problem, key, size) for size in sizes],
                None if key == "Coreset" else "Coreset",
                counted=False,
            )
            for key in ("Uniform", "Coreset")
        ],
        picture=experiment,
    )


SUMMARY_SIZES = {
    "summary": ("MNIST", tuple(range(75, 251, 25))),
    "cifar-summary": ("CIFAR-10", tuple(range(30, 211, 30))),
}
TABLES = (
    _continual(),
    _variational(),
    _streams(),
    _imbalanced(),
    _sizes(),
    _proxies(),
    _balanced_cifar(),
)
FIGURE_A = _summary("Figure 3a: a CNN on points of MNIST", "summary", *SUMMARY_SIZES["summary"])
FIGURE_C = _summary(
    "Figure 3c: a ResNet-18 on points of CIFAR-10", "cifar-summary", *SUMMARY_SIZES["cifar-summary"]
)


def published() -> Iterator[tuple[Layout, Line, int, Place]]:
    """Every published number once."""
    for layout in TABLES:
        for line, column, place in layout.numbered():
            if line.counted:
                yield layout, line, column, place

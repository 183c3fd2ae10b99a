"""The numbers of docs/streams-evidence.md on networks that learn along streams and tasks, from the runs of
the reproduction."""

from collections.abc import Sequence

from experiments.methods import FRESH, GSS_ROW
from experiments.statistics import Gap
from experiments.tables import Cell, cells, less, read_runs, welch

#: Where networks learn along a stream of images.
STREAMS = ("cifar-streaming", "cifar-imbalanced")
#: Memories of networks, and the rows of the two streams that they are.
NETWORKS = {
    f"`MomentMemory{memory}": (f"Moments, {features}", f"Moments, equal prior, {features}")
    for memory, features in {
        '(feature_map="pooled")`': "pooled random features",
        '(feature_map="convolutions")`': "random convolutions",
        '(feature_map="relu")`': "random ReLU",
        "`, embedding of the network in training": "the network's embedding",
    }.items()
}
NETWORKS |= {
    "`MergeReduce`": ("Streaming coreset", "Coreset"),
    "`ClassBalancedReservoir`": ("", "CBRS"),
    "`Reservoir`": ("Reservoir sampling", "Reservoir"),
}
NETWORKS |= {
    f"*GroupNorm:* {memory}": tuple(f"{key}, GroupNorm" for key in NETWORKS[memory])
    for memory in ('`MomentMemory(feature_map="convolutions")`', "`MergeReduce`", "`Reservoir`")
}

#: On the imbalanced stream, our first row and the paper's.
IMBALANCED = ("Moments, equal prior, pooled random features", "Coreset")

#: Tasks of networks that are normalised: our row, those that it is compared with, and the ways.
NORMALISED = ("Joint moments, random convolutions", "Uniform sampling", "Coreset")
WAYS = ("BatchNorm", "GroupNorm")
#: Streams of MNIST with memories of three sizes: our row, the others, and the tables that hold them,
#: with one optimiser for the whole stream and with a fresh one a batch.
OTHERS = ("CBRS", GSS_ROW, "ExStream")
MNIST = (
    ("Moments, elimination", ("Reservoir sampling", "Streaming coreset", *OTHERS), "streaming"),
    ("Moments, elimination, equal prior", ("Reservoir", "Coreset", *OTHERS), "imbalanced"),
)
#: Rows of the tables of tasks, and their names in a sentence.
TASKS = {
    "Joint moments, elimination": "`JointReplay`",
    "Joint moments, gradient": '`strategy="gradient"`',
    "Coreset": "`ReplayMemory` with the paper's coreset",
    "Uniform sampling": "with uniform samples",
}
Cells = dict[str, Cell]


def _cells(name: str) -> list[Cell]:
    return cells(name, read_runs(name))


def image_streams() -> list[Cells]:
    return [{cell.row.key: cell for cell in _cells(name)} for name in STREAMS]


def image_cells(streams: Sequence[Cells]) -> list[list[str]]:
    def show(cell: Cell | None) -> str:
        if cell is None:
            return "–"
        return f"{cell.mean:.1f} ± {cell.std:.1f}" + ("" if cell.seeds == 5 else f" ({cell.seeds})")

    return [
        [label, *(show(stream.get(key)) for stream, key in zip(streams, keys, strict=True))]
        for label, keys in NETWORKS.items()
    ]


def imbalanced_gain(streams: Sequence[Cells]) -> str:
    return less(*(streams[1][key] for key in IMBALANCED))


def task_words() -> str:
    found = {(cell.problem, cell.row.key): cell for cell in _cells("continual")}
    parts = []
    for problem in ("PermMNIST", "SplitMNIST"):
        shown = {name: found[problem, key] for key, name in TASKS.items()}
        means = (f"{name} {cell.mean:.1f} ± {cell.std:.1f}" for name, cell in shown.items())
        parts.append(f"{problem}: {', '.join(means)}")
    return "; ".join(parts)


def normalised_words() -> str:
    found = {cell.row.key: cell for cell in _cells("cifar-normalised")}
    parts = []
    for way in WAYS:
        ours, uniform, coreset = (found[f"{key}, {way}"] for key in NORMALISED)
        parts.append(
            f"with {way} {ours.mean:.1f} ± {ours.std:.1f} ({ours.seeds} seeds), "
            f"{less(ours, uniform)} against uniform samples and {less(ours, coreset)} against the "
            "paper's coreset"
        )
    return "; ".join(parts)


def mnist_columns() -> list[tuple[Cell, list[Cell]]]:
    """Our row and the others, for every stream, size of memory and optimiser."""
    columns = []
    for ours, others, stream in MNIST:
        for kind, ending in (("", ""), ("-fresh", FRESH)):
            found = {
                (cell.problem, cell.memory, cell.row.key): cell
                for cell in _cells(f"{stream}{kind}-sizes")
            }
            for place in dict.fromkeys(place[:2] for place in found):
                own = found[*place, ours + ending]
                columns.append((own, [found[*place, other + ending] for other in others]))
    return columns


def mnist_gaps(columns: Sequence[tuple[Cell, list[Cell]]]) -> list[Gap]:
    return [welch(ours.measured, other.measured) for ours, others in columns for other in others]


def highest_means(columns: Sequence[tuple[Cell, list[Cell]]]) -> int:
    return sum(all(ours.mean > other.mean for other in others) for ours, others in columns)


def lowest(gaps: Sequence[Gap]) -> str:
    least = min(gaps, key=lambda gap: gap.value)
    return f"{least.value:+.1f} ± {least.half():.1f}"

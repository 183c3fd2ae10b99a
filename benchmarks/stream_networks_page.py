"""What docs/streams.md says of networks that learn along streams and tasks, from the runs of the
reproduction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.common import table
from experiments.methods import FRESH, GSS_ROW
from experiments.tables import Cell, cells, gathered, less, welch

#: Where networks learn along a stream of images.
STREAMS = ("cifar-streaming", "cifar-imbalanced")
#: Memories of networks, and the rows of the two streams that they are.
NETWORKS = {
    '`MomentMemory(features="pooled")`': (
        "Moments, pooled random features",
        "Moments, equal prior, pooled random features",
    ),
    '`MomentMemory(features="convolutions")`': (
        "Moments, random convolutions",
        "Moments, equal prior, random convolutions",
    ),
    '`MomentMemory(features="relu")`': (
        "Moments, random ReLU",
        "Moments, equal prior, random ReLU",
    ),
    "`MomentMemory`, embedding of the network in training": (
        "Moments, the network's embedding",
        "Moments, equal prior, the network's embedding",
    ),
    "`MergeReduce`": ("Streaming coreset", "Coreset"),
    "`ClassBalancedReservoir`": ("", "CBRS"),
    "`Reservoir`": ("Reservoir sampling", "Reservoir"),
    '*GroupNorm:* `MomentMemory(features="convolutions")`': (
        "Moments, random convolutions, GroupNorm",
        "Moments, equal prior, random convolutions, GroupNorm",
    ),
    "*GroupNorm:* `MergeReduce`": ("Streaming coreset, GroupNorm", "Coreset, GroupNorm"),
    "*GroupNorm:* `Reservoir`": ("Reservoir sampling, GroupNorm", "Reservoir, GroupNorm"),
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
    (
        "Moments, elimination",
        ("Reservoir sampling", "Streaming coreset", *OTHERS),
        ("streaming-sizes", "streaming-fresh-sizes"),
    ),
    (
        "Moments, elimination, equal prior",
        ("Reservoir", "Coreset", *OTHERS),
        ("imbalanced-sizes", "imbalanced-fresh-sizes"),
    ),
)


def words() -> str:
    """What networks learn along streams of images, from the runs of the reproduction."""
    found = {name: {cell.row.key: cell for cell in cells(name, gathered(name))} for name in STREAMS}
    streams = [found[name] for name in found]
    lines = [
        [label, *(_network_cell(stream, key) for stream, key in zip(streams, keys, strict=True))]
        for label, keys in NETWORKS.items()
    ]
    return f"""**Networks.** A ResNet-18 that learns along a stream of SplitCIFAR-10 and rehearses 200 rows; percent of test images, mean ± standard
deviation over five seeds, or as many as stand in brackets.

{table(["memory", "stream", 'imbalanced stream (moments: `prior="equal"`)'], lines)}
{_chosen_words(streams)} `"pooled"` is a deep random network, for a GPU. On the imbalanced stream the
first row less `MergeReduce` is {less(*(streams[1][key] for key in IMBALANCED))}. The embedding of a network in training forgets: after each change what was seen before is known by the
rows kept alone (`with_features`). [All rows](reproduction_appendix.md); `python -m experiments run cifar-streaming cifar-imbalanced --device cuda`.

{_mnist_words()}

{_task_words()}"""


def _chosen_words(streams: Sequence[dict[str, Cell]]) -> str:
    """Whether points held out would choose the same map as the test points."""
    maps = list(NETWORKS.values())[:4]
    best = []
    for place, (name, stream) in enumerate(zip(STREAMS, streams, strict=True)):
        held: dict[str, list[float]] = {}
        for record in gathered(name):
            held.setdefault(record["method"], []).append(float(np.mean(record["held"])))
        keys = [keys[place] for keys in maps]
        tested = max(keys, key=lambda key: stream[key].mean)
        best.append(max(keys, key=lambda key: np.mean(held[key])) == tested)
    same = all(best)
    return (
        f"Held-out images choose {'the same' if same else 'another'} map as the highest mean here."
    )


def _task_words() -> str:
    """Tasks, remembered jointly or a share each, from the runs of the reproduction."""
    found = {
        (cell.problem, cell.row.key): cell for cell in cells("continual", gathered("continual"))
    }
    told = []
    for problem in ("PermMNIST", "SplitMNIST"):
        shown = (
            ("`JointReplay`", "Joint moments, elimination"),
            ('`rule="gradient"`', "Joint moments, gradient"),
            ("`ReplayMemory` with the paper's coreset", "Coreset"),
            ("with uniform samples", "Uniform sampling"),
        )
        means = (
            f"{label} {found[problem, key].mean:.1f} ± {found[problem, key].std:.1f}"
            for label, key in shown
        )
        told.append(f"{problem}: {', '.join(means)}")
    return f"""**Tasks.** `JointReplay(capacity)` chooses over all tasks at once by their moments, `ReplayMemory` a share for each. Networks that
rehearse 100 rows, percent of test points: {"; ".join(told)}.
SplitCIFAR-10 with 200 rows and a normalised ResNet-18, `JointReplay(features="convolutions")`: {_normalised_words()}."""


def _normalised_words() -> str:
    found = {cell.row.key: cell for cell in cells("cifar-normalised", gathered("cifar-normalised"))}
    told = []
    for way in WAYS:
        ours, uniform, coreset = (found[f"{key}, {way}"] for key in NORMALISED)
        told.append(
            f"with {way} {ours.mean:.1f} ± {ours.std:.1f} ({ours.seeds} seeds), "
            f"{less(ours, uniform)} against uniform samples and {less(ours, coreset)} against the "
            "paper's coreset"
        )
    return "; ".join(told)


def _network_cell(stream: dict[str, Cell], key: str) -> str:
    if key not in stream:
        return "–"
    cell = stream[key]
    seeds = "" if cell.seeds == 5 else f" ({cell.seeds})"
    return f"{cell.mean:.1f} ± {cell.std:.1f}{seeds}"


def _mnist_words() -> str:
    """Every other buffer in every column: how often ours is above it."""
    columns = list(_columns())
    gaps = [welch(ours.measured, other.measured) for ours, others in columns for other in others]
    highest = sum(all(ours.mean > other.mean for other in others) for ours, others in columns)
    above = sum(value > half for value, half in gaps)
    below = sum(value < -half for value, half in gaps)
    value, half = min(gaps)
    return f"""On MNIST (PermMNIST, SplitMNIST and its imbalanced stream; 50, 100 and 200 rows; one optimiser for the stream or a fresh one a batch)
`MomentMemory`, with an equal prior where the stream is imbalanced, has a higher mean than both reservoirs, `MergeReduce`, GSS and ExStream in {highest} of
{len(columns)} columns; of {len(gaps)} differences {above} are told apart in its favour and {below} against it, the lowest is {value:+.1f} ± {half:.1f}.
[All columns](reproduction_appendix.md#streams-with-a-memory-of-50-100-and-200)."""


def _columns() -> Iterator[tuple[Cell, list[Cell]]]:
    """Our row and the others, for every stream, size of memory and optimiser."""
    for ours, others, (lasting, fresh) in MNIST:
        for name, ending in ((lasting, ""), (fresh, FRESH)):
            found = {
                (cell.problem, cell.memory, cell.row.key): cell
                for cell in cells(name, gathered(name))
            }
            for problem, memory in dict.fromkeys(place[:2] for place in found):
                yield (
                    found[problem, memory, ours + ending],
                    [found[problem, memory, other + ending] for other in others],
                )

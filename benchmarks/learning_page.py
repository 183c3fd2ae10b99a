"""docs/learning.md, with its figure: memory and accuracy of learners on streams."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.pages import Row, figure, join_words, label, percent, read_record, where
from experiments.tables import Place, read_book

#: Bytes of a row that is kept, with its label.
ROW_BYTES = {"SplitMNIST": 785, "SplitCIFAR-10": 3073, "CIFAR-10 embedding": 1025}
#: The rows of networks that rehearse, by what chooses their rows; the runs and the sizes.
NETWORKS = {
    "SplitMNIST": (
        "streaming-sizes",
        ("Reservoir sampling", "Streaming coreset", "Moments, elimination"),
        (50, 100, 200),
    ),
    "SplitCIFAR-10": (
        "cifar-streaming",
        ("Reservoir sampling", "Streaming coreset", "Moments, random convolutions"),
        (200,),
    ),
}
REPLAY = ("replay, reservoir", "replay, coreset", "replay, moments")
#: The same for models on the rows that are kept of an embedding.
BUFFERS = ("reservoir", "merge-reduce", "moments")
CAPACITIES = (20, 50, 100, 200, 500)
#: The features of heads of drawings.
DRAWINGS = "deep-convolutions"
#: Heads that the table shows, by stream and width.
SHOWN = {
    "SplitMNIST": (1008, 8190),
    "SplitMNIST, 1,000 rows a task": (126, 1008),
    "SplitCIFAR-10": (364, 8192),
    "CIFAR-10 embedding": (0,),
}
STYLES = {
    "head": ("o-", "0.0"),
    "head, 1,000 rows a task": ("s-", "0.35"),
    "replay, moments": ("^--", "0.35"),
    "replay, coreset": ("x-.", "0.55"),
    "replay, reservoir": ("v:", "0.55"),
}


@dataclass(frozen=True)
class Point:
    """A learner of a stream: percent of each seed, bytes and seconds."""

    stream: str
    learner: str
    detail: str
    scores: np.ndarray
    bytes: int
    shown: bool
    seconds: float | None = None
    mark: str = ""


def heads() -> Iterator[Point]:
    """Heads of deep convolutions, patches and embeddings, the narrow ones first."""
    rows = [row for row in read_record("learner")["rows"] if "features" in row]
    for case in SHOWN:
        kind = "rows" if "embedding" in case else "patches" if "CIFAR" in case else DRAWINGS
        own = where(rows, case=case, features=kind)
        for width in sorted({row["width"] for row in own}):
            same = where(own, width=width)
            stream, few = case.split(",")[0], "," in case
            seconds = float(np.mean([row["seconds"] + row["head_seconds"] for row in same]))
            yield Point(
                stream,
                "head, 1,000 rows a task" if few else "head",
                f"`{same[0]['features']}{f':{width}' if width else ''}`",
                percent(same),
                same[0]["bytes"],
                width in SHOWN[case],
                seconds,
                " †" if same[0]["device"] == "cpu" else "",
            )


def networks() -> Iterator[Point]:
    """Networks that rehearse the rows of a memory along the stream."""
    for stream, (name, methods, sizes) in NETWORKS.items():
        for size in sizes:
            for learner, method in zip(REPLAY, methods, strict=True):
                own = read_book().runs(Place(name, stream, method, size))
                scores = 100 * np.array([np.mean(row["test"]) for row in own])
                seconds = float(np.mean([row["seconds"] for row in own]))
                kept = size * ROW_BYTES[stream]
                yield Point(stream, learner, f"{size} rows", scores, kept, size == 200, seconds)


def embedding() -> Iterator[Point]:
    """Ridge heads on the rows that are kept of an embedding, class by class."""
    stream, rows = "CIFAR-10 embedding", read_record("streams")["rows"]
    for size in CAPACITIES:
        for learner, buffer in zip(REPLAY, BUFFERS, strict=True):
            fields = {"order": "class by class", "buffer": buffer, "capacity": size}
            found = [row for row in where(rows, part="stream", **fields) if "ridge" in row]
            if found:
                scores = percent(found, "ridge")
                kept = size * ROW_BYTES[stream]
                yield Point(stream, learner, f"{size} rows", scores, kept, size == 200)


def points() -> list[Point]:
    return [*heads(), *networks(), *embedding()]


def select_shown(found: Sequence[Point]) -> list[Point]:
    """The learners of the table: some heads, and the largest memories."""
    return sorted(
        (one for one in found if one.shown), key=lambda one: list(ROW_BYTES).index(one.stream)
    )


def size(count: int) -> str:
    """Bytes in kB or MB."""
    return f"{count / 1e3:.0f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"


def batches(speed: Row) -> str:
    """Milliseconds of a head after batches of some rows, updated and computed again."""
    return join_words(
        [
            f"{one['corrected']:.1f} ms instead of {one['anew']:.1f} ms after {one['batch']} rows"
            for one in speed["often"]
        ]
    )


@figure("images/learning.png", 1, 3, figsize=(11, 3.6))
def draw_learners(axes: Any) -> None:
    """Accuracy against the bytes that a learner keeps."""
    found = points()
    for place, stream in zip(axes, ROW_BYTES, strict=True):
        for learner, (line, grey) in STYLES.items():
            own = [one for one in found if (one.stream, one.learner) == (stream, learner)]
            own.sort(key=lambda one: one.bytes)
            if own:
                means = [one.scores.mean() for one in own]
                look = {"color": grey, "markersize": 4, "linewidth": 1, "label": learner}
                place.plot([one.bytes for one in own], means, line, **look)
        place.tick_params(axis="x", which="minor", labelbottom=False)
        label(place, title=stream, xlabel="bytes kept", xscale="log")
    axes[0].set_ylabel("test accuracy, %")
    axes[0].legend(fontsize=8, loc="lower right")

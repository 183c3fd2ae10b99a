"""Streams that drift half-way: labels that change their meaning, classes that change their share.

A part of ``python -m benchmarks streams``: 20 000 rows of the embedding; memories with several
half-lives are judged on what the stream ended as, and on what it began as.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.heads import CLASSES, Heads, labelled
from bicore.evaluate.samples import Sample
from bicore.streaming import MomentMemory, Reservoir
from bicore.streaming.buffer import Buffer

ROWS = 20_000
CAPACITY = 100
BATCH = 125
#: Half-lives as shares of the stream.
HALF_LIVES: dict[str, float | None] = {"none": None, "n": 1.0, "n/5": 0.2, "n/20": 0.05}
#: How far labels move when they change their meaning: every class becomes another.
MOVED = 3
#: The share of the classes that are frequent in a half.
FREQUENT = 0.9


@dataclass(frozen=True)
class Drift:
    """A stream, and rows to test on from either of its halves."""

    x: np.ndarray
    y: np.ndarray
    earlier: Sample
    later: Sample


def meaning(x: np.ndarray, y: np.ndarray, test: Sample, seed: int) -> Drift:
    """The first half has other labels for the same classes."""
    places = np.random.default_rng(seed).permutation(len(x))[:ROWS]
    labels = y[places].copy()
    labels[: ROWS // 2] = (labels[: ROWS // 2] + MOVED) % CLASSES
    earlier = Sample(test.x, (test.y + MOVED) % CLASSES, test.weight)
    return Drift(x[places], labels, earlier, test)


def frequency(x: np.ndarray, y: np.ndarray, test: Sample, seed: int) -> Drift:
    """Nine of ten rows are of the first five classes, and later of the last five."""
    rng = np.random.default_rng(seed)
    halves = [_drawn(y, first, ROWS // 2, rng) for first in (True, False)]
    places = np.concatenate(halves)
    answers = test.y.numpy()
    tests = []
    for first in (True, False):
        frequent = int((answers < CLASSES // 2).sum())
        rows = _drawn(answers, first, int(frequent / FREQUENT), rng)
        tests.append(labelled(test.x.numpy()[rows], answers[rows]))
    return Drift(x[places], y[places], *tests)


def _drawn(y: np.ndarray, first: bool, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of which nine in ten are of the first five classes, or of the last; shuffled."""
    frequent = (y < CLASSES // 2) == first
    many = round(FREQUENT * count)
    parts = [
        rng.choice(np.flatnonzero(frequent), many, replace=False),
        rng.choice(np.flatnonzero(~frequent), count - many, replace=False),
    ]
    return rng.permutation(np.concatenate(parts))


KINDS = {"meaning": meaning, "frequency": frequency}


def jobs(
    x: np.ndarray, y: np.ndarray, test: Sample, seed: int
) -> Iterator[tuple[str, str, Callable[[], dict[str, Any]]]]:
    """A row for every kind of drift and every memory."""
    for kind in KINDS:
        for name in (*HALF_LIVES, "reservoir"):
            yield kind, name, lambda kind=kind, name=name: judged(kind, name, x, y, test, seed)


def judged(
    kind: str, name: str, x: np.ndarray, y: np.ndarray, test: Sample, seed: int
) -> dict[str, Any]:
    """Accuracies on the later and the earlier half's rows of a memory of the whole stream."""
    stream = KINDS[kind](x, y, test, seed)
    buffer = _buffer(name, seed)
    for start in range(0, ROWS, BATCH):
        buffer.update(stream.x[start : start + BATCH], stream.y[start : start + BATCH])
    kept = buffer.snapshot()
    heads = Heads(stream.x[ROWS // 2 :], stream.y[ROWS // 2 :], seed)
    facts = {"kind": kind, "memory": name, "seed": seed, "rows": ROWS, "capacity": CAPACITY}
    halves = {"later": stream.later, "earlier": stream.earlier}
    return {
        "part": "drift",
        **facts,
        "later_share": float((kept.ids >= ROWS // 2).mean()),
        **{when: heads.all(kept, test) for when, test in halves.items()},
    }


def _buffer(name: str, seed: int) -> Buffer:
    if name == "reservoir":
        return Reservoir(CAPACITY, seed)
    share = HALF_LIVES[name]
    return MomentMemory(
        CAPACITY, half_life=None if share is None else share * ROWS, random_state=seed
    )

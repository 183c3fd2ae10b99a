"""Streams that drift half-way: labels that change their meaning, classes that change their share.

A part of ``python -m benchmarks streams``: 20 000 rows of the embedding; memories with several
half-lives are evaluated on what the stream ended as, and on what it began as.
"""

from typing import Any

import numpy as np

from benchmarks.common import feed
from benchmarks.heads import CLASSES, Heads, label_rows
from bicore.evaluate.samples import Sample
from bicore.streaming import MomentMemory, Reservoir

ROWS = 20_000
CAPACITY = 100
BATCH = 125
#: Half-lives as shares of the stream.
HALF_LIVES: dict[str, float | None] = {"none": None, "n": 1.0, "n/5": 0.2, "n/20": 0.05}
MEMORIES = (*HALF_LIVES, "reservoir")
#: How far labels move when they change their meaning: every class becomes another.
MOVED = 3
#: The share of the classes that are frequent in a half.
FREQUENT = 0.9
#: Rows and labels of a stream, and test rows from its earlier and its later half.
Drift = tuple[np.ndarray, np.ndarray, Sample, Sample]


def move_labels(x: np.ndarray, y: np.ndarray, test: Sample, seed: int) -> Drift:
    """The first half has other labels for the same classes."""
    places = np.random.default_rng(seed).permutation(len(x))[:ROWS]
    labels = y[places].copy()
    labels[: ROWS // 2] = (labels[: ROWS // 2] + MOVED) % CLASSES
    earlier = Sample(test.x, (test.y + MOVED) % CLASSES, test.weight)
    return x[places], labels, earlier, test


def change_shares(x: np.ndarray, y: np.ndarray, test: Sample, seed: int) -> Drift:
    """Nine of ten rows are of the first five classes, and later of the last five."""
    rng = np.random.default_rng(seed)
    places = np.concatenate([_draw(y, first, ROWS // 2, rng) for first in (True, False)])
    answers = test.y.numpy()
    tests = []
    for first in (True, False):
        frequent = int((answers < CLASSES // 2).sum())
        rows = _draw(answers, first, int(frequent / FREQUENT), rng)
        tests.append(label_rows(test.x.numpy()[rows], answers[rows]))
    return x[places], y[places], *tests


def _draw(y: np.ndarray, first: bool, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of which nine in ten are of the first five classes, or of the last; shuffled."""
    frequent = (y < CLASSES // 2) == first
    many = round(FREQUENT * count)
    parts = [
        rng.choice(np.flatnonzero(frequent), many, replace=False),
        rng.choice(np.flatnonzero(~frequent), count - many, replace=False),
    ]
    return rng.permutation(np.concatenate(parts))


KINDS = {"meaning": move_labels, "frequency": change_shares}


def evaluate(
    kind: str, name: str, x: np.ndarray, y: np.ndarray, test: Sample, seed: int
) -> dict[str, Any]:
    """Accuracies on the later and the earlier half's rows of a memory of the whole stream."""
    x, y, earlier, later = KINDS[kind](x, y, test, seed)
    share = HALF_LIVES.get(name)
    half_life = None if share is None else share * ROWS
    buffer = MomentMemory(CAPACITY, half_life=half_life, random_state=seed)
    buffer = Reservoir(CAPACITY, seed) if name == "reservoir" else buffer
    kept = feed(buffer, x, y, BATCH).snapshot()
    heads = Heads(x[ROWS // 2 :], y[ROWS // 2 :], seed)
    facts = {"kind": kind, "memory": name, "seed": seed, "rows": ROWS, "capacity": CAPACITY}
    scores = {"later": heads.score_all(kept, later), "earlier": heads.score_all(kept, earlier)}
    share = float((kept.ids >= ROWS // 2).mean())
    return {"part": "drift", **facts, "later_share": share, **scores}

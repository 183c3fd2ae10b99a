"""Accuracy of models trained on stream memories: embeddings in random and sorted order, batches,
drift.

    python -m benchmarks streams --data DIR --seeds 3 --rows ROWS.jsonl --record

The stream is all 50 000 rows of the frozen embedding of CIFAR-10 in batches of 125. Heads are
trained on the rows kept alone, all counting the same, and tested on the embedding's own test set; a
seed draws the order of the stream and the 300 rows that settings of the heads are chosen by. Rows
are written as they come; a rerun continues from those that the same source of bicore made. Streams
of 20 000 rows drift half-way: labels change their meaning, or classes their share; memories with
several half-lives are evaluated on what the stream ended as, and on what it began as.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bicore
from benchmarks.common import CPU, Rows, cifar_embedding, data_folder, feed, time_call
from benchmarks.heads import CLASSES, Heads, label_rows
from bicore import Dataset, select
from bicore.evaluate.models import Sample
from bicore.methods.registry import greedy_selector
from bicore.streaming import ClassBalancedReservoir, MergeReduce, MomentMemory, Reservoir
from bicore.streaming.buffer import Buffer

BATCH = 125
#: The capacity whose memory is also evaluated along the stream, and with batches of other sizes.
SHOWN = 50
#: Points of the stream at which it is evaluated.
POINTS = 12
#: Batches compared on the whole stream, and on its first rows, which can come one at a time.
BATCHES = (125, 25, 1000)
FIRST = 5000
FIRST_BATCHES = (125, 1, 25, 1000, FIRST)
#: The most seeds of every part.
MOST_SEEDS = 3
#: Capacities at which rows are also chosen from all rows at once.
AT_ONCE = (20, 50, 100, 200, 500)
#: Buffers that run with one seed and the capacity that is shown: merge-reduce takes minutes.
ONCE = ("merge-reduce", "moments, gain", "moments, gradient")
PLAIN = ("moments", "reservoir", "class-balanced reservoir")
Job = tuple[str, Callable[[], dict[str, Any]]]
#: Rows of streams that drift half-way, and rows kept of them.
DRIFT_ROWS, DRIFT_CAPACITY = 20_000, 100
#: Half-lives as shares of the stream.
HALF_LIVES: dict[str, float | None] = {"none": None, "n": 1.0, "n/5": 0.2, "n/20": 0.05}
MEMORIES = (*HALF_LIVES, "reservoir")
#: How far labels move when they change their meaning: every class becomes another.
MOVED = 3
#: The share of the classes that are frequent in a half.
FREQUENT = 0.9
#: Rows and labels of a stream, and test rows from its earlier and its later half.
Drift = tuple[np.ndarray, np.ndarray, Sample, Sample]


def make_buffer(name: str, capacity: int, seed: int) -> Buffer:
    if name in ("reservoir", "class-balanced reservoir"):
        return (Reservoir if name == "reservoir" else ClassBalancedReservoir)(capacity, seed)
    if name == "merge-reduce":
        return MergeReduce(capacity, greedy_selector(), random_state=seed)
    strategy = name.partition(", ")[2] or "auto"
    return MomentMemory(capacity, strategy=strategy, random_state=seed)


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    work = Work(arguments.seeds, *(cifar_embedding(folder, part) for part in ("train", "test")))
    source = hash_source()
    rows = Rows(arguments.rows, source=source)
    for key, job in work.jobs():
        rows.fill({"key": key, "source": source}, job)
    facts = {"threads": torch.get_num_threads(), "batch": BATCH, "shown": SHOWN, "first": FIRST}
    return {**facts, "rows": list(rows)}


def hash_source() -> str:
    """A fingerprint of bicore's files as they are now."""
    paths = sorted(Path(bicore.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def orders(y: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """The rows shuffled, and then sorted by class or by pairs of classes."""
    shuffled = np.random.default_rng(seed).permutation(len(y))
    return {
        "pairs of classes": shuffled[np.argsort(y[shuffled] // 2, kind="stable")],
        "random": shuffled,
        "class by class": shuffled[np.argsort(y[shuffled], kind="stable")],
    }


class Work:
    """The data, and the work behind every row."""

    def __init__(self, seeds: int, train: Any, test: Any) -> None:
        self.seeds = min(seeds, MOST_SEEDS)
        self.x, self.y = train[0].astype(np.float32), train[1]
        self.test = label_rows(*test)
        self.heads = cache(lambda seed: Heads(self.x, self.y, seed))

    def jobs(self) -> Iterator[Job]:
        """Keys of rows with their work, the quick ones of most weight first."""
        for seed in range(self.seeds):
            yield from self._stream_jobs(seed, (50, 100), PLAIN)
            if seed == 0:
                yield from self._stream_jobs(seed, (SHOWN,), ONCE[1:])
                for capacity in AT_ONCE:
                    yield f"offline/{capacity}", partial(self.choose_at_once, capacity)
            for kind in KINDS:
                for name in MEMORIES:
                    given = (kind, name, self.x, self.y, self.test, seed)
                    yield f"drift/{kind}/{name}/{seed}", partial(evaluate_drift, *given)
            for count, sizes in ((FIRST, FIRST_BATCHES), (len(self.y), BATCHES)):
                key = f"batches/{count}/{seed}"
                yield key, partial(self.compare_batches, count, sizes, seed)
            yield from self._stream_jobs(seed, (20, 200, 500), PLAIN)
        yield from self._stream_jobs(0, (SHOWN,), ONCE[:1])

    def _stream_jobs(
        self, seed: int, capacities: tuple[int, ...], buffers: tuple[str, ...]
    ) -> Iterator[Job]:
        for capacity in capacities:
            for order in orders(self.y, seed):
                for name in buffers:
                    key = f"{order}/{name}/{capacity}/{seed}"
                    yield key, partial(self.follow, order, name, capacity, seed)

    def follow(self, order: str, name: str, capacity: int, seed: int) -> dict[str, Any]:
        """Heads on the rows that a buffer keeps of a stream, and along it if it is shown."""
        places = orders(self.y, seed)[order]
        buffer, heads = make_buffer(name, capacity, seed), self.heads(seed)
        along: list[dict[str, Any]] = []
        step = len(places) / POINTS

        def look(seen: int) -> None:
            if capacity == SHOWN and seen >= (len(along) + 1) * step:
                kept = buffer.snapshot()
                along.append({"seen": seen, **heads.score_ridges(kept, self.test)})

        seconds = time_stream(buffer, self.x[places], self.y[places], BATCH, look)
        kept = buffer.snapshot()
        facts = {"order": order, "buffer": name, "capacity": capacity, "seed": seed}
        facts |= {"seconds": seconds, "classes": np.bincount(kept.y, minlength=CLASSES).tolist()}
        row = {"part": "stream", **facts, **heads.score_all(kept, self.test)}
        return {**row, "along": along} if along else row

    def choose_at_once(self, capacity: int) -> dict[str, Any]:
        """The ceiling: chosen with all rows at hand."""

        def select_rows() -> Dataset:
            chosen = select(self.x, self.y, capacity, runtime=CPU).indices
            return Dataset(self.x[chosen], self.y[chosen])

        def update_once() -> Dataset:
            """The moments are those of all rows before the first is chosen."""
            return MomentMemory(capacity).update(self.x, self.y).snapshot()

        row: dict[str, Any] = {"part": "offline", "capacity": capacity}
        for way, work in {"select": select_rows, "moments": update_once}.items():
            seconds, kept = time_call(work)
            row[way] = {"seconds": seconds, **self.heads(0).score_all(kept, self.test)}
        return row

    def compare_batches(self, count: int, sizes: tuple[int, ...], seed: int) -> dict[str, Any]:
        """The same stream in batches of several sizes: accuracy, and rows shared with the usual."""
        places = orders(self.y, seed)["random"][:count]
        found: list[dict[str, Any]] = []
        usual: set[int] = set()
        for batch in sizes:
            memory = MomentMemory(SHOWN)
            seconds = time_stream(memory, self.x[places], self.y[places], batch)
            kept = memory.snapshot()
            own = set(kept.ids.tolist())
            usual = usual or own
            facts = {"batch": batch, "seconds": seconds, "shared": len(own & usual) / len(own)}
            found.append({**facts, **self.heads(seed).score_all(kept, self.test)})
        return {"part": "batches", "count": count, "seed": seed, "sizes": found}


def time_stream(
    buffer: Buffer, x: np.ndarray, y: np.ndarray, batch: int, look: Any = None
) -> float:
    """Seconds of a stream through a buffer, without those of looking on."""
    spent = 0.0
    for start in range(0, len(x), batch):
        begin = time.perf_counter()
        buffer.update(x[start : start + batch], y[start : start + batch])
        spent += time.perf_counter() - begin
        if look is not None:
            look(min(start + batch, len(x)))
    return spent


def move_labels(x: np.ndarray, y: np.ndarray, test: Sample, seed: int) -> Drift:
    """The first half has other labels for the same classes."""
    places = np.random.default_rng(seed).permutation(len(x))[:DRIFT_ROWS]
    labels = y[places].copy()
    labels[: DRIFT_ROWS // 2] = (labels[: DRIFT_ROWS // 2] + MOVED) % CLASSES
    earlier = Sample(test.x, (test.y + MOVED) % CLASSES, test.weight)
    return x[places], labels, earlier, test


def change_shares(x: np.ndarray, y: np.ndarray, test: Sample, seed: int) -> Drift:
    """Nine of ten rows are of the first five classes, and later of the last five."""
    rng = np.random.default_rng(seed)
    places = np.concatenate([_draw(y, first, DRIFT_ROWS // 2, rng) for first in (True, False)])
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


def evaluate_drift(
    kind: str, name: str, x: np.ndarray, y: np.ndarray, test: Sample, seed: int
) -> dict[str, Any]:
    """Accuracies on the later and the earlier half's rows of a memory of the whole stream."""
    x, y, earlier, later = KINDS[kind](x, y, test, seed)
    share = HALF_LIVES.get(name)
    half_life = None if share is None else share * DRIFT_ROWS
    buffer = MomentMemory(DRIFT_CAPACITY, half_life=half_life, random_state=seed)
    buffer = Reservoir(DRIFT_CAPACITY, seed) if name == "reservoir" else buffer
    kept = feed(buffer, x, y, BATCH).snapshot()
    heads = Heads(x[DRIFT_ROWS // 2 :], y[DRIFT_ROWS // 2 :], seed)
    facts = {"part": "drift", "kind": kind, "memory": name, "seed": seed}
    facts |= {"rows": DRIFT_ROWS, "capacity": DRIFT_CAPACITY}
    scores = {"later": heads.score_all(kept, later), "earlier": heads.score_all(kept, earlier)}
    share = float((kept.ids >= DRIFT_ROWS // 2).mean())
    return {**facts, "later_share": share, **scores}

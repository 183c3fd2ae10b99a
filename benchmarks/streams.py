"""What a memory of a stream is worth: embeddings in random and in sorted order, batches, drift.

    python -m benchmarks streams --data DIR --seeds 3 --rows ROWS.jsonl --record

The stream is all 50 000 rows of the frozen embedding of CIFAR-10 in batches of 125. Heads are
trained on the rows kept alone, all counting the same, and tested on the embedding's own test set; a
seed draws the order of the stream and the 300 rows that settings of the heads are chosen by. Rows
are written as they come; a rerun continues from those that the same source of bicore made.
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
from benchmarks import drift
from benchmarks.common import CPU, Rows, cifar_embedding, data_folder, time_call
from benchmarks.heads import CLASSES, Heads, label_rows
from bicore import Dataset, select
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


def make_buffer(name: str, capacity: int, seed: int) -> Buffer:
    if name in ("reservoir", "class-balanced reservoir"):
        return (Reservoir if name == "reservoir" else ClassBalancedReservoir)(capacity, seed)
    if name == "merge-reduce":
        return MergeReduce(greedy_selector(), capacity, random_state=seed)
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
            for kind in drift.KINDS:
                for name in drift.MEMORIES:
                    given = (kind, name, self.x, self.y, self.test, seed)
                    yield f"drift/{kind}/{name}/{seed}", partial(drift.evaluate, *given)
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

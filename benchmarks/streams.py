"""What a memory of a stream is worth: embeddings in random and in sorted order, batches, drift.

    python -m benchmarks streams --data DIR --seeds 3 --rows ROWS.jsonl --record

The stream is all 50 000 rows of the frozen embedding of CIFAR-10 in batches of 125. Heads are
trained on the rows kept alone, all counting the same, and tested on the embedding's own test set; a
seed draws the order of the stream and the 300 rows that settings of the heads are chosen by. Rows
are written as they come; a rerun goes on from those that the same source of bicore made.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bicore
from benchmarks import drift
from benchmarks.common import Pair, Rows, cifar_embedding, data_folder, report
from benchmarks.heads import CLASSES, Heads, labelled
from bicore import Dataset, Runtime, select
from bicore.methods.registry import greedy_selector
from bicore.streaming import ClassBalancedReservoir, MergeReduce, MomentMemory, Reservoir
from bicore.streaming.buffer import Buffer

BATCH = 125
#: The capacity whose memory is also judged along the stream, and with batches of other sizes.
SHOWN = 50
#: Points of the stream at which it is judged.
POINTS = 12
#: Batches compared on the whole stream, and on its first rows, where one row at a time is bearable.
BATCHES = (125, 25, 1000)
FIRST = 5000
FIRST_BATCHES = (125, 1, 25, 1000, FIRST)
#: The most seeds of a cell.
MOST_SEEDS = {20: 3, 50: 3, 100: 3, 200: 3, 500: 3}
#: The most seeds of drift, and of batches of other sizes.
SIDE_SEEDS = 3
#: Where all rows at once are chosen from.
AT_ONCE = (20, 50, 100, 200, 500)
#: Where merge-reduce and rules other than the default are run, and with how many seeds:
#: merge-reduce with its defaults takes minutes at any capacity.
ASIDE = {"merge-reduce": {50: 1}, "moments, gain": {50: 1}, "moments, gradient": {50: 1}}

PLAIN = ("moments", "reservoir", "class-balanced reservoir")
Buffers = dict[str, Callable[[int, int], Buffer]]
BUFFERS: Buffers = {
    "moments": lambda capacity, seed: MomentMemory(capacity, random_state=seed),
    "reservoir": Reservoir,
    "class-balanced reservoir": ClassBalancedReservoir,
    "moments, gain": lambda capacity, seed: MomentMemory(
        capacity, strategy="gain", random_state=seed
    ),
    "moments, gradient": lambda capacity, seed: MomentMemory(
        capacity, strategy="gradient", random_state=seed
    ),
    "merge-reduce": lambda capacity, seed: MergeReduce(
        greedy_selector(), capacity, random_state=seed
    ),
}


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    work = Work(arguments.rows, cifar_embedding(folder, "train"), cifar_embedding(folder, "test"))
    for seed in range(arguments.seeds):
        for key, job in jobs(work, seed):
            work.do(key, job)
    for key, job in _stream_jobs(work, 0, SHOWN, ("merge-reduce",)):
        work.do(key, job)
    facts = {"threads": torch.get_num_threads(), "batch": BATCH, "shown": SHOWN, "first": FIRST}
    return {**facts, "rows": list(work.rows)}


class Work:
    """The data, and the rows that are done."""

    def __init__(self, rows: str, train: Pair, test: Pair) -> None:
        self.source = source()
        self.rows = Rows(rows, source=self.source)
        self.x, self.y = train[0].astype(np.float32), train[1]
        self.test = labelled(*test)
        self.heads = cache(lambda seed: Heads(self.x, self.y, seed))

    def do(self, key: str, job: Callable[[], dict[str, Any]]) -> None:
        """Add a row, unless there is one."""
        if self.rows.find(key=key) is None:
            row = {"key": key, "source": self.source, **job()}
            self.rows.add(row)
            report({name: one for name, one in row.items() if name != "along"})


def source() -> str:
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


def jobs(work: Work, seed: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The rows of a seed that take seconds, those of most weight first."""
    for capacity in (50, 100):
        yield from _stream_jobs(
            work, seed, capacity, (*PLAIN, "moments, gain", "moments, gradient")
        )
    if seed == 0:
        for capacity in AT_ONCE:
            yield f"offline/{capacity}", lambda capacity=capacity: _at_once(work, capacity)
    if seed < SIDE_SEEDS:
        for kind, name, job in drift.jobs(work.x, work.y, work.test, seed):
            yield f"drift/{kind}/{name}/{seed}", job
        for count, sizes in ((FIRST, FIRST_BATCHES), (len(work.y), BATCHES)):
            yield (
                f"batches/{count}/{seed}",
                lambda count=count, sizes=sizes: _batches(work, count, sizes, seed),
            )
    for capacity in (20, 200, 500):
        yield from _stream_jobs(work, seed, capacity, PLAIN)


def _stream_jobs(
    work: Work, seed: int, capacity: int, buffers: tuple[str, ...]
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for order, places in orders(work.y, seed).items():
        for name in buffers:
            if seed < ASIDE.get(name, MOST_SEEDS).get(capacity, 0):
                key = f"{order}/{name}/{capacity}/{seed}"
                yield key, _stream_job(work, order, places, name, capacity, seed)


def fed(
    buffer: Buffer, x: np.ndarray, y: np.ndarray, batch: int, look: Callable[[int], None] | None
) -> float:
    """A stream through a buffer; its seconds, without those of looking on."""
    spent = 0.0
    for start in range(0, len(x), batch):
        begin = time.perf_counter()
        buffer.update(x[start : start + batch], y[start : start + batch])
        spent += time.perf_counter() - begin
        if look is not None:
            look(min(start + batch, len(x)))
    return spent


def _stream_job(
    work: Work, order: str, places: np.ndarray, name: str, capacity: int, seed: int
) -> Callable[[], dict[str, Any]]:
    def job() -> dict[str, Any]:
        buffer = BUFFERS[name](capacity, seed)
        heads = work.heads(seed)
        along: list[dict[str, Any]] = []
        step = len(places) / POINTS

        def look(seen: int) -> None:
            if seen >= (len(along) + 1) * step:
                along.append({"seen": seen, **heads.ridges(buffer.snapshot(), work.test)})

        shown = look if capacity == SHOWN else None
        seconds = fed(buffer, work.x[places], work.y[places], BATCH, shown)
        kept = buffer.snapshot()
        facts = {"order": order, "buffer": name, "capacity": capacity, "seed": seed}
        facts |= {"seconds": seconds, "classes": np.bincount(kept.y, minlength=CLASSES).tolist()}
        row = {"part": "stream", **facts, **heads.all(kept, work.test)}
        return {**row, "along": along} if along else row

    return job


def _at_once(work: Work, capacity: int) -> dict[str, Any]:
    """The ceiling: chosen with all rows at hand."""
    heads = work.heads(0)

    def timed(choose: Callable[[], Dataset]) -> dict[str, Any]:
        begin = time.perf_counter()
        kept = choose()
        return {"seconds": time.perf_counter() - begin, **heads.all(kept, work.test)}

    def select_rows() -> Dataset:
        runtime = Runtime("cpu", progress=False)
        chosen = select(work.x, work.y, capacity, runtime=runtime).indices
        return Dataset(work.x[chosen], work.y[chosen])

    def update_once() -> Dataset:
        """The moments are those of all rows before the first is chosen."""
        memory = MomentMemory(capacity)
        memory.update(work.x, work.y)
        return memory.snapshot()

    ways = {"select": timed(select_rows), "moments": timed(update_once)}
    return {"part": "offline", "capacity": capacity, **ways}


def _batches(work: Work, count: int, sizes: tuple[int, ...], seed: int) -> dict[str, Any]:
    """The same stream in batches of several sizes: accuracy, and rows shared with the usual."""
    places = orders(work.y, seed)["random"][:count]
    found: list[dict[str, Any]] = []
    usual: set[int] = set()
    for batch in sizes:
        memory = MomentMemory(SHOWN)
        seconds = fed(memory, work.x[places], work.y[places], batch, None)
        kept = memory.snapshot()
        own = set(kept.ids.tolist())
        usual = usual or own
        facts = {"batch": batch, "seconds": seconds, "shared": len(own & usual) / len(own)}
        found.append({**facts, **work.heads(seed).all(kept, work.test)})
    return {"part": "batches", "count": count, "seed": seed, "sizes": found}

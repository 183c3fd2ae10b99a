"""All methods on CIFAR-10's images, judged by the paper's ResNet-18; in several processes.

    python -m benchmarks comparison_images --data DIR --device cuda --seeds 10 --workers 15
        --rows ROWS.jsonl --minutes 4 --record

For each seed 1000 training images are drawn, of which every method takes 50, 100 and 250; the
network is trained on each selection and tested on all test images. ``--workers`` processes share
the seeds, some methods of one at a time, each with one thread. ``--minutes`` begins no further
selection after so long, and SIGTERM none after those at work; ``--methods A,B`` runs these alone. A
rerun makes what is missing from the rows, and if there are none, from the record.

Selections are made on the processor, the judge and the network that some methods look at are on
``--device``: a pool is small, and a card that all processes share is better spent on training.
"""

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import RECORDS, data_folder, read_record, report
from benchmarks.comparison_embedding import in_order, known_methods
from benchmarks.residual_judge import ResidualJudge
from bicore import Dataset, Runtime
from bicore.coreset import Status
from bicore.data import Array
from bicore.evaluate.comparison import WHOLE, Comparison, Grid, Picked, Stage
from bicore.evaluate.model import Judge
from bicore.evaluate.pools import Pools, make_pools
from bicore.evaluate.records import Records, Row
from bicore.selectors.registry import METHODS, as_selector
from bicore.sources.base import Source
from bicore.sources.cifar10 import cifar10, cifar10_pixels, standard_cifar10
from experiments.networks import ResNet18

RECORD = "comparison_images"
#: The largest size of a method that cannot take more. BatchBALD draws networks by dropout, of which
#: a ResNet-18 has none.
LARGEST = {"batchbald": 0}
#: A selection that takes longer on one thread is given up, and no row.
MOST_SECONDS = 60.0
#: Into how many parts the methods of a seed are split: those that look at the network trained on
#: the pool, for which each part trains it, and the others.
LOOKING_PARTS, OTHER_PARTS = 2, 4


@dataclass(frozen=True)
class Protocol:
    """A pool of so many images, how many of them are chosen, and what is trained on them."""

    pool: int = 1000
    sizes: tuple[int, ...] = (50, 100, 250)
    steps: int = 200
    width: int = 64
    methods: tuple[str, ...] = tuple(METHODS)
    largest: Mapping[str, int] = field(default_factory=lambda: LARGEST)

    def sizes_of(self, method: str) -> list[int]:
        return [size for size in self.sizes if size <= self.largest.get(method, size)]


PROTOCOL = Protocol()


@dataclass(frozen=True)
class Job:
    """Some methods at some sizes, for one seed; and whether the judge is trained on all of the
    pool too."""

    seed: int
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    whole: bool = False


@dataclass(frozen=True)
class Order:
    """What a process has to know."""

    folder: str
    rows: Path
    device: str
    protocol: Protocol
    #: How many images are tested on.
    test: int

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a row's value."""
        return {
            "pool": self.protocol.pool,
            "judge": ResidualJudge.name,
            "steps": self.protocol.steps,
            "width": self.protocol.width,
            "test": self.test,
            "arithmetic": "float32" if self.device == "cpu" else "bfloat16",
        }


def run(arguments: Any) -> dict[str, Any]:
    wanted = known_methods(arguments.methods)
    until = time.time() + 60 * (arguments.minutes or float("inf"))
    folder = data_folder(arguments.data)
    test = len(cifar10_pixels(folder, "test")[1])
    order = Order(folder, Path(arguments.rows), arguments.device, PROTOCOL, test)
    store = recorded(order)
    jobs = missing(order.protocol, store.rows, arguments.seeds, wanted)
    failed: dict[str, str] = {}
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    try:
        for rows, failures in results(order, jobs, arguments.workers, until):
            for row in rows:
                store.add(row)
            failed |= failures
    except (KeyboardInterrupt, BrokenProcessPool) as error:
        report(f"ended early ({error!r}); the same command goes on")
    facts = {"settings": order.settings, "sizes": list(order.protocol.sizes), "failed": failed}
    return {**facts, "rows": in_order(store.rows.values())}


def missing(
    protocol: Protocol, done: Mapping[Any, Any], seeds: int, wanted: Sequence[str]
) -> list[Job]:
    """What has no row yet, seed by seed: whatever ends a run, most of what is there is whole
    seeds."""
    jobs = []
    for seed in range(seeds):
        for methods in parts([name for name in protocol.methods if name in wanted]):
            by_sizes: dict[tuple[int, ...], list[str]] = {}
            for name in methods:
                left = [n for n in protocol.sizes_of(name) if (name, n, seed) not in done]
                by_sizes.setdefault(tuple(left), []).append(name)
            jobs += [Job(seed, tuple(own), sizes) for sizes, own in by_sizes.items() if sizes]
        if (WHOLE, protocol.pool, seed) not in done:
            jobs.append(Job(seed, (), (), whole=True))
    return jobs


def parts(methods: Sequence[str]) -> list[list[str]]:
    """Methods that one process takes together; the slow ones stand beside one another in the
    registry, and are dealt out."""
    looking = [name for name in methods if as_selector(name).needs_model]
    others = [name for name in methods if name not in looking]
    dealt = [others[place::OTHER_PARTS] for place in range(OTHER_PARTS)]
    dealt += [looking[place::LOOKING_PARTS] for place in range(LOOKING_PARTS)]
    return [part for part in dealt if part]


Result = tuple[list[Row], dict[str, str]]


def results(order: Order, jobs: Sequence[Job], workers: int, until: float) -> Iterator[Result]:
    """Rows and failures of every job, as they end."""
    if workers == 1:
        yield from (work(order, until, job) for job in jobs if time.time() < until)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when a process begins
    processes = {"mp_context": get_context("spawn"), "initializer": _begin}
    with ProcessPoolExecutor(min(workers, len(jobs) or 1), **processes) as pool:
        try:
            for one in as_completed([pool.submit(work, order, until, job) for job in jobs]):
                yield one.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """A process has one thread, and leaves interrupts to the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


@lru_cache(maxsize=1)
def _setup(folder: str, pool: int, width: int, steps: int, device: str) -> tuple[Any, Judge]:
    return image_pools(folder, pool), ResidualJudge(steps, device, partial(ResNet18, width=width))


def work(order: Order, until: float, job: Job) -> Result:
    """The rows of a job, and why methods failed."""
    of = order.protocol
    pools, judge = _setup(order.folder, of.pool, of.width, of.steps, order.device)
    with tempfile.TemporaryDirectory() as place:
        comparison = Hurried(
            pools,
            Grid({name: as_selector(name) for name in job.methods}, job.sizes, [job.seed]),
            judge,
            Records(Path(place) / "rows.jsonl", order.settings),
            Runtime("cpu", progress=False, threads=1, max_seconds=MOST_SECONDS),
            whole=job.whole,
            tell=lambda done, words: report(words) if words and time.time() < until else None,
            until=until,
        )
        comparison.run()
        return list(comparison.records.rows.values()), comparison.failed


@dataclass(kw_only=True)
class Hurried(Comparison):
    """Begins nothing once the time is up, but what is selected by then is judged; a selection that
    was cut short is no row."""

    until: float

    def _selected(self, stage: Stage, name: str, size: int) -> Picked | None:
        if time.time() > self.until:
            return None
        picked = super()._selected(stage, name, size)
        if picked is not None and picked.coreset.status in (
            Status.OUT_OF_TIME,
            Status.LESS_REFINED,
        ):
            self.failed[name] = f"seed {stage.seed}, {size} points: {picked.coreset.message}"
            return None
        return picked

    def _record(self, method: str, size: int, seed: int, *rest: Any) -> None:
        found, seconds, model, *chosen = rest
        own = chosen if seed == 0 else []  # what was picked is kept for the first seed
        super()._record(method, size, seed, found, seconds, model, *own)


@dataclass(frozen=True, eq=False)
class ImagePools(Pools):
    """Pools of images that stay bytes until a seed draws them; the source holds their numbers."""

    pixels: Array

    def of(self, seed: int, in_order: bool = False) -> tuple[Dataset, Dataset]:
        rows = self.rows(seed, in_order)
        assert self.test is not None
        return Dataset(standard_cifar10(self.pixels[rows]), self.targets.values[rows]), self.test


def image_pools(folder: str, size: int) -> ImagePools:
    """Of CIFAR-10, standardised by its constants."""
    pixels, labels = cifar10_pixels(folder)
    source = Source("cifar10", Dataset(np.arange(len(labels))[:, None], labels), "constants")
    test = Source("cifar10", Dataset(*cifar10(folder, "test")), "constants")
    pools = make_pools(source, test, "classification", size, size, None)
    own = {one.name: getattr(pools, one.name) for one in fields(pools)}
    return ImagePools(**own, pixels=pixels)


def recorded(order: Order) -> Records:
    """The rows that are done; a new file begins with those of the record."""
    begun = not order.rows.exists() and (RECORDS / f"{RECORD}.json").exists()
    store = Records(order.rows, order.settings)
    record = read_record(RECORD) if begun else {}
    if record.get("settings") == order.settings:
        for row in record["rows"]:
            store.add(Row(**row))
    return store

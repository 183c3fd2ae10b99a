"""All methods on CIFAR-10's images, evaluated by the paper's ResNet-18; seeds in several processes.

    python -m benchmarks comparison_images --data DIR --device cuda --seeds 10 --workers 10
        --rows ROWS.jsonl --minutes 4 --record

For each seed 1000 training images are drawn, of which every method selects 50, 100 and 250; the
network is trained on each selection and tested on all test images. ``--workers`` processes share
the seeds, each with one thread. ``--minutes`` starts no further selection after this time;
``--methods A,B`` runs these alone. A rerun makes what is missing from the rows, or from the record
if there are none.

Selections run on the processor; the evaluation model and the network that some methods use are on
``--device``: a pool is small, and a card that all processes share is better spent on training.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import RECORDS, data_folder, read_record, report
from benchmarks.comparison_embedding import TimeUp, in_order, known_methods, open_rows, stop_after
from benchmarks.residual_judge import ResidualJudge
from bicore import Dataset, Runtime
from bicore.data import Array
from bicore.evaluate.comparison import Comparison, Grid
from bicore.evaluate.pools import Pools, make_pools
from bicore.evaluate.records import Records, Row
from bicore.methods.registry import METHODS, as_selector
from bicore.sources.base import Source
from bicore.sources.standard_sets import cifar10, cifar10_pixels, standard_cifar10
from experiments.networks import ResNet18

RECORD = "comparison_images"
#: BatchBALD draws networks by dropout, and a ResNet-18 has none.
EXCLUDED = ("batchbald",)


@dataclass(frozen=True)
class Protocol:
    """The images, the sizes of pools and selections, and the network that is trained on them."""

    folder: str = ""
    device: str = "cpu"
    pool: int = 1000
    sizes: tuple[int, ...] = (50, 100, 250)
    steps: int = 200
    width: int = 64
    methods: tuple[str, ...] = tuple(name for name in METHODS if name not in EXCLUDED)
    test: int = 10_000

    @property
    def settings(self) -> dict[str, Any]:
        """The facts that determine a row."""
        return {
            "pool": self.pool,
            "judge": ResidualJudge.name,
            "steps": self.steps,
            "width": self.width,
            "test": self.test,
            "arithmetic": "float32" if self.device == "cpu" else "bfloat16",
        }


PROTOCOL = Protocol()
Result = tuple[list[Row], dict[str, str]]


def run(arguments: Any) -> dict[str, Any]:
    folder, wanted = data_folder(arguments.data), known_methods(arguments.methods)
    until = time.time() + 60 * (arguments.minutes or float("inf"))
    methods = tuple(name for name in PROTOCOL.methods if name in wanted)
    test = len(cifar10_pixels(folder, "test")[1])
    order = {"folder": folder, "device": arguments.device, "methods": methods, "test": test}
    protocol = replace(PROTOCOL, **order)
    store = recorded(Path(arguments.rows), protocol)
    seeds = range(arguments.seeds)
    done = {seed: [row for row in store.rows.values() if row.seed == seed] for seed in seeds}
    works = [partial(work, protocol, until, seed, done[seed]) for seed in seeds]
    failed: dict[str, str] = {}
    for rows, failures in results(works, arguments.workers):
        failed |= failures
        for row in rows:
            store.add(row)
    facts = {"settings": protocol.settings, "sizes": list(protocol.sizes), "failed": failed}
    return {**facts, "rows": in_order(store.rows.values())}


def recorded(path: Path, protocol: Protocol) -> Records:
    """The rows that are done; a new file begins with those of a record of the same settings."""
    record = read_record(RECORD) if (RECORDS / f"{RECORD}.json").exists() else {}
    same = record.get("settings") == protocol.settings
    return open_rows(path, protocol.settings, record["rows"] if same else [])


def results(works: list[Any], workers: int) -> Iterator[Result]:
    """New rows and failures of every seed, as they end."""
    if workers == 1:
        yield from (work() for work in works)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when a process begins
    alone = {"mp_context": get_context("spawn"), "initializer": partial(torch.set_num_threads, 1)}
    with ProcessPoolExecutor(min(workers, len(works)), **alone) as pool:
        for one in as_completed([pool.submit(work) for work in works]):
            yield one.result()


def work(protocol: Protocol, until: float, seed: int, done: list[Row]) -> Result:
    """The rows of a seed that are not done, and why methods failed."""
    judge = ResidualJudge(protocol.steps, protocol.device, partial(ResNet18, width=protocol.width))
    with tempfile.TemporaryDirectory() as place:
        store = open_rows(Path(place) / "rows.jsonl", protocol.settings, map(vars, done))
        comparison = Comparison(
            image_pools(protocol.folder, protocol.pool),
            Grid({name: as_selector(name) for name in protocol.methods}, protocol.sizes, [seed]),
            judge,
            store,
            Runtime("cpu", progress=False, threads=1),
            whole=True,
            tell=stop_after(until),
        )
        try:
            comparison.run()
        except TimeUp:
            report("the time is up; the same command continues")
    return list(store.rows.values())[len(done) :], comparison.failed


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
    images, labels = cifar10(folder, "test")
    numbers = Dataset(np.arange(len(labels))[:, None], labels)
    pools = make_pools(source, numbers, "classification", size, size)
    assert pools.test is not None
    own = {one.name: getattr(pools, one.name) for one in fields(pools)}
    own["test"] = replace(pools.test, x=images)
    return ImagePools(**own, pixels=pixels)

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

from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ONE_THREAD, data_folder, deadline, read_known, run_jobs
from benchmarks.comparison import sort_rows
from benchmarks.comparison_embedding import (
    known_methods,
    open_rows,
    stop_after,
    until_time_is_up,
)
from benchmarks.residual_judge import ResidualJudge
from bicore import Dataset
from bicore.data import Array
from bicore.evaluate.comparison import Comparison, Grid
from bicore.evaluate.pools import Pools, make_pools
from bicore.evaluate.records import Row
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
        own = {name: getattr(self, name) for name in ("pool", "steps", "width", "test")}
        arithmetic = "float32" if self.device == "cpu" else "bfloat16"
        return {**own, "judge": ResidualJudge.name, "arithmetic": arithmetic}


PROTOCOL = Protocol()


def run(arguments: Any) -> dict[str, Any]:
    folder, wanted = data_folder(arguments.data), known_methods(arguments.methods)
    methods = tuple(name for name in PROTOCOL.methods if name in wanted)
    test = len(cifar10_pixels(folder, "test")[1])
    asked = {"folder": folder, "device": arguments.device, "methods": methods, "test": test}
    protocol = replace(PROTOCOL, **asked)
    record = read_known(RECORD)
    same = record.get("settings") == protocol.settings
    store = open_rows(Path(arguments.rows), protocol.settings, record["rows"] if same else ())
    known = [vars(row) for row in store.rows.values()]
    until = deadline(arguments.minutes)
    jobs = [(protocol, until, seed, known) for seed in range(arguments.seeds)]
    failed: dict[str, str] = {}
    for rows, failures in run_jobs(compare, jobs, arguments.workers):
        failed |= failures
        for row in rows:
            store.add(row)
    facts = {"settings": protocol.settings, "sizes": list(protocol.sizes), "failed": failed}
    return {**facts, "rows": sort_rows(store.rows.values())}


def compare(
    protocol: Protocol, until: float, seed: int, known: list[dict[str, Any]]
) -> tuple[list[Row], dict[str, str]]:
    """The rows of a seed that are not known, and why methods failed."""
    make = partial(ResNet18, width=protocol.width)
    store = open_rows(None, protocol.settings, known)
    comparison = Comparison(
        image_pools(protocol.folder, protocol.pool),
        Grid({name: as_selector(name) for name in protocol.methods}, protocol.sizes, [seed]),
        ResidualJudge(protocol.steps, protocol.device, make),
        store,
        ONE_THREAD,
        whole=True,
        tell=stop_after(until),
    )
    with until_time_is_up():
        comparison.run()
    return list(store.rows.values())[len(known) :], comparison.failed


@dataclass(frozen=True, eq=False)
class ImagePools(Pools):
    """Pools of images that stay bytes until a seed draws them; the source holds their numbers."""

    pixels: Array

    def of(self, seed: int, in_order: bool = False) -> tuple[Dataset, Dataset]:
        rows = self.rows(seed, in_order)
        return Dataset(standard_cifar10(self.pixels[rows]), self.targets.values[rows]), self.test


def image_pools(folder: str, size: int) -> ImagePools:
    """Of CIFAR-10, standardised by its constants."""
    pixels, labels = cifar10_pixels(folder)
    source = Source("cifar10", Dataset(np.arange(len(labels))[:, None], labels), "constants")
    images, labels = cifar10(folder, "test")
    numbers = Dataset(np.arange(len(labels))[:, None], labels)
    pools = make_pools(source, numbers, "classification", size, size)
    own = {one.name: getattr(pools, one.name) for one in fields(pools)}
    own["test"] = replace(pools.test, x=images)
    return ImagePools(**own, pixels=pixels)

"""All methods on CIFAR-10's images, judged by the paper's ResNet-18; in several processes.

    python -m benchmarks comparison_images --data DIR --device cuda --seeds 10 --workers 15
        --rows ROWS.jsonl --minutes 4 --record

For each seed 1000 training images are drawn, of which every method takes 50, 100 and 250; the
network is trained on each selection and tested on all test images. ``--workers`` processes share
the seeds, some methods of one at a time, each with one thread and with a file of rows of its own
beside ``--rows``; in the end, or when a run begins that follows one which was killed, they are
gathered in it. ``--minutes`` begins no further selection after so long, ``--methods A,B`` runs
these alone. A rerun makes what is missing from the rows, and where there are none, from the record.

Selections are made on the processor, the judge and the network that some methods look at are on
``--device``: a pool is small, and a card that all processes share is better spent on training.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import RECORDS, data_folder, read_record, report, slim
from benchmarks.residual_judge import ResidualJudge
from benchmarks.side_by_side import Until, shared
from bicore import Dataset, Runtime
from bicore.comparison.grid import WHOLE, Comparison, Grid, Picked, Stage
from bicore.comparison.pools import Pools, make_pools
from bicore.comparison.records import Records, Row
from bicore.coreset import Status
from bicore.data import Array
from bicore.errors import InputError
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
    wanted = arguments.methods.split(",") if arguments.methods else list(PROTOCOL.methods)
    unknown = [name for name in wanted if name not in METHODS]
    if unknown:
        raise InputError(f"--methods {','.join(unknown)} are not known; give names of METHODS.")
    until = time.time() + 60 * (arguments.minutes or float("inf"))
    folder = data_folder(arguments.data)
    test = len(cifar10_pixels(folder, "test")[1])
    order = Order(folder, Path(arguments.rows), arguments.device, PROTOCOL, test)
    for path in _of_processes(order.rows, ".failed"):
        path.unlink()  # what failed is tried again
    jobs = missing(order.protocol, gathered(order).rows, arguments.seeds, wanted)
    ended = shared(partial(work, order), jobs, arguments.workers, until) if jobs else []
    if any(ended):
        report(f"processes ended with {ended}; the same command goes on")
    return {**kept(order)}


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


def work(order: Order, number: int, jobs: Iterator[Job], until: Until) -> None:
    """What one process does: its rows, and why methods failed, go to files of its own."""
    pools = image_pools(order.folder, order.protocol.pool)
    network = partial(ResNet18, width=order.protocol.width)
    judge = ResidualJudge(order.protocol.steps, order.device, network)
    store = Records(_beside(order.rows, number), order.settings)
    failed: dict[str, str] = {}
    for job in jobs:
        comparison = Hurried(
            pools,
            Grid({name: as_selector(name) for name in job.methods}, job.sizes, [job.seed]),
            judge,
            store,
            Runtime("cpu", progress=False, threads=1, max_seconds=MOST_SECONDS),
            whole=job.whole,
            tell=partial(_tell, until),
            until=until,
        )
        comparison.run()
        failed |= comparison.failed
        if failed:
            _failures(order.rows, number).write_text(json.dumps(failed))


@dataclass(kw_only=True)
class Hurried(Comparison):
    """Begins nothing once the time is up, but what is selected by then is judged; a selection that
    was cut short is no row."""

    until: Until

    def _selected(self, stage: Stage, name: str, size: int) -> Picked | None:
        if self.until.over:
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


def gathered(order: Order) -> Records:
    """All rows in one file: those of the processes join it, and a new file begins with those of
    the record."""
    begun = not order.rows.exists() and (RECORDS / f"{RECORD}.json").exists()
    store = Records(order.rows, order.settings)
    record = read_record(RECORD) if begun else {}
    if record.get("settings") == order.settings:
        for row in record["rows"]:
            store.add(Row(**row))
    for path in _of_processes(order.rows, order.rows.suffix):
        for row in Records(path, order.settings).rows.values():
            if row.cell not in store.rows:
                store.add(row)
        path.unlink()
    return store


def kept(order: Order) -> dict[str, Any]:
    """The rows that are done, in the order of methods, sizes and seeds, and why others are not."""
    failed: dict[str, str] = {}
    for path in _of_processes(order.rows, ".failed"):
        failed |= json.loads(path.read_text())
    place = {name: number for number, name in enumerate([*METHODS, WHOLE])}
    rows = sorted(
        gathered(order).rows.values(), key=lambda row: (place[row.method], row.size, row.seed)
    )
    return {
        "settings": order.settings,
        "sizes": list(order.protocol.sizes),
        "failed": failed,
        "rows": [slim(row) for row in rows],
    }


def _beside(rows: Path, number: int) -> Path:
    """The rows of one process."""
    return rows.with_name(f"{rows.stem}.{number}{rows.suffix}")


def _failures(rows: Path, number: int) -> Path:
    return rows.with_name(f"{rows.stem}.{number}.failed")


def _of_processes(rows: Path, suffix: str) -> list[Path]:
    """Files that processes left beside the rows."""
    named = re.compile(re.escape(rows.stem) + r"\.\d+" + re.escape(suffix))
    return sorted(path for path in rows.parent.iterdir() if named.fullmatch(path.name))


def _tell(until: Until, done: int, words: str) -> None:
    if words and not until.over:
        report(words)

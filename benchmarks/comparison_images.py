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

Networks of a seed start from the same weights, and the crop that a place in a batch gets at a step
is drawn beforehand: a difference between two selections is theirs, and a score does not depend on
what was trained next to it. On a GPU training and tests are in bfloat16, and what was recorded for
one stack of selections serves the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import ONE_THREAD, data_folder, deadline, read_known, run_jobs
from benchmarks.comparison import sort_rows
from benchmarks.comparison_embedding import known_methods, open_rows, stop_after, until_time_is_up
from bicore import Dataset
from bicore.data import Array
from bicore.errors import InputError, NumericalError
from bicore.evaluate.comparison import Comparison, Grid
from bicore.evaluate.models import Judge, Sample
from bicore.evaluate.pools import Pools, make_pools
from bicore.evaluate.records import Result
from bicore.methods.registry import METHODS, as_selector
from bicore.sources.base import Source
from bicore.sources.standard_sets import cifar10, cifar10_pixels, standard_cifar10
from experiments.networks import ResNet18
from experiments.training import BATCH, RATE, Cohort, Learner, build

RECORD = "comparison_images"
#: BatchBALD draws networks by dropout, and a ResNet-18 has none.
EXCLUDED = ("batchbald",)
#: Networks that train side by side: more do not make a step faster.
AT_ONCE = 4
TEST_BATCH = 2000


class ResidualJudge(Judge):
    """A ResNet-18 trained with Adam for ``steps`` steps, in batches of at most 256.

    ``make`` builds one for a number of outputs. Samples on any device are copied to ``device``,
    which holds the network that methods read.
    """

    name = "resnet18"
    is_network = True

    def __init__(
        self, steps: int, device: str = "cpu", make: Callable[[int], ResNet18] = ResNet18
    ) -> None:
        self.steps = steps
        self.device = device
        self.make = make
        self._class: tuple[Any, Cohort[Pupil]] | None = None
        self._test: tuple[Sample, Tensor] | None = None

    def check(self, shape: tuple[int, ...], outputs: int) -> None:
        if shape != ResNet18.shape:
            raise InputError(
                f"the judge {self.name} needs images of shape {ResNet18.shape}, and a point has "
                f"shape {shape}; use another judge."
            )

    def stack_size(self, size: int, device: torch.device) -> int:
        return AT_ONCE

    def module(self, sample: Sample, outputs: int, seed: int) -> nn.Module:
        """One network, trained, in eval mode on the judge's device."""
        pupil = self.train_networks([sample], outputs, seed).learners[0]
        self._class = None  # whoever looks at it must not see it trained anew
        pupil.optimiser.zero_grad()  # gradients would keep what was recorded alive
        return pupil.network.eval()

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        return [
            pupil.predict(self._images(test, pupil)).to(test.x.device)
            for pupil in self.train_networks(selections, outputs, seed)
        ]

    def train_networks(
        self, selections: Sequence[Sample], outputs: int, seed: int
    ) -> Cohort[Pupil]:
        """Networks, one a selection, trained side by side."""
        cohort = self._cohort(len(selections), len(selections[0]), outputs, seed)
        for pupil, sample in zip(cohort, selections, strict=True):
            pupil.begin(sample)
        try:
            cohort.train(cohort.learners[0].passes)
        except ArithmeticError as error:
            raise NumericalError(
                f"the {self.name} judge's training diverged; scale the features, or use another "
                "judge."
            ) from error
        return cohort

    def _cohort(self, count: int, points: int, outputs: int, seed: int) -> Cohort[Pupil]:
        """The one of the last call where it has the shape: what is recorded on a GPU is bound to
        its numbers of networks and points."""
        shape = count, points, outputs, seed
        if self._class is None or self._class[0] != shape:
            self._class = None
            if self.device != "cpu":
                torch.cuda.empty_cache()  # other processes share the card
            networks = [build(lambda: self.make(outputs), seed, self.device) for _ in range(count)]
            cohort = Cohort([Pupil(network, points, self.steps, seed) for network in networks])
            self._class = shape, cohort
        return self._class[1]

    def _images(self, test: Sample, pupil: Pupil) -> Tensor:
        """The test images as networks take them, kept until others are asked for."""
        if self._test is None or self._test[0] is not test:
            images = test.x.to(self.device, pupil.x.dtype)
            self._test = test, images.contiguous(memory_format=torch.channels_last)
        return self._test[1]


class Pupil(Learner):
    """A network that can begin anew on other points of the same number, with the same crops."""

    def __init__(self, network: Any, points: int, steps: int, seed: int) -> None:
        batches = -(-points // BATCH)
        passes = -(-steps // batches)
        super().__init__(network, 0.0, points, 1, passes, BATCH, RATE, seed)
        self.seed = seed
        # looking for the fastest algorithms takes longer than a short training gains by them
        self.searched = False
        self.start = [value.detach().clone() for value in network.parameters()]
        self.turn = torch.zeros(1, dtype=torch.long, device=self.device)
        self.crops = _crops(passes * batches, self.sizes[0], seed).to(self.device)

    def begin(self, sample: Sample) -> None:
        """From the first weights, with the points of a sample."""
        with torch.no_grad():
            for value, first in zip(self.network.parameters(), self.start, strict=True):
                value.copy_(first)
        self.restart()
        self.generator.manual_seed(self.seed)
        self.turn.zero_()
        self.take(*(value.to(self.device) for value in (sample.x, sample.y, sample.weight)))

    def loss(self, rows: Tensor) -> Tensor:
        x, y, weight = (values.index_select(0, rows) for values in (self.x, self.y, self.weight))
        corners = self.crops.index_select(0, self.turn)[0, :, : len(rows), None]
        self.turn += 1
        outputs = self._outputs(ResNet18.crop(x, *corners))
        return (F.cross_entropy(outputs, y, reduction="none") * weight).mean()

    def predict(self, images: Tensor) -> Tensor:
        """Outputs for test images, in the arithmetic of the training."""
        self.network.eval()
        with torch.no_grad():
            return torch.cat([self._outputs(part) for part in torch.split(images, TEST_BATCH)])


def _crops(steps: int, places: int, seed: int) -> Tensor:
    """For every step (3, places): the top and the left of each crop, and whether it is mirrored."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.randint(0, 2 * ResNet18.border + 1, (steps, 2, places), generator=generator)
    mirrored = torch.randint(0, 2, (steps, 1, places), generator=generator)
    return torch.cat([corners, mirrored], 1)


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
    known = [row.as_record() for row in store.results.values()]
    until = deadline(arguments.minutes)
    jobs = [(protocol, until, seed, known) for seed in range(arguments.seeds)]
    failed: dict[str, str] = {}
    for rows, failures in run_jobs(compare, jobs, arguments.workers):
        failed |= failures
        for row in rows:
            store.add(row)
    facts = {"settings": protocol.settings, "sizes": list(protocol.sizes), "failed": failed}
    return {**facts, "rows": sort_rows(store.results.values())}


def compare(
    protocol: Protocol, until: float, seed: int, known: list[dict[str, Any]]
) -> tuple[list[Result], dict[str, str]]:
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
        callback=stop_after(until),
    )
    with until_time_is_up():
        comparison.run()
    return list(store.results.values())[len(known) :], comparison.failed


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

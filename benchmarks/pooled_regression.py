"""Kernel ridge regression on CIFAR-10 with the pooled convolutional kernel (figure 3b of the
paper).

    python -m benchmarks pooled_regression --data DIR --device cuda --rows ROWS.jsonl --cache FOLDER
    --record

The kernel is that of six layers with global average pooling, first and last layer fixed, normalised
to a unit diagonal; λ = 1e-5 a point, as in the paper. Pools are the first 2000, 5000 and 10 000
training images, where the paper's is all 50 000; accuracy on the first 4000 test images. Rows are
written as they come, a method at a time; blocks of the kernel are kept under --cache; a rerun
continues from both.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import Rows, data_folder, report, time_call
from benchmarks.gpu import look_up, number_points
from bicore import BilevelSelector, Coreset, Dataset, Runtime
from bicore.bilevel import PerPoint
from bicore.files import replacing
from bicore.kernels import TangentKernel, pooled_cntk
from bicore.methods.registry import greedy_selector
from bicore.sources import cifar10

SIZES = (10, 25, 50, 100, 150, 200, 250, 300, 350, 400)
POOLS = (2000, 5000, 10_000)
#: The pool whose weights the random samples are optimised on, and from which they are drawn.
UNIFORM_POOL = 5000
TESTED = 4000
STRIP = 500
LAMBDA = 1e-5
CLASSES = 10
WEIGHED = "uniform, optimised weights"
CORESET = "coreset, optimised weights"
DEFAULT = "default picks, optimised weights"
#: A method, a size, and the coreset.
Choice = tuple[str, int, Coreset]


@dataclass(frozen=True)
class Job:
    """A method that chooses points of the first images of a pool, and a seed."""

    method: str
    pool: int
    seed: int = 0


@dataclass(frozen=True)
class Images:
    """Images on a device with their labels, and the roots of their kernel with themselves."""

    x: Tensor
    labels: np.ndarray
    norms: Tensor

    @classmethod
    def load(
        cls, kernel: TangentKernel, folder: str, part: str, limit: int | None, device: str
    ) -> "Images":
        images, labels = cifar10(folder, part, limit)
        x = torch.from_numpy(images).to(device)
        return cls(x, labels, kernel.diag(x).double().sqrt())


def run(arguments: Any) -> dict[str, Any]:
    pools = [pool for pool in POOLS if pool <= (arguments.pool or max(POOLS))]
    work = Work(arguments, max(pools), TESTED, Path(arguments.cache))
    for pool in pools:
        seeds = range(arguments.seeds if pool == UNIFORM_POOL else 0)
        jobs = [Job("uniform", pool, seed) for seed in seeds]
        work.fill([*jobs, Job(CORESET, pool), Job(DEFAULT, pool)])
    facts = {"lambda": LAMBDA, "tested": TESTED, "rows": list(work.rows)}
    return {**facts, "kernel": {"strips": work.timings("strip-*.json")}}


class Work:
    """The images, the kernel as far as it is needed, and rows on disk."""

    def __init__(self, arguments: Any, train: int | None, test: int | None, cache: Path) -> None:
        device = str(Runtime(arguments.device).torch_device)
        folder = data_folder(arguments.data)
        self.kernel = pooled_cntk(6, fixed=True)
        self.pool = Images.load(self.kernel, folder, "train", train, device)
        self.test = Images.load(self.kernel, folder, "test", test, device)
        self.rows = Rows(arguments.rows)
        self.runtime = Runtime(device, progress=False)
        self.gram = lru_cache(maxsize=1)(self._gram)
        self.cache = cache
        cache.mkdir(parents=True, exist_ok=True)

    def fill(self, jobs: list[Job]) -> None:
        """Add the rows of every job that has none, all at once."""
        for job in jobs:
            if self.rows.find(**vars(job)) is None:
                self.rows.add(*self.evaluate(job))

    def evaluate(self, job: Job) -> Iterator[dict[str, Any]]:
        """A row for every size and kind of weights."""
        chosen = list(self.choose(job))
        points = np.unique(np.concatenate([coreset.indices for _, _, coreset in chosen]))
        columns = self.block("test", self.test, points)
        own = self.own_block(job, points)
        for method, size, coreset in chosen:
            places = np.searchsorted(points, coreset.indices)
            right = self._is_right(own[places][:, places], columns[:, places], coreset)
            row = {"method": method, "pool": job.pool, "seed": job.seed, "size": size}
            row |= {"kept": len(coreset), "selection_seconds": coreset.provenance.seconds}
            yield {**row, **self.score(right)}

    def own_block(self, job: Job, points: np.ndarray) -> Tensor:
        """The kernel of points of the pool with each other."""
        return self.gram(job.pool)[points][:, points]

    def score(self, right: np.ndarray) -> dict[str, Any]:
        return {"accuracy": float(right.mean())}

    def choose(self, job: Job) -> Iterator[Choice]:
        """Every size of a method; points are their numbers, and the matrix stays on the device."""
        data, kernel = number_points(self.pool.labels[: job.pool]), look_up(self.gram(job.pool))
        paper = greedy_selector(kernel=kernel, inner_reg=PerPoint(LAMBDA), weighting="learned")
        if job.method == "uniform":
            order = np.random.default_rng(job.seed).permutation(job.pool)
            yield from self.sample(paper, data, order)
        elif job.method == CORESET:
            yield from self.grow(paper, data, (), 0)
        else:
            default = greedy_selector(kernel=kernel)
            binary = default.select(data, max(SIZES), runtime=self.runtime)
            for size in SIZES:
                picks = binary.prefix(size).indices.tolist()
                better = paper.reweight(data, picks, runtime=self.runtime)
                seconds = binary.provenance.seconds * size / max(SIZES)
                seconds += better.provenance.seconds
                yield DEFAULT, size, better.with_details({"seconds": seconds})

    def sample(
        self, selector: BilevelSelector, data: Dataset, order: np.ndarray
    ) -> Iterator[Choice]:
        """Random samples, with equal and with optimised weights."""
        for size in SIZES:
            picks = order[:size]
            yield "uniform", size, Coreset(picks, np.ones(size), picks)
            yield WEIGHED, size, selector.reweight(data, picks.tolist(), runtime=self.runtime)

    def grow(
        self, selector: BilevelSelector, data: Dataset, first: Any, seed: int
    ) -> Iterator[Choice]:
        """The paper's coreset: weights optimised after every point, grown from size to size."""
        seconds = 0.0
        for size in SIZES:
            options = {"initial": first, "random_state": seed, "runtime": self.runtime}
            first = selector.select(data, size, **options)
            seconds += first.provenance.seconds
            report(f"coreset of {size} from {len(data)}: {seconds:.1f} s")
            yield CORESET, size, first.with_details({"seconds": seconds})

    def _is_right(self, own: Tensor, columns: Tensor, coreset: Coreset) -> np.ndarray:
        """Which test images the weighted ridge regression on the coreset answers rightly."""
        chosen = torch.from_numpy(self.pool.labels[coreset.indices])
        targets = torch.nn.functional.one_hot(chosen, CLASSES).double().to(own.device)
        weights = torch.from_numpy(coreset.weights).to(own.device)
        system = own + torch.diag(LAMBDA * len(coreset) / weights)
        alpha = torch.linalg.solve(system, targets - 1 / CLASSES)
        return (columns @ alpha).argmax(1).cpu().numpy() == self.test.labels

    def _gram(self, pool: int) -> Tensor:
        """The pool's matrix, from strips of its lower triangle."""
        x, norms = self.pool.x, self.pool.norms[:pool]
        whole = torch.zeros(pool, pool, dtype=torch.float64, device=x.device)
        for top in range(0, pool, STRIP):
            rows = x[top : top + STRIP]

            def make(rows: Tensor = rows, top: int = top) -> Tensor:
                own = self.kernel(rows)
                return torch.cat([self.kernel(rows, x[:top]), own], 1) if top else own

            pairs = STRIP * top + STRIP * (STRIP + 1) // 2
            strip = self._keep(f"strip-{top:05d}", make, pairs)
            whole[top : top + STRIP, : top + STRIP] = strip
            whole[: top + STRIP, top : top + STRIP] = strip.T
        whole /= norms[:, None] * norms
        whole.diagonal().fill_(1.0)
        return whole

    def block(self, name: str, rows: Images, points: np.ndarray) -> Tensor:
        """The normalised kernel of rows with points of the pool."""
        x, norms = rows.x, rows.norms

        def make() -> Tensor:
            parts = [self.kernel(part, self.pool.x[points]) for part in x.split(STRIP)]
            return torch.cat(parts).double() / (norms[:, None] * self.pool.norms[points])

        name = f"{name}-{zlib.crc32(points.tobytes()):08x}"
        return self._keep(name, make, len(x) * len(points))

    def _keep(self, name: str, make: Callable[[], Tensor], pairs: int) -> Tensor:
        """A part of the kernel that is computed once, and kept with its seconds."""
        path = self.cache / f"{name}.npy"
        if not path.exists():
            seconds, found = time_call(lambda: make().cpu().numpy())  # waits for the device
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.save(file, found)
            facts = {"name": name, "pairs": pairs, "seconds": seconds}
            path.with_suffix(".json").write_text(json.dumps(facts))
            report(f"{name}: {seconds:.1f} s, {seconds / pairs * 1e6:.2f} µs a pair")
        return torch.from_numpy(np.load(path)).to(self.pool.x.device)

    def timings(self, pattern: str) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.cache.glob(pattern))]

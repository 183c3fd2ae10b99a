"""Kernel ridge regression on CIFAR-10 from all 50 000 images (figure 3b of the paper).

    python -m benchmarks pooled_whole --data DIR --device cuda --seeds 3 --rows ROWS.jsonl
    --cache FOLDER --record

The slope of a candidate needs its column of all images, and all columns are 1.25 billion pairs,
three hours of a GPU. Here the kernel is seen from landmarks, a uniform sample of 400: points are
chosen and weighted in its Nyström features, from 250 random candidates a step after 10 random
points as in the paper, weights after every point; and the regression on them is by the kernel
itself, on all 10 000 test images. What landmarks cost shows where the exact slopes are known: the
coreset of the first 10 000 images. Strips of the kernel are kept under --cache and rows are written
as they come; a rerun goes on from both.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import Rows, data_folder, report
from benchmarks.pooled_regression import (
    CORESET,
    LAMBDA,
    SIZES,
    WEIGHED,
    keep_timing,
    read_timings,
    right_answers,
)
from benchmarks.pooled_regression import TESTED as FIRST_TESTED
from bicore import Coreset, Dataset, Runtime
from bicore.bilevel import PerPoint
from bicore.files import replacing
from bicore.kernels import TangentKernel, pooled_cntk
from bicore.methods.registry import greedy_selector
from bicore.runtime.context import Context
from bicore.sources import cifar10

#: The pool whose exact slopes are known from the benchmark beside this one.
KNOWN = 10_000
CANDIDATES = 250
STARTS = 10
STRIP = 1000
#: Directions of the landmarks below this share of the largest are left out.
CUTOFF = 1e-7


@dataclass(frozen=True)
class Images:
    """Images on a device with their labels, and the roots of their kernel with themselves."""

    x: Tensor
    labels: np.ndarray
    norms: Tensor

    @classmethod
    def of(cls, kernel: TangentKernel, images: np.ndarray, labels: np.ndarray, device: str) -> Any:
        x = torch.from_numpy(images).to(device)
        return cls(x, labels, kernel.diag(x).double().sqrt())


@dataclass(frozen=True)
class Job:
    """A set of points to choose: by what, from how many images, with which seed."""

    method: str
    pool: int
    seed: int


def run(arguments: Any) -> dict[str, Any]:
    device = str(Runtime(arguments.device).torch_device)
    folder = data_folder(arguments.data)
    kernel = pooled_cntk(6, fixed=True)
    pool = Images.of(kernel, *cifar10(folder, "train", arguments.pool), device)
    test = Images.of(kernel, *cifar10(folder, "test", None), device)
    work = Work(kernel, pool, test, arguments.rows, Path(arguments.cache))
    for job in jobs(len(pool.x), arguments.seeds):
        if work.rows.find(method=job.method, pool=job.pool, seed=job.seed) is None:
            work.rows.add(*work.judge(job))  # at once
    facts = {"lambda": LAMBDA, "landmarks": max(SIZES), "tested": len(test.x)}
    facts |= {"tested_first": FIRST_TESTED, "rows": list(work.rows)}
    return {**facts, "kernel": read_timings(work.cache, "*.json")}


def jobs(images: int, seeds: int) -> Iterator[Job]:
    """The landmarks are the first uniform sample, so that their columns serve twice."""
    for seed in range(seeds):
        yield Job(CORESET, images, seed)
        if seed < 2:
            yield Job("uniform", images, seed)
        if seed == 0 and images > KNOWN:
            yield Job(CORESET, KNOWN, 0)


class Work:
    """The kernel as far as it is needed, and rows on disk."""

    def __init__(
        self, kernel: TangentKernel, pool: Images, test: Images, rows: str | Path, cache: Path
    ) -> None:
        self.kernel = kernel
        self.pool = pool
        self.test = test
        # Landmarks and orders of more or fewer images are others.
        self.rows = Rows(rows, images=len(pool.x))
        # Strips of another pool, and those of the benchmark beside this one, lie elsewhere.
        self.cache = cache / f"whole-{len(pool.x)}"
        self.cache.mkdir(parents=True, exist_ok=True)
        self.context = Context(runtime=Runtime(str(pool.x.device), progress=False))
        self.features = self._seen_from(self._order(0)[: max(SIZES)])

    def judge(self, job: Job) -> Iterator[dict[str, Any]]:
        """A row for every size and kind of weights."""
        chosen = dict(self._chosen(job))
        points = np.unique(np.concatenate([one.indices for one in chosen.values()]))
        name = f"{job.method}-{job.pool}-{job.seed}".replace(", ", "-").replace(" ", "-")
        columns = self._block(f"test-{name}", self.test, points)
        own = self._block(f"own-{name}", self.pool, points, points)
        for (method, size), coreset in chosen.items():
            places = torch.from_numpy(np.searchsorted(points, coreset.indices)).to(own.device)
            of = (coreset, self.pool.labels, self.test.labels, LAMBDA)
            right = right_answers(own[places][:, places], columns[:, places], *of)
            yield {
                "method": method,
                "images": len(self.pool.x),
                "pool": job.pool,
                "seed": job.seed,
                "size": size,
                "accuracy": float(right.mean()),
                "accuracy_first": float(right[:FIRST_TESTED].mean()),
                "selection_seconds": coreset.provenance.seconds,
                "kept": len(coreset),
            }

    def _chosen(self, job: Job) -> Iterator[tuple[tuple[str, int], Coreset]]:
        selector = greedy_selector(
            kernel="linear", inner_reg=PerPoint(LAMBDA), weighting="learned", candidates=CANDIDATES
        )
        data = Dataset(self.features[: job.pool], self.pool.labels[: job.pool])
        order = self._order(job.seed)
        order = order[order < job.pool]
        coreset = None
        seconds = 0.0
        for size in SIZES:
            if job.method == "uniform":
                picks = order[:size]
                yield (job.method, size), Coreset(picks, np.ones(size), picks)
                better = selector.reweight(data, picks.tolist(), runtime=self.context.runtime)
                yield (WEIGHED, size), better
                continue
            first: Any = order[: min(STARTS, size)].tolist() if coreset is None else coreset
            coreset = selector.select(
                data, size, initial=first, random_state=job.seed, **self.context.keywords
            )
            seconds += coreset.provenance.seconds
            report(f"{job}: {size} points, {seconds:.1f} s")
            yield (job.method, size), coreset.annotated({"seconds": seconds})

    def _order(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).permutation(len(self.pool.x))

    def _seen_from(self, landmarks: np.ndarray) -> np.ndarray:
        """Nyström features of all images: exact between landmarks."""
        block = self._block("landmarks", self.pool, landmarks)
        own = block[torch.from_numpy(landmarks).to(block.device)]
        values, vectors = torch.linalg.eigh((own + own.T) / 2)
        seen = values > CUTOFF * values.max()
        root = vectors[:, seen] * values[seen].rsqrt()
        report(f"{int(seen.sum())} features of {len(landmarks)} landmarks")
        return (block @ root).cpu().numpy()

    def _block(
        self, name: str, rows: Images, points: np.ndarray, of: np.ndarray | None = None
    ) -> Tensor:
        """The kernel of rows (or of these among them) with points of the pool, normalised; kept
        with the points, which may be others next time."""
        path = self.cache / f"{name}.npz"
        if path.exists():
            with np.load(path) as stored:
                if np.array_equal(stored["points"], points):
                    return torch.from_numpy(stored["block"]).to(self.pool.x.device)
        at = torch.from_numpy(points).to(self.pool.x.device)
        picked = slice(None) if of is None else torch.from_numpy(of).to(self.pool.x.device)
        x, norms = rows.x[picked], rows.norms[picked]
        start = time.perf_counter()
        strips = []
        for top in range(0, len(x), STRIP):
            strip = self.kernel(x[top : top + STRIP], self.pool.x[at]).double()
            strips.append(strip / (norms[top : top + STRIP, None] * self.pool.norms[at]))
        block = torch.cat(strips)
        found = block.cpu().numpy()  # waits for the device
        seconds = time.perf_counter() - start
        with replacing(path) as beside, beside.open("wb") as file:
            np.savez(file, block=found, points=points)
        keep_timing(path, block.numel(), seconds, block=name)
        return block

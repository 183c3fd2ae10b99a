"""Kernel ridge regression on CIFAR-10 from all 50 000 images (figure 3b of the paper).

    python -m benchmarks pooled_whole --data DIR --device cuda --seeds 3 --rows ROWS.jsonl
    --cache FOLDER --record

The slope of a candidate needs its column of all images, and all columns are 1.25 billion pairs,
three hours of a GPU. Here the kernel is seen from landmarks, a random sample of 400: points are
chosen and weighted in its Nyström features, from 250 random candidates a step after 10 random
points as in the paper, weights after every point; and the regression on them is by the kernel
itself, on all 10 000 test images. What landmarks cost shows where the exact slopes are known: the
coreset of the first 10 000 images. Blocks of the kernel are kept under --cache and rows are written
as they come; a rerun continues from both.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import Rows, report
from benchmarks.pooled_regression import CORESET, LAMBDA, SIZES, Choice, Images, Job, Work
from bicore import Dataset
from bicore.bilevel import PerPoint
from bicore.methods.registry import greedy_selector

#: The pool whose exact slopes are known from ``pooled_regression``.
KNOWN = 10_000
CANDIDATES = 250
STARTS = 10
#: Directions of the landmarks below this share of the largest are left out.
CUTOFF = 1e-7


def run(arguments: Any) -> dict[str, Any]:
    work = LandmarkWork(arguments)
    work.fill(list(jobs(len(work.pool.x), arguments.seeds)))
    facts = {"lambda": LAMBDA, "landmarks": max(SIZES), "tested": len(work.test.x)}
    return {**facts, "rows": list(work.rows), "kernel": work.timings("*.json")}


def jobs(images: int, seeds: int) -> Iterator[Job]:
    """The landmarks are the first random sample, so that their columns serve twice."""
    for seed in range(seeds):
        yield Job(CORESET, images, seed)
        if seed < 2:
            yield Job("uniform", images, seed)
        if seed == 0 and images > KNOWN:
            yield Job(CORESET, KNOWN, 0)


class LandmarkWork(Work):
    """Points are chosen in features of landmarks."""

    def __init__(self, arguments: Any) -> None:
        cache = Path(arguments.cache) / f"whole-{arguments.pool or 'all'}"
        super().__init__(arguments, arguments.pool, None, cache)
        # Landmarks and orders of more or fewer images are others.
        self.rows = Rows(arguments.rows, images=len(self.pool.x))
        self.features = self._map_landmarks(self._order(0)[: max(SIZES)])

    def own_block(self, job: Job, points: np.ndarray) -> Tensor:
        own = Images(*(getattr(self.pool, name)[points] for name in ("x", "labels", "norms")))
        return self.block("own", own, points)

    def score(self, right: np.ndarray) -> dict[str, Any]:
        return {"images": len(self.pool.x), **super().score(right)}

    def choose(self, job: Job) -> Iterator[Choice]:
        options = {"inner_reg": PerPoint(LAMBDA), "weighting": "learned"}
        selector = greedy_selector(kernel="linear", candidates=CANDIDATES, **options)
        data = Dataset(self.features[: job.pool], self.pool.labels[: job.pool])
        order = self._order(job.seed)
        order = order[order < job.pool]
        if job.method == "uniform":
            return self.sample(selector, data, order)
        first = order[: min(STARTS, *SIZES)].tolist()
        return self.grow(selector, data, first, job.seed)

    def _order(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).permutation(len(self.pool.x))

    def _map_landmarks(self, landmarks: np.ndarray) -> np.ndarray:
        """Nyström features of all images: exact between landmarks."""
        block = self.block("landmarks", self.pool, landmarks)
        own = block[landmarks]
        values, vectors = torch.linalg.eigh((own + own.T) / 2)
        seen = values > CUTOFF * values.max()
        root = vectors[:, seen] * values[seen].rsqrt()
        report(f"{int(seen.sum())} features of {len(landmarks)} landmarks")
        return (block @ root).cpu().numpy()

"""Kernel ridge regression on CIFAR-10 with the pooled convolutional kernel (figure 3b of the
paper).

    python -m benchmarks pooled_regression --data DIR --device cuda --rows ROWS.jsonl --cache FOLDER
    --record

The kernel is that of six layers with global average pooling, first and last layer fixed, normalised
to a unit diagonal; λ = 1e-5 a point, as in the paper. Pools are the first 2000, 5000 and 10 000
training images, where the paper's is all 50 000; accuracy on the first 4000 test images. Rows are
written as they come, a pool at a time; strips of the kernel are kept under --cache; a rerun goes on
from both.
"""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import Rows, data_folder, report
from bicore import BilevelSelector, Coreset, Dataset, Runtime
from bicore.bilevel import PerPoint
from bicore.files import replacing
from bicore.kernels import TangentKernel, pooled_cntk
from bicore.methods.registry import greedy_selector
from bicore.runtime.context import Context
from bicore.sources import cifar10

SIZES = (10, 25, 50, 100, 150, 200, 250, 300, 350, 400)
POOLS = (2000, 5000, 10_000)
#: The pool whose weights the uniform samples are optimised on, and from which they are drawn.
UNIFORM_POOL = 5000
TESTED = 4000
STRIP = 500
LAMBDA = 1e-5
CLASSES = 10
WEIGHED = "uniform, optimised weights"
CORESET = "coreset, optimised weights"
DEFAULT = "default picks, optimised weights"


Key = tuple[str, int, int, int]


def run(arguments: Any) -> dict[str, Any]:
    device = str(Runtime(arguments.device).torch_device)
    folder = data_folder(arguments.data)
    work = Work(device, arguments.rows, Path(arguments.cache))
    pools = [pool for pool in POOLS if pool <= (arguments.pool or max(POOLS))]
    images, labels = cifar10(folder, "train", max(pools))
    tests, answers = cifar10(folder, "test", TESTED)
    x, test_x = (torch.from_numpy(part).to(device) for part in (images, tests))
    kernel = pooled_cntk(6, fixed=True)
    norms, test_norms = (kernel.diag(part).double().sqrt() for part in (x, test_x))
    for pool in pools:
        gram = work.gram(kernel, x, pool) / (norms[:pool, None] * norms[:pool])
        gram.diagonal().fill_(1.0)
        sets = dict(work.selections(labels[:pool], arguments.seeds, gram))
        if not sets:
            continue
        points = np.unique(np.concatenate([one.indices for one in sets.values()]))
        at = torch.from_numpy(points).to(device)
        start = time.perf_counter()
        columns = kernel(test_x, x[at]).double() / (test_norms[:, None] * norms[at])
        report(f"{len(points)} test columns in {time.perf_counter() - start:.1f} s")
        for key, coreset in sets.items():
            own = torch.from_numpy(coreset.indices).to(device)
            places = torch.from_numpy(np.searchsorted(points, coreset.indices)).to(device)
            of = (gram[own][:, own], columns[:, places], coreset, labels, answers, LAMBDA)
            work.add(key, float(right_answers(*of).mean()), coreset)
    facts = {"lambda": LAMBDA, "tested": TESTED, "rows": list(work.rows)}
    return {**facts, "kernel": {"strips": read_timings(work.cache, "strip-*.json")}}


def right_answers(
    own: Tensor,
    columns: Tensor,
    coreset: Coreset,
    labels: np.ndarray,
    answers: np.ndarray,
    ridge: float,
) -> np.ndarray:
    """Which test images the weighted ridge regression on the coreset answers rightly."""
    chosen = torch.from_numpy(labels[coreset.indices])
    targets = torch.nn.functional.one_hot(chosen, CLASSES).double().to(own.device)
    weights = torch.from_numpy(coreset.weights).to(own.device)
    system = own + torch.diag(ridge * len(coreset) / weights)
    alpha = torch.linalg.solve(system, targets - 1 / CLASSES)
    return np.asarray((columns @ alpha).argmax(1).cpu().numpy() == answers)


def read_timings(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """Pairs and seconds of the parts of a kernel that are kept in a folder."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]


def keep_timing(path: Path, pairs: int, seconds: float, **facts: Any) -> None:
    path.with_suffix(".json").write_text(json.dumps({**facts, "pairs": pairs, "seconds": seconds}))
    report(f"{path.stem}: {seconds:.1f} s, {seconds / pairs * 1e6:.2f} µs a pair")


class Work:
    """Rows and kernel strips on disk, and what is done."""

    def __init__(self, device: str, rows: str, cache: Path) -> None:
        self.rows = Rows(rows)
        self.cache = cache
        cache.mkdir(parents=True, exist_ok=True)
        self.context = Context(runtime=Runtime(device, progress=False))

    def done(self, method: str, pool: int, seed: int = 0, sizes: Sequence[int] = SIZES) -> bool:
        key = {"method": method, "pool": pool, "seed": seed}
        return all(self.rows.find(**key, size=size) for size in sizes)

    def add(self, key: Key, accuracy: float, coreset: Coreset) -> None:
        row = dict(zip(("method", "pool", "seed", "size"), key, strict=True))
        seconds = coreset.provenance.seconds
        facts = {"accuracy": accuracy, "selection_seconds": seconds, "kept": len(coreset)}
        self.rows.add({**row, **facts})

    def gram(self, kernel: TangentKernel, x: Tensor, pool: int) -> Tensor:
        """The pool's matrix; strips of it are computed once and kept."""
        whole = torch.zeros(pool, pool, dtype=torch.float64, device=x.device)
        for top in range(0, pool, STRIP):
            strip = self._strip(kernel, x, top)
            whole[top : top + STRIP, : top + STRIP] = strip
            whole[: top + STRIP, top : top + STRIP] = strip.T
        return whole

    def _strip(self, kernel: TangentKernel, x: Tensor, top: int) -> Tensor:
        """Rows top … top + STRIP against all images up to their end."""
        path = self.cache / f"strip-{top:05d}.npy"
        if path.exists():
            return torch.from_numpy(np.load(path)).to(x.device)
        start = time.perf_counter()
        rows = x[top : top + STRIP]
        own = kernel(rows)
        strip = torch.cat([kernel(rows, x[:top]), own], 1) if top else own
        found = strip.cpu().numpy()  # waits for the device
        seconds = time.perf_counter() - start
        with replacing(path) as beside, beside.open("wb") as file:
            np.save(file, found)
        keep_timing(path, STRIP * top + STRIP * (STRIP + 1) // 2, seconds, top=top)
        return strip

    def selections(
        self, labels: np.ndarray, seeds: int, gram: Tensor
    ) -> Iterator[tuple[Key, Coreset]]:
        """Every coreset of this pool that has no row yet."""
        pool = len(labels)

        def kernel(a: Tensor, b: Tensor) -> Tensor:
            return gram[a[:, 0].long()][:, b[:, 0].long()]

        # Points are their numbers, and the kernel looks their values up: the matrix stays on the
        # device.
        data = Dataset(np.arange(pool, dtype=np.float64)[:, None], labels)
        paper = greedy_selector(kernel=kernel, inner_reg=PerPoint(LAMBDA), weighting="learned")
        for seed in range(seeds if pool == UNIFORM_POOL else 0):
            yield from self._sampled(data, seed, paper)
        if not self.done(CORESET, pool):
            yield from self._grown(data, paper)
        if not self.done(DEFAULT, pool):
            yield from self._reweighted(data, greedy_selector(kernel=kernel), paper)

    def _sampled(
        self, data: Dataset, seed: int, paper: BilevelSelector
    ) -> Iterator[tuple[Key, Coreset]]:
        order = np.random.default_rng(seed).permutation(len(data))
        for size in SIZES:
            if not self.done("uniform", len(data), seed, [size]):
                picks = order[:size]
                yield ("uniform", len(data), seed, size), Coreset(picks, np.ones(size), picks)
            if not self.done(WEIGHED, len(data), seed, [size]):
                better = paper.reweight(data, order[:size].tolist(), runtime=self.context.runtime)
                yield (WEIGHED, len(data), seed, size), better

    def _grown(self, data: Dataset, paper: BilevelSelector) -> Iterator[tuple[Key, Coreset]]:
        """The paper's coreset: weights optimised after every point, grown from size to size."""
        first: Any = ()
        seconds = 0.0
        for size in SIZES:
            first = paper.select(data, size, initial=first, **self.context.keywords)
            seconds += first.provenance.seconds
            yield (CORESET, len(data), 0, size), first.annotated({"seconds": seconds})
            report(f"coreset of {size} from {len(data)}: {seconds:.1f} s")

    def _reweighted(
        self, data: Dataset, default: BilevelSelector, paper: BilevelSelector
    ) -> Iterator[tuple[Key, Coreset]]:
        """Default picks, with weights optimised once at each size."""
        binary = default.select(data, max(SIZES), **self.context.keywords)
        for size in SIZES:
            picks = binary.prefix(size).indices.tolist()
            better = paper.reweight(data, picks, runtime=self.context.runtime)
            picking = binary.provenance.seconds * size / max(SIZES)
            both = better.annotated({"seconds": better.provenance.seconds + picking})
            yield (DEFAULT, len(data), 0, size), both

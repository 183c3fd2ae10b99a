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

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import data_folder, report
from bicore import BilevelSelector, Context, Coreset, Dataset, PerPoint, Runtime
from bicore.coreset import Provenance
from bicore.kernels import TangentKernel, pooled_cntk
from bicore.sources import cifar10

SIZES = (10, 25, 50, 100, 150, 200, 250, 300, 350, 400)
POOLS = (2000, 5000, 10_000)
#: The pool whose weights the uniform samples are optimised on, and from which they are drawn.
UNIFORM_POOL = 5000
TESTED = 4000
STRIP = 500
LAMBDA = 1e-5
CLASSES = 10


def run(arguments: Any) -> dict[str, Any]:
    device = str(Runtime(arguments.device).torch_device)
    folder = data_folder(arguments.data)
    work = Work(device, Path(arguments.rows), Path(arguments.cache))
    pools = (
        POOLS if arguments.pool is None else tuple(pool for pool in POOLS if pool <= arguments.pool)
    )
    images, labels = cifar10(folder, "train", max(pools))
    tests, answers = cifar10(folder, "test", TESTED)
    x, test_x = (torch.from_numpy(part).to(device) for part in (images, tests))
    kernel = pooled_cntk(6, fixed=True)
    norms, test_norms = (kernel.diag(part).double().sqrt() for part in (x, test_x))
    sets: dict[tuple[str, int, int, int], Coreset] = {}
    for pool in pools:
        gram = work.gram(kernel, x, pool) / (norms[:pool, None] * norms[:pool])
        gram.diagonal().fill_(1.0)
        # Points are their numbers, and the kernel looks their values up: the matrix stays on the
        # device.
        data = Dataset(np.arange(pool, dtype=np.float64)[:, None], labels[:pool])
        sets |= dict(
            work.selections(
                data, pool, arguments.seeds, lambda a, b, gram=gram: gram[_at(a)][:, _at(b)]
            )
        )
        wanted = [key for key in sets if key not in work.done]
        points = (
            np.unique(np.concatenate([sets[key].indices for key in wanted]))
            if wanted
            else np.empty(0, int)
        )
        if len(points):
            start = time.perf_counter()
            columns = kernel(test_x, x[torch.from_numpy(points).to(x.device)]).double()
            columns /= test_norms[:, None] * norms[torch.from_numpy(points).to(x.device)]
            work.say(f"{len(points)} test columns in {time.perf_counter() - start:.1f} s")
            for key in wanted:
                work.write(
                    key, _accuracy(gram, columns, points, sets[key], labels, answers), sets[key]
                )
    return {
        "lambda": LAMBDA,
        "tested": TESTED,
        "rows": work.read(),
        "kernel": {"strips": work.strips()},
    }


def _at(points: Tensor) -> Tensor:
    return points[:, 0].long()


def _accuracy(
    gram: Tensor,
    columns: Tensor,
    points: np.ndarray,
    coreset: Coreset,
    labels: np.ndarray,
    answers: np.ndarray,
) -> float:
    """Test accuracy of the weighted ridge regression on the coreset."""
    index = torch.from_numpy(coreset.indices).to(gram.device)
    weights = torch.from_numpy(coreset.weights).to(gram.device)
    targets = (
        torch.nn.functional.one_hot(torch.from_numpy(labels[coreset.indices]), CLASSES)
        .double()
        .to(gram.device)
    )
    system = gram[index][:, index] + torch.diag(LAMBDA * len(index) / weights)
    alpha = torch.linalg.solve(system, targets - 1 / CLASSES)
    places = torch.from_numpy(np.searchsorted(points, coreset.indices)).to(gram.device)
    return float(
        (columns[:, places] @ alpha).argmax(1).cpu().eq(torch.from_numpy(answers)).double().mean()
    )


class Work:
    """Rows and kernel strips on disk, and what is done."""

    def __init__(self, device: str, rows: Path, cache: Path) -> None:
        self.device = device
        self.rows = rows
        self.cache = cache
        cache.mkdir(parents=True, exist_ok=True)
        self.done = {(row["method"], row["pool"], row["seed"], row["size"]) for row in self.read()}
        self.context = Context(runtime=Runtime(device, progress=False))

    def read(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self.rows.read_text().splitlines()]
            if self.rows.exists()
            else []
        )

    def say(self, words: str) -> None:
        report(words)

    def write(self, key: tuple[str, int, int, int], accuracy: float, coreset: Coreset) -> None:
        method, pool, seed, size = key
        row = {
            "method": method,
            "pool": pool,
            "seed": seed,
            "size": size,
            "accuracy": accuracy,
            "selection_seconds": coreset.provenance.seconds,
            "kept": len(coreset),
        }
        with open(self.rows, "a") as file:
            file.write(json.dumps(row) + "\n")
        self.done.add(key)

    def strips(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.cache.glob("strip-*.json"))]

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
        if strip.is_cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        pairs = STRIP * top + STRIP * (STRIP + 1) // 2
        beside = path.with_suffix(".part.npy")
        np.save(beside, strip.cpu().numpy())
        beside.replace(path)
        path.with_suffix(".json").write_text(
            json.dumps({"top": top, "pairs": pairs, "seconds": seconds})
        )
        self.say(f"strip {top}: {seconds:.1f} s, {seconds / pairs * 1e6:.2f} µs a pair")
        return strip

    def selections(
        self, data: Dataset, pool: int, seeds: int, kernel: Any
    ) -> Iterator[tuple[tuple[str, int, int, int], Coreset]]:
        """Every coreset of this pool that has no row yet."""
        paper = BilevelSelector(kernel=kernel, inner_reg=PerPoint(LAMBDA), weights="learnt")
        picks = BilevelSelector(kernel=kernel)
        for seed in range(seeds if pool == UNIFORM_POOL else 0):
            order = np.random.default_rng(seed).permutation(pool)
            for size in SIZES:
                start = time.perf_counter()
                plain = Coreset(
                    order[:size],
                    np.ones(size),
                    order[:size],
                    provenance=Provenance(seconds=time.perf_counter() - start),
                )
                yield ("uniform", pool, seed, size), plain
                if ("uniform, optimised weights", pool, seed, size) not in self.done:
                    better = paper.reweight(data, order[:size].tolist(), context=self.context)
                    yield ("uniform, optimised weights", pool, seed, size), better
            self.say(f"uniform, seed {seed}")
        if not self._complete("coreset, optimised weights", pool):
            yield from self._grown(data, pool, paper)
        if self._complete("default picks, optimised weights", pool):
            return
        binary = picks.select(data, max(SIZES), context=self.context)
        for size in SIZES:
            prefix = binary.prefix(size)
            better = paper.reweight(data, prefix.indices.tolist(), context=self.context)
            picking = binary.provenance.seconds * size / max(SIZES)
            both = better.annotated({"seconds": better.provenance.seconds + picking})
            yield ("default picks, optimised weights", pool, 0, size), both
        self.say(f"default picks of {pool} in {binary.provenance.seconds:.1f} s")

    def _complete(self, method: str, pool: int) -> bool:
        return all((method, pool, 0, size) in self.done for size in SIZES)

    def _grown(
        self, data: Dataset, pool: int, selector: BilevelSelector
    ) -> Iterator[tuple[tuple[str, int, int, int], Coreset]]:
        """The paper's coreset: weights optimised after every point, grown from size to size."""
        coreset = None
        seconds = 0.0
        for size in SIZES:
            coreset = selector.select(
                data, size, initial=() if coreset is None else coreset, context=self.context
            )
            seconds += coreset.provenance.seconds
            whole = coreset.annotated({"seconds": seconds})
            yield ("coreset, optimised weights", pool, 0, size), whole
            self.say(f"coreset of {size} from {pool}: {seconds:.1f} s")

"""Streams: points a second, whether an update grows dearer with the stream, and equal against
learned weights in the slots.

    python -m benchmarks stream --data DIR --json

Speed: digits-sized points (64 features, RBF), batches of 125, 100 rows in 10 slots; that of moment
memories is ``python -m benchmarks stream_moments``. Weights: 10 000 MNIST images in random order or
sorted by class, 100 rows in 10 slots, a ridge judge trained on what is kept and tested on the
10 000 test images; 5 seeds.
"""

import time
from typing import Any

import numpy as np
import torch

from benchmarks.common import data_folder, mnist_vectors, report
from bicore.evaluate.models import RidgeJudge
from bicore.evaluate.samples import as_sample
from bicore.kernels import RBF
from bicore.methods.registry import greedy_selector
from bicore.streaming import ClassBalancedReservoir, MergeReduce, Reservoir
from bicore.streaming.buffer import Buffer

BATCH = 125
CAPACITY = 100
SLOTS = 10
UPDATES = 400
#: The penalty of the judge with which the recorded rows were made.
RIDGE = 1e-3


def run(arguments: Any) -> dict[str, Any]:
    folder = data_folder(arguments.data)
    cases = (("squared", 0.1), ("cross-entropy", 0.1), ("squared", "auto"))
    speeds = [_speed(*case, arguments.repeats) for case in cases]
    facts = {"batch": BATCH, "capacity": CAPACITY, "slots": SLOTS}
    return {**facts, "speed": speeds, "weights": _weights(folder, arguments.seeds)}


def _speed(loss: str, inner_reg: float | str, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    count = UPDATES if loss == "squared" else UPDATES // 4
    y = rng.integers(10, size=BATCH * count)
    x = rng.normal(size=(len(y), 64)) + 2 * np.eye(10, 64)[y]
    best: list[float] = []
    for _ in range(repeats):
        buffer = MergeReduce(
            greedy_selector(kernel=RBF(0.01), loss=loss, inner_reg=inner_reg), CAPACITY, SLOTS
        )
        times = []
        for start in range(0, len(x), BATCH):
            begin = time.perf_counter()
            buffer.update(x[start : start + BATCH], y[start : start + BATCH])
            times.append(time.perf_counter() - begin)
        best = times if not best or sum(times) < sum(best) else best
    warm = best[SLOTS + 2 :]  # from the first merges on
    half = len(warm) // 2
    answer = {
        "loss": loss,
        "inner_reg": inner_reg,
        "updates": count,
        "points_a_second": BATCH / float(np.mean(warm)),
        "median_ms_first_half": 1e3 * float(np.median(warm[:half])),
        "median_ms_second_half": 1e3 * float(np.median(warm[half:])),
    }
    report(answer)
    return answer


def _weights(folder: str, seeds: int) -> list[dict[str, Any]]:
    x, y = mnist_vectors(folder, limit=10_000)
    test_x, test_y = mnist_vectors(folder, "test")
    device = torch.device("cpu")
    test = as_sample(test_x, test_y, np.ones(len(test_x)), device, True)
    kernel = RBF(5e-4)
    rows = []
    for order_name in ("random order", "sorted by class"):
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(x))
            if order_name == "sorted by class":
                order = order[np.argsort(y[order], kind="stable")]
            for name, buffer in _buffers(kernel, seed).items():
                for start in range(0, len(x), BATCH):
                    part = order[start : start + BATCH]
                    buffer.update(x[part], y[part])
                kept = buffer.snapshot()
                ways = {"stream's weights": kept.weights, "no weights": np.ones(len(kept))}
                for judged, shares in ways.items():
                    sample = as_sample(kept.x, kept.y, shares, device, True)
                    score = RidgeJudge(kernel, ridge=RIDGE).scores([sample], test, 10, seed)[0]
                    row = {"order": order_name, "buffer": name, "judged with": judged}
                    rows.append({**row, "seed": seed, "accuracy": score})
            report(order_name, seed, [f"{row['accuracy']:.4f}" for row in rows[-8:]])
    return rows


def _buffers(kernel: RBF, seed: int) -> dict[str, Buffer]:
    options: dict[str, Any] = {"kernel": kernel, "inner_reg": 0.1}
    plain, final = (greedy_selector(weighting=kind, **options) for kind in ("uniform", "final"))
    return {
        "equal weights": MergeReduce(plain, CAPACITY, SLOTS, "uniform", seed),
        "learned weights": MergeReduce(final, CAPACITY, SLOTS, "learned", seed),
        "reservoir": Reservoir(CAPACITY, seed),
        "class-balanced reservoir": ClassBalancedReservoir(CAPACITY, seed),
    }

"""Streams: rows per second at the beginning and the end, and uniform compared with learned weights
in slots.

    python -m benchmarks stream --data DIR --json

Speed: digits-sized points (64 features, RBF), batches of 125, 100 rows in 10 slots; that of moment
memories is ``python -m benchmarks stream_moments``. Weights: 10 000 MNIST images in random order or
sorted by class, 100 rows in 10 slots, a ridge model trained on what is kept and tested on the
10 000 test images; 5 seeds.
"""

from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.common import feed, make_overlapping, mnist_vectors, report, time_call
from benchmarks.heads import CPU, label_rows
from bicore.evaluate.models import RidgeJudge, as_sample
from bicore.kernels import RBF
from bicore.methods.registry import greedy_selector
from bicore.streaming import ClassBalancedReservoir, MergeReduce, Reservoir
from bicore.streaming.buffer import Buffer

BATCH = 125
CAPACITY = 100
SLOTS = 10
UPDATES = 400
#: The penalty of the ridge model with which the recorded rows were made.
RIDGE = 1e-3
KERNEL = RBF(5e-4)


def run(arguments: Any) -> dict[str, Any]:
    cases = (("squared", 0.1), ("cross-entropy", 0.1), ("squared", "auto"))
    speeds = [_time_updates(*case, arguments.repeats) for case in cases]
    facts = {"batch": BATCH, "capacity": CAPACITY, "slots": SLOTS}
    return {**facts, "speed": speeds, "weights": _compare_weights(arguments)}


def _time_updates(loss: str, inner_reg: float | str, repeats: int) -> dict[str, Any]:
    count = UPDATES if loss == "squared" else UPDATES // 4
    x, y = make_overlapping(BATCH * count, 64)
    selector = greedy_selector(kernel=RBF(0.01), loss=loss, inner_reg=inner_reg)
    runs = []
    for _ in range(repeats):
        buffer = MergeReduce(CAPACITY, selector, SLOTS)
        parts = zip(np.split(x, count), np.split(y, count), strict=True)
        runs.append([time_call(partial(buffer.update, *part))[0] for part in parts])
    warm = min(runs, key=sum)[SLOTS + 2 :]  # from the first merges on
    half = len(warm) // 2
    row = {"loss": loss, "inner_reg": inner_reg, "updates": count}
    row["points_a_second"] = BATCH / float(np.mean(warm))
    for name, part in (("first", warm[:half]), ("second", warm[half:])):
        row[f"median_ms_{name}_half"] = 1e3 * float(np.median(part))
    report(row)
    return row


def _compare_weights(arguments: Any) -> list[dict[str, Any]]:
    x, y = mnist_vectors(arguments.data, limit=10_000)
    test = label_rows(*mnist_vectors(arguments.data, "test"))
    judge = RidgeJudge(KERNEL, ridge=RIDGE)
    rows = []
    for kind, seed in product(("random order", "sorted by class"), range(arguments.seeds)):
        order = np.random.default_rng(seed).permutation(len(x))
        if kind == "sorted by class":
            order = order[np.argsort(y[order], kind="stable")]
        for name, buffer in _buffers(seed).items():
            kept = feed(buffer, x[order], y[order], BATCH).snapshot()
            ways = {"stream's weights": kept.weights, "no weights": np.ones(len(kept))}
            for way, shares in ways.items():
                sample = as_sample(kept.x, kept.y, shares, CPU, True)
                score = judge.scores([sample], test, 10, seed)[0]
                row = {"order": kind, "buffer": name, "judged with": way}
                rows.append({**row, "seed": seed, "accuracy": score})
                report(rows[-1])
    return rows


def _buffers(seed: int) -> dict[str, Buffer]:
    options: dict[str, Any] = {"kernel": KERNEL, "inner_reg": 0.1}
    plain, final = (greedy_selector(weighting=kind, **options) for kind in ("uniform", "final"))
    return {
        "equal weights": MergeReduce(CAPACITY, plain, SLOTS, "uniform", seed),
        "learned weights": MergeReduce(CAPACITY, final, SLOTS, "learned", seed),
        "reservoir": Reservoir(CAPACITY, seed),
        "class-balanced reservoir": ClassBalancedReservoir(CAPACITY, seed),
    }

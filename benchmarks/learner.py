"""Heads from moments: accuracy, bytes and seconds of a learner that reads every row once.

    python -m benchmarks learner --data DIR --seeds 5 --rows ROWS.jsonl --record
    python -m benchmarks learner --data DIR --seeds 5 --rows ROWS.jsonl --device cuda --record

Streams are sorted by class (the seed draws the order of classes and of rows), and the feature map
is fitted to the first 500 rows: of one class. The regularisation comes from the sums over a tenth
of the rows; test rows are used once, at the end. Widths from 8,192 run with ``--device cuda`` only.
Rows are written as they come; a rerun continues from them.
"""

import time
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks.common import (
    Pair,
    Rows,
    cifar_embedding,
    data_folder,
    feed,
    make_overlapping,
    time_call,
)
from bicore import Runtime
from bicore.moments.heads import make_head
from bicore.moments.moments import Moments
from bicore.runtime.threads import single_thread
from bicore.sources.standard_sets import cifar10_pixels, mnist
from bicore.streaming import MomentMemory

BATCH = 500
#: Widths that only a GPU computes.
WIDE = 8190
#: (stream, features, widths, holdout): a row of the table for each width.
STREAMS = (
    ("SplitMNIST", "deep-convolutions", (126, 252, 504, 1008), False),
    ("SplitMNIST", "patches", (1024, 4096, 8192), True),
    ("SplitMNIST", "deep-convolutions", (4095, 8190), True),
    ("SplitMNIST, 1,000 rows a task", "deep-convolutions", (126, 252, 504, 1008), False),
    ("SplitMNIST, 1,000 rows a task", "patches", (1024,), True),
    ("imbalanced SplitMNIST", "patches", (1024,), True),
    ("PermMNIST, 1,000 rows a task", "relu", (2048,), True),
    ("PermMNIST, 60,000 rows a task", "relu", (8192,), True),
    ("SplitCIFAR-10", "patches", (128, 364), False),
    ("CIFAR-10, random order", "patches", (364,), False),
    ("SplitCIFAR-10", "patches", (480,), False),
    ("SplitCIFAR-10", "patches", (2048, 8192, 16384), True),
    ("imbalanced SplitCIFAR-10", "patches", (1024,), True),
    ("CIFAR-10 embedding", "rows", (0,), True),
)
CASES = [(name, kind, width, held) for name, kind, widths, held in STREAMS for width in widths]
#: The data of the streams.
KINDS = ("embedding", "CIFAR", "MNIST")
#: Rows of the last class pair, and of each other pair, in imbalanced streams.
FREQUENT, RARE = 2000, 200
TASK = 1000
PERMUTATIONS = 10
#: Widths and rows whose sums are timed on each kind of device.
SPEEDS = {"cpu": (1024, 20_000), "cuda": (8192, 200_000)}
#: The width of the head that is timed on a processor, and of heads after every batch of some sizes.
TIMED_HEAD = 4096
OFTEN, BATCHES = 1024, (10, 30, 125)
#: Features and width of heads whose features are computed in float32 and in float64.
PRECISION = ("relu", 4096)


def run(arguments: Any) -> dict[str, Any]:
    for kind in KINDS:  # missing data is an error before anything is computed
        _load(kind, data_folder(arguments.data))
    rows = Rows(arguments.rows)
    speed = {"case": "speed", "device": arguments.device}
    rows.fill(speed, _time_sums, arguments.device, arguments.repeats)
    for seed in range(arguments.seeds):
        rows.fill({"case": "precision", "seed": seed}, _compare_precisions, seed, arguments)
    cases = [case for case in CASES if case[2] < WIDE or arguments.device != "cpu"]
    for case, seed in product(cases, range(arguments.seeds)):
        fields = dict(zip(("case", "features", "width", "holdout"), case, strict=True))
        rows.fill({**fields, "seed": seed}, _measure, case, seed, arguments)
    return {"rows": list(rows), "batch": BATCH, "threads": torch.get_num_threads()}


def _measure(case: tuple[str, str, int, bool], seed: int, arguments: Any) -> dict[str, Any]:
    """Feed one stream, and test its head."""
    name, features, width, holdout = case
    kind = next(one for one in KINDS if one in name)
    train, test = _load(kind, data_folder(arguments.data))
    runtime = Runtime(arguments.device, progress=False)
    feature_map = f"{features}:{width}" if width else features
    options = {"random_state": seed, "holdout": holdout, "keep": "lazy"}
    memory = MomentMemory(100, feature_map, **options)
    start, fed = time.perf_counter(), 0
    for x, y in _stream(name, train, seed):
        memory.update(x, y, runtime=runtime)
        fed += len(x)
    sums = memory.moments
    taken = time.perf_counter() - start
    prior = "equal" if name.startswith("imbalanced") else None
    solved, head = time_call(partial(memory.head, prior=prior))
    accuracy = [_accuracy(head, x, y, arguments.device) for x, y in _tests(name, test, seed)]
    triangle = sums.width * (sums.width + 1) // 2
    numbers = (1 + holdout) * (triangle + sums.cross.size)
    map_bytes = getattr(memory.feature_map_, "filters", np.empty(0)).nbytes
    facts = {"device": arguments.device, "rows": fed, "seconds": taken, "head_seconds": solved}
    facts |= {"accuracy": float(np.mean(accuracy)), "alpha": float(head.alpha_)}
    return {**facts, "bytes": 8 * numbers + map_bytes}


@cache
def _load(kind: str, folder: str) -> tuple[Pair, Pair]:
    if kind == "embedding":
        return cifar_embedding(folder, "train"), cifar_embedding(folder, "test")
    load = cifar10_pixels if kind == "CIFAR" else mnist
    return load(folder, "train"), load(folder, "test")


def _as_images(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)


def _stream(name: str, train: Pair, seed: int) -> Iterator[Pair]:
    """Batches in the order of the stream."""
    rng = np.random.default_rng(seed)
    x, y = train
    if name.startswith("PermMNIST"):
        rows = np.arange(TASK if "1,000" in name else len(y))
        for order in _permutations(x[0].size, seed):
            for part in np.array_split(rng.permutation(rows), max(1, len(rows) // BATCH)):
                yield x[part].reshape(len(part), -1)[:, order].astype(np.float32), y[part]
        return
    order = rng.permutation(len(y))
    if "1,000" in name or name.startswith("imbalanced"):
        sizes = [TASK] * 5 if "1,000" in name else [RARE] * 4 + [FREQUENT]
        tasks = [order[y[order] // 2 == task][:size] for task, size in enumerate(sizes)]
        order = np.concatenate(tasks)
    if "random" not in name:
        classes = rng.permutation(10)
        order = order[np.argsort(np.argsort(classes)[y[order]], kind="stable")]
    for top in range(0, len(order), BATCH):
        part = order[top : top + BATCH]
        yield _as_images(x[part]), y[part]


def _tests(name: str, test: Pair, seed: int) -> Iterator[Pair]:
    x, y = test
    if not name.startswith("PermMNIST"):
        yield _as_images(x), y
        return
    for order in _permutations(x[0].size, seed):
        yield x.reshape(len(x), -1)[:, order].astype(np.float32), y


def _permutations(size: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng((seed, 1))
    return [rng.permutation(size) for _ in range(PERMUTATIONS)]


def _accuracy(head: Any, x: np.ndarray, y: np.ndarray, device: str) -> float:
    """By the head as a module, which computes on a device."""
    module = head.to_torch().to(device)
    right = 0
    with torch.no_grad():
        for top in range(0, len(x), BATCH):
            scores = module(torch.as_tensor(x[top : top + BATCH], device=device))
            right += int((head.classes_[scores.argmax(1).cpu()] == y[top : top + BATCH]).sum())
    return right / len(y)


def _compare_precisions(seed: int, arguments: Any) -> dict[str, Any]:
    """Accuracies with features in float32 and in float64; sums are in float64."""
    (x, y), (test_x, test_y) = _load("MNIST", data_folder(arguments.data))
    features, width = PRECISION
    runtime = Runtime(arguments.device, progress=False)
    found: dict[str, Any] = {"device": arguments.device, "width": width, "rows": len(y)}
    for kind in (np.float32, np.float64):
        rows, tests = (part.reshape(len(part), -1).astype(kind) for part in (x, test_x))
        memory = MomentMemory(100, f"{features}:{width}", random_state=seed, keep="lazy")
        feed(memory, rows, y, BATCH, runtime=runtime)
        found[np.dtype(kind).name] = _accuracy(memory.head(), tests, test_y, arguments.device)
    return found


def _time_heads(batch: int, repeats: int) -> dict[str, Any]:
    """Processor milliseconds of a head after every batch, on one thread: corrected, computed anew,
    and with a search for λ."""
    x, y = make_overlapping(5 * OFTEN, OFTEN)
    x += 1
    memory = MomentMemory(20, "rows", keep="lazy").update(x[: 3 * OFTEN], y[: 3 * OFTEN])
    times = []
    for top in range(3 * OFTEN, 3 * OFTEN + 5 * repeats * batch, batch):
        memory.update(x[top : top + batch], y[top : top + batch])
        works = {
            "corrected": partial(memory.head, alpha=50.0),
            "anew": partial(make_head, memory.moments, alpha=50.0),
            "with_search": memory.head,
        }
        times.append([1000 * time_call(one, 1, time.process_time)[0] for one in works.values()])
    return {"batch": batch, **dict(zip(works, np.mean(times, 0).tolist(), strict=True))}


def _time_sums(device: str, repeats: int) -> dict[str, Any]:
    """Rows per second of the sums alone, and seconds of a head."""
    kind = torch.device(device).type
    width, count = SPEEDS[kind]
    block = 1024 if kind == "cpu" else 8192
    rng = torch.Generator(device).manual_seed(0)
    rows = torch.randn(block, width, generator=rng, device=device)
    labels = np.arange(block) % 10
    empty = Moments.empty(width, classes=range(10), device=None if kind == "cpu" else device)

    def add() -> None:
        sums = empty
        for _ in range(count // block):
            sums = sums.with_rows(rows, labels)
        float(sums.second[0][0, 0])  # waits for the device

    def solve(x: np.ndarray, y: np.ndarray) -> float:
        some, held = (Moments.empty(x.shape[1]).with_rows(x[::one], y[::one]) for one in (1, 10))
        return time_call(partial(make_head, some, held=held), repeats)[0]

    seconds, _ = time_call(add, repeats)
    found = {"width": width, "rows_a_second": count // block * block / seconds}
    if kind == "cpu":
        x, y = make_overlapping(2 * TIMED_HEAD, TIMED_HEAD)
        found |= {"head_width": TIMED_HEAD, "head_seconds": solve(x, y)}
        with single_thread(1):
            found["often"] = [_time_heads(batch, repeats) for batch in BATCHES]
        found["threads"] = torch.get_num_threads()
    return found

"""Heads from moments: accuracy, bytes and seconds of a learner that sees every row once.

    python -m benchmarks learner --data DIR --seeds 5 --rows ROWS.jsonl --record
    python -m benchmarks learner --data DIR --seeds 5 --rows ROWS.jsonl --device cuda --record

Streams are sorted by class (the seed draws the order of classes and of rows), and the feature map
is fitted to the first 500 rows: of one class. The regularisation comes from the sums over a tenth
of the rows; test rows are used once, at the end. Widths from 8,192 run with ``--device cuda`` only.
Rows are written as they come; a rerun continues from them.
"""

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch

from benchmarks.common import Pair, Rows, best, cifar_embedding, data_folder, report
from bicore import Runtime
from bicore.moments.heads import make_head
from bicore.moments.moments import Moments
from bicore.runtime.context import Context
from bicore.runtime.threads import narrow
from bicore.sources.standard_sets import cifar10_pixels, mnist
from bicore.streaming import MomentMemory

BATCH = 500
#: Widths that only a GPU computes.
WIDE = 8190
#: (stream, features, width, holdout): a row of the table each.
CASES = (
    ("SplitMNIST", "deep-convolutions", 126, False),
    ("SplitMNIST", "deep-convolutions", 252, False),
    ("SplitMNIST", "deep-convolutions", 504, False),
    ("SplitMNIST", "deep-convolutions", 1008, False),
    ("SplitMNIST", "patches", 1024, True),
    ("SplitMNIST", "patches", 4096, True),
    ("SplitMNIST", "patches", 8192, True),
    ("SplitMNIST", "deep-convolutions", 4095, True),
    ("SplitMNIST", "deep-convolutions", 8190, True),
    ("SplitMNIST, 1,000 rows a task", "deep-convolutions", 126, False),
    ("SplitMNIST, 1,000 rows a task", "deep-convolutions", 252, False),
    ("SplitMNIST, 1,000 rows a task", "deep-convolutions", 504, False),
    ("SplitMNIST, 1,000 rows a task", "deep-convolutions", 1008, False),
    ("SplitMNIST, 1,000 rows a task", "patches", 1024, True),
    ("imbalanced SplitMNIST", "patches", 1024, True),
    ("PermMNIST, 1,000 rows a task", "relu", 2048, True),
    ("PermMNIST, 60,000 rows a task", "relu", 8192, True),
    ("SplitCIFAR-10", "patches", 128, False),
    ("SplitCIFAR-10", "patches", 364, False),
    ("CIFAR-10, random order", "patches", 364, False),
    ("SplitCIFAR-10", "patches", 480, False),
    ("SplitCIFAR-10", "patches", 2048, True),
    ("SplitCIFAR-10", "patches", 8192, True),
    ("SplitCIFAR-10", "patches", 16384, True),
    ("imbalanced SplitCIFAR-10", "patches", 1024, True),
    ("CIFAR-10 embedding", "rows", 0, True),
)
#: Rows of the last class pair, and of each other pair, in imbalanced streams.
FREQUENT, RARE = 2000, 200
TASK = 1000
PERMUTATIONS = 10
#: Widths and rows whose sums are timed on each kind of device.
SPEEDS = {"cpu": (1024, 20_000), "cuda": (8192, 200_000)}
#: The width of the head that is timed on a processor; of one with many classes, and their number;
#: and of heads after every batch of some sizes.
TIMED_HEAD = 4096
MANY_CLASSES = 1000
OFTEN, BATCHES = 1024, (10, 30, 125)
#: Features and width of heads whose features are computed in float32 and in float64.
PRECISION = ("relu", 4096)


def run(arguments: Any) -> dict[str, Any]:
    rows = Rows(arguments.rows)
    device = arguments.device
    if rows.find(case="speed", device=device) is None:
        rows.add({"case": "speed", "device": device, **_speed(device, arguments.repeats)})
        report(rows[-1])
    for seed in range(arguments.seeds):
        if rows.find(case="precision", seed=seed) is None:
            rows.add({"case": "precision", "device": device, **_precision(seed, arguments)})
            report(rows[-1])
    for case in CASES:
        if case[2] >= WIDE and device == "cpu":
            continue
        for seed in range(arguments.seeds):
            fields = dict(zip(("case", "features", "width", "holdout"), case, strict=True))
            if rows.find(**fields, seed=seed) is None:
                found = _measure(case, seed, arguments)
                rows.add({**fields, "seed": seed, "device": device, **found})
                report(rows[-1])
    return {"rows": list(rows), "batch": BATCH, "threads": torch.get_num_threads()}


def _measure(case: tuple[str, str, int, bool], seed: int, arguments: Any) -> dict[str, Any]:
    """Feed one stream, and test its head."""
    name, features, width, holdout = case
    kind = next(one for one in ("embedding", "CIFAR", "MNIST") if one in name)
    train, test = _load(kind, data_folder(arguments.data))
    context = Context(runtime=Runtime(arguments.device, progress=False))
    memory = MomentMemory(
        100,
        f"{features}:{width}" if width else features,
        random_state=seed,
        holdout=holdout,
        keep="lazy",
    )
    start, fed = time.perf_counter(), 0
    for x, y in _stream(name, train, seed):
        memory.update(x, y, model=context)
        fed += len(x)
    sums = memory.moments
    taken = time.perf_counter() - start
    start = time.perf_counter()
    head = memory.head(prior="equal" if name.startswith("imbalanced") else None)
    solved = time.perf_counter() - start
    accuracy = [_accuracy(head, x, y, arguments.device) for x, y in _tests(name, test, seed)]
    triangle = sums.width * (sums.width + 1) // 2
    numbers = (1 + holdout) * (triangle + sums.cross.size)
    map_bytes = getattr(memory.feature_map_, "filters", np.empty(0)).nbytes
    return {
        "accuracy": float(np.mean(accuracy)),
        "rows": fed,
        "seconds": taken,
        "head_seconds": solved,
        "bytes": 8 * numbers + map_bytes,
        "bytes_float32": 4 * numbers + map_bytes,
        "alpha": float(head.alpha_),
    }


@cache
def _load(kind: str, folder: str) -> tuple[Pair, Pair]:
    if kind == "embedding":
        return cifar_embedding(folder, "train"), cifar_embedding(folder, "test")
    load = cifar10_pixels if kind == "CIFAR" else mnist
    return load(folder, "train"), load(folder, "test")


def _as_images(name: str, x: np.ndarray) -> np.ndarray:
    if "CIFAR" in name and x.dtype == np.uint8:
        return x.astype(np.float32) / 255
    return x.astype(np.float32)


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
        yield _as_images(name, x[part]), y[part]


def _tests(name: str, test: Pair, seed: int) -> Iterator[Pair]:
    x, y = test
    if not name.startswith("PermMNIST"):
        yield _as_images(name, x), y
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


def _precision(seed: int, arguments: Any) -> dict[str, Any]:
    """Accuracies with features in float32 and in float64; sums are in float64."""
    (x, y), (test_x, test_y) = _load("MNIST", data_folder(arguments.data))
    features, width = PRECISION
    context = Context(runtime=Runtime(arguments.device, progress=False))
    found: dict[str, Any] = {"seed": seed, "width": width, "rows": len(y)}
    for kind in (np.float32, np.float64):
        memory = MomentMemory(100, f"{features}:{width}", random_state=seed, keep="lazy")
        for part in np.array_split(np.arange(len(y)), len(y) // BATCH):
            rows = x[part].reshape(len(part), -1).astype(kind)
            memory.update(rows, y[part], model=context)
        tests = test_x.reshape(len(test_x), -1).astype(kind)
        found[np.dtype(kind).name] = _accuracy(memory.head(), tests, test_y, arguments.device)
    return found


def _often(batch: int, repeats: int) -> dict[str, Any]:
    """Processor milliseconds of a head after every batch, on one thread: corrected, computed anew,
    and with a search for λ."""
    x = np.random.default_rng(0).normal(size=(5 * OFTEN, OFTEN)) + 1
    y = np.arange(len(x)) % 10
    x[np.arange(len(x)), y] += 1
    memory = MomentMemory(20, "rows", keep="lazy").update(x[: 3 * OFTEN], y[: 3 * OFTEN])
    times = []
    for top in range(3 * OFTEN, 3 * OFTEN + 5 * repeats * batch, batch):
        memory.update(x[top : top + batch], y[top : top + batch])
        sums = memory.moments
        works = (
            lambda: memory.head(alpha=50.0),
            lambda sums=sums: make_head(sums, alpha=50.0),
            memory.head,
        )
        times.append([1000 * best(work, 1, time.process_time) for work in works])
    names = ("corrected", "anew", "with_search")
    return {"batch": batch, **dict(zip(names, np.mean(times, 0).tolist(), strict=True))}


def _speed(device: str, repeats: int) -> dict[str, Any]:
    """Rows per second of the sums alone, and seconds of a head."""
    kind = torch.device(device).type
    width, count = SPEEDS[kind]
    rng = torch.Generator(device).manual_seed(0)
    block = 1024 if kind == "cpu" else 8192
    rows = torch.randn(block, width, generator=rng, device=device)
    labels = np.arange(block) % 10
    empty = Moments.empty(width, classes=range(10), device=None if kind == "cpu" else device)

    def add() -> None:
        sums = empty
        for _ in range(count // block):
            sums = sums.with_rows(rows, labels)
        float(sums.second[0][0, 0])  # waits for the device

    seconds = best(add, repeats)
    found = {"width": width, "rows_a_second": count // block * block / seconds}
    if kind == "cpu":
        x = np.random.default_rng(0).normal(size=(2 * TIMED_HEAD, TIMED_HEAD))
        y = np.arange(len(x)) % 10
        x[np.arange(len(x)), y] += 1
        some = Moments.empty(TIMED_HEAD).with_rows(x, y)
        held = Moments.empty(TIMED_HEAD).with_rows(x[::10], y[::10])
        found["head_width"] = TIMED_HEAD
        found["head_seconds"] = best(lambda: make_head(some, held=held), repeats)
        few, many = x[:, :width], np.arange(len(x)) % MANY_CLASSES
        some = Moments.empty(width).with_rows(few, many)
        held = Moments.empty(width).with_rows(few[::7], many[::7])
        found["many_classes"] = MANY_CLASSES
        found["many_seconds"] = best(lambda: make_head(some, held=held), repeats)
        with narrow(1):
            found["often"] = [_often(batch, repeats) for batch in BATCHES]
        found["threads"] = torch.get_num_threads()
    return found

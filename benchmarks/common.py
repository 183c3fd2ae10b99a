"""Helpers of all benchmarks: machine, data, timing, processes and records."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bicore
from benchmarks.pages import RECORDS, read_record, where
from bicore import Runtime
from bicore.errors import InputError
from bicore.files import replacing
from bicore.sources import mnist

Pair = tuple[np.ndarray, np.ndarray]
#: The processor with torch's threads, and with one.
CPU = Runtime("cpu", progress=False)
ONE_THREAD = Runtime("cpu", threads=1, progress=False)


def data_folder(given: str | None) -> str:
    """The folder with MNIST, CIFAR-10, …: ``--data``, or ``$BICORE_DATA``."""
    folder = given or os.environ.get("BICORE_DATA")
    if not folder:
        raise InputError(
            "this benchmark needs data: pass --data DIR, with MNIST in DIR/MNIST/raw/*-ubyte.gz, "
            "CIFAR-10 or its embedding (see docs/method.md), or set BICORE_DATA."
        )
    return folder


def mnist_vectors(folder: str | None, split: str = "train", limit: int | None = None) -> Pair:
    images, labels = mnist(data_folder(folder), split, limit)
    return images.reshape(len(images), -1), labels


def cifar_embedding(folder: str | Path | None, part: str) -> Pair:
    """Rows and labels of one part ("train" or "test") of the frozen embedding of CIFAR-10."""
    path = Path(folder or ".") / "cifar10-embedding" / f"{part}.npz"
    if not path.exists():
        raise InputError(f"{path} does not exist; pass --data DIR with the embedding.")
    with np.load(path) as stored:
        return stored["x"].astype(np.float64), stored["y"].astype(np.int64)


def make_embedding(rows: int, width: int) -> Pair:
    """Ten classes of the same spread in every direction, around centres that are close together."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=rows)
    return 0.3 * rng.normal(size=(10, width))[y] + rng.normal(size=(rows, width)), y


def make_overlapping(rows: int, width: int) -> Pair:
    """Ten classes of unit spread, each moved along a column of its own."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=rows)
    return rng.normal(size=(rows, width)) + 2 * np.eye(10, width)[y], y


def draw_split(rows: int, pool: int, test: int | None, seed: Any) -> Pair:
    """Rows to select from, and rows to test on."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[:pool], order[pool:][:test]


def standardise(x: np.ndarray, rows: Any) -> np.ndarray:
    """Columns by the mean and the spread of some rows; constant columns become zero there."""
    spread = x[rows].std(0)
    return (x - x[rows].mean(0)) / np.where(spread > 0, spread, 1)


def fit_score(model: Any, x: Any, y: Any, test_x: Any, test_y: Any) -> float:
    """The score of a fitted scikit-learn model; a single class is predicted without one."""
    if y.dtype.kind != "f" and len(np.unique(y)) == 1:
        return float((test_y == y[0]).mean())
    return float(model.fit(x, y).score(test_x, test_y))


def train(network: Any, x: Any, y: Any, epochs: int, rate: float, batch: int = 0) -> Any:
    """Train a classifier with Adam, in shuffled batches or on all rows at each step."""
    inputs, labels = torch.from_numpy(x).float(), torch.from_numpy(y.astype(np.int64))
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch) if batch else [slice(None)]:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs[rows]), labels[rows]).backward()
            optimiser.step()
    return network.eval()


def predict(network: Any, x: Any) -> np.ndarray:
    with torch.no_grad():
        parts = torch.from_numpy(x).float().split(1000)
        return torch.cat([network(part).argmax(1) for part in parts]).numpy()


def feed(buffer: Any, x: np.ndarray, y: np.ndarray, batch: int, **options: Any) -> Any:
    """Pass rows through a buffer in batches, and return it."""
    for start in range(0, len(x), batch):
        buffer.update(x[start : start + batch], y[start : start + batch], **options)
    return buffer


def machine() -> dict[str, Any]:
    """The hardware and versions that the numbers belong to; no host name."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        **{one.__name__: one.__version__ for one in (torch, np, bicore)},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line for line in lines if line.lower().startswith("model name")]
    return named[0].split(":")[1].strip() if named else platform.processor() or platform.machine()


def time_call(
    work: Callable[[], Any],
    repeats: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    most: float = math.inf,
) -> tuple[float, Any]:
    """The least seconds of several calls, and the last result; none follows one above ``most``.

    On a shared machine the other times measure other processes.
    """
    least = math.inf
    for _ in range(repeats):
        start = clock()
        result = work()
        seconds = clock() - start
        least = min(least, seconds)
        if seconds > most:
            break
    return least, result


def device_seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """The least of several times on an idle device, after a first call that compiles."""

    def wait() -> None:
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    wait()
    return time_call(wait, repeats)[0]


def require_gpu() -> None:
    if not torch.cuda.is_available():
        raise InputError("this benchmark needs a GPU, and torch sees none.")


def report(*words: Any) -> None:
    """Show progress on standard error."""
    print(*words, file=sys.stderr, flush=True)


def call_alone(work: Callable[..., Any], *given: Any) -> Any:
    """The result of a call in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def deadline(minutes: float | None) -> float:
    """The time after which nothing is started."""
    return time.time() + 60 * (minutes or math.inf)


def run_jobs(
    work: Callable[..., Any],
    jobs: Iterable[tuple[Any, ...]],
    processes: int,
    minutes: float | None = None,
) -> Iterator[Any]:
    """Results of ``work(*job)`` as they come, in processes of one thread; no job is started after
    this many minutes."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when a process starts
    over = deadline(minutes)
    with multiprocessing.get_context("spawn").Pool(processes, _use_one_thread) as pool:
        for found in pool.imap_unordered(partial(_call_in_time, work, over), jobs):
            if found is None:
                report("the time is up; the same command continues")
                return
            yield found


def _use_one_thread() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")


def _call_in_time(work: Callable[..., Any], over: float, job: tuple[Any, ...]) -> Any:
    return work(*job) if time.time() < over else None


class Peak:
    """The largest memory of this process without mapped files, and its seconds."""

    def __enter__(self) -> Peak:
        self.before = self.bytes = _anonymous()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        self.begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.begun
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            self.bytes = max(self.bytes, _anonymous())


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return int(status["RssAnon"].split()[0]) * 1024


class Rows(list[dict[str, Any]]):
    """Rows of a benchmark in a file of JSON lines; a rerun continues from them."""

    def __init__(self, path: str | Path, **fields: Any) -> None:
        """Read the rows that have these fields."""
        self.path = Path(path)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        super().__init__(where(map(json.loads, lines), **fields))

    def find(self, **fields: Any) -> dict[str, Any] | None:
        return next(iter(where(self, **fields)), None)

    def add(self, *rows: dict[str, Any]) -> None:
        self.extend(rows)
        with self.path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def fill(self, key: dict[str, Any], work: Callable[..., dict[str, Any]], *given: Any) -> None:
        """Add the row of a key with the result of a call, unless there is one."""
        if self.find(**key) is None:
            self.add({**key, **work(*given)})
            report(self[-1])


def read_known(name: str) -> dict[str, Any]:
    """A record, empty if there is none."""
    return read_record(name) if (RECORDS / f"{name}.json").exists() else {}


def write_record(name: str, record: dict[str, Any], folder: Path = RECORDS) -> Path:
    """Write to a temporary file, then rename."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n")
    return path

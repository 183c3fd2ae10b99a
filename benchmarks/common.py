"""Shared by all benchmarks: the machine, the data, timing, rows and records on disk."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bicore
from benchmarks.pages import RECORDS, read_record, where
from bicore import Runtime
from bicore.errors import InputError
from bicore.files import replacing
from bicore.runtime.context import Context
from bicore.sources import mnist

__all__ = ["RECORDS", "read_record"]  # of benchmarks that read a record
Pair = tuple[np.ndarray, np.ndarray]


def data_folder(given: str | None) -> str:
    """The folder with MNIST: ``--data``, or ``$BICORE_DATA``."""
    folder = given or os.environ.get("BICORE_DATA")
    if not folder:
        raise InputError(
            "this benchmark needs MNIST: pass --data DIR (with DIR/MNIST/raw/*-ubyte.gz), or set "
            "BICORE_DATA."
        )
    return folder


def mnist_vectors(folder: str, split: str = "train", limit: int | None = None) -> Pair:
    images, labels = mnist(folder, split, limit)
    return images.reshape(len(images), -1), labels


def cifar_embedding(folder: str | Path | None, part: str) -> Pair:
    """Rows and labels of one part ("train" or "test") of the frozen embedding of CIFAR-10."""
    path = Path(folder or ".") / "cifar10-embedding" / f"{part}.npz"
    if not path.exists():
        raise InputError(f"{path} does not exist; pass --data DIR with the embedding.")
    with np.load(path) as stored:
        return stored["x"].astype(np.float64), stored["y"].astype(np.int64)


def machine() -> dict[str, Any]:
    """The hardware and versions that the numbers belong to; no host name."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "bicore": bicore.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line for line in lines if line.lower().startswith("model name")]
    return named[0].split(":")[1].strip() if named else platform.processor() or platform.machine()


def on_cpu(model: Any = None, **options: Any) -> Context:
    """A context that computes on the processor and shows no progress."""
    return Context(model, Runtime("cpu", progress=False, **options))


def ridge_answers(
    kernel: Any, x: Any, targets: Any, centre: Any, ridge: float, test_x: Any
) -> np.ndarray:
    """Kernel ridge regression of targets less their centre, at the rows of a test."""
    alpha = np.linalg.solve(kernel(x) + ridge * np.eye(len(x)), targets - centre)
    return np.asarray(kernel(test_x, x) @ alpha + centre)


def device_seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """The least of several times on an idle GPU, after a first call that compiles."""

    def wait() -> None:
        work()
        torch.cuda.synchronize()

    wait()
    return best(wait, repeats)


def best(
    work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The least of several times: on a shared machine the others measure other processes."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def require_gpu() -> None:
    if not torch.cuda.is_available():
        raise InputError("this benchmark needs a GPU, and torch sees none.")


def report(*words: Any) -> None:
    """Show progress on standard error."""
    print(*words, file=sys.stderr, flush=True)


def run_python(code: str, *words: str) -> str:
    """The output of code that runs in a process of its own."""
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


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


def write_record(name: str, record: dict[str, Any], folder: Path = RECORDS) -> Path:
    """Write to a file next to the record, then rename."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    with replacing(path) as beside:
        beside.write_text(json.dumps(record, indent=1) + "\n")
    return path


def slim(row: Any) -> dict[str, Any]:
    """A row of a comparison without the fields that no table reads."""
    left_out = ("picks", "weights", "classes")
    return {name: value for name, value in asdict(row).items() if name not in left_out}

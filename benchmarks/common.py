"""What every benchmark shares: the machine, the data, records written whole."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bicore
from benchmarks.pages import RECORDS, read_record, table
from benchmarks.pages import describe_run as told
from benchmarks.pages import format_count as spaced
from bicore.errors import InputError
from bicore.files import replacing
from bicore.sources import mnist

__all__ = ["RECORDS", "read_record", "spaced", "table", "told"]  # the names of battery pages


def data_folder(given: str | None) -> str:
    """The folder with MNIST: ``--data``, or ``$BICORE_DATA``."""
    folder = given or os.environ.get("BICORE_DATA")
    if not folder:
        raise InputError(
            "this benchmark needs MNIST: pass --data DIR (with DIR/MNIST/raw/*-ubyte.gz), or set "
            "BICORE_DATA."
        )
    return folder


def mnist_vectors(
    folder: str, split: str = "train", limit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    images, labels = mnist(folder, split, limit)
    return images.reshape(len(images), -1), labels


def machine() -> dict[str, Any]:
    """What the numbers belong to; no host name."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "bicore": bicore.__version__,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith(("model name", "Model name")):
                    return line.split(":")[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def device_seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """The least of several times, the GPU idle before and after; one turn for the compiler."""
    work()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def best(work: Callable[[], Any], repeats: int) -> float:
    """The least of several times: on a shared machine the others measure the neighbours."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def write_record(name: str, record: dict[str, Any], folder: Path = RECORDS) -> Path:
    """Write beside, then rename."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    with replacing(path) as beside:
        beside.write_text(json.dumps(record, indent=1) + "\n")
    return path


def slim(row: Any) -> dict[str, Any]:
    """A row of a comparison without what no table reads: which points, and each class apart."""
    return {
        name: value
        for name, value in asdict(row).items()
        if name not in ("picks", "weights", "classes")
    }

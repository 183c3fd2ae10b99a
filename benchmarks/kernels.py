"""Speed of the network kernels on 1000 MNIST images, two threads.

    python -m benchmarks kernels --data DIR --json [--record]

The same presets in neural-tangents 0.6.5 (jax 0.5.3) are timed in an environment of their own by
``benchmarks/neural_tangents_timing.py``; its record stands beside this one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from benchmarks.common import RECORDS, best, data_folder, machine
from bicore.kernels import cnn, fully_connected
from bicore.sources import mnist

THREADS = 2


def run(arguments: Any) -> dict[str, Any]:
    images, _ = mnist(data_folder(arguments.data), limit=1000)
    torch.set_num_threads(THREADS)
    record: dict[str, Any] = {
        "benchmark": "kernels",
        "machine": machine(),
        "threads": THREADS,
        "images": len(images),
        "rows": [],
    }
    peer = _peer()
    for name, kernel, x in (
        ("fully connected", fully_connected(), images.reshape(1000, -1)),
        ("cnn", cnn(), images),
    ):
        points = torch.from_numpy(x)
        kernel.gram(points[:50])
        row = {
            "kernel": name,
            "dtype": "float32",
            "seconds": best(lambda k=kernel, p=points: k.gram(p), arguments.repeats),
        }
        if peer is not None:
            row |= {"neural_tangents_seconds": peer[name], "ratio": peer[name] / row["seconds"]}
        print(row, file=sys.stderr, flush=True)
        record["rows"].append(row)
    return record


def _peer() -> dict[str, float] | None:
    path = RECORDS / "neural_tangents.json"
    return json.loads(path.read_text())["seconds"] if path.exists() else None

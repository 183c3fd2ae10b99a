"""Speed of the network kernels on 1000 MNIST images, two threads.

    python -m benchmarks kernels --data DIR --json [--record]

The same presets in neural-tangents 0.6.5 (jax 0.5.3) are timed in an environment of their own by
``benchmarks/neural_tangents_timing.py``; its record stands beside this one.
"""

from functools import partial
from typing import Any

import torch

from benchmarks.common import best, data_folder, read_record, report
from bicore.kernels import cnn, fully_connected
from bicore.sources import mnist

THREADS, IMAGES = 2, 1000


def run(arguments: Any) -> dict[str, Any]:
    images, _ = mnist(data_folder(arguments.data), limit=IMAGES)
    torch.set_num_threads(THREADS)
    peer = read_record("neural_tangents")["seconds"]
    rows = []
    for name, kernel, x in (
        ("fully connected", fully_connected(), images.reshape(IMAGES, -1)),
        ("cnn", cnn(), images),
    ):
        points = torch.from_numpy(x)
        kernel.gram(points[:50])
        seconds = best(partial(kernel.gram, points), arguments.repeats)
        compared = {"neural_tangents_seconds": peer[name], "ratio": peer[name] / seconds}
        rows.append({"kernel": name, "dtype": "float32", "seconds": seconds, **compared})
        report(rows[-1])
    return {"threads": THREADS, "images": len(images), "rows": rows}

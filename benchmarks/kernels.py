"""Speed of the network kernels on 1000 MNIST images, two threads.

    python -m benchmarks kernels --data DIR --json [--record]

The same presets in neural-tangents 0.6.5 (jax 0.5.3) are timed in an environment of their own by
``benchmarks/neural_tangents_timing.py``, which writes a record of its own.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.common import data_folder, time_call
from benchmarks.pages import read_record
from bicore.kernels import cnn, fully_connected
from bicore.sources import mnist

THREADS, IMAGES = 2, 1000


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    images, _ = mnist(data_folder(arguments.data), limit=IMAGES)
    torch.set_num_threads(THREADS)
    peer = read_record("neural_tangents")["seconds"]
    for name, kernel, x in (
        ("fully connected", fully_connected(), images.reshape(IMAGES, -1)),
        ("cnn", cnn(), images),
    ):
        points = torch.from_numpy(x)
        kernel.gram(points[:50])
        seconds, _ = time_call(partial(kernel.gram, points), arguments.repeats)
        compared = {"neural_tangents_seconds": peer[name], "ratio": peer[name] / seconds}
        yield {"kernel": name, "dtype": "float32", "seconds": seconds, **compared}
    return {"threads": THREADS, "images": len(images)}

"""The runtime table: the kernel of 1000 points, then coresets of 100 and 400 from it, for the CNN
and the ResNet-18 kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from bicore import BilevelSelector, Context, Dataset, PerPoint, Runtime
from bicore.kernels import cnn, resnet18
from experiments.settings import Setting
from experiments.tasks import Task

SIZES = (100, 400)
POINTS = 1000
REPEATS = 3
METHODS = {"CNN": cnn, "ResNet-18": resnet18}
DATASETS = {"CNN": "MNIST", "ResNet-18": "CIFAR-10"}


def setting_of(method: str) -> Setting:
    return Setting(DATASETS[method], method, POINTS, 0)


def run(
    setting: Setting,
    tasks: Sequence[Task],
    device: str,
    sizes: Sequence[int] = SIZES,
    points: int = POINTS,
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Seconds of the kernel in float32, and of cross-entropy selections by the paper's setting and
    by all candidates."""
    begin = time.perf_counter()
    x = tasks[0].train.x[:points]
    y = tasks[0].train.y[:points]
    images = torch.from_numpy(np.ascontiguousarray(x)).to(device)
    kernel = METHODS[setting.method]()
    kernel(images[:3])
    seconds = [_kernel_seconds(kernel, images, device) for _ in range(REPEATS)]
    gram = kernel(images.double()).cpu().numpy()
    result: dict[str, Any] = {"kernel": min(seconds), "device": device}
    context = Context(runtime=Runtime("cpu", threads=1, progress=False))
    for size in sizes:
        for name, candidates in (("200 candidates", 200), ("all candidates", None)):
            selector = BilevelSelector(
                kernel="precomputed",
                loss="cross-entropy",
                inner_reg=PerPoint(1e-3),
                candidates=candidates,
            )
            info = selector.select(Dataset(gram, y), size, context=context).info
            result[f"coreset {size}, {name}"] = info["seconds"] - info["preparation_seconds"]
    yield 0.0, {**result, "seconds": time.perf_counter() - begin}


def _kernel_seconds(kernel: Any, images: torch.Tensor, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    kernel(images)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start

"""Network kernels and selections on a GPU, next to the lower bound given by the card's peak rates.

    python -m benchmarks gpu --data DIR --json

DIR holds MNIST and CIFAR-10 in torchvision's layout. Ceilings are measured first: multiply-adds a
second in float32 and float64, and bytes a second of memory. A floor is what the work must at least
do, divided by the ceiling that binds it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import data_folder, device_seconds, report, require_gpu
from bicore import Dataset, Runtime
from bicore.kernels import TangentKernel, cnn, pooled_cntk, resnet18
from bicore.kernels.gpu.fused import function
from bicore.methods.registry import greedy_selector
from bicore.sources import cifar10, mnist

FMA = """
extern "C" __global__ void spin(REAL* out, int turns) {
    REAL a[16], x = (REAL)0.999999, y = (REAL)(threadIdx.x * 1e-6);
    for (int k = 0; k < 16; ++k) a[k] = (REAL)(k + threadIdx.x);
    for (int turn = 0; turn < turns; ++turn)
#pragma unroll
        for (int k = 0; k < 16; ++k) a[k] = a[k] * x + y;
    REAL sum = 0;
    for (int k = 0; k < 16; ++k) sum += a[k];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""
TURNS = 20_000
#: Arithmetic instructions of the compiled pooled kernel for a pair of positions and a layer, and
#: for the input.
POOLED_INSTRUCTIONS = 37
INPUT_INSTRUCTIONS = 15
#: Multiply-adds, additions and comparisons of a ReLU on three maps, and of a window's entry on
#: three maps.
RELU_OPERATIONS = 45
WINDOW_OPERATIONS = 3
#: Precisions, by their names in C.
PRECISIONS = {"float": torch.float32, "double": torch.float64}
Rates = dict[str, float]
Row = dict[str, Any]


def run(arguments: Any) -> Iterator[Row]:
    require_gpu()
    folder = data_folder(arguments.data)
    images, labels = mnist(folder, "train", 10_000)
    digits = torch.from_numpy(images).cuda().reshape(-1, 1, 28, 28)
    colours = torch.from_numpy(cifar10(folder, "train", 1000)[0]).cuda()
    rates = _measure_ceilings()
    report(rates)
    yield from _time_flat(digits, colours, rates, arguments.repeats)
    yield from _time_pooled(colours[:200], rates)
    yield from _time_selections(digits, labels, rates, arguments.repeats)
    return {"ceilings": rates, "accuracy": list(_compare_precisions(digits, colours))}


def _measure_ceilings() -> Rates:
    found = {}
    for name, dtype in PRECISIONS.items():
        spin = function(FMA, "spin", {"REAL": name})
        blocks = 16 * torch.cuda.get_device_properties(0).multi_processor_count
        out = torch.empty(blocks * 256, dtype=dtype, device="cuda")
        seconds = device_seconds(partial(spin.launch, blocks, 256, [out, TURNS]))
        found[f"{name}_multiply_adds_a_second"] = blocks * 256 * 16 * TURNS / seconds
    source = torch.empty(1 << 30, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    found["bytes_a_second"] = 2 * source.nbytes / device_seconds(lambda: target.copy_(source))
    return found


def _row(what: str, seconds: float, goal: float | None, floor: float) -> Row:
    return {"what": what, "seconds": seconds, "goal": goal, "floor": floor}


def _time_flat(digits: Tensor, colours: Tensor, rates: Rates, repeats: int) -> Iterator[Row]:
    cases = [
        ("CNN kernel, 1000 × 1000 MNIST", cnn(), digits[:1000], 0.1),
        ("ResNet-18 kernel, 1000 × 1000 CIFAR-10", resnet18(), colours, 1.5),
        ("CNN kernel, 10 000 × 10 000 MNIST", cnn(), digits, 6.0),
    ]
    for what, kernel, images, goal in cases:
        pairs = len(images) * (len(images) + 1) / 2
        for name, dtype in PRECISIONS.items():
            given = images.to(dtype)
            seconds = device_seconds(partial(kernel, given), 1 if len(images) > 1000 else repeats)
            floor = pairs * _operations(kernel, given) / rates[f"{name}_multiply_adds_a_second"]
            words = f"{what}, {str(dtype).removeprefix('torch.')}"
            yield _row(words, seconds, goal, floor)


def _operations(kernel: TangentKernel, images: Tensor) -> float:
    """Multiply-adds of one pair: ReLUs by the positions of their notes, windows separably at the
    same positions."""
    positions = sum(note.numel() / note.shape[-1] for note in kernel.norms(images[:2]))
    windows = {"cnn": 10, "resnet-18": 6}[kernel.label]
    return positions * (RELU_OPERATIONS + windows * WINDOW_OPERATIONS)


def _time_pooled(images: Tensor, rates: Rates) -> Iterator[Row]:
    """The floor: all instructions of the float32 kernel, issued at the rate of multiply-adds."""
    for depth, goal in ((6, 20e-6), (21, 80e-6)):
        for name, dtype in PRECISIONS.items():
            single = dtype == torch.float32
            given = images[: 200 if single else 40].to(dtype)
            pairs = len(given) * (len(given) + 1) / 2
            seconds = device_seconds(partial(pooled_cntk(depth), given), 2) / pairs
            work = 1024**2 * ((depth - 1) * POOLED_INSTRUCTIONS + INPUT_INSTRUCTIONS)
            floor = work / rates[f"{name}_multiply_adds_a_second"]
            kind = str(dtype).removeprefix("torch.")
            words = f"pooled CNTK, depth {depth}, a pair of 32×32×3, {kind}"
            yield _row(words, seconds, goal if single else None, floor)


def _time_selections(
    digits: Tensor, labels: np.ndarray, rates: Rates, repeats: int
) -> Iterator[Row]:
    """The floor: a pass over the matrix for each point."""
    gram = cnn()(digits.double())
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=50_000)
    features = rng.normal(size=(50_000, 2048))
    features[:, :10] += 3 * np.eye(10)[y]
    data, kernel = number_points(labels), look_up(gram)
    wide = Dataset(features, y)
    matrix = "400 of 10 000 from a stored Gram matrix"
    table = "1000 of 50 000 × 2048 features"
    for what, own, points, loss, size, goal, weight in (
        (f"{matrix}, squared error", kernel, data, "squared", 400, 1.0, gram.nbytes),
        (f"{matrix}, cross-entropy", kernel, data, "cross-entropy", 400, 10.0, gram.nbytes),
        (f"{table}, squared error", "linear", wide, "squared", 1000, 5.0, features.nbytes),
    ):
        reg = 10.0 if own == "linear" else 0.1
        selector = greedy_selector(kernel=own, loss=loss, inner_reg=reg)
        choose = partial(selector.select, points, runtime=Runtime("cuda", progress=False))
        choose(40)
        seconds = min(choose(size).provenance.selection_seconds for _ in range(repeats))
        yield _row(f"{what}, float64", seconds, goal, size * weight / rates["bytes_a_second"])


def number_points(labels: np.ndarray) -> Dataset:
    """Points that are their numbers, for a kernel that looks stored values up on the device."""
    return Dataset(np.arange(len(labels), dtype=np.float64)[:, None], labels)


def look_up(gram: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """A stored kernel matrix as a kernel of numbered points."""
    return lambda a, b: gram[a[:, 0].long()][:, b[:, 0].long()]


def _compare_precisions(digits: Tensor, colours: Tensor) -> Iterator[Row]:
    """Gram matrices in float32 on the GPU against float64 on the GPU: the largest relative
    difference."""
    for what, kernel, images in (
        ("CNN, MNIST", cnn(), digits[:300]),
        ("ResNet-18, CIFAR-10", resnet18(), colours[:100]),
        ("pooled, depth 6, CIFAR-10", pooled_cntk(6), colours[:60]),
        ("pooled, depth 6, fixed ends, CIFAR-10", pooled_cntk(6, fixed=True), colours[:60]),
        ("pooled, depth 21, CIFAR-10", pooled_cntk(21), colours[:30]),
    ):
        exact = kernel(images.double())
        error = (kernel(images).double() - exact).abs() / exact.abs()
        yield {"what": what, "largest": float(error.max())}

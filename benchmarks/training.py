"""A step of training with rehearsal, ResNet-18 on a batch of 256 images and a memory of 200, beside
its floor.

    python -m benchmarks training --json

The card's ceilings are measured first: operations a second of bfloat16 matrix products, and bytes a
second of memory. The floor is what the convolutions must compute, or the maps they must read and
write, divided by the ceiling that binds.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import device_seconds, report, require_gpu
from experiments.networks import ResNet18
from experiments.training import Cohort, Learner, Memory, build, products

BATCH = 256
MEMORY = 200
BATCHES = 4
EPOCHS = 12
#: Reading and writing of maps by a convolution: forward it reads its input and writes its output;
#: for the gradients it reads the output's twice, the input twice (once to know where the ReLU was
#: off) and writes the input's.
INPUT_PASSES = 4
OUTPUT_PASSES = 3
SEARCHED = "bfloat16, recorded, algorithms searched"


def run(arguments: Any) -> dict[str, Any]:
    require_gpu()
    ceilings = _ceilings()
    work = _work()
    floor = max(
        work["operations"] / ceilings["operations_a_second"],
        work["bytes"] / ceilings["bytes_a_second"],
    )
    rows = []
    for row in _rows(arguments.repeats):
        if not row["setting"].startswith("float32"):
            row["times_the_floor"] = row["seconds_a_step"] / floor
        rows.append(row)
        report(row)
    return {
        "images": BATCH + MEMORY,
        "ceilings": ceilings,
        "work": work,
        "floor_seconds": floor,
        "rows": rows,
    }


def _ceilings(side: int = 8192, turns: int = 10) -> dict[str, float]:
    a, b = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    products = device_seconds(lambda: [a @ b for _ in range(turns)], 4)
    copies = device_seconds(lambda: [target.copy_(source) for _ in range(turns)], 4)
    return {
        "operations_a_second": turns * 2 * side**3 / products,
        "bytes_a_second": turns * 2 * source.numel() * source.element_size() / copies,
    }


def _work() -> dict[str, float]:
    """Operations and least bytes of a step of so many images; counted on one image, since all are
    alike."""
    network = ResNet18()
    moved = []

    def look(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        moved.append(INPUT_PASSES * inputs[0].numel() + OUTPUT_PASSES * output.numel())

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(look)
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, *network.shape)).sum().backward()
    images = BATCH + MEMORY
    return {
        "operations": float(images * counter.get_total_flops()),
        "bytes": float(images * 2 * sum(moved)),
    }


def _rows(repeats: int) -> Iterator[dict[str, Any]]:
    for name, fast, searched, recorded, count in (
        ("float32, steps launched one by one", False, False, False, 1),
        ("float32, recorded, algorithms searched", False, True, True, 1),
        ("bfloat16, steps launched one by one", True, False, False, 1),
        ("bfloat16, epochs recorded", True, False, True, 1),
        (SEARCHED, True, True, True, 1),
        (f"{SEARCHED}, two networks side by side", True, True, True, 2),
        (f"{SEARCHED}, four networks side by side", True, True, True, 4),
    ):
        learners = [_learner(searched, fast) for _ in range(count)]
        seconds = _recorded(learners, repeats) if recorded else _launched(learners[0], repeats)
        yield {"setting": name, "seconds_a_step": seconds}


def _learner(searched: bool, fast: bool) -> Learner:
    network = build(ResNet18, 0, "cuda")
    network.searched = searched
    learner = Learner(network, 1.0, BATCH * BATCHES, MEMORY, EPOCHS, fast=fast)
    draw = torch.Generator().manual_seed(1)

    def points(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, *network.shape, generator=draw)
        y = torch.randint(0, 10, (count,), generator=draw)
        return x.cuda(), y.cuda()

    learner.take(*points(BATCH * BATCHES))
    learner.rehearse(Memory(*points(MEMORY), torch.full((MEMORY,), 1 / MEMORY).cuda()))
    return learner


def _recorded(learners: list[Learner], repeats: int) -> float:
    cohort = Cohort(learners)
    cohort.train(3)  # launched once, recorded, replayed
    return device_seconds(lambda: cohort.train(EPOCHS), repeats) / (
        EPOCHS * BATCHES * len(learners)
    )


def _launched(learner: Learner, repeats: int) -> float:
    def epoch() -> None:
        learner.shuffle(1)
        with products(learner.fast, learner.searched):
            learner.epoch()

    epoch()
    return device_seconds(epoch, repeats) / BATCHES

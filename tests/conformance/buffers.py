"""Every buffer of the package, found by walking it, with the configurations under which it is
tested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bicore.bilevel.weights import ProjectedGradient
from bicore.kernels import RBF
from bicore.methods import Herding, KCenter, Selector
from bicore.methods.registry import greedy_selector
from bicore.moments.features import RandomReLU
from bicore.streaming import (
    ClassBalancedReservoir,
    GradientSampling,
    MergeReduce,
    MomentMemory,
    Prototypes,
    Reservoir,
)
from bicore.streaming.buffer import Buffer

RELU = RandomReLU(width=64)
BILEVEL = greedy_selector(kernel=RBF(0.2), inner_reg=0.1)
LEARNT = greedy_selector(
    kernel=RBF(0.2), inner_reg=0.1, weighting="final", optimiser=ProjectedGradient(final_steps=5)
)


def moments(*options, **more) -> Callable[[int, int], Buffer]:
    return lambda capacity, seed: MomentMemory(capacity, *options, random_state=seed, **more)


def merged(selector: Selector, slots: int, **more) -> Callable[[int, int], Buffer]:
    return lambda capacity, seed: MergeReduce(
        capacity, selector, min(slots, capacity), random_state=seed, **more
    )


#: A maker for each configuration: capacity and seed in, a fresh buffer out.
CONFIGURATIONS: dict[type[Buffer], dict[str, Callable[[int, int], Buffer]]] = {
    Reservoir: {"reservoir": Reservoir},
    ClassBalancedReservoir: {"cbrs": ClassBalancedReservoir},
    Prototypes: {"prototypes": Prototypes},
    GradientSampling: {
        "gss, greedy": GradientSampling,
        "gss, cosine": lambda capacity, seed: GradientSampling(capacity, seed, strategy="cosine"),
    },
    MomentMemory: {
        "moments": moments(RELU),
        "moments, rows": moments("rows", "gain", half_life=100.0),
        "moments, equal prior": moments(RELU, "gradient", prior="equal"),
    },
    MergeReduce: {
        "merge-reduce, 3 slots": merged(BILEVEL, 3),
        "merge-reduce, 1 slot": merged(BILEVEL, 1),
        "merge-reduce, learnt": merged(LEARNT, 2, weighting="learned"),
        "merge-reduce, no labels": merged(KCenter(), 2),
        "merge-reduce, model": merged(Herding(), 2),
    },
}
#: Configurations whose answer depends on how the stream is cut into batches.
BATCHED = {
    "gss, greedy",
    "gss, cosine",
    *CONFIGURATIONS[MergeReduce],
    *CONFIGURATIONS[MomentMemory],
}
#: Configurations whose rows are averages, not rows of the stream.
AVERAGED = {"prototypes"}
#: Configurations that may hold fewer rows than they have room for: a merge leaves room for the next
#: slot.
SLOTTED = {*CONFIGURATIONS[MergeReduce]}
CASES = {name: make for group in CONFIGURATIONS.values() for name, make in group.items()}


def load_buffer(buffer: Buffer, path: Path) -> Buffer:
    """The buffer that a file of the same kind holds."""
    if isinstance(buffer, MergeReduce):
        return MergeReduce.load(path, buffer.selector)
    return type(buffer).load(path)

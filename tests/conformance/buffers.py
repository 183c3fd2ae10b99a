"""Every buffer of the package, found by walking it, with the configurations under which it is tested."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable

import bicore
from bicore.stream import Buffer, ClassBalancedReservoir, GradientSampling, Prototypes, Reservoir

#: A maker for each configuration: capacity and seed in, a fresh buffer out.
CONFIGURATIONS: dict[type[Buffer], dict[str, Callable[[int, int], Buffer]]] = {
    Reservoir: {"reservoir": Reservoir},
    ClassBalancedReservoir: {"cbrs": ClassBalancedReservoir},
    Prototypes: {"prototypes": Prototypes},
    GradientSampling: {
        "gss, greedy": GradientSampling,
        "gss, cosine": lambda capacity, seed: GradientSampling(capacity, seed, rule="cosine"),
    },
}
#: Configurations whose answer depends on how the stream is cut into batches.
BATCHED = {"gss, greedy", "gss, cosine"}
#: Configurations whose rows are averages, not rows of the stream.
AVERAGED = {"prototypes"}
CASES = {name: make for configurations in CONFIGURATIONS.values() for name, make in configurations.items()}


def found() -> list[type[Buffer]]:
    """Every concrete buffer class under the package."""
    classes: set[type[Buffer]] = set()
    for module in pkgutil.walk_packages(bicore.__path__, "bicore."):
        for _, thing in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(thing, Buffer) and not inspect.isabstract(thing) and thing.__module__.startswith("bicore."):
                classes.add(thing)
    return sorted(classes, key=lambda thing: thing.__name__)

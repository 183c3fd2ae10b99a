"""Which sets, sizes, methods and judges belong together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.battery.memories import Memory, replay, stream
from benchmarks.battery.sets import SETS
from bicore.bilevel.aims import Smoothed
from bicore.kernels.classical import Laplace
from bicore.kernels.scaling import Normalised, Standardised, UnitRows
from bicore.kernels.tangent import fully_connected

#: Methods by name: a name of ``bicore.methods.METHODS``, options, and whether rows of a table are
#: given to it with standardised columns. What is left to itself sees the rows as they are.
Method = tuple[str, dict[str, Any], bool]
#: Option of methods within each class, with as many points per class as its share of the rows.
PER_CLASS = {"per_class": "proportional"}

OURS: dict[str, Method] = {"default": ("bilevel", {}, False)}
CHANCE: dict[str, Method] = {
    "uniform": ("uniform", {}, True),
    "class-balanced": ("class-balanced", {}, True),
}
RIVALS: dict[str, Method] = {
    **CHANCE,
    "paper": ("bilevel-ntk", {}, True),
    "k-means": ("k-means-features", {}, True),
    "facility location": ("facility-location", {}, True),
    "herding": ("herding-features", {}, True),
    "facility location per class": ("facility-location", PER_CLASS, True),
    "k-means per class": ("k-means-features", PER_CLASS, True),
    "herding per class": ("herding-features", PER_CLASS, True),
}
#: One part of the default changed at a time.
VARIANTS: dict[str, Method] = {
    **OURS,
    **CHANCE,
    "labels as given": ("bilevel", {"smooth_labels": False}, False),
    "labels smoothed": ("bilevel", {"smooth_labels": True}, False),
    "greedy": ("bilevel", {"strategy": "greedy"}, False),
    "greedy, gain": ("bilevel", {"strategy": "greedy", "rule": "gain"}, False),
    "elimination, gain": ("bilevel", {"strategy": "elimination", "rule": "gain"}, False),
    "exchange": ("bilevel", {"strategy": "exchange"}, False),
    "laplace, standardised": ("bilevel", {"kernel": "laplace"}, True),
    "rbf, standardised": ("bilevel", {"kernel": "rbf"}, True),
    "ntk, standardised": ("bilevel", {"kernel": "ntk"}, True),
    "linear, standardised": ("bilevel", {"kernel": "linear"}, True),
    "equal classes": ("bilevel", {"prior": "equal"}, False),
    "final weights": ("bilevel", {"weighting": "final"}, False),
    "cross-entropy": ("bilevel", {"loss": "cross-entropy"}, False),
}
#: In a memory: greedy by the gradient with labels as given, unless a name says otherwise.
NORMALISED = Normalised(fully_connected())
INPUTS_TOO = Smoothed(share=0.0, inputs=1.0, doubt=False)
MEMORIES: dict[str, Method] = {
    **OURS,
    **CHANCE,
    "paper": ("bilevel-ntk", {}, True),
    "normalised": ("bilevel-ntk", {"kernel": NORMALISED}, True),
    "normalised, gain": ("bilevel-ntk", {"kernel": NORMALISED, "rule": "gain"}, True),
    "normalised, elimination": (
        "bilevel-ntk",
        {"kernel": NORMALISED, "rule": "gain", "strategy": "elimination"},
        True,
    ),
    "normalised, exchange": ("bilevel-ntk", {"kernel": NORMALISED, "strategy": "exchange"}, True),
    # of rows as they are, which is what a memory sees
    "auto": ("bilevel-ntk", {"kernel": "auto"}, False),
    "auto, gain": ("bilevel-ntk", {"kernel": "auto", "rule": "gain"}, False),
    "standardised": ("bilevel-ntk", {"kernel": Standardised(NORMALISED)}, False),
    "standardised, equal classes": (
        "bilevel-ntk",
        {"kernel": Standardised(NORMALISED), "prior": "equal"},
        False,
    ),
    "standardised, inputs too": (
        "bilevel-ntk",
        {"kernel": Standardised(NORMALISED), "targets": INPUTS_TOO, "quotas": "balanced"},
        False,
    ),
    "standardised laplace": (
        "bilevel-ntk",
        {"kernel": Standardised(Laplace()), "quotas": "balanced"},
        False,
    ),
    "laplace of unit rows": (
        "bilevel-ntk",
        {"kernel": UnitRows(Laplace()), "quotas": "balanced"},
        False,
    ),
}
RESERVOIRS: dict[str, Method] = {
    "reservoir": ("reservoir", {}, True),
    "class-balanced reservoir": ("class-balanced-reservoir", {}, True),
}
MEMORY_JUDGES = ("logistic", "knn", "mlp", "ridge")
TABLE_JUDGES = ("ridge", "logistic", "forest", "boosting", "knn", "mlp")
QUICK_JUDGES = ("logistic", "forest", "knn")


def _spread(classes: int, pool: int) -> list[int]:
    """From one point a class (ten targets) to a fifth of the pool."""
    least = classes or 10
    wanted = {least, 3 * least, pool // 20, pool // 5}
    return sorted(size for size in wanted if least <= size <= pool // 5) or [pool // 5]


def _a_class(classes: int, pool: int) -> list[int]:
    """Three and ten rows a class: capacities of a memory."""
    return [3 * classes, 10 * classes]


@dataclass(frozen=True)
class Protocol:
    """What is run."""

    sets: tuple[str, ...]
    methods: dict[str, Method]
    judges: tuple[str, ...]
    seeds: int = 10
    #: The largest pool and test set.
    pool: int = 1000
    test: int = 1000
    sizes: Callable[[int, int], list[int]] = _spread
    #: Shares of labels that are made wrong.
    flips: tuple[float, ...] = (0.0,)
    #: Sizes by set, where they are given.
    fixed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: The memory that rows come to; without one, all of the pool is there to choose from.
    memory: Memory | None = None


_KEPT = tuple(name for name, one in SETS.items() if not one.aside)
_ASIDE = tuple(name for name, one in SETS.items() if one.aside)
_CLASSES = tuple(name for name in _KEPT if not SETS[name].regression)
#: Those of at least four classes, which make two tasks.
_TASKS = ("digits", "vehicle", "satimage", "vowel", "mnist", "embedding", "reuters")

PROTOCOLS: dict[str, Protocol] = {
    "variants": Protocol(_KEPT, VARIANTS, QUICK_JUDGES, seeds=5),
    "kept": Protocol(_KEPT, OURS | RIVALS, TABLE_JUDGES),
    "aside": Protocol(_ASIDE, OURS | RIVALS, TABLE_JUDGES),
    "images": Protocol(
        ("mnist", "cifar10"), OURS | RIVALS, ("cnn",), fixed={"mnist": (20, 50, 100, 200)}
    ),
    "wrong-labels": Protocol(
        _CLASSES,
        OURS | CHANCE | {"labels as given": VARIANTS["labels as given"]},
        QUICK_JUDGES,
        seeds=5,
        sizes=lambda classes, pool: [pool // 10, pool // 5],
        flips=(0.05, 0.1, 0.2),
    ),
    "replay": Protocol(_TASKS, MEMORIES, MEMORY_JUDGES, sizes=_a_class, memory=replay),
    "merge-reduce": Protocol(
        _TASKS, MEMORIES | RESERVOIRS, MEMORY_JUDGES, sizes=_a_class, memory=stream
    ),
}

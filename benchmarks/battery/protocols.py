"""Protocols: combinations of sets, sizes, methods and evaluation models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.battery.memories import Memory, replay, stream
from benchmarks.battery.sets import SETS
from bicore.bilevel.kernel_choice import AutomaticKernel
from bicore.bilevel.outer_targets import Smoothed
from bicore.kernels.classical import Laplace
from bicore.kernels.scaling import Normalised, Standardised, UnitRows
from bicore.kernels.tangent import fully_connected

#: A name of ``bicore.methods.METHODS``, options, and whether the columns of a table are
#: standardised for it; otherwise it sees the rows as they are.
Method = tuple[str, dict[str, Any], bool]
#: Option of methods within each class, with as many points per class as its share of the rows.
PER_CLASS = {"per_class": "proportional"}


def _ours(scaled: bool = False, **options: Any) -> Method:
    return "bilevel", options, scaled


def _paper(scaled: bool = True, **options: Any) -> Method:
    return "bilevel-ntk", options, scaled


OURS: dict[str, Method] = {"default": _ours()}
CHANCE: dict[str, Method] = {
    "uniform": ("uniform", {}, True),
    "class-balanced": ("class-balanced", {}, True),
}
WITHIN_CLASSES: dict[str, Method] = {
    "facility location per class": ("facility-location", PER_CLASS, True),
    "k-means per class": ("k-means-features", PER_CLASS, True),
    "herding per class": ("herding-features", PER_CLASS, True),
}
BASELINES: dict[str, Method] = {
    **CHANCE,
    "paper": _paper(),
    "k-means": ("k-means-features", {}, True),
    "facility location": ("facility-location", {}, True),
    "herding": ("herding-features", {}, True),
    **WITHIN_CLASSES,
}
#: The default for a user who names the model.
FOR_MODELS: dict[str, Method] = {
    f"model={word}": _ours(kernel=AutomaticKernel(model=word))
    for word in ("linear", "trees", "neighbours", "network")
}
#: One part of the default changed at a time.
VARIANTS: dict[str, Method] = {
    **OURS,
    **CHANCE,
    "labels as given": _ours(smooth_labels=False),
    "labels smoothed": _ours(smooth_labels=True),
    "greedy": _ours(strategy="greedy"),
    "greedy, gain": _ours(strategy="greedy", rule="gain"),
    "elimination, gain": _ours(strategy="elimination", rule="gain"),
    "exchange": _ours(strategy="exchange"),
    "laplace, standardised": _ours(True, kernel="laplace"),
    "rbf, standardised": _ours(True, kernel="rbf"),
    "ntk, standardised": _ours(True, kernel="ntk"),
    "linear, standardised": _ours(True, kernel="linear"),
    "equal classes": _ours(prior="equal"),
    "final weights": _ours(weighting="final"),
    "cross-entropy": _ours(loss="cross-entropy"),
}
#: In a memory: greedy by the gradient with labels as given, unless a name says otherwise.
NORMALISED = Normalised(fully_connected())
STANDARDISED = Standardised(NORMALISED)
INPUTS_TOO = Smoothed(share=0.0, inputs=1.0, doubt=False)
MEMORIES: dict[str, Method] = {
    **OURS,
    **CHANCE,
    "paper": _paper(),
    "normalised": _paper(kernel=NORMALISED),
    "normalised, gain": _paper(kernel=NORMALISED, rule="gain"),
    "normalised, elimination": _paper(kernel=NORMALISED, rule="gain", strategy="elimination"),
    "normalised, exchange": _paper(kernel=NORMALISED, strategy="exchange"),
    # rows as they are, which is what a memory sees
    "auto": _paper(False, kernel="auto"),
    "auto, gain": _paper(False, kernel="auto", rule="gain"),
    "standardised": _paper(False, kernel=STANDARDISED),
    "standardised, equal classes": _paper(False, kernel=STANDARDISED, prior="equal"),
    "standardised, inputs too": _paper(
        False, kernel=STANDARDISED, targets=INPUTS_TOO, quotas="balanced"
    ),
    "standardised laplace": _paper(False, kernel=Standardised(Laplace()), quotas="balanced"),
    "laplace of unit rows": _paper(False, kernel=UnitRows(Laplace()), quotas="balanced"),
}
RESERVOIRS: dict[str, Method] = {
    "reservoir": ("reservoir", {}, True),
    "class-balanced reservoir": ("class-balanced-reservoir", {}, True),
}
MEMORY_JUDGES = ("logistic", "knn", "mlp", "ridge")
TABLE_JUDGES = ("ridge", "logistic", "forest", "boosting", "knn", "mlp", "1-nn", "5-nn")
QUICK_JUDGES = ("logistic", "forest", "knn")


def _spread(classes: int, pool: int) -> list[int]:
    """From one point a class (ten targets) to a fifth of the pool."""
    least = classes or 10
    wanted = {least, 3 * least, pool // 20, pool // 5}
    return sorted(size for size in wanted if least <= size <= pool // 5) or [pool // 5]


def _to_a_quarter(classes: int, pool: int) -> list[int]:
    return [*_spread(classes, pool), pool // 4]


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
    "kept": Protocol(_KEPT, OURS | BASELINES, TABLE_JUDGES),
    "per-class": Protocol(_CLASSES, OURS | WITHIN_CLASSES, TABLE_JUDGES, sizes=_to_a_quarter),
    "aside": Protocol(_ASIDE, OURS | FOR_MODELS | BASELINES, TABLE_JUDGES, sizes=_to_a_quarter),
    "images": Protocol(
        ("mnist", "cifar10"), OURS | BASELINES, ("cnn",), fixed={"mnist": (20, 50, 100, 200)}
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

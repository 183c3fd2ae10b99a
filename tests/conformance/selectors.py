"""Every selector of the package, found by walking it, with the configurations under which it is tested."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import bicore
from bicore import RBF, BilevelSelector, Laplace, PerPoint, Selector
from bicore.selection.pointwise import Uniform

#: Configurations of each selector class. A class without one fails the battery. Bandwidths are fixed: the median heuristic looks
#: at the features of every row, also of one whose weight is zero.
CONFIGURATIONS: dict[type[Selector], dict[str, Selector]] = {
    BilevelSelector: {
        "squared": BilevelSelector(kernel=RBF(0.2), inner_reg=0.1),
        "squared gain": BilevelSelector(kernel=RBF(0.2), inner_reg=0.1, rule="gain"),
        "squared, features": BilevelSelector(kernel="linear", inner_reg=0.1),
        "squared, automatic": BilevelSelector(kernel="ntk"),
        "squared, per point": BilevelSelector(kernel=Laplace(0.2), inner_reg=PerPoint(1e-2)),
        "squared, learnt": BilevelSelector(kernel=RBF(0.2), inner_reg=0.1, weights="learnt"),
        "cross-entropy": BilevelSelector(kernel=RBF(0.2), loss="cross-entropy", inner_reg=0.05),
        "cross-entropy, final": BilevelSelector(kernel=RBF(0.2), loss="cross-entropy", inner_reg=0.05, weights="final"),
        "cross-entropy, candidates": BilevelSelector(
            kernel=RBF(0.2), loss="cross-entropy", inner_reg=0.05, candidates=10, first="random"
        ),
    },
    Uniform: {"uniform": Uniform()},
}
#: Configurations that draw at random over rows: there the order of the rows does matter.
DRAWS = {"cross-entropy, candidates", "squared, automatic", "uniform"}
#: Configurations in which a point may leave again, so that prefixes need not be nested and fewer points may come back.
CORRECTED = {"squared, learnt", "cross-entropy, final"}


def found() -> list[type[Selector]]:
    """Every concrete selector class under the package."""
    classes: set[type[Selector]] = set()
    for module in pkgutil.walk_packages(bicore.__path__, "bicore."):
        for _, thing in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(thing, Selector) and not inspect.isabstract(thing) and thing.__module__.startswith("bicore."):
                classes.add(thing)
    return sorted(classes, key=lambda thing: thing.__name__)


CASES = {name: selector for configurations in CONFIGURATIONS.values() for name, selector in configurations.items()}

"""Options of :func:`bicore.select` for a selection in passes over the rows.

An option means the same as for an array. Options without a meaning in passes are refused, with a
fix; features that replace a kernel are noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from bicore.errors import InputError, unknown_name
from bicore.kernels.classical import RBF, Laplace, Linear
from bicore.losses import SquaredError
from bicore.moments.features import Embedded, FeatureMap, Nystrom, RandomFourier, RandomReLU, Rows
from bicore.picking import Relative, as_relative
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.large import Large
from bicore.selectors.names import KERNELS, as_kernel
from bicore.sources.opening import open_shards
from bicore.sources.parts import ShardSource

#: Options that the selection takes as they are.
OWN = (
    "rule",
    "passes",
    "inner_reg",
    "prior",
    "intercept",
    "exchange",
    "quotas",
    "skip_bad",
    "shortlist",
    "state",
    "executor",
)
#: Options that say how a source is opened, and how a table is read.
OPENING = ("features", "target", "labels")
TABLE_OPTIONS = ("scale", "drop", "drop_missing_target", "decimal", "missing", "encoding")
#: Allowed values of other options, and how to fix a request that has another one.
_ALLOWED: dict[str, tuple[tuple[Any, ...], str]] = {
    "loss": (
        ("squared", SquaredError()),
        "moments hold the squared error: leave it out, or load a sample of the rows",
    ),
    "weights": (
        ("binary",),
        "leave it out, and learn weights of the selected rows with bicore.reweight",
    ),
    "targets": (("auto", "given"), "labels are taken as given: leave it out"),
    "task": (("auto",), "floats are targets, all other labels classes: store them accordingly"),
    "candidates": ((None,), "every row is scored: leave it out"),
}
_STRATEGIES = {"auto": {}, "greedy": {"exchange": False}, "exchange": {"exchange": True}}


@dataclass(frozen=True)
class Asked:
    """Options of :func:`bicore.shards.select_from_shards`."""

    features: FeatureMap | None
    options: dict[str, Any]
    notes: tuple[str, ...] = ()


def asked(
    given: Mapping[str, Any],
    *,
    method: Any = "bilevel",
    model: Any = None,
    size: Any = None,
    tolerance: float | None = None,
    large: Large = Large.APPROXIMATE,
    seed: int = 0,
) -> Asked:
    """Translate options of ``select``; refuse those that have no meaning in passes.

    >>> asked({"kernel": "rbf"}).notes
    ("1024 random features replace kernel 'rbf': rows in parts are compared in features",)
    """
    _check_call(method, model, size, tolerance)
    options = dict(given)
    features, note = features_for(options.pop("kernel", None), seed)
    if note and large is Large.EXACT:
        raise InputError(
            f"large='exact' and {note}; leave large out, use kernel='linear', or load the rows."
        )
    strategy = options.pop("strategy", "auto")
    if not isinstance(strategy, str) or strategy not in _STRATEGIES:
        raise _no_meaning("strategy", strategy, f"use one of {', '.join(map(repr, _STRATEGIES))}")
    options |= _STRATEGIES[strategy]
    if "dask" in options:
        options["executor"] = options.pop("dask")
    for name in ("rule", "inner_reg"):
        if options.get(name) == "auto":
            del options[name]
    regulariser = as_relative(options.get("inner_reg", 1.0))
    if not isinstance(regulariser, Relative) and not hasattr(regulariser, "__float__"):
        raise _no_meaning("inner_reg", regulariser, "give a number, 'relative:SHARE' or 'auto'")
    for name, value in list(options.items()):
        if name not in OWN:
            _check_option(name, value)
            del options[name]
    return Asked(features, options, (note,) if note else ())


def _no_meaning(name: str, value: Any, fix: str) -> InputError:
    return InputError(f"{name}={value!r} means nothing for rows in parts; {fix}.")


def _check_call(method: Any, model: Any, size: Any, tolerance: float | None) -> None:
    if method != "bilevel":
        raise InputError(
            f"method={method!r} needs all rows in memory; leave it out, or load a sample of the "
            "rows."
        )
    if model is not None:
        raise _no_meaning("model", type(model).__name__, "use kernel=module to compare embeddings")
    if size == "auto" or tolerance is not None:
        raise InputError(
            "size='auto' and tolerance need all rows in memory; give a count or a fraction."
        )


def _check_option(name: str, value: Any) -> None:
    """Refuse options that a selection in passes does not have, unless they have no effect."""
    allowed, fix = _ALLOWED.get(name, ((), "leave it out"))
    if any(value == one for one in allowed):
        return
    if name in {field.name for field in fields(BilevelSelector)}:
        raise _no_meaning(name, value, fix)
    raise unknown_name("the option", name, {*OWN, *OPENING, "kernel", "strategy"})


def features_for(kernel: Any, seed: int) -> tuple[FeatureMap | None, str]:
    """Return the features that rows are compared in, and a note if they replace a kernel."""
    if kernel is None or kernel == "auto":
        return None, ""
    if isinstance(kernel, FeatureMap):
        return kernel, ""
    if isinstance(kernel, nn.Module):
        return Embedded(kernel), ""
    name = f"kernel {kernel!r}"
    if isinstance(kernel, str):
        if kernel.lower() not in KERNELS:
            raise unknown_name("kernel", kernel, KERNELS)
        if kernel.lower() in ("ntk", "nngp"):
            return _replace(RandomReLU(seed=seed), name)
    fitted = as_kernel(kernel)
    if not isinstance(kernel, str):
        name = fitted.name
    if isinstance(fitted, Linear):
        return Rows(), ""
    if isinstance(fitted, RBF):
        return _replace(RandomFourier(gamma=fitted.gamma, seed=seed), name)
    if isinstance(fitted, Laplace):
        return _replace(RandomFourier(kind="laplace", gamma=fitted.gamma, seed=seed), name)
    found = Nystrom(fitted, seed=seed)
    return found, f"{found.landmarks} landmarks among the first rows {_REPLACE.format(name)}"


_REPLACE = "replace {}: rows in parts are compared in features"


def _replace(features: FeatureMap, name: str) -> tuple[FeatureMap, str]:
    return features, f"{features.width} random features {_REPLACE.format(name)}"


def opened(source: Any, y: Any = None, weight: Any = None, **opening: Any) -> ShardSource:
    """Open a source as ``select`` gets it: labels of .npy files may be its second argument."""
    if y is not None:
        if opening.get("labels") is not None:
            raise InputError("y and labels are the same thing; give one of them.")
        opening["labels"] = y
    return open_shards(source, weight=weight, **opening)


def opened_outer(outer: Any, like: Mapping[str, Any]) -> ShardSource | None:
    """Open an outer set: a source, a path with the same columns, or (x, y) or (x, y, weight)."""
    if outer is None:
        return None
    if isinstance(outer, tuple):
        if len(outer) not in (2, 3):
            raise InputError(
                "outer must be a tuple (x, y) or (x, y, weight), a Dataset, or a source; got "
                f"{len(outer)} values."
            )
        return opened(*outer)
    columns = {}
    if isinstance(outer, str) or hasattr(outer, "__fspath__"):
        columns = {name: like[name] for name in ("features", "target") if name in like}
    return open_shards(outer, **columns)

"""What people ask of a selection, said to the one that reads rows in parts.

The same words mean the same there; what has no meaning is refused with what to do instead, and what
something stands in for is told of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import singledispatch
from typing import Any

from torch import nn

from bicore.bilevel.greedy import AtMost, Balanced, BalancedIfClasses
from bicore.errors import InputError, unknown_name
from bicore.kernels.base import Kernel
from bicore.kernels.classical import RBF, Laplace, Linear
from bicore.losses import SquaredError
from bicore.moments.features import (
    Embedded,
    FeatureMap,
    Nystrom,
    RandomFourier,
    RandomReLU,
    Rows,
)
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.large import Large
from bicore.selectors.names import KERNELS, as_kernel, as_quotas
from bicore.shards.quotas import BALANCED
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
#: Options that say how a source is opened.
OPENING = ("features", "target", "labels")
#: What may be said of other options, and what to do where something else was meant.
_ALLOWED: dict[str, tuple[tuple[Any, ...], str]] = {
    "loss": (
        ("squared", SquaredError()),
        "moments hold the squared error: leave it out, or load a sample of the rows",
    ),
    "weights": (
        ("binary",),
        "points weigh 1 here: leave it out, and learn weights of the chosen rows with "
        "bicore.reweight",
    ),
    "targets": (("auto", "given"), "labels are taken as given: leave it out"),
    "task": (
        ("auto",),
        "labels that are floats are targets, all others classes: store them as what they are",
    ),
    "candidates": ((None,), "every row is scored: leave it out"),
}
_STRATEGIES = {"auto": {}, "greedy": {"exchange": False}, "exchange": {"exchange": True}}


@dataclass(frozen=True)
class Asked:
    """What is asked, in the words of ``select_from_shards``."""

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
    """Options of :func:`bicore.select` for rows in parts.

    Parameters
    ----------
    given : mapping
        What stands in the call, by name.
    method, model, size, tolerance : object
        As ``select`` has them; refused where they mean nothing here.
    large : Large
        "exact" refuses features that stand in for a kernel.
    seed : int
        Of random features.

    Returns
    -------
    Asked
        The options, and sentences to tell.

    Raises
    ------
    InputError
        Where an option means nothing for rows in parts.

    Examples
    --------
    >>> asked({"kernel": "rbf"}).notes
    ("1024 random features stand in for kernel 'rbf': rows in parts are compared in features",)
    """
    _refuse_whole(method, model, size, tolerance)
    options = dict(given)
    features, words = space_of(options.pop("kernel", None), seed)
    if words and large is Large.EXACT:
        raise InputError(
            f"large='exact' and {words}; leave large out, use kernel='linear', or load the rows."
        )
    options |= _strategy(options.pop("strategy", "auto"))
    if "dask" in options:
        options["executor"] = options.pop("dask")
    if "quotas" in options:
        options["quotas"] = said_of_quotas(as_quotas(options["quotas"]))
    for name, plain in (("rule", "auto"), ("inner_reg", "auto")):
        if options.get(name) == plain:
            del options[name]
    if not hasattr(options.get("inner_reg", 1.0), "__float__"):
        raise InputError(
            f"inner_reg={options['inner_reg']!r} means nothing for rows in parts; give a number, "
            "the share of the mean of ‖φ‖², or 'auto'."
        )
    for name, value in list(options.items()):
        if name not in OWN:
            _refuse_strange(name, value)
            del options[name]
    return Asked(features, options, (words,) if words else ())


def _refuse_whole(method: Any, model: Any, size: Any, tolerance: float | None) -> None:
    if method != "bilevel":
        raise InputError(
            f"method={method!r} needs all rows in memory; rows in parts are selected by "
            "method='bilevel': leave it out, or load a sample of the rows."
        )
    if model is not None:
        raise InputError(
            f"model={type(model).__name__} means nothing for rows in parts; kernel=module compares "
            "rows by its embedding, and bicore.shards.embedded embeds them once."
        )
    if size == "auto" or tolerance is not None:
        raise InputError(
            "size='auto' and tolerance need all rows in memory; give a count or a fraction: the "
            "objectives of one selection show what fewer points are worth."
        )


def _refuse_strange(name: str, value: Any) -> None:
    allowed, mend = _ALLOWED.get(name, ((), ""))
    if any(value == one for one in allowed):
        return
    if mend:
        raise InputError(f"{name}={value!r} means nothing for rows in parts; {mend}.")
    known = {field.name for field in fields(BilevelSelector)}
    if name in known:
        raise InputError(f"{name}={value!r} means nothing for rows in parts; leave it out.")
    raise unknown_name("the option", name, {*OWN, *OPENING, "kernel", "strategy"})


def _strategy(strategy: Any) -> dict[str, Any]:
    for name, meaning in _STRATEGIES.items():
        if strategy == name:
            return dict(meaning)
    raise InputError(
        f"strategy={strategy!r} means nothing for rows in parts; it is one of "
        f"{', '.join(map(repr, _STRATEGIES))}."
    )


@singledispatch
def said_of_quotas(rule: Any) -> Any:
    """Quotas in the words of ``select_from_shards``."""
    return rule


@said_of_quotas.register
def _(rule: Balanced) -> str:
    return BALANCED


@said_of_quotas.register
def _(rule: BalancedIfClasses) -> str:
    return BALANCED


@said_of_quotas.register
def _(rule: AtMost) -> Mapping[Any, int]:
    return rule.counts


@singledispatch
def space_of(kernel: Any, seed: int) -> tuple[FeatureMap | None, str]:
    """What rows are compared in for a kernel, and a sentence where it stands in for that."""
    return space_of(as_kernel(kernel), seed)


@space_of.register
def _(kernel: None, seed: int) -> tuple[FeatureMap | None, str]:
    return None, ""


@space_of.register
def _(kernel: FeatureMap, seed: int) -> tuple[FeatureMap | None, str]:
    return kernel, ""


@space_of.register
def _(kernel: nn.Module, seed: int) -> tuple[FeatureMap | None, str]:
    return Embedded(kernel), ""


#: Kernels that have random features of their own.
_RANDOM: dict[str, Callable[[int], FeatureMap]] = {
    "rbf": lambda seed: RandomFourier(seed=seed),
    "laplace": lambda seed: RandomFourier(kind="laplace", seed=seed),
    "ntk": lambda seed: RandomReLU(seed=seed),
    "nngp": lambda seed: RandomReLU(seed=seed),
}


@space_of.register
def _(kernel: str, seed: int) -> tuple[FeatureMap | None, str]:
    name = kernel.lower()
    if name not in KERNELS:
        raise unknown_name("kernel", kernel, KERNELS)
    if name == "auto":
        return None, ""
    if name not in _RANDOM:
        return space_of(as_kernel(name), seed)
    found = _RANDOM[name](seed)
    return found, _stands_in(f"{found.width} random features", f"kernel {name!r}")


@space_of.register
def _(kernel: Linear, seed: int) -> tuple[FeatureMap | None, str]:
    return Rows(), ""


@space_of.register
def _(kernel: RBF, seed: int) -> tuple[FeatureMap | None, str]:
    found = RandomFourier(gamma=kernel.gamma, seed=seed)
    return found, _stands_in(f"{found.width} random features", kernel.name)


@space_of.register
def _(kernel: Laplace, seed: int) -> tuple[FeatureMap | None, str]:
    found = RandomFourier(kind="laplace", gamma=kernel.gamma, seed=seed)
    return found, _stands_in(f"{found.width} random features", kernel.name)


@space_of.register
def _(kernel: Kernel, seed: int) -> tuple[FeatureMap | None, str]:
    found = Nystrom(kernel, seed=seed)
    return found, _stands_in(f"{found.landmarks} landmarks among the first rows", kernel.name)


def _stands_in(what: str, kernel: str) -> str:
    return f"{what} stand in for {kernel}: rows in parts are compared in features"


def opened(source: Any, y: Any = None, weight: Any = None, **opening: Any) -> ShardSource:
    """A source as :func:`bicore.select` is given one: labels of .npy files may be its second."""
    if y is not None:
        if opening.get("labels") is not None:
            raise InputError("y and labels are the same thing; give one of them.")
        opening["labels"] = y
    return open_shards(source, weight=weight, **opening)


def opened_outer(outer: Any, like: Mapping[str, Any]) -> ShardSource | None:
    """The set that is judged by: a source, a path read as the other is, or (x, y) or (x, y, weight)
    of arrays or paths."""
    if outer is None:
        return None
    if type(outer) is tuple:
        if len(outer) not in (2, 3):
            raise InputError(
                "outer is not a separate set; give a tuple (x, y) or (x, y, weight), a Dataset, or "
                "a source."
            )
        return opened(*outer)
    if type(outer) is str or hasattr(outer, "__fspath__"):
        columns = {name: like[name] for name in ("features", "target") if name in like}
        return open_shards(outer, **columns)
    return open_shards(outer)

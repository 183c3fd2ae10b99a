"""Strings to objects: what a person may write where the method wants a kernel, a loss, a rule …

Looked up once, when a selector is built; nothing behind it ever sees a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, TypeVar

from bicore.bilevel.aims import AIMS, Aims
from bicore.bilevel.greedy import AtMost, Balanced, QuotaRule
from bicore.bilevel.kernel_choice import AutomaticKernel
from bicore.bilevel.prepare import Prior
from bicore.bilevel.problem import Constant, Regulariser
from bicore.bilevel.regularisation import Automatic, RelativeToKernel
from bicore.bilevel.rules import RULES, Rule
from bicore.bilevel.solvers.weights import WeightMode
from bicore.bilevel.strategies import STRATEGIES, Strategy
from bicore.data import Task
from bicore.errors import InputError, as_option, unknown_name
from bicore.kernels.base import CallableKernel, Kernel, Precomputed
from bicore.kernels.classical import RBF, Exponential, Laplace, Linear, Polynomial
from bicore.kernels.tangent import cnn, fully_connected, pooled_cntk, resnet18
from bicore.losses import CrossEntropy, CustomLoss, Logistic, Loss, SquaredError
from bicore.picking import First, Relative, as_relative

T = TypeVar("T")

KERNELS: dict[str, Callable[[], Kernel]] = {
    "auto": AutomaticKernel,
    "ntk": fully_connected,
    "nngp": lambda: fully_connected(kind="nngp"),
    "cntk": cnn,
    "resnet18": resnet18,
    "pooled-cntk": pooled_cntk,
    "rbf": RBF,
    "laplace": Laplace,
    "exponential": Exponential,
    "linear": Linear,
    "polynomial": Polynomial,
    "precomputed": Precomputed,
}
LOSSES: dict[str, Callable[[], Loss]] = {
    "cross-entropy": CrossEntropy,
    "squared": SquaredError,
    "logistic": Logistic,
}
REGULARISERS: dict[str, Callable[[], Regulariser]] = {"auto": Automatic}
QUOTAS: dict[str, Callable[[], QuotaRule]] = {"balanced": Balanced}


def _resolved(
    argument: str,
    value: Any,
    kind: type[Any],
    names: Mapping[str, Callable[[], T]],
    wrap: Callable[[Any], T] | None = None,
    words: str | None = None,
) -> T:
    """The object itself, the one of its name, or what ``wrap`` makes of it."""
    if isinstance(value, kind):
        found: T = value
        return found
    if isinstance(value, str):
        if value.lower() not in names:
            raise unknown_name(argument, value, names)
        return names[value.lower()]()
    if wrap is not None:
        return wrap(value)
    raise InputError(words) if words else unknown_name(argument, value, names)


def as_kernel(kernel: Any) -> Kernel:
    """A kernel, its name, or any callable k(a, b)."""
    words = (
        f"kernel={kernel!r} is neither a kernel, a name nor a callable k(a, b); names: "
        f"{', '.join(KERNELS)}."
    )
    wrap = CallableKernel if callable(kernel) else None
    return _resolved("kernel", kernel, Kernel, KERNELS, wrap, words)


def as_loss(loss: Any, argument: str = "loss") -> Loss:
    """A loss, its name, or a function of one prediction and one target."""
    words = (
        f"{argument}={loss!r} is neither a loss, a name nor a function; names: {', '.join(LOSSES)}."
    )
    return _resolved(argument, loss, Loss, LOSSES, CustomLoss if callable(loss) else None, words)


def as_regulariser(value: Any) -> Regulariser:
    """Return the regulariser of a number ρ, Relative(share), PerPoint(λ), or "auto"."""
    words = f"inner_reg={value!r} is no number > 0, 'relative:SHARE', PerPoint(λ) or 'auto'."
    value = as_relative(value)
    if isinstance(value, Relative):
        return RelativeToKernel(value)
    number = isinstance(value, Real) and not isinstance(value, bool)
    wrap = (lambda given: Constant(float(given))) if number else None
    if isinstance(value, str) and value.lower() not in REGULARISERS:
        raise InputError(words)
    return _resolved("inner_reg", value, Regulariser, REGULARISERS, wrap, words)


def as_rule(value: Any) -> Rule:
    """A rule or its name."""
    return _resolved("rule", value, Rule, RULES)


def as_strategy(value: Any) -> Strategy:
    """A strategy, or the default one of a name."""
    return _resolved("strategy", value, Strategy, STRATEGIES)


def as_aims(value: Any) -> Aims:
    """What the outer objective compares with, or its name."""
    return _resolved("targets", value, Aims, AIMS)


def as_prior(value: Any) -> Prior:
    """How much the classes count, or its name."""
    return as_option("prior", value, Prior)


def as_intercept(value: Any) -> float | None:
    """A share of the mean of k(x, x), 0 for none; None stands for "auto"."""
    if value is None or value == "auto":
        return None
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 <= float(value) < float("inf"):
        raise InputError(f"intercept={value!r} must be a number >= 0 or 'auto'.")
    return float(value)


def as_quotas(value: Any) -> QuotaRule | None:
    """None, "balanced", or the most points of each class by its label."""
    if value is None:
        return None
    words = (
        f"quotas={value!r} is neither 'balanced' nor a mapping of labels to counts; for example "
        "{'spam': 20}."
    )
    if isinstance(value, str) and value.lower() not in QUOTAS:
        raise InputError(words)
    wrap = AtMost if isinstance(value, Mapping) else None
    return _resolved("quotas", value, QuotaRule, QUOTAS, wrap, words)


def as_weight_mode(value: Any) -> WeightMode:
    """How a coreset is weighted, or its name."""
    return as_option("weights", value, WeightMode)


def as_first(value: Any) -> First:
    """Who chooses the first point, or its name."""
    return as_option("first", value, First)


def as_task(value: Any) -> Task:
    """How labels are read, or its name."""
    return as_option("task", value, Task)

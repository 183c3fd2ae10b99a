"""Names of kernels, losses, regularisers and quotas, resolved when a selector is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, TypeVar

from bicore.arguments import Relative, as_relative
from bicore.bilevel.kernel_choice import AutomaticKernel
from bicore.bilevel.outer_targets import Given, OuterTargets, Smoothed, UnsetTargets
from bicore.bilevel.problem import Constant, Regulariser
from bicore.bilevel.regularisation import Automatic, LearnedFromData, RelativeToKernel
from bicore.errors import InputError, check_number, unknown_name
from bicore.kernels.base import CallableKernel, Kernel, Precomputed
from bicore.kernels.classical import RBF, Exponential, Laplace, Linear, Polynomial
from bicore.kernels.tangent import cnn, fully_connected, pooled_cntk, resnet18
from bicore.losses import CrossEntropy, CustomLoss, Logistic, Loss, SquaredError

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


def as_object(
    argument: str, value: Any, kind: type[Any], names: Mapping[str, Callable[[], T]]
) -> T:
    """Return an object of ``kind``, given itself or its name."""
    if isinstance(value, kind):
        found: T = value
        return found
    if not isinstance(value, str) or value.lower() not in names:
        raise unknown_name(argument, value, names)
    return names[value.lower()]()


def as_outer_targets(smooth_labels: Any) -> OuterTargets:
    """Return the targets of the outer objective: smoothed, as given, or chosen by the data."""
    if isinstance(smooth_labels, bool):
        return Smoothed() if smooth_labels else Given()
    if smooth_labels != "auto" and not isinstance(smooth_labels, OuterTargets):
        raise InputError(f"smooth_labels must be True, False or 'auto'; got {smooth_labels!r}.")
    return as_object("smooth_labels", smooth_labels, OuterTargets, {"auto": UnsetTargets})


def as_kernel(kernel: Any) -> Kernel:
    """Return a kernel, given itself, its name or a callable k(a, b)."""
    if callable(kernel) and not isinstance(kernel, Kernel):
        return CallableKernel(kernel)
    return as_object("kernel", kernel, Kernel, KERNELS)


def as_loss(loss: Any, argument: str = "loss") -> Loss:
    """Return a loss, given itself, its name or a function of one prediction and one target."""
    if callable(loss) and not isinstance(loss, Loss):
        return CustomLoss(loss)
    return as_object(argument, loss, Loss, LOSSES)


def as_regulariser(value: Any) -> Regulariser:
    """Return a regulariser, given a number ρ, Relative(share), PerPoint(λ), "auto" or "learned"."""
    value = as_relative(value)
    if isinstance(value, Relative):
        return RelativeToKernel(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return Constant(float(value))
    named = {"auto": Automatic, "learned": LearnedFromData}
    if not isinstance(value, Regulariser) and str(value).lower() not in named:
        raise InputError(
            "inner_reg must be a number > 0, 'relative:SHARE', PerPoint(λ), 'auto' or 'learned'; "
            f"got {value!r}."
        )
    return as_object("inner_reg", value, Regulariser, named)


def as_intercept(value: Any) -> float | None:
    """Return a share of the mean of k(x, x), 0 for none; None for "auto"."""
    if value is None or value == "auto":
        return None
    return check_number("intercept", value, least=0, fix="or 'auto'")

"""Strings to objects, for the doors only: kernels, losses and regularisers by name."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

from bicore.bilevel.problem import Constant, PerPoint, Regulariser
from bicore.errors import InputError, unknown_name
from bicore.kernels.base import CallableKernel, Kernel, Precomputed
from bicore.kernels.classical import RBF, Laplace, Linear, Polynomial
from bicore.kernels.presets import cnn, fully_connected, pooled_cntk, resnet18
from bicore.losses import CrossEntropy, CustomLoss, Logistic, Loss, SquaredError

KERNELS: dict[str, Callable[[], Kernel]] = {
    "ntk": fully_connected,
    "nngp": lambda: fully_connected(kind="nngp"),
    "cntk": cnn,
    "resnet18": resnet18,
    "pooled-cntk": pooled_cntk,
    "rbf": RBF,
    "laplace": Laplace,
    "linear": Linear,
    "polynomial": Polynomial,
    "precomputed": Precomputed,
}
LOSSES: dict[str, Callable[[], Loss]] = {
    "cross-entropy": CrossEntropy,
    "squared": SquaredError,
    "logistic": Logistic,
}


def as_kernel(kernel: Any) -> Kernel:
    """A kernel, its name, or any callable k(a, b)."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel.lower() not in KERNELS:
            raise unknown_name("kernel", kernel, KERNELS)
        return KERNELS[kernel.lower()]()
    if callable(kernel):
        return CallableKernel(kernel)
    raise InputError(
        f"kernel={kernel!r} is neither a kernel, a name nor a callable k(a, b); names: "
        f"{', '.join(KERNELS)}."
    )


def as_loss(loss: Any, argument: str = "loss") -> Loss:
    """A loss, its name, or a function of one prediction and one target."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        if loss.lower() not in LOSSES:
            raise unknown_name(argument, loss, LOSSES)
        return LOSSES[loss.lower()]()
    if callable(loss):
        return CustomLoss(loss)
    raise InputError(
        f"{argument}={loss!r} is neither a loss, a name nor a function; names: {', '.join(LOSSES)}."
    )


def as_regulariser(value: Any) -> Regulariser | None:
    """A constant ρ, PerPoint(λ), or None for "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    if isinstance(value, (Constant, PerPoint)):
        return value
    if isinstance(value, Real) and not isinstance(value, bool):
        return Constant(float(value))
    raise InputError(f"inner_reg={value!r} is neither a number > 0, PerPoint(λ) nor 'auto'.")

"""The paper's two equations and nothing else.

inner   α*(w) = argmin_α  Σ_{i∈S} w_i ℓ_i(h_i) + ρ tr(αᵀ K_SS α),     h = K[:, S] α
outer   G(w)  = Σ_j v_j ℓ_j(h_j)                                       (v: data weights, scaled to sum 1)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.errors import InputError, NumericalError
from bicore.kernels.operators import KernelOperator
from bicore.losses import Loss


@dataclass(frozen=True)
class Constant:
    """ρ is the same for every coreset size: the plain sum of the paper. Prefixes and rank-one
    updates need this form."""

    value: float

    def __post_init__(self) -> None:
        _check_regulariser(self.value)

    def rho(self, size: int) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True)
class PerPoint:
    """ρ = λ·|S|: the mean over the coreset plus λ‖h‖², as the authors' code has it. Published λ
    belong to this form."""

    value: float

    def __post_init__(self) -> None:
        _check_regulariser(self.value)

    def rho(self, size: int) -> float:
        return self.value * max(size, 1)

    def __str__(self) -> str:
        return f"PerPoint({self.value:g})"


Regulariser = Constant | PerPoint


def _check_regulariser(value: float) -> None:
    if not 0 < value < float("inf"):
        raise InputError(
            f"inner_reg={value} is not a positive number; the inner problem needs a regulariser > "
            "0."
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Data, losses and regulariser of one bilevel problem, as tensors."""

    train: KernelOperator
    cross: KernelOperator
    inner_loss: Loss
    outer_loss: Loss
    inner_targets: Tensor
    outer_targets: Tensor
    outer_weights: Tensor
    outputs: int
    regulariser: Regulariser

    @property
    def size(self) -> int:
        return self.train.shape[1]

    def outer_value(self, predictions: Tensor) -> float:
        """G at these predictions of the outer set."""
        losses = self.outer_loss.value(predictions, self.outer_targets)
        value = float(torch.dot(losses.double(), self.outer_weights.double()))
        if value != value or value in (float("inf"), float("-inf")):
            raise NumericalError(
                f"the outer objective became {value}; use float64, a larger inner_reg, or scale x."
            )
        return value

    def outer_gradient(self, predictions: Tensor) -> Tensor:
        """R: row j is v_j ∇ℓ_j(h_j)."""
        return (
            self.outer_loss.gradient(predictions, self.outer_targets) * self.outer_weights[:, None]
        )

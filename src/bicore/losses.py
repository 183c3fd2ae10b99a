"""Losses of a prediction: value, gradient and Hessian, for all rows at once.

A prediction h_i has one entry an output; the targets of row i are prepared once by
:meth:`Loss.prepare`. The Hessian of each row comes back as a :class:`Curvature`, which knows its
own structure.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from bicore.data import Targets
from bicore.errors import InputError, NumericalError

#: A Hessian may dip below zero by rounding; past this share of its largest entry it is refused.
CURVATURE_TOLERANCE = 1e-7


class CurvatureKind(Enum):
    """The structures that direct factors know how to use."""

    ISOTROPIC = "isotropic"
    SOFTMAX = "softmax"
    GENERAL = "general"


class Curvature(ABC):
    """Symmetric positive semi-definite C×C blocks A_i, one a row."""

    kind: ClassVar[CurvatureKind] = CurvatureKind.GENERAL

    @abstractmethod
    def separate(self) -> Tensor:
        """The part of each block that ties no two outputs together, (m, 1) or (m, C)."""

    def direct_limit(self, largest: int) -> float:
        """Up to how many rows a direct factor beats iterations, ``largest`` being where C + 1
        factors of size m do."""
        return largest

    @abstractmethod
    def scaled(self, weights: Tensor) -> Curvature:
        """The blocks w_i A_i."""

    @abstractmethod
    def apply(self, rows: Tensor) -> Tensor:
        """A_i times row i, for every i."""

    @abstractmethod
    def typical(self) -> Tensor:
        """The mean eigenvalue of each block on the space it acts on, for preconditioning."""

    @abstractmethod
    def blocks(self, outputs: int) -> Tensor:
        """The blocks written out, (m, C, C)."""


@dataclass(frozen=True, eq=False)
class Isotropic(Curvature):
    """A_i = a_i I."""

    scale: Tensor
    kind = CurvatureKind.ISOTROPIC

    def separate(self) -> Tensor:
        return self.scale[:, None]

    def direct_limit(self, largest: int) -> float:
        # One factor serves all outputs.
        return math.inf

    def scaled(self, weights: Tensor) -> Isotropic:
        return Isotropic(self.scale * weights)

    def apply(self, rows: Tensor) -> Tensor:
        return self.scale[:, None] * rows

    def typical(self) -> Tensor:
        return self.scale

    def blocks(self, outputs: int) -> Tensor:
        return self.scale[:, None, None] * torch.eye(
            outputs, dtype=self.scale.dtype, device=self.scale.device
        )


@dataclass(frozen=True, eq=False)
class Softmax(Curvature):
    """A_i = w_i (diag p_i − p_i p_iᵀ); ``weighted`` holds w_i p_i."""

    probabilities: Tensor
    weighted: Tensor
    kind = CurvatureKind.SOFTMAX

    def separate(self) -> Tensor:
        return self.weighted

    def scaled(self, weights: Tensor) -> Softmax:
        return Softmax(self.probabilities, self.weighted * weights[:, None])

    def apply(self, rows: Tensor) -> Tensor:
        inner = (self.probabilities * rows).sum(1, keepdim=True)
        return self.weighted * (rows - inner)

    def typical(self) -> Tensor:
        # A block sends the vector of ones to zero, so its trace is shared by C − 1 eigenvalues.
        trace = torch.addcmul(self.weighted, self.weighted, self.probabilities, value=-1).sum(1)
        return trace / max(self.weighted.shape[1] - 1, 1)

    def blocks(self, outputs: int) -> Tensor:
        outer = self.weighted[:, :, None] * self.probabilities[:, None, :]
        return torch.diag_embed(self.weighted) - outer


@dataclass(frozen=True, eq=False)
class Blocks(Curvature):
    """Any blocks, stored."""

    values: Tensor

    def separate(self) -> Tensor:
        return self.values.diagonal(dim1=1, dim2=2)

    def direct_limit(self, largest: int) -> float:
        # One factor of size m·C, which costs more than C + 1 of size m.
        return largest // 4

    def scaled(self, weights: Tensor) -> Blocks:
        return Blocks(self.values * weights[:, None, None])

    def apply(self, rows: Tensor) -> Tensor:
        return torch.einsum("mij,mj->mi", self.values, rows)

    def typical(self) -> Tensor:
        return self.values.diagonal(dim1=1, dim2=2).mean(1)

    def blocks(self, outputs: int) -> Tensor:
        return self.values


class Loss(ABC):
    """A loss ℓ(h, t) of a prediction h and a prepared target t, twice differentiable and convex in
    h."""

    name: str
    #: Squared error: closed forms hold.
    quadratic: ClassVar[bool] = False
    #: Cross-entropy over a softmax.
    softmax: ClassVar[bool] = False

    @abstractmethod
    def outputs(self, targets: Targets) -> int:
        """How many numbers a prediction has for these targets."""

    @abstractmethod
    def prepare(
        self, targets: Targets, reference: Targets, weights: Tensor, like: Tensor
    ) -> Tensor:
        """Targets as a tensor; ``reference`` and its ``weights`` are the training data (for
        centring)."""

    @abstractmethod
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        """ℓ_i(h_i), one number a row."""

    @abstractmethod
    def gradient(self, prediction: Tensor, target: Tensor) -> Tensor:
        """∇ℓ_i(h_i), (rows, C)."""

    @abstractmethod
    def curvature(self, prediction: Tensor, target: Tensor) -> Curvature:
        """∇²ℓ_i(h_i)."""

    def uncentred(self) -> Loss:
        """The same loss without centring, where it has any."""
        return self

    def undone(self, predictions: Tensor, targets: Targets, prepared: Tensor) -> Tensor:
        """Predictions with what :meth:`prepare` took off the targets put back."""
        return predictions


def _needs_classes(name: str, targets: Targets, exactly: int | None = None) -> int:
    if targets.classes is None:
        raise InputError(
            f"loss={name!r} needs class labels, and y holds targets; use loss='squared' or "
            "task='classification'."
        )
    count = len(targets.classes)
    if exactly is not None and count > exactly:
        raise InputError(
            f"loss={name!r} is for {exactly} classes and y holds {count}; use loss='cross-entropy'."
        )
    return count


def encoded(targets: Targets, like: Tensor) -> Tensor:
    """One-hot rows for labels, the numbers themselves for regression."""
    values = torch.from_numpy(targets.values)
    return (values if targets.classes is None else F.one_hot(values, len(targets.classes))).to(like)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Softmax cross-entropy, −log p_y with p = softmax(h): ∇ = p − e_y, ∇² = diag p − p pᵀ."""

    name = "cross-entropy"
    softmax = True

    def outputs(self, targets: Targets) -> int:
        return _needs_classes(self.name, targets)

    def prepare(
        self, targets: Targets, reference: Targets, weights: Tensor, like: Tensor
    ) -> Tensor:
        self.outputs(targets)
        return encoded(targets, like)

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return torch.logsumexp(prediction, 1) - (prediction * target).sum(1)

    def gradient(self, prediction: Tensor, target: Tensor) -> Tensor:
        return torch.softmax(prediction, 1).sub_(target)

    def curvature(self, prediction: Tensor, target: Tensor) -> Curvature:
        probabilities = torch.softmax(prediction, 1)
        return Softmax(probabilities, probabilities)


@dataclass(frozen=True)
class SquaredError(Loss):
    """‖h − t‖²: ∇ = 2(h − t), ∇² = 2I. Labels become one-hot rows; any number of regression
    targets.

    ``centre`` subtracts the (weighted) mean of the training targets first: a constant intercept
    that costs no point.
    """

    centre: bool = True
    name = "squared"
    quadratic = True

    def outputs(self, targets: Targets) -> int:
        return targets.outputs

    def prepare(
        self, targets: Targets, reference: Targets, weights: Tensor, like: Tensor
    ) -> Tensor:
        rows = encoded(targets, like)
        if not self.centre:
            return rows
        base = rows if targets is reference else encoded(reference, like)
        return rows - (weights / weights.sum()) @ base

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction - target).square().sum(1)

    def gradient(self, prediction: Tensor, target: Tensor) -> Tensor:
        return 2 * (prediction - target)

    def curvature(self, prediction: Tensor, target: Tensor) -> Curvature:
        return Isotropic(torch.full_like(prediction[:, 0], 2.0))

    def uncentred(self) -> Loss:
        return SquaredError(centre=False) if self.centre else self

    def undone(self, predictions: Tensor, targets: Targets, prepared: Tensor) -> Tensor:
        # Every row lost the same mean; the first one shows it.
        return predictions + (encoded(targets, prepared) - prepared)[:1]


@dataclass(frozen=True)
class Logistic(Loss):
    """Two classes, one output: log(1 + exp(−s h)), s = ±1 (the second class in sorted order is +1)."""

    name = "logistic"

    def outputs(self, targets: Targets) -> int:
        _needs_classes(self.name, targets, exactly=2)
        return 1

    def prepare(
        self, targets: Targets, reference: Targets, weights: Tensor, like: Tensor
    ) -> Tensor:
        self.outputs(targets)
        return (2 * torch.from_numpy(targets.values) - 1).to(like)[:, None]

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return F.softplus(-target * prediction)[:, 0]

    def gradient(self, prediction: Tensor, target: Tensor) -> Tensor:
        return -target * torch.sigmoid(-target * prediction)

    def curvature(self, prediction: Tensor, target: Tensor) -> Curvature:
        probability = torch.sigmoid(prediction[:, 0])
        return Isotropic(probability * (1 - probability))


@dataclass(frozen=True)
class CustomLoss(Loss):
    """A loss given as a function of one prediction (C,) and one target; derivatives by
    ``torch.func``.

    The target is a one-hot vector (classes,) for labels and a vector (targets,) for regression. The
    function must be written in torch operations that ``torch.func`` can transform, twice
    differentiable and convex in the prediction.

    Examples
    --------
    >>> huber = CustomLoss(lambda h, t: (torch.sqrt(1 + (h - t) ** 2) - 1).sum(), name="pseudo-huber")
    """

    function: Callable[[Tensor, Tensor], Tensor]
    name: str = "custom"
    output_count: int | None = None

    def outputs(self, targets: Targets) -> int:
        return self.output_count if self.output_count is not None else targets.outputs

    def prepare(
        self, targets: Targets, reference: Targets, weights: Tensor, like: Tensor
    ) -> Tensor:
        return encoded(targets, like)

    @cached_property
    def _derivatives(
        self,
    ) -> tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., Tensor]]:
        from torch.func import grad, hessian, vmap

        return vmap(self.function), vmap(grad(self.function)), vmap(hessian(self.function))

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        values = self._derivatives[0](prediction, target)
        if values.dim() != 1:
            raise InputError(
                f"loss={self.name!r} returned shape {tuple(values.shape[1:])} for one point; it "
                "must return a single number."
            )
        return values

    def gradient(self, prediction: Tensor, target: Tensor) -> Tensor:
        return self._derivatives[1](prediction, target)

    def curvature(self, prediction: Tensor, target: Tensor) -> Curvature:
        blocks = self._derivatives[2](prediction, target)
        smallest = torch.linalg.eigvalsh(blocks).min() if blocks.numel() else blocks.new_zeros(())
        if not smallest >= -CURVATURE_TOLERANCE * blocks.abs().max().clamp_min(1):
            raise NumericalError(
                f"loss={self.name!r} has a Hessian that is not positive semi-definite (smallest "
                f"eigenvalue {smallest:.3g}); "
                "the inner problem needs a loss that is convex in the prediction."
            )
        return Blocks(blocks)

"""The inner and the outer objective of the paper.

inner   α*(w) = argmin_α  Σ_{i∈S} w_i ℓ_i(h_i) + ρ tr(αᵀ K_SS α),     h = K[:, S] α
outer   G(w)  = Σ_j v_j ℓ_j(h_j)                                       (v: data weights, sum 1)

The targets of the squared error are centred: ℓ_i(h) = ‖h − (y_i − ȳ)‖² with ȳ the weighted mean of
the training targets, in both objectives. ``SquaredError(centre=False)`` takes them as given, which
changes picks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from bicore.bilevel.solvers.inner import Solvers
from bicore.data import Array
from bicore.errors import NumericalError, check_number
from bicore.kernels.operators import BLOCK_BYTES, Features, KernelOperator, slices
from bicore.losses import Loss
from bicore.runtime.threads import all_threads


class Regulariser(ABC):
    """A form of ρ, given or chosen from the data."""

    #: Whether ρ is the same for every size, as prefixes and rank-one updates require.
    constant: ClassVar[bool] = True
    #: Whether it is chosen from the data before the first point.
    automatic: ClassVar[bool] = False
    #: Whether it is optimised with the weights, by ∂G/∂ρ.
    learned: ClassVar[bool] = False

    @abstractmethod
    def resolve(self, problem: Problem, eligible: Array, solvers: Solvers, seed: int) -> Known:
        """Return the regulariser to work with, once the problem is known.

        Parameters
        ----------
        problem : Problem
            The training data.
        eligible : array of int
            The points that may be drawn, in the order of their ids.
        solvers : Solvers
            To fit them with.
        seed : int
            Seed of the draw.

        Returns
        -------
        Known
            This regulariser, or the one chosen from the data.
        """


@dataclass(frozen=True)
class Known(Regulariser):
    """A regulariser whose number is known."""

    value: float

    def __post_init__(self) -> None:
        check_number("inner_reg", self.value, above=0)

    @abstractmethod
    def rho(self, size: int) -> float:
        """Return the ρ of a coreset.

        Parameters
        ----------
        size : int
            Number of its points.

        Returns
        -------
        float
            The factor of ‖h‖².
        """

    def resolve(self, problem: Problem, eligible: Array, solvers: Solvers, seed: int) -> Known:
        return self


@dataclass(frozen=True)
class Constant(Known):
    """The same ρ for every coreset size, as in the paper's sum."""

    def rho(self, size: int) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True)
class Learned(Constant):
    """A ρ that is optimised with the weights by ∂G/∂ρ; points are chosen with its current value.

    Multiplying the weights and ρ by one factor gives the same model, so the bounds on the weights
    decide how a change of scale is divided between the weights and ρ.

    Parameters
    ----------
    value : float
        Start value of ρ, above 0.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> BilevelSelector(inner_reg=Learned(0.1), weighting="final").inner_reg.value
    0.1
    """

    learned = True


@dataclass(frozen=True)
class PerPoint(Known):
    """A ρ = λ·|S| that grows with the coreset, as in the authors' code.

    Published λ belong to this form.

    Parameters
    ----------
    value : float
        The number λ, above 0.

    Examples
    --------
    >>> PerPoint(0.01).rho(50)
    0.5
    """

    constant = False

    def rho(self, size: int) -> float:
        return self.value * max(size, 1)

    def __str__(self) -> str:
        return f"PerPoint({self.value:g})"


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
    regulariser: Known

    @property
    def size(self) -> int:
        """The number of points to choose from."""
        return self.train.shape[1]

    @property
    def same(self) -> bool:
        """Whether the outer set is the training set."""
        return self.cross is self.train

    @property
    def same_targets(self) -> bool:
        """Whether the outer set is the training set with identical targets."""
        return self.same and self.inner_targets is self.outer_targets

    def with_few_outer_rows(self) -> Problem:
        """Return an equivalent problem with at most as many outer rows as features and targets.

        For the squared error, the rows of a triangular factor can replace the outer rows: that of
        the QR decomposition of their features and targets, each row times the root of its weight.
        QR is more precise than a Gram matrix. A problem without features, or with fewer outer rows,
        is returned unchanged.
        """
        features = self.cross.feature_rows
        if features is None or len(features[0]) <= features[0].shape[1] + self.outputs:
            return self
        return self._few_outer_rows

    @cached_property
    def _few_outer_rows(self) -> Problem:
        features = self.cross.feature_rows
        assert features is not None
        (rows, cols), width = features, features[0].shape[1]
        factor = rows.new_empty(0, width + self.outputs, dtype=torch.float64)
        for part in slices(len(rows), max(len(factor.T), BLOCK_BYTES // (8 * len(factor.T)))):
            block = torch.cat([rows[part].double(), self.outer_targets[part].double()], 1)
            block *= self.outer_weights[part, None].double().sqrt()
            with all_threads(block.numel() * width):
                factor = torch.linalg.qr(torch.cat([factor, block]), mode="r").R
        return replace(
            self,
            cross=Features(factor[:, :width].contiguous(), cols),
            outer_targets=factor[:, width:].contiguous(),
            outer_weights=factor.new_ones(len(factor)),
        )

    def outer_value(self, predictions: Tensor) -> float:
        """Return G at these predictions of the outer set."""
        losses = self.outer_loss.value(predictions, self.outer_targets)
        return finite_objective(float(torch.dot(losses.double(), self.outer_weights.double())))

    def outer_gradient(self, predictions: Tensor) -> Tensor:
        """Return R at these predictions: row j is v_j ∇ℓ_j(h_j)."""
        slopes = self.outer_loss.gradient(predictions, self.outer_targets)
        return slopes * self.outer_weights[:, None]


def finite_objective(value: float) -> float:
    """Return the objective, or raise an error if it is not finite."""
    if not math.isfinite(value):
        raise NumericalError(
            f"the outer objective became {value}; use float64, a larger inner_reg, or scale x."
        )
    return value

"""Losses of predictions: value, gradient and Hessian, for all rows at once.

A prediction h_i has one entry an output; the targets of row i are prepared once by
:meth:`Loss.prepare`. The Hessian of each row comes back as a :class:`Curvature`, which knows its
own structure.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from bicore._deprecated import renamed_fields, renamed_methods
from bicore.data import Targets
from bicore.errors import InputError, NumericalError

__all__ = ["CrossEntropy", "CustomLoss", "Logistic", "Loss", "SquaredError"]

#: A Hessian may be slightly negative by rounding; beyond this share of its largest entry it is
#: refused.
CURVATURE_TOLERANCE = 1e-7


class Curvature(ABC):
    """Symmetric positive semi-definite C×C blocks A_i, one per row."""

    #: Number of rows up to which direct factors are faster than iterations, relative to C + 1
    #: factors of that size.
    direct_share: ClassVar[float] = 1.0

    @abstractmethod
    def scale_by(self, weights: Tensor) -> Curvature:
        """Return the blocks w_i A_i."""

    @abstractmethod
    def apply(self, rows: Tensor) -> Tensor:
        """Return A_i times row i, for every i."""

    @abstractmethod
    def typical(self) -> Tensor:
        """Return the mean eigenvalue of each block on its range, for preconditioning."""


@dataclass(frozen=True, eq=False)
class Isotropic(Curvature):
    """A_i = a_i I."""

    scale: Tensor
    direct_share = math.inf  # one factor for all outputs

    def scale_by(self, weights: Tensor) -> Isotropic:
        return Isotropic(self.scale * weights)

    def apply(self, rows: Tensor) -> Tensor:
        return self.scale[:, None] * rows

    def typical(self) -> Tensor:
        return self.scale


@dataclass(frozen=True, eq=False)
class Softmax(Curvature):
    """A_i = w_i (diag p_i − p_i p_iᵀ)."""

    probabilities: Tensor
    weighted: Tensor

    def scale_by(self, weights: Tensor) -> Softmax:
        return Softmax(self.probabilities, self.weighted * weights[:, None])

    def apply(self, rows: Tensor) -> Tensor:
        inner = (self.probabilities * rows).sum(1, keepdim=True)
        return self.weighted * (rows - inner)

    def typical(self) -> Tensor:
        # A block maps the vector of ones to zero, so its trace is shared by C − 1 eigenvalues.
        trace = torch.addcmul(self.weighted, self.weighted, self.probabilities, value=-1).sum(1)
        return trace / max(self.weighted.shape[1] - 1, 1)


@dataclass(frozen=True, eq=False)
class Blocks(Curvature):
    """Arbitrary blocks, stored."""

    values: Tensor
    direct_share = 0.25  # one factor of size m·C costs more than C + 1 of size m

    def scale_by(self, weights: Tensor) -> Blocks:
        return Blocks(self.values * weights[:, None, None])

    def apply(self, rows: Tensor) -> Tensor:
        return torch.einsum("mij,mj->mi", self.values, rows)

    def typical(self) -> Tensor:
        return self.values.diagonal(dim1=1, dim2=2).mean(1)


@renamed_methods(uncentred="without_centring", undone="restore")
class Loss(ABC):
    """A loss ℓ(h, t) of a prediction h and a prepared target t.

    It must be twice differentiable and convex in h.

    Examples
    --------
    >>> from bicore.losses import SquaredError
    >>> prediction = torch.tensor([[1.0], [2.0]])
    >>> SquaredError().value(prediction, torch.zeros(2, 1)).tolist()
    [1.0, 4.0]
    >>> SquaredError().gradient(prediction, torch.zeros(2, 1)).tolist()
    [[2.0], [4.0]]
    """

    name: str
    #: Whether it is the squared error, which has closed forms.
    quadratic: ClassVar[bool] = False
    #: Whether it is the cross-entropy over a softmax.
    softmax: ClassVar[bool] = False

    def outputs(self, targets: Targets) -> int:
        """Return the number of outputs of a prediction: one per class or target by default.

        Parameters
        ----------
        targets : Targets
            Labels or targets of the data.

        Returns
        -------
        int
            C.

        Raises
        ------
        InputError
            If the loss does not fit such targets.
        """
        return targets.outputs

    def prepare(
        self, targets: Targets, reference: Targets, weights: Tensor, like: Tensor
    ) -> Tensor:
        """Return targets as the other methods read them: one-hot rows and numbers by default.

        Parameters
        ----------
        targets : Targets
            The targets to prepare.
        reference : Targets
            The targets of the training data, for centring.
        weights : Tensor
            Weights of the training data.
        like : Tensor
            A tensor with the dtype and the device to use.

        Returns
        -------
        Tensor
            One row for each point.
        """
        self.outputs(targets)  # refuses targets that do not fit
        return encode_targets(targets, like)

    @abstractmethod
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the losses ℓ_i(h_i).

        Parameters
        ----------
        prediction : Tensor
            Of shape (rows, C).
        target : Tensor
            Prepared.

        Returns
        -------
        Tensor
            One number a row.
        """

    @abstractmethod
    def gradient(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the gradients ∇ℓ_i(h_i).

        Parameters
        ----------
        prediction : Tensor
            Of shape (rows, C).
        target : Tensor
            Prepared.

        Returns
        -------
        Tensor
            Of shape (rows, C).
        """

    @abstractmethod
    def curvature(self, prediction: Tensor, target: Tensor) -> Curvature:
        """Return the Hessians ∇²ℓ_i(h_i).

        Parameters
        ----------
        prediction : Tensor
            Of shape (rows, C).
        target : Tensor
            Prepared.

        Returns
        -------
        Curvature
            One block a row.
        """

    def without_centring(self) -> Loss:
        """Return the same loss without centring of targets.

        Returns
        -------
        Loss
            The loss itself if it does not centre.
        """
        return self

    def restore(self, predictions: Tensor, targets: Targets, prepared: Tensor) -> Tensor:
        """Add what :meth:`prepare` subtracted from the targets to predictions.

        Parameters
        ----------
        predictions : Tensor
            Predictions of a model fitted to prepared targets.
        targets : Targets
            The targets before :meth:`prepare`.
        prepared : Tensor
            The prepared targets.

        Returns
        -------
        Tensor
            The shape of the predictions is kept.
        """
        return predictions


def _count_classes(name: str, targets: Targets) -> int:
    if targets.classes is None:
        values = targets.values
        whole = values.shape[1] == 1 and (values == values.round()).all()
        fix = "use loss='squared'" + " or task='classification'" * bool(whole)
        raise InputError(f"loss={name!r} needs class labels, and y holds numeric targets; {fix}.")
    return len(targets.classes)


def encode_targets(targets: Targets, like: Tensor) -> Tensor:
    """Return one-hot rows for labels, the numbers themselves for regression."""
    values = torch.from_numpy(targets.values)
    if targets.classes is not None:
        values = F.one_hot(values, len(targets.classes))
    return values.to(like)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Softmax cross-entropy, −log p_y with p = softmax(h): ∇ = p − e_y, ∇² = diag p − p pᵀ.

    Examples
    --------
    >>> from bicore.losses import CrossEntropy
    >>> CrossEntropy().gradient(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])).tolist()
    [[-0.5, 0.5]]
    """

    name = "cross-entropy"
    softmax = True

    def outputs(self, targets: Targets) -> int:
        return _count_classes(self.name, targets)

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return -(torch.log_softmax(prediction, 1) * target).sum(1)

    def gradient(self, prediction: Tensor, target: Tensor) -> Tensor:
        return torch.softmax(prediction, 1).sub_(target)

    def curvature(self, prediction: Tensor, target: Tensor) -> Curvature:
        probabilities = torch.softmax(prediction, 1)
        return Softmax(probabilities, probabilities)


@renamed_fields()
@dataclass(frozen=True)
class SquaredError(Loss):
    """Squared error, ‖h − t‖²: ∇ = 2(h − t), ∇² = 2I.

    Labels become one-hot rows; there may be any number of regression targets.

    Parameters
    ----------
    centre : bool
        Subtract the (weighted) mean of the training targets first: a constant intercept that costs
        no point.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.losses import SquaredError
    >>> from bicore.data import read_targets
    >>> y = read_targets(np.array([1.0, 3.0]))
    >>> SquaredError().prepare(y, y, torch.ones(2), torch.empty(0)).tolist()
    [[-1.0], [1.0]]
    """

    centre: bool = True
    name = "squared"
    quadratic = True

    def prepare(
        self, targets: Targets, reference: Targets, weights: Tensor, like: Tensor
    ) -> Tensor:
        rows = encode_targets(targets, like)
        if not self.centre:
            return rows
        base = rows if targets is reference else encode_targets(reference, like)
        return rows - (weights / weights.sum()) @ base

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction - target).square().sum(1)

    def gradient(self, prediction: Tensor, target: Tensor) -> Tensor:
        return 2 * (prediction - target)

    def curvature(self, prediction: Tensor, target: Tensor) -> Curvature:
        return Isotropic(torch.full_like(prediction[:, 0], 2.0))

    def without_centring(self) -> Loss:
        return SquaredError(centre=False) if self.centre else self

    def restore(self, predictions: Tensor, targets: Targets, prepared: Tensor) -> Tensor:
        # The same mean was subtracted from every row.
        return predictions + (encode_targets(targets, prepared) - prepared)[:1]


@dataclass(frozen=True)
class Logistic(Loss):
    """Two classes, one output: log(1 + exp(−s h)), s = ±1.

    The second class in sorted order is +1.

    Examples
    --------
    >>> from bicore.losses import Logistic
    >>> Logistic().gradient(torch.zeros(1, 1), torch.ones(1, 1)).tolist()
    [[-0.5]]
    """

    name = "logistic"

    def outputs(self, targets: Targets) -> int:
        if _count_classes(self.name, targets) > 2:
            wrong = f"loss={self.name!r} is for 2 classes and y has {targets.outputs}"
            raise InputError(f"{wrong}; use loss='cross-entropy'.")
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


@renamed_fields()
@dataclass(frozen=True)
class CustomLoss(Loss):
    """A loss given as a function of one prediction and one target; derivatives by ``torch.func``.

    Parameters
    ----------
    function : callable
        Function of a prediction (C,) and a target, a one-hot vector (classes,) for labels and a
        vector (targets,) for regression, and returns a number. It must be written in torch
        operations that ``torch.func`` can transform, twice differentiable and convex in the
        prediction.
    name : str
        Name in errors and reports.
    output_count : int, optional
        Number of outputs C (default: the number of classes, or of targets).

    Raises
    ------
    InputError
        If the function returns more than one number.
    NumericalError
        If its Hessian is not positive semi-definite.

    Examples
    --------
    >>> from bicore.losses import CustomLoss
    >>> def pseudo_huber(h, t):
    ...     return (torch.sqrt(1 + (h - t) ** 2) - 1).sum()
    >>> huber = CustomLoss(pseudo_huber, name="pseudo-huber")
    >>> huber.gradient(torch.tensor([[0.0], [9.0]]), torch.zeros(2, 1)).round(decimals=2).tolist()
    [[0.0], [0.9900000095367432]]
    """

    function: Callable[[Tensor, Tensor], Tensor]
    name: str = "custom"
    output_count: int | None = None

    def outputs(self, targets: Targets) -> int:
        return self.output_count if self.output_count is not None else targets.outputs

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        values = torch.func.vmap(self.function)(prediction, target)
        if values.dim() != 1:
            wrong = f"loss={self.name!r} returned shape {tuple(values.shape[1:])} for one row"
            raise InputError(f"{wrong}; it must return a single number.")
        return values

    def gradient(self, prediction: Tensor, target: Tensor) -> Tensor:
        gradients: Tensor = torch.func.vmap(torch.func.grad(self.function))(prediction, target)
        return gradients

    def curvature(self, prediction: Tensor, target: Tensor) -> Curvature:
        blocks = torch.func.vmap(torch.func.hessian(self.function))(prediction, target)
        smallest = torch.linalg.eigvalsh(blocks).min() if blocks.numel() else blocks.new_zeros(())
        if not smallest >= -CURVATURE_TOLERANCE * blocks.abs().max().clamp_min(1):
            raise NumericalError(
                f"loss={self.name!r} has a Hessian that is not positive semi-definite (smallest "
                f"eigenvalue {smallest:.3g}); the inner problem needs a loss that is convex in the "
                "prediction."
            )
        return Blocks(blocks)

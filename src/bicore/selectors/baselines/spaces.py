"""The space in which points are near or far: one axis of the cover and matching rules.

A space is raw features, a module's embedding, its last-layer gradients, its predictions, or any
kernel; each becomes an operator that gives inner products, and a rule needs nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bicore.data import as_tensor
from bicore.errors import NumericalError, unknown_name
from bicore.kernels.base import Kernel, Normalised
from bicore.kernels.operators import (
    Features,
    KernelOperator,
    OuterProducts,
    Reserve,
    build_operators,
)
from bicore.selectors.baselines.base import Job, several_outputs


class Space(ABC):
    """Inner products between points."""

    name: str
    needs_labels: bool = False
    needs_model: bool = False

    @abstractmethod
    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        """The inner products of the job's rows; ``normalise`` scales every point to length 1 first.
        ``centre`` may subtract the mean of all points: for rules that see distances only, which
        then lose nothing to rounding far from the origin.
        """


@dataclass(frozen=True)
class RawFeatures(Space):
    """x itself, flattened."""

    name = "features"

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        return _features(as_tensor(job.data.x).flatten(1).to(job.like), normalise, centre)


@dataclass(frozen=True)
class Embedding(Space):
    """The input of the module's last Linear layer, or the output of the layer named."""

    layer: str | None = None

    name = "embedding"
    needs_model = True

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        return _features(job.observed(self.layer).embedding.to(job.like), normalise, centre)


@dataclass(frozen=True)
class Predictions(Space):
    """The class probabilities the module predicts."""

    name = "predictions"
    needs_model = True

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        predictions = several_outputs(job, job.observed().log_probabilities().exp())
        return _features(predictions.to(job.like), normalise, centre)


@dataclass(frozen=True)
class LastLayerGradients(Space):
    """The gradient of each point's loss in the last layer: the outer product of the residual p −
    e_y and the layer's input."""

    name = "gradients"
    needs_labels = True
    needs_model = True

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        assert job.data.y is not None
        left, right = (
            factor.to(job.like) for factor in job.observed().gradient_factors(job.data.y)
        )
        return OuterProducts(_unit(left), _unit(right)) if normalise else OuterProducts(left, right)


@dataclass(frozen=True)
class KernelSpace(Space):
    """The feature space of any kernel."""

    kernel: Kernel

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.kernel.name

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        kernel = Normalised(self.kernel) if normalise else self.kernel
        beside = 8 * len(job.data) * (job.size + 8)
        return build_operators(
            kernel.fitted(job.data.x),
            job.data.x,
            None,
            Reserve(beside, beside),
            job.context.runtime,
        )[0]


SPACES: dict[str, Space] = {
    "features": RawFeatures(),
    "embedding": Embedding(),
    "gradients": LastLayerGradients(),
    "predictions": Predictions(),
}


def as_space(over: Any) -> Space:
    """A space, its name, or a kernel."""
    if isinstance(over, Space):
        return over
    if isinstance(over, Kernel):
        return KernelSpace(over)
    if isinstance(over, str) and over in SPACES:
        return SPACES[over]
    raise unknown_name("over", over, SPACES)


def squared_distances(operator: KernelOperator, norms: Tensor, index: Tensor) -> Tensor:
    """‖x_i − x_k‖² for all i and the k of ``index``, a column each; exactly zero at k itself."""
    if not torch.isfinite(norms).all():
        raise NumericalError("squared lengths of points are not finite; scale the features.")
    result = (norms[:, None] + norms[index] - 2 * operator.columns(index)).clamp_min_(0)
    result[index, torch.arange(len(index), device=index.device)] = 0
    return result


def _features(rows: Tensor, normalise: bool, centre: bool) -> Features:
    rows = _unit(rows) if normalise else rows - rows.mean(0) if centre else rows
    return Features(rows, rows)


def _unit(rows: Tensor) -> Tensor:
    """Rows of length 1; a row of zeros stays."""
    length = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(length > 0, length, torch.ones_like(length))

"""Spaces that define the similarity of points, and the base of baselines that work in any space.

A space is raw features, their directions, a module's embedding, its last-layer gradients, its
predictions, or any kernel. Each becomes an operator of inner products, and a rule needs nothing
else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bicore.data import as_tensor, read_targets
from bicore.errors import InputError, NumericalError, check_integer, check_name
from bicore.kernels.base import Kernel, squared_lengths
from bicore.kernels.building import Reserve, build_operators
from bicore.kernels.classical import correct_distances
from bicore.kernels.operators import Features, KernelOperator, OuterProducts
from bicore.kernels.scaling import SINGLE_RANGE, Normalised, check_scale
from bicore.methods.baselines.base import BaselineSelector, Job, PartialSelection, check_outputs
from bicore.methods.sampling import QUANTILES, allocate_points, strata_of
from bicore.runtime.clock import ProgressLine

#: Vectors of n float64 that a rule keeps in addition to one per selected point.
EXTRA_VECTORS = 8
#: Maximum number of rows, evenly spaced, from which leading directions are computed.
AXES_ROWS = 2000
#: Largest relative error of a distance in float64 and in float32.
DISTANCE_SHARE = {torch.float64: 1e-8, torch.float32: 1e-3}


class Space(ABC):
    """Inner products between points, for the argument ``over`` of a rule."""

    #: Whether inner products need labels, or the current model.
    needs_labels: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the space, for the name of a selector."""

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        """Return the inner products of a job's rows, of unit length or centred if requested.

        Only spaces with vectors can be centred; in the others ``centre`` has no effect.
        """
        vectors = self._vectors(job)
        rows = vectors.to(job.like)
        if rows.dtype != torch.float64:
            check_scale(float(squared_lengths(rows).double().mean()), vectors, SINGLE_RANGE)
        if normalise:
            rows = _unit(rows)
        elif centre:
            rows = rows - rows.mean(0)
        return Features(rows, rows)

    def _vectors(self, job: Job) -> Tensor:
        """Return a job's rows in this space, if it has vectors."""
        raise NotImplementedError


@dataclass(frozen=True)
class RawFeatures(Space):
    """The rows of x themselves, flattened; ``over="features"`` is this space."""

    name = "features"

    def _vectors(self, job: Job) -> Tensor:
        return as_tensor(job.data.x).flatten(1)


@dataclass(frozen=True)
class Directions(Space):
    """Directions of rows, for embeddings; ``over="directions"`` is this space.

    Rows are scaled to length 1, projected on the first ``components`` right singular vectors, and
    scaled to length 1 again.
    """

    components: int = 64

    name = "directions"

    def __post_init__(self) -> None:
        check_integer("components", self.components)

    def _vectors(self, job: Job) -> Tensor:
        rows = _unit(as_tensor(job.data.x).flatten(1).to(job.like.device, torch.float64))
        some = slice(None, None, math.ceil(len(rows) / AXES_ROWS))
        weighted = job.weights[some].sqrt()[:, None] * rows[some]
        axes = torch.linalg.svd(weighted, full_matrices=False).Vh[: self.components]
        return _unit(rows @ axes.T)


@dataclass(frozen=True)
class Embedding(Space):
    """The input of the module's last Linear layer, or the output of ``layer``.

    ``over="embedding"`` is this space without ``layer``. Use it if distances between rows of x
    say little about similarity, as for images.
    """

    layer: str | None = None

    name = "embedding"
    needs_model = True

    def _vectors(self, job: Job) -> Tensor:
        return job.observe(self.layer).embedding


@dataclass(frozen=True)
class Predictions(Space):
    """The class probabilities the module predicts; ``over="predictions"`` is this space."""

    name = "predictions"
    needs_model = True

    def _vectors(self, job: Job) -> Tensor:
        return check_outputs(job, job.observe().log_probabilities().exp())


@dataclass(frozen=True)
class LastLayerGradients(Space):
    """The gradient of each point's loss in the last layer; ``over="gradients"`` is this space.

    It is the outer product of the residual p − e_y and the layer's input, and is never formed.
    """

    name = "gradients"
    needs_labels = True
    needs_model = True

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        factors = [one.to(job.like) for one in job.observe().gradient_factors(job.labels)]
        return OuterProducts(*(map(_unit, factors) if normalise else factors))


@dataclass(frozen=True)
class KernelSpace(Space):
    """The feature space of any kernel; ``over=kernel`` is this space."""

    kernel: Kernel

    @property
    def name(self) -> str:
        return self.kernel.name

    def operator(self, job: Job, normalise: bool = False, centre: bool = False) -> KernelOperator:
        kernel = Normalised(self.kernel) if normalise else self.kernel
        extra = 8 * len(job.data) * (job.size + EXTRA_VECTORS)
        fitted, reserve = kernel.fit(job.data.x), Reserve(extra, extra)
        return build_operators(fitted, job.data.x, None, reserve, job.context.runtime)[0]


SPACES: dict[str, Space] = {
    "features": RawFeatures(),
    "directions": Directions(),
    "embedding": Embedding(),
    "gradients": LastLayerGradients(),
    "predictions": Predictions(),
}


def as_space(over: object) -> Space:
    """Return a space, given itself, its name or a kernel."""
    if isinstance(over, Kernel):
        return KernelSpace(over)
    if isinstance(over, Space):
        return over
    return SPACES[check_name("over", over, SPACES)]


@dataclass(frozen=True)
class OverSpace(BaselineSelector):
    """A rule over a space.

    ``over`` is a name in ``SPACES``, a Space or a Kernel.
    """

    over: str | Kernel | Space = "features"
    #: The rule in words, for the name of the selector.
    rule: ClassVar[str]
    #: Whether it needs the inner products of all pairs of rows, not only some columns of them.
    all_pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        as_space(self.over)

    @property
    def space(self) -> Space:
        """The space that ``over`` names."""
        return as_space(self.over)

    @property
    def name(self) -> str:
        return f"{self.rule} over {self.space.name}"

    @property
    def needs_labels(self) -> bool:
        return self.space.needs_labels

    @property
    def needs_model(self) -> bool:
        return self.space.needs_model


#: How points are shared between classes: by the number of rows, or equally.
SHARES = ("proportional", "balanced")


@dataclass(frozen=True)
class PerClassRule(OverSpace):
    """A rule over a space that can also run within each class.

    With ``per_class="proportional"`` each class gets points in proportion to its rows, with
    "balanced" all classes get the same number. If there are enough points, every class gets at
    least one. Numeric targets are divided into quantiles.
    """

    per_class: bool | str = field(default=False, kw_only=True, metadata={"added": True})
    #: Whether the rule has a variant of its own for classes, ``per_class=True``.
    knows_classes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (False, True, *SHARES) if self.knows_classes else (False, *SHARES)
        if self.per_class not in known:
            words = ", ".join(map(repr, known))
            raise InputError(f"per_class must be one of {words}; got {self.per_class!r}.")

    @property
    def name(self) -> str:
        within = f" ({self.per_class})" if self.per_class in SHARES else ""
        return super().name + (f" per class{within}" if self.per_class else "")

    @property
    def needs_labels(self) -> bool:
        return bool(self.per_class) or super().needs_labels

    @property
    def ordered(self) -> bool:
        return self.per_class not in SHARES

    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        if self.per_class in SHARES:
            self._apply_within_classes(job, selection)
        else:
            self._apply(job, selection)

    def _apply_within_classes(self, job: Job, selection: PartialSelection) -> None:
        strata = strata_of(read_targets(job.labels), min(QUANTILES, job.size))
        given = np.bincount(strata[job.given], minlength=strata.max() + 1)
        counts = np.bincount(strata[selection.open], minlength=len(given)) + given
        wanted = allocate_points(counts, job.size, self.per_class == "balanced", given)
        quiet = ProgressLine(False, selection.clock, job.size, "selecting")
        for stratum in np.flatnonzero(wanted > given):
            if not selection.needs_more():
                break
            places = np.flatnonzero(strata == stratum)
            own = np.flatnonzero(np.isin(places, job.given)).tolist()
            part = job.restrict(places, int(wanted[stratum]), own)
            inside = PartialSelection(part, quiet)
            try:
                self._apply(part, inside)
            finally:
                selection.take_all(places[inside.order])
        selection.needs_more()  # records a time limit that ended the last class

    @abstractmethod
    def _apply(self, job: Job, selection: PartialSelection) -> None:
        """Apply the rule to all rows of the job."""


def squared_distances_to(operator: KernelOperator, norms: Tensor, index: Tensor) -> Tensor:
    """Return ‖x_i − x_k‖² for all i, with a column for each k in ``index``; exactly 0 at i = k."""
    if not torch.isfinite(norms).all():
        raise NumericalError("squared lengths of rows are not finite; scale the features.")
    result = (norms[:, None] + norms[index] - 2 * operator.columns(index)).clamp_min_(0)
    own = index, torch.arange(len(index), device=index.device)
    if operator.feature_rows is not None:
        result[own] = torch.inf  # so that it is not computed twice
        rows, columns = operator.feature_rows
        share = DISTANCE_SHARE[norms.dtype]
        correct_distances(result, norms, norms[index], rows, columns[index], share)
    result[own] = 0
    return result


def _unit(rows: Tensor) -> Tensor:
    """Scale rows to length 1; rows of zeros are unchanged."""
    return F.normalize(rows, dim=1, eps=torch.finfo(rows.dtype).tiny)

"""Baselines: selectors with one rule and without an inner problem.

A rule sees a :class:`Job`, whose rows have positive weight (or were given) and are sorted by id, so
that neither the order of rows nor rows of weight zero change its answer. It passes its picks one by
one to a :class:`PartialSelection`, which is a valid selection at every moment.

A space defines the similarity of points: raw features, their directions, a module's embedding, its
last-layer gradients, its predictions, or any kernel. Each becomes an operator of inner products,
and a rule in any space needs nothing else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bicore.arguments import argmin_by_id, in_id_order
from bicore.bilevel.greedy import Outcome, unrefined_outcome
from bicore.coreset import Coreset, Provenance, Status, describe_early_end, mark_unverified
from bicore.data import Array, Targets, as_tensor, read_targets, scale_to_mean_one
from bicore.errors import InputError, NumericalError, check_integer, check_name
from bicore.kernels.base import Kernel, squared_lengths
from bicore.kernels.building import Reserve, build_operators
from bicore.kernels.classical import correct_distances
from bicore.kernels.operators import Features, KernelOperator, OuterProducts
from bicore.kernels.scaling import SINGLE_RANGE, Normalised, check_scale
from bicore.methods.base import Request, Selector
from bicore.methods.sampling import QUANTILES, allocate_points, strata_of
from bicore.networks.observe import Observed, as_module, observe
from bicore.runtime.clock import ProgressLine, TimeOver
from bicore.runtime.context import versions

#: Number of float64 vectors of length n that a rule keeps in addition to one per selected point.
EXTRA_VECTORS = 8
#: Maximum number of rows, evenly spaced, from which leading directions are computed.
AXES_ROWS = 2000
#: Largest relative error of a distance in float64 and in float32.
DISTANCE_SHARE = {torch.float64: 1e-8, torch.float32: 1e-3}
#: How points are shared between classes: by the number of rows, or equally.
SHARES = ("proportional", "balanced")


@dataclass(frozen=True, eq=False)
class Job(Request):
    """A request restricted to rows of positive weight and initial rows, sorted by id.

    A place is a row's number in ``data``; ``rows`` holds its number in the user's data, which have
    ``total`` rows. ``present`` holds the distinct labels of all rows, if the method needs a model.
    """

    name: str
    rows: Array
    total: int
    given: list[int]
    present: tuple[Any, ...] | None

    @property
    def labels(self) -> Array:
        """Labels or targets of the rows; a method that needs them is not run without them."""
        assert self.data.y is not None
        return self.data.y

    @property
    def like(self) -> torch.Tensor:
        """Empty tensor with the device and precision of the runtime."""
        runtime = self.runtime
        return torch.empty(0, dtype=runtime.torch_dtype, device=runtime.torch_device)

    @property
    def weights(self) -> torch.Tensor:
        """Weights of the rows, with mean 1."""
        return torch.from_numpy(scale_to_mean_one(self.data.weights)).to(self.like.device)

    def classes(self) -> Targets:
        """Encode the labels as codes 0 … C−1."""
        targets = read_targets(self.labels)
        if targets.classes is None:
            raise InputError(f"{self.name} needs class labels; got y with numeric targets.")
        return targets

    def restrict(self, places: Array, size: int, given: list[int]) -> Job:
        """Return the job of selecting ``size`` points among some places."""
        data, rows = self.data[places], self.rows[places]
        return replace(self, data=data, rows=rows, size=size, given=given)

    def module(self, error: str) -> nn.Module:
        """Return the model itself; ``error`` is the message if only its outputs are known."""
        if isinstance(self.context.model, Observed):
            raise InputError(error)
        return as_module(self.context.model)

    def observe(self, layer: str | None = None) -> Observed:
        """Return outputs and embeddings of the rows; those of an ``Observed`` are selected."""
        seen = self.context.model
        if not isinstance(seen, Observed):
            found = observe(seen, self.data.x, layer=layer)
        elif len(seen) != self.total:
            raise InputError(
                f"model was observed on {len(seen)} rows and data has {self.total}; pass "
                "observe(network, x) of these rows."
            )
        elif layer not in (None, seen.layer):
            raise InputError(
                f"model was observed at layer {seen.layer!r}; pass observe(…, layer={layer!r})."
            )
        else:
            found = seen[self.rows]
        classes = found.classes if self.context.classes is None else tuple(self.context.classes)
        return replace(found, classes=classes, present=self.present)


class PartialSelection:
    """A selection in progress: places in order of selection, with objectives and weights.

    ``open`` marks the places that may still be taken. ``objectives`` stays empty for a method
    without an objective, ``weights`` is None if all of them are 1.
    """

    def __init__(self, job: Job, line: ProgressLine) -> None:
        self.size = job.size
        self.clock = job.clock
        self.line = line
        self.order: list[int] = list(job.given)
        if self.order:
            self.clock.secure()
        self.open = job.data.weights > 0
        self.open[self.order] = False
        self.weights: Array | None = None
        self.objectives: list[float] = []
        self.details: dict[str, Any] = {}
        self.outcome = Outcome()
        #: Reason why the objective could not be verified; empty if it was.
        self.unverified = ""

    def needs_more(self) -> bool:
        """Whether another point is needed and there is time left."""
        if len(self.order) >= self.size or not self.open.any():
            return False
        if self.clock.over and self.order:
            self.end(Status.OUT_OF_TIME)
            return False
        return True

    def best(self, scores: Array) -> int:
        """Return the open place with the highest score; ties go to the smallest id."""
        # rows are sorted by id
        return argmin_by_id(np.where(self.open, -scores, np.inf), np.arange(len(scores)))

    def end(self, status: Status) -> None:
        """Record an early end, or that time ran out after the last point was selected."""
        if status is Status.OUT_OF_TIME and len(self.order) == self.size:
            self.outcome = unrefined_outcome("after the last row")
        else:
            message = describe_early_end(status, len(self.order), self.size)
            self.outcome = Outcome(status, message)

    def take(self, place: int, objective: float | None = None) -> None:
        """Add one point."""
        self.order.append(place)
        self.clock.secure()
        self.open[place] = False
        if objective is not None:
            self.objectives.append(objective)
        self.line.update(len(self.order), float("nan") if objective is None else objective)

    def exchange(self, leaving: int, joining: int) -> None:
        """Replace the point at position ``leaving`` of ``order`` by the place ``joining``."""
        self.open[[self.order[leaving], joining]] = True, False
        self.order[leaving] = joining

    def take_all(self, places: Iterable[int]) -> None:
        """Add the first of these that are open, up to the size asked for."""
        for place in places:
            if len(self.order) >= self.size:
                break
            if self.open[place]:
                self.take(int(place))


def check_outputs(job: Job, predictions: torch.Tensor) -> torch.Tensor:
    """Refuse a model with one output, which has no class probabilities."""
    if predictions.shape[-1] < 2:
        raise InputError(f"{job.name} needs class probabilities; the model has one output.")
    return predictions


class BaselineSelector(Selector):
    """The base of baselines, which select by one rule."""

    #: Whether the objective may be measured on other rows than the candidates.
    takes_outer = False

    def _select(self, request: Request) -> Coreset:
        return self._run(request, self._select_points)

    def _run(self, request: Request, grow: Callable[[Job, PartialSelection], None]) -> Coreset:
        """Select by ``grow``; points taken before an interrupt are kept."""
        if request.outer is not None and not self.takes_outer:
            raise InputError(f"{self.name} has no outer objective; leave outer out.")
        runtime, clock = request.runtime, request.clock
        job = self._job(request)
        line = ProgressLine(runtime.progress, clock, job.size, "selecting")
        selection = PartialSelection(job, line)
        with runtime.apply(), clock.running(), selection.line:
            fingerprint = request.data.fingerprint()  # while the clock runs: it reads all data
            try:
                grow(job, selection)
            except (KeyboardInterrupt, TimeOver) as reason:
                if not selection.order:
                    raise
                late = isinstance(reason, TimeOver)
                selection.end(Status.OUT_OF_TIME if late else Status.INTERRUPTED)
        return self._coreset(request, job, selection, fingerprint)

    @abstractmethod
    def _select_points(self, job: Job, selection: PartialSelection) -> None:
        """Add points to ``selection`` by the rule while it needs more."""

    def _job(self, request: Request) -> Job:
        data, given = request.data, request.start.points
        counted = data.weights > 0
        counted[given] = True
        rows = in_id_order(np.flatnonzero(counted), data.ids)
        place_of = {int(row): place for place, row in enumerate(rows)} if given else {}
        labels = data.y if self.needs_model else None
        own = {
            "name": self.name,
            "data": data[rows],
            "rows": rows,
            "total": len(data),
            "given": [place_of[row] for row in given],
            "present": None if labels is None else tuple(np.unique(labels).tolist()),
        }
        return Job(**vars(request) | own)

    def _coreset(
        self, request: Request, job: Job, selection: PartialSelection, fingerprint: str
    ) -> Coreset:
        indices = job.rows[selection.order]
        if len(indices) < job.size and selection.outcome.status is Status.COMPLETE:
            words = f"{len(indices)} of {job.size} rows: no other row would have a weight > 0"
            selection.outcome = Outcome(Status.FEWER, words)
        weighting = "uniform" if selection.weights is None else "learned"
        own = {"parameters": repr(self), "weighting": weighting, "versions": versions()}
        weights = np.ones(len(indices)) if selection.weights is None else selection.weights
        points = indices, weights, request.data.ids[indices], np.array(selection.objectives)
        seconds = request.clock.seconds
        known = Provenance(self.name, job.total, job.seed, seconds, fingerprint=fingerprint)
        coreset = Coreset(*points, *selection.outcome, known, own | selection.details)
        return mark_unverified(coreset, selection.unverified) if selection.unverified else coreset


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
    #: The name of the rule, for the name of the selector.
    rule_name: ClassVar[str]
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
        return f"{self.rule_name} over {self.space.name}"

    @property
    def needs_labels(self) -> bool:
        return self.space.needs_labels

    @property
    def needs_model(self) -> bool:
        return self.space.needs_model


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
        result[own] = torch.inf  # so that correct_distances skips it
        rows, columns = operator.feature_rows
        share = DISTANCE_SHARE[norms.dtype]
        correct_distances(result, norms, norms[index], rows, columns[index], share)
    result[own] = 0
    return result


def _unit(rows: Tensor) -> Tensor:
    """Scale rows to length 1; rows of zeros are unchanged."""
    return F.normalize(rows, dim=1, eps=torch.finfo(rows.dtype).tiny)

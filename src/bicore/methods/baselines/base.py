"""Baselines: selectors with one rule and without an inner problem.

A rule sees a :class:`Job`, whose rows have positive weight and are sorted by id, so that neither
the order of rows nor rows of weight zero change its answer. It passes its picks one by one to a
:class:`PartialSelection`, which is a valid selection at every moment.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from bicore.arguments import argmin_by_id, in_id_order
from bicore.bilevel.greedy import Outcome, unrefined_outcome
from bicore.coreset import Coreset, Provenance, Status, describe_early_end, mark_unverified
from bicore.data import Array, Targets, read_targets, scale_to_mean_one
from bicore.errors import InputError
from bicore.methods.base import Request, Selector
from bicore.networks.observe import Observed, as_module, observe
from bicore.runtime.clock import ProgressLine, TimeOver
from bicore.runtime.context import versions


@dataclass(frozen=True, eq=False)
class Job(Request):
    """A request for the rows of positive weight, sorted by id, and the places of initial points.

    A place is a row's number in ``data``; ``rows`` holds its number in the user's data, which have
    ``total`` rows. ``present`` holds the labels of all rows, including rows of weight zero.
    """

    name: str
    rows: Array
    total: int
    given: list[int]
    present: tuple[Any, ...] | None

    @property
    def labels(self) -> Array:
        """Labels or targets of the rows; a method that needs them is not run without."""
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

    def module(self, needed: str) -> nn.Module:
        """Return the model itself; ``needed`` is the error if only its outputs are known."""
        if isinstance(self.context.model, Observed):
            raise InputError(needed)
        return as_module(self.context.model)

    def observe(self, layer: str | None = None) -> Observed:
        """Return outputs and embeddings of the rows; given ones are only sliced."""
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
        """Record an early end, or an end of the work after the last point."""
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
        """Replace the point with the number ``leaving`` by another place."""
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

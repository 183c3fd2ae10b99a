"""Selectors without an inner problem: what they share around the rule that makes each of them.

A rule sees a :class:`Job`, whose rows have positive weight and stand in the order of their ids, so
that neither row order nor points of weight zero can change its answer; it hands its picks one by
one to a :class:`Growth`, which is whole at every moment.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from bicore.coreset import Coreset, Provenance, Status, ended, mark_unverified
from bicore.data import Array, Dataset, Targets, of_mean_one, read_targets
from bicore.errors import InputError
from bicore.networks.observe import Observed, as_module, observe
from bicore.picking import as_seed, as_size, as_start, in_id_order
from bicore.runtime import Clock, Context, ProgressLine, TimeOver, versions
from bicore.selectors.base import Selector


@dataclass(frozen=True, eq=False)
class Job:
    """One selection: the rows that count, sorted by id, and the places among them that were given.

    A place is a row's number in ``data``; ``rows`` has the number it had in the user's data, of
    which there were ``total``. ``present`` holds the labels of all rows, also of those of weight
    zero.
    """

    name: str
    data: Dataset
    rows: Array
    total: int
    size: int
    given: list[int]
    seed: int
    context: Context
    present: tuple[Any, ...] | None = None

    @property
    def like(self) -> torch.Tensor:
        """An empty tensor of the runtime's device and precision."""
        runtime = self.context.runtime
        return torch.empty(0, dtype=runtime.torch_dtype, device=runtime.torch_device)

    @property
    def weights(self) -> torch.Tensor:
        """The data's weights, of mean 1."""
        return torch.from_numpy(of_mean_one(self.data.weights)).to(self.like.device)

    def classes(self) -> Targets:
        """The labels as codes 0 … C−1."""
        assert self.data.y is not None
        targets = read_targets(self.data.y)
        if targets.classes is None:
            raise InputError(
                f"{self.name} needs class labels, and y holds targets; give integers, strings or "
                "booleans."
            )
        return targets

    def module(self, needed: str) -> nn.Module:
        """The model itself; ``needed`` says why what it once said about the rows is not enough."""
        if self._seen_before is not None:
            raise InputError(needed)
        return as_module(self.context.model)

    def observed(self, layer: str | None = None) -> Observed:
        """What the current model says about the rows; what was computed before is only sliced."""
        seen = self._seen_before
        if seen is None:
            return self._named(observe(self.context.model, self.data.x, layer=layer))
        if len(seen) != self.total:
            raise InputError(
                f"context.model was observed on {len(seen)} points and data has {self.total}; "
                "observe this data."
            )
        if layer is not None and layer != seen.layer:
            raise InputError(
                f"context.model was observed at layer {seen.layer!r}, not {layer!r}; observe(…, "
                f"layer={layer!r})."
            )
        return self._named(seen[self.rows])

    @property
    def _seen_before(self) -> Observed | None:
        """What the user observed before the selection, where the context holds that."""
        model = self.context.model
        return model if isinstance(model, Observed) else None

    def _named(self, observed: Observed) -> Observed:
        """With the labels of the outputs as the context gives them, and those the data shows."""
        classes = observed.classes if self.context.classes is None else tuple(self.context.classes)
        return replace(observed, classes=classes, present=self.present)


class Growth:
    """The coreset as it grows: places in order of selection, and what a method says beside them.

    ``open`` marks the places that may still be taken, ``objectives`` are there where the method has
    one, ``weights`` where they are not all 1.
    """

    def __init__(self, job: Job, clock: Clock, line: ProgressLine) -> None:
        self.size = job.size
        self.clock = clock
        self.line = line
        self.order: list[int] = list(job.given)
        if self.order:
            clock.secure()
        self.open = job.data.weights > 0
        self.open[self.order] = False
        self.weights: Array | None = None
        self.objectives: list[float] = []
        self.details: dict[str, Any] = {}
        self.status = Status.COMPLETE
        self.message = ""
        #: Why the objective could not be verified; empty if it was.
        self.unverified = ""

    def wants(self) -> bool:
        """Whether another point is to be taken now: neither is the size reached nor time over."""
        if len(self.order) >= self.size or not self.open.any():
            return False
        if self.clock.over and self.order:
            self.end(Status.OUT_OF_TIME)
            return False
        return True

    def end(self, status: Status, message: str | None = None) -> None:
        """Say how it ended; the default sentence counts the points."""
        self.status = status
        self.message = ended(status, len(self.order), self.size) if message is None else message

    def stop(self) -> None:
        """The time is over: before all points were there, or before what was to follow them."""
        if len(self.order) < self.size:
            self.end(Status.OUT_OF_TIME)
        else:
            words = "stopped by max_seconds when all points were there: what follows them was cut"
            self.end(Status.LESS_REFINED, words)

    def take(self, place: int, objective: float | None = None) -> None:
        """Add one point."""
        self.order.append(place)
        self.clock.secure()
        self.open[place] = False
        if objective is not None:
            self.objectives.append(objective)
        self.line.update(len(self.order), float("nan") if objective is None else objective)

    def take_all(self, places: Iterable[int]) -> None:
        """Add the first of these that are open, up to the size asked for."""
        for place in places:
            if len(self.order) >= self.size:
                break
            if self.open[place]:
                self.take(int(place))


def several_outputs(job: Job, predictions: torch.Tensor) -> torch.Tensor:
    """Refuse a model with one output: its softmax says nothing."""
    if predictions.shape[-1] < 2:
        raise InputError(
            f"{job.name} needs class probabilities, and the model has one output; it is for "
            "classification."
        )
    return predictions


class PlainSelector(Selector):
    """A selector made of one rule."""

    def select(
        self,
        data: Dataset,
        size: int | float,
        *,
        outer: Dataset | None = None,
        initial: Coreset | Sequence[int] = (),
        rng: int | np.random.Generator = 0,
        context: Context | None = None,
    ) -> Coreset:
        context = context or Context()
        self._check(data, outer, context)
        return self._run(data, self._job(data, size, initial, rng, context), self._grow)

    def _run(self, data: Dataset, job: Job, grow: Callable[[Job, Growth], None]) -> Coreset:
        """Let ``grow`` take points; what it took until an interrupt is kept."""
        context = job.context
        clock = Clock(context.runtime.max_seconds)
        line = ProgressLine(context.runtime.progress, clock, job.size, "selecting")
        growth = Growth(job, clock, line)
        with context.runtime.applied(), clock.running(), growth.line:
            fingerprint = data.fingerprint()  # while the clock runs: it reads all of the data
            try:
                grow(job, growth)
            except KeyboardInterrupt:
                if not growth.order:
                    raise
                growth.end(Status.INTERRUPTED)
            except TimeOver:
                if not growth.order:
                    raise
                growth.stop()
        return self._coreset(data, job, growth, clock, fingerprint)

    @abstractmethod
    def _grow(self, job: Job, growth: Growth) -> None:
        """The rule: hand picks to ``growth`` while it wants them."""

    def _check(self, data: Dataset, outer: Dataset | None, context: Context) -> None:
        if self.needs_labels and data.y is None:
            raise InputError(
                f"{self.name} needs labels, and data has none; give y, or use a method without "
                "labels."
            )
        if self.needs_model and context.model is None:
            raise InputError(
                f"{self.name} needs the current model, and none was given; pass "
                "context=Context(model=your_network)."
            )
        if outer is not None:
            raise InputError(
                f"{self.name} has no outer objective; leave outer out, or use bilevel selection."
            )

    def _job(
        self,
        data: Dataset,
        size: int | float,
        initial: Coreset | Sequence[int],
        rng: int | np.random.Generator,
        context: Context,
    ) -> Job:
        count = as_size(size, int((data.weights > 0).sum()))
        given = as_start(initial, data, count).points
        counted = data.weights > 0
        counted[given] = True
        rows = in_id_order(np.flatnonzero(counted), data.ids)
        place_of = {int(row): place for place, row in enumerate(rows)} if given else {}
        labels = data.y if self.needs_model else None
        return Job(
            name=self.name,
            data=data[rows],
            rows=rows,
            total=len(data),
            size=count,
            given=[place_of[row] for row in given],
            seed=as_seed(rng),
            context=context,
            present=None if labels is None else tuple(np.unique(labels).tolist()),
        )

    def _coreset(
        self, data: Dataset, job: Job, growth: Growth, clock: Clock, fingerprint: str
    ) -> Coreset:
        indices = job.rows[growth.order]
        if len(indices) < job.size and growth.status is Status.COMPLETE:
            growth.end(
                Status.FEWER,
                f"{len(indices)} of {job.size} points: no other point would have a weight above "
                "zero",
            )
        provenance = Provenance(
            method=self.name,
            rows=len(data),
            seed=job.seed,
            seconds=clock.seconds,
            fingerprint=fingerprint,
        )
        details = {
            "parameters": repr(self),
            "weights": "binary" if growth.weights is None else "learnt",
            "versions": versions(),
            **growth.details,
        }
        coreset = Coreset(
            indices,
            np.ones(len(indices)) if growth.weights is None else growth.weights,
            data.ids[indices],
            np.array(growth.objectives),
            growth.status,
            growth.message,
            provenance,
            details,
        )
        return mark_unverified(coreset, growth.unverified) if growth.unverified else coreset

"""The greedy loop, and quotas of classes.

The coreset is complete after every step, so that an interrupt can fall back to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bicore.arguments import Start, in_id_order, step_rng
from bicore.bilevel.contract import Engine, Rule, StepOptions
from bicore.bilevel.weights import WeightUpdater
from bicore.coreset import Status, describe_early_end
from bicore.data import Array, Targets
from bicore.errors import InputError, check_integer
from bicore.runtime.clock import Clock, ProgressLine, TimeOver, checkpoint

#: A batch is chosen among this multiple of its size of the best scores …
SHORTLIST = 4
#: … and has at most one point per this many chosen ones, because early scores change most.
GROWTH = 10
#: Maximum number of classes in an error.
MOST_SHOWN = 10


@dataclass(frozen=True, eq=False)
class Quotas:
    """Quotas of one data set.

    ``codes`` holds the class of every row and ``caps`` the maximum per class. If ``caps`` is None,
    one row of every class is taken per round.
    """

    codes: Array
    caps: Array | None

    def open_rows(self, chosen: Sequence[int], free: Array) -> Array:
        """Return the free rows of classes below their quota."""
        classes = int(self.codes.max()) + 1 if self.caps is None else len(self.caps)
        counts = np.bincount(self.codes[list(chosen)], minlength=classes)
        left = np.bincount(self.codes[free], minlength=classes) > 0
        return free & open_classes(self.caps, counts, left)[self.codes]


def open_classes(caps: Array | None, counts: Array, left: Array) -> Array:
    """Return the classes that may have the next point.

    ``caps`` are the maxima per class, or None for one of every class per round; ``counts``
    the points of each class, and ``left`` the classes that have free rows.
    """
    if caps is not None:
        return np.asarray(left & (counts < caps))
    return left & (counts == counts[left].min()) if left.any() else left


class QuotaRule:
    """A quota setting, before the classes of the data are known."""

    #: Text for the notes of a coreset.
    note = ""

    def of(self, targets: Targets) -> Quotas | None:
        """Return the quotas for these labels; None if there is no limit."""
        if targets.classes is None:
            raise InputError(
                "quotas need class labels, and y holds numeric targets; leave quotas out, or give "
                "class labels."
            )
        return Quotas(np.asarray(targets.values).reshape(-1), self.caps(targets.classes))

    def caps(self, classes: Array) -> Array | None:
        """Return the maximum number of points per class; None for one of every class per round."""
        return None


@dataclass(frozen=True)
class Balanced(QuotaRule):
    """One point of every class per round."""


@dataclass(frozen=True)
class EveryClass(Balanced):
    """One point of every class per round, the default if a few rows represent many classes."""

    note = (
        "classes: the classes take turns, because the size allows only a few rows per class "
        "(quotas= sets other numbers)"
    )


@dataclass(frozen=True)
class BalancedIfClasses(QuotaRule):
    """One point of every class per round for classification; no quotas for regression."""

    def of(self, targets: Targets) -> Quotas | None:
        return None if targets.classes is None else super().of(targets)


@dataclass(frozen=True)
class AtMost(QuotaRule):
    """Maximum number of points per class, by label; other classes have no limit."""

    counts: Mapping[Any, int]

    def __post_init__(self) -> None:
        for label, count in self.counts.items():
            check_integer(f"quotas[{label!r}]", count, 0)

    def caps(self, classes: Array) -> Array:
        known = np.asarray(classes).tolist()
        caps = np.full(len(known), np.iinfo(np.int64).max)
        for label, count in self.counts.items():
            if label not in known:
                shown = ", ".join(map(repr, known[:MOST_SHOWN])) + ", …" * (len(known) > MOST_SHOWN)
                raise InputError(f"quotas: {label!r} is not a class of y; the classes are {shown}.")
            caps[known.index(label)] = count
        return caps


class Outcome(NamedTuple):
    """The status of a finished search and its message."""

    status: Status = Status.COMPLETE
    message: str = ""


def unrefined_outcome(when: str, interrupted: bool = False) -> Outcome:
    """Return the outcome of a search that ended during refinement, with all points."""
    if interrupted:
        return Outcome(Status.INTERRUPTED, f"interrupted {when}")
    return Outcome(Status.NOT_REFINED, f"stopped by max_seconds {when}")


def zero_weight_outcome(left: int, size: int) -> Outcome:
    """Return the outcome of a search in which some points got weight zero."""
    why = f"{left} of {size} rows: the learned weights of the other rows are zero"
    return Outcome(Status.FEWER, why)


WEIGHTS_NOT_REFINED = unrefined_outcome("while the weights were optimised: complete, not refined")


def weights_outcome(left: int, size: int, clock: Clock) -> Outcome:
    """Return how an optimisation of weights ended."""
    if left < size:
        return zero_weight_outcome(left, size)
    return WEIGHTS_NOT_REFINED if clock.over else Outcome()


@dataclass(eq=False)
class Plan:
    """The candidates of every step, and the number of points to take."""

    size: int
    ids: Array
    #: Mask of the points that may be taken; a taken point is never added again.
    open: Array
    seed: int = 0
    first_random: bool = False
    #: Number of candidates drawn at each step; None: all points.
    candidates: int | None = None
    points_per_step: int = 1
    quotas: Quotas | None = None
    by_id: Array = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = in_id_order(np.arange(len(self.ids)), self.ids)

    def step_options(self, chosen: list[int]) -> StepOptions:
        """Return the candidates and the number of points of the next step."""
        step = len(chosen)
        free = self.open if self.quotas is None else self.quotas.open_rows(chosen, self.open)
        batch = min(self.points_per_step, max(1, step // GROWTH))
        shortlist = SHORTLIST * batch if batch > 1 else 1
        count = min(batch, self.size - step)
        first = step == 0 and self.first_random
        drawn = 1 if first else self.candidates
        if drawn is not None and drawn < np.count_nonzero(free):
            # Draw by id, so that the order of the rows has no influence.
            points = self.by_id[free[self.by_id]]
            mask = np.zeros(len(self.open), dtype=bool)
            mask[step_rng(self.seed, step).choice(points, drawn, replace=first)] = True
            return StepOptions(mask, self.ids, count, shortlist, sampled=True)
        alone = self.candidates is None and self.points_per_step == 1 and self.quotas is None
        return StepOptions(free, self.ids, count, shortlist, self.size - step if alone else 1)


@dataclass(eq=False)
class Run:
    """A greedy run; it stores the coreset after every complete step."""

    engine: Engine
    rule: Rule
    plan: Plan
    clock: Clock
    line: ProgressLine
    weight_updater: WeightUpdater | None = None
    indices: Array = field(default_factory=partial(np.empty, 0, np.int64))
    weights: Array = field(default_factory=partial(np.empty, 0))
    objectives: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.empty_objective = self.engine.objective

    def complete(self, start: Start) -> Outcome:
        """Take the initial points, then add points up to the planned size or the time limit."""
        try:
            self._begin(start)
            return self._refine_weights(self._grow())
        except KeyboardInterrupt:
            if not self.objectives:
                raise
            return self._end(Status.INTERRUPTED)
        except TimeOver:
            if not self.objectives:
                raise
            return self._stop()
        finally:
            self.line.close()

    def _begin(self, start: Start) -> None:
        points = start.points
        self.plan.open[points] = False
        before = [] if start.coreset is None else start.coreset.objectives.tolist()
        if points and len(before) == len(points):
            self._extend(points, start.weights)
            self.objectives = before[:-1]
            self._save([])
            return
        for k, weight in zip(points, start.weights, strict=True):
            self._extend([k], [weight])
            self._save([])

    def _extend(self, points: list[int], weights: list[float]) -> None:
        if self.weight_updater is None:
            self.engine.extend(points)
        else:
            self.weight_updater.engine.extend(points, weights)

    def _grow(self) -> Outcome:
        engine, plan = self.engine, self.plan
        while len(engine.chosen) < plan.size:
            if self.objectives:
                self.clock.secure()
                if self.clock.over:
                    return self._stop()
            checkpoint()
            options = plan.step_options(engine.chosen)
            if not options.open.any():
                if not plan.open.any():
                    return zero_weight_outcome(len(self.objectives), plan.size)
                found = f"{len(self.objectives)} of {plan.size} rows"
                return Outcome(Status.FEWER, f"{found}, because the quotas allow no more")
            taken = len(engine.chosen)
            objectives = engine.take_best(self.rule, options)
            plan.open[engine.chosen[taken:]] = False
            if self.weight_updater is not None:
                self.weight_updater.update(self.clock)
            if self.weight_updater is not None or not options.one_by_one:
                self._save_step(objectives)
                continue
            for count, objective in enumerate(objectives, taken + 1):
                if self.objectives and self.clock.over:
                    return self._stop()
                self._save_step([objective], count)
        return Outcome()

    def _refine_weights(self, outcome: Outcome) -> Outcome:
        """Optimise the weights more at the end, so that the points do not depend on the size."""
        if self.weight_updater is None:
            return outcome
        before = len(self.indices)
        self.weight_updater.update(self.clock, final=True)
        self._save([])
        if len(self.indices) < before:
            return zero_weight_outcome(len(self.indices), self.plan.size)
        late = outcome.status is Status.COMPLETE and self.clock.over
        return self._stop() if late else outcome

    def _save_step(self, objectives: list[float], count: int | None = None) -> None:
        """Save and show the points of a step."""
        before = len(self.objectives)
        self._save(objectives, count)
        for done in range(min(before, len(self.objectives) - 1), len(self.objectives)):
            self.line.update(done + 1, self.objectives[done])

    def _save(self, objectives: list[float], count: int | None = None) -> None:
        """Save the coreset, or its first points, which are returned if the next step is
        interrupted.

        Points that join together share an objective unless each has its own.
        """
        chosen = self.engine.chosen[:count]
        before = self.objectives[: len(chosen) - 1]
        fresh = len(chosen) - len(before)
        if len(objectives) != fresh or self.weight_updater is not None:
            objectives = [self.engine.objective] * fresh
        self.indices = np.array(chosen, dtype=np.int64)
        self.weights = np.ones(len(chosen))
        if self.weight_updater is not None:
            self.weights = self.weight_updater.engine.weights.double().cpu().numpy()
        self.objectives = before + objectives

    def _stop(self) -> Outcome:
        """Return the outcome at the time limit."""
        few = len(self.indices) < self.plan.size
        return self._end(Status.OUT_OF_TIME) if few else WEIGHTS_NOT_REFINED

    def _end(self, status: Status) -> Outcome:
        return Outcome(status, describe_early_end(status, len(self.objectives), self.plan.size))

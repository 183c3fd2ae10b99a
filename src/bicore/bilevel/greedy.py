"""The greedy loop: score, take, correct, repeat; and how many points a class may have.

The coreset is complete after every step, so that an interrupt can fall back to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bicore.bilevel.contract import Engine, Scoring, Turn
from bicore.bilevel.solvers.weights import Weighing
from bicore.coreset import Status, ended
from bicore.data import Array, Targets
from bicore.errors import InputError, check_integer
from bicore.picking import Start, in_id_order, step_rng
from bicore.runtime.clock import Clock, ProgressLine, TimeOver, checkpoint


@dataclass(frozen=True, eq=False)
class Quotas:
    """Quotas of one data set: ``codes`` is the class of every row, ``caps`` the most points of
    each class, or None for one of every class a round."""

    codes: Array
    caps: Array | None

    def allowed(self, chosen: Sequence[int], free: Array) -> Array:
        """Return the free rows whose class is below its quota."""
        classes = int(self.codes.max()) + 1 if self.caps is None else len(self.caps)
        counts = np.bincount(self.codes[list(chosen)], minlength=classes)
        left = np.bincount(self.codes[free], minlength=classes) > 0
        return free & open_classes(self.caps, counts, left)[self.codes]


def open_classes(caps: Array | None, counts: Array, left: Array) -> Array:
    """Return which classes may have the next point.

    ``caps`` are the most points of each class, or None for one of every class a round; ``counts``
    the points of each class, and ``left`` the classes that have free rows.
    """
    if caps is not None:
        allowed: Array = left & (counts < caps)
        return allowed
    return left & (counts == counts[left].min()) if left.any() else left


class QuotaRule(ABC):
    """A quota setting, before the classes of the data are known."""

    @abstractmethod
    def of(self, targets: Targets) -> Quotas | None:
        """Return the quotas for these labels; None if there is no limit."""

    def caps(self, classes: Array) -> Array | None:
        """Return the most points of each class; None for one of every class a round."""
        return None


@dataclass(frozen=True)
class Balanced(QuotaRule):
    """One point of every class a round."""

    def of(self, targets: Targets) -> Quotas:
        return Quotas(_codes(targets), None)


@dataclass(frozen=True)
class BalancedIfClasses(QuotaRule):
    """One point of every class a round where there are classes; no quotas for regression."""

    def of(self, targets: Targets) -> Quotas | None:
        return None if targets.classes is None else Balanced().of(targets)


@dataclass(frozen=True)
class AtMost(QuotaRule):
    """The most points of each class, by its label; classes that are not named have no limit."""

    counts: Mapping[Any, int]

    def __post_init__(self) -> None:
        for label, count in self.counts.items():
            check_integer(f"quotas[{label!r}]", count, 0)

    def of(self, targets: Targets) -> Quotas:
        codes = _codes(targets)
        return Quotas(codes, self.caps(np.asarray(targets.classes)))

    def caps(self, classes: Array) -> Array:
        known = classes.tolist()
        caps = np.full(len(known), np.iinfo(np.int64).max)
        for label, count in self.counts.items():
            if label not in known:
                raise InputError(
                    f"quotas names {label!r}, which is not a class of y ({known[:10]}); name "
                    "classes that occur."
                )
            caps[known.index(label)] = count
        return caps


def _codes(targets: Targets) -> Array:
    if targets.classes is None:
        raise InputError(
            "quotas are for classes, and y holds targets; leave them out, or give labels."
        )
    return np.asarray(targets.values).reshape(-1)


#: A batch is chosen from this many times as many of the best scores …
SHORTLIST = 4
#: … and has at most one point for this many chosen ones, because early scores change the most.
GROWTH = 10


@dataclass(frozen=True)
class Outcome:
    """The status of a finished run and its message."""

    status: Status = Status.COMPLETE
    message: str = ""


@dataclass(eq=False)
class Plan:
    """Which points may be taken at each step, and how many."""

    size: int
    ids: Array
    #: A mask over all points; a point once taken never comes back.
    open: Array
    seed: int = 0
    first_random: bool = False
    #: None for all points, or how many are drawn at each step.
    candidates: int | None = None
    together: int = 1
    quotas: Quotas | None = None
    by_id: Array = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = in_id_order(np.arange(len(self.ids)), self.ids)

    def turn(self, chosen: list[int]) -> Turn:
        """Return the candidates and the number of points of the next step."""
        step = len(chosen)
        free = self.open if self.quotas is None else self.quotas.allowed(chosen, self.open)
        if step == 0 and self.first_random and free.any():
            return self._only(step_rng(self.seed, 0).choice(self._places(free), 1))
        batch = min(self.together, max(1, step // GROWTH))
        shortlist = SHORTLIST * batch if batch > 1 else 1
        count = min(batch, self.size - step)
        if self.candidates is not None and self.candidates < np.count_nonzero(free):
            rng = step_rng(self.seed, step)
            drawn = rng.choice(self._places(free), self.candidates, replace=False)
            return self._only(drawn, count, shortlist)
        alone = self.candidates is None and self.together == 1 and self.quotas is None
        steps = self.size - step if alone else 1
        return Turn(free, self.ids, count, shortlist, steps)

    def _places(self, free: Array) -> Array:
        """The free places in the order of their ids, to draw from."""
        places: Array = self.by_id[free[self.by_id]]
        return places

    def _only(self, places: Array, count: int = 1, shortlist: int = 1) -> Turn:
        """Return a turn limited to these points."""
        mask = np.zeros(len(self.open), dtype=bool)
        mask[places] = True
        return Turn(mask, self.ids, count, shortlist, sampled=True)

    def exhausted(self, taken: int) -> str:
        """Return the message for a run without further candidates."""
        why = "the learned weight of the others is zero"
        if self.open.any():
            why = "the quotas allow no more"
        return f"{taken} of {self.size} points: {why}"


class Run:
    """A greedy run: the growing coreset and its last complete state."""

    def __init__(
        self,
        engine: Engine,
        rule: Scoring,
        plan: Plan,
        clock: Clock,
        line: ProgressLine,
        weighing: Weighing | None = None,
    ) -> None:
        self.engine = engine
        self.rule = rule
        self.plan = plan
        self.clock = clock
        self.line = line
        self.weighing = weighing
        self.empty_objective = engine.objective
        self.indices: Array = np.empty(0, dtype=np.int64)
        self.weights: Array = np.empty(0)
        self.objectives: list[float] = []

    def complete(self, start: Start, same_problem: bool = False) -> Outcome:
        """Take the points given, then grow to the planned size, until the time is over or the user
        interrupts. ``same_problem``: the objectives of the start are valid for this problem."""
        try:
            self._begin(start, same_problem)
            ending = self._grow()
            return ending if self.weighing is None else self._polish(ending, self.weighing)
        except KeyboardInterrupt:
            if not self.objectives:
                raise
            return self._ended(Status.INTERRUPTED)
        except TimeOver:
            if not self.objectives:
                raise
            return self._stopped()
        finally:
            self.line.close()

    def _begin(self, start: Start, same_problem: bool) -> None:
        points = start.points
        weights = [1.0] * len(points) if self.weighing is None else start.weights
        self.plan.open[points] = False
        if points and same_problem and start.coreset is not None:
            before = start.coreset.objectives
            if len(before) == len(points):
                self.engine.extend(points, weights)
                self.objectives = before.tolist()[:-1]
                self._note([])
                return
        for k, weight in zip(points, weights, strict=True):
            self.engine.extend([k], [weight])
            self._note([])

    def _grow(self) -> Outcome:
        engine = self.engine
        plan = self.plan
        while len(engine.chosen) < plan.size:
            if self.objectives:
                self.clock.secure()
                if self.clock.over:
                    return self._stopped()
            checkpoint()
            turn = plan.turn(engine.chosen)
            if not turn.open.any():
                return Outcome(Status.FEWER, plan.exhausted(len(self.objectives)))
            taken = len(engine.chosen)
            objectives = engine.take_best(self.rule, turn)
            if not objectives:
                continue  # the engine undid its steps and retries in another way
            plan.open[engine.chosen[taken:]] = False
            if self.weighing is not None:
                self.weighing.correct(self.clock)
            before = len(self.objectives)
            self._note(objectives)
            for done in range(min(before, len(self.objectives) - 1), len(self.objectives)):
                self.line.update(done + 1, self.objectives[done])
        return Outcome()

    def _polish(self, ending: Outcome, weighing: Weighing) -> Outcome:
        """Optimise the weights once more at the end, so that growth does not depend on the size."""
        before = len(self.indices)
        weighing.correct(self.clock, final=True)
        self._note([])
        if len(self.indices) == before:
            cut = ending.status is Status.COMPLETE and self.clock.over
            return self._stopped() if cut else ending
        return Outcome(Status.FEWER, zero_weight_message(len(self.indices), self.plan.size))

    def _note(self, objectives: list[float]) -> None:
        """Save the coreset, which is returned if the next step is interrupted; points that join
        together share one objective."""
        chosen = self.engine.chosen
        before = self.objectives[: len(chosen) - 1]
        fresh = len(chosen) - len(before)
        if len(objectives) != fresh or self.weighing is not None:
            objectives = [self.engine.objective] * fresh
        self.indices = np.array(chosen, dtype=np.int64)
        self.weights = np.ones(len(chosen))
        if self.weighing is not None:
            self.weights = self.engine.weights.double().cpu().numpy()
        self.objectives = before + objectives

    def _stopped(self) -> Outcome:
        """Return the outcome at the time limit: fewer points, or all with unrefined weights."""
        if len(self.indices) < self.plan.size:
            return self._ended(Status.OUT_OF_TIME)
        return Outcome(
            Status.NOT_REFINED,
            "stopped by max_seconds while the weights were optimised: all points, not refined",
        )

    def _ended(self, status: Status) -> Outcome:
        return Outcome(status, ended(status, len(self.objectives), self.plan.size))


def zero_weight_message(left: int, size: int) -> str:
    """The sentence for points that lost their weight."""
    return f"{left} of {size} points: the learned weight of the others is zero"

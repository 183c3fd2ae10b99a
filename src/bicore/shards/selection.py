"""A coreset of rows that are never loaded whole.

The first pass counts all rows into moments: the objective is p² numbers from then on. Every further
pass scores all rows by their slopes, and each part gives its steepest ones; among these, points are
taken by their exact gains, which bring all of the shortlist up to date. One point a pass is exact:
the steepest row, or the one with the largest gain, of all rows there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from bicore.coreset import Coreset, Provenance, Status, mark_unverified
from bicore.data import Array, Dataset
from bicore.errors import InputError, NumericalError, TimeLimitError
from bicore.kernels.scaling import check_scale
from bicore.moments.choosing import improve
from bicore.moments.features import WithConstant
from bicore.moments.moments import Moments, Outer, check_room
from bicore.picking import as_size, as_start
from bicore.runtime import Clock, Runtime
from bicore.runtime.clock import ProgressLine, TimeOver
from bicore.shards.arithmetic import on_host
from bicore.shards.blocks import codes_of, exact_features
from bicore.shards.bound import growth
from bicore.shards.exchanging import Bounded
from bicore.shards.executors import Executor, Work
from bicore.shards.growing import Growing
from bicore.shards.hiring import hired
from bicore.shards.merging import Merged
from bicore.shards.notes import beyond_limit, left_out
from bicore.shards.quotas import Quotas
from bicore.shards.request import (
    ROUNDS,
    Request,
    first_rows,
    passes_left,
    points_of_a_pass,
    rows_of_a_part,
    rows_of_a_pass,
    settle_features,
)
from bicore.shards.scoring import Gains, Scoring
from bicore.shards.shortlist import Shortlist
from bicore.shards.state import Progress
from bicore.shards.work import Counting, Fetching, Measuring
from bicore.sources.parts import ShardSource

T = TypeVar("T")

#: Largest difference between the sum of the steps and a refit, relative to the loss of no points.
DRIFT = 1e-6


def select_from_shards(
    source: ShardSource,
    size: int | float,
    *,
    outer: ShardSource | None = None,
    initial: Coreset | Sequence[int] = (),
    features: Any = None,
    intercept: float | str = "auto",
    executor: Executor | str | None = None,
    state: str | os.PathLike[str] | None = None,
    runtime: Runtime | None = None,
    **options: Any,
) -> Coreset:
    """Choose points from a source of any length, within memory that does not depend on it.

    Parameters
    ----------
    source : ShardSource
        The rows; see :func:`bicore.shards.open_shards`.
    size : int or float
        How many points, or a fraction of the rows.
    outer : ShardSource, optional
        Rows that the model must be good at; by default the source itself.
    initial : Coreset or sequence of int
        Positions of points that are in from the start.
    features : str, FeatureMap or torch.nn.Module, optional
        What rows are compared in; by default the rows themselves, brought to length 1.
    intercept : float or "auto"
        The square of a constant feature, as a share of the mean of ‖φ‖² over the first rows; "auto"
        is 1. With 0 there is none: points may then all come from one class, and targets are used
        without subtracting their mean.
    executor : Executor or str, optional
        Who works on parts; by default the runtime's GPU where it has one, else threads of this
        process, as many as it has. The address of a Dask scheduler such as
        ``"tcp://10.0.0.1:8786"`` stands for its workers.
    state : path, optional
        A folder: a selection that was stopped goes on from what it holds, to the same points.
    runtime : Runtime, optional
        Memory, threads, time limit, progress (a step after every part of a pass).
    **options
        Of the selection: rule, passes, inner_reg, prior, quotas, exchange, skip_bad.

    Returns
    -------
    Coreset
        Positions in the order of selection; ``details`` say how many passes were made and how many
        picks no unseen row could have beaten.

    Raises
    ------
    InputError
        Where the request cannot be right, or the source changed between passes.
    MemoryLimitError
        Where moments do not fit the memory limit.
    TimeLimitError
        Where the time was over before a first point was chosen.

    Examples
    --------
    >>> from bicore.sources import ArrayShards
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 8))
    >>> source = ArrayShards(x, (x[:, 0] > 0).astype(int), part_rows=300)
    >>> len(select_from_shards(source, 10))
    10
    """
    runtime = runtime or Runtime()
    count = as_size(size, source.rows)
    map = settle_features(features, intercept, source)
    request = Request(count, map, **options).within(runtime)
    workers = hired(executor, source, request, runtime)
    # A source has a length and a fingerprint, which is what points are checked against.
    points = as_start(initial, cast(Dataset, source), count).points
    with workers, runtime.applied():
        return Selection(source, outer, request, workers, runtime, state).run(points)


class Selection:
    """One selection: its moments, its points so far, its passes."""

    def __init__(
        self,
        source: ShardSource,
        outer: ShardSource | None,
        request: Request,
        executor: Executor,
        runtime: Runtime,
        state: str | os.PathLike[str] | None,
    ) -> None:
        self.source = source
        self.outer_source = outer
        self.request = request
        self.executor = executor
        self.runtime = runtime
        self.clock = Clock(runtime.max_seconds)
        self.fingerprint = source.fingerprint()
        self.state = state
        self.progress: Progress | None = None
        self.positions: list[int] = []
        self.rows: list[Array] = []
        self.targets: list[Array] = []
        self.objectives: list[float] = []
        self.passes = 0
        self.certain = 0
        #: Points that were in from the start, which exchanges leave alone.
        self.kept = 0
        #: A gain that some free row is known to have.
        self.floor = -np.inf
        self.quotas: Quotas | None = None
        self.notes: list[str] = [
            *getattr(source, "notes", ()),
            *beyond_limit(source, request, runtime),
        ]
        #: Why the objective could not be verified; empty if it was.
        self.unverified = ""
        #: For each row left out, where it lies; not known of rows that an earlier run counted.
        self.bad_places: list[str] = []
        # When the passes of this run began, and how many there were before it.
        self.passes_began, self.passes_before = 0.0, 0

    def _named(self, initial: Sequence[int]) -> dict[str, Any]:
        """What a state must share to be gone on with."""
        asked = {
            name: getattr(self.request, name)
            for name in ("size", "rule", "passes", "inner_reg", "exchange", "skip_bad", "shortlist")
        }
        return {
            "fingerprint": self.fingerprint,
            "features": self.request.features.identity,
            "prior": repr(self.request.prior),
            "quotas": repr(self.request.quotas),
            "outer": None if self.outer_source is None else self.outer_source.fingerprint(),
            "initial": [int(position) for position in initial],
            **asked,
        }

    def run(self, initial: Sequence[int]) -> Coreset:
        self.kept = len(initial)
        if self.state is None:
            return self._run(initial)
        with Progress(Path(self.state), self._named(initial)) as self.progress:
            return self._run(initial)

    def _run(self, initial: Sequence[int]) -> Coreset:
        with ProgressLine(
            self.runtime.progress, self.clock, self.request.size, "selecting"
        ) as self.line:
            try:
                self._count()
                check_scale(self.outer.energy, self.moments.second, single=True)
                ridge = self.request.inner_reg * (self.outer.energy or 1.0)
                self.growing = Growing(self.outer, ridge, self.executor.device)
                self._restore(initial)
                self.passes_began, self.passes_before = self.clock.seconds, self.passes
                whole = True
                while whole and len(self.positions) < self.request.size:
                    self._look()
                    whole = self._pass()
                    self._save()
                self._verify()
                self._exchange()
            except (TimeOver, KeyboardInterrupt) as stop:
                return self._coreset(*self._stopped(stop))
        return self._coreset(*((Status.COMPLETE, "") if whole else self._too_few()))

    def _stopped(self, stop: BaseException) -> tuple[Status, str]:
        """Make whole what there is: the points that were kept, and their fit from nothing."""
        late = type(stop) is TimeOver
        count = min(len(self.positions), len(self.rows), len(self.targets))
        if not count:
            if not late:
                raise stop
            raise TimeLimitError(
                f"max_seconds={self.runtime.max_seconds:.3g} was over after "
                f"{self.clock.seconds:.2g} s, before a first point was chosen: all rows are read "
                "once before that, and once for the first; raise max_seconds."
            ) from None
        self.positions, self.rows = self.positions[:count], self.rows[:count]
        self.targets = self.targets[:count]
        points = np.array(self.rows), np.array(self.targets)
        self.growing = Growing.of(self.outer, self.growing.ridge, *points, self.executor.device)
        self.objectives = [*self.objectives[: count - 1], self.growing.objective]
        words = f"{count} of {self.request.size} points when "
        if not late:
            return Status.INTERRUPTED, f"{words}it was interrupted"
        whole = count == self.request.size
        return Status.LESS_REFINED if whole else Status.OUT_OF_TIME, f"{words}the time was over"

    # Passes in general.

    def _each(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        """Results of a pass, part by part; progress is told of, and the clock is looked at."""
        parts = len(source.parts)
        for done, one in enumerate(self.executor.map(work, source), 1):
            yield one
            self._tell(done / parts)
            if done < parts:
                self._look()

    def _look(self) -> None:
        if self.clock.over:
            raise TimeOver

    def _tell(self, share: float) -> None:
        """Points so far and the time left, from how long passes took; ``share`` is of this one."""
        if not self.positions:
            self.line.prepare(share)
            return
        done, size = len(self.positions), self.request.size
        made = self.passes - self.passes_before + share
        left = passes_left(done, size, self.request.passes == "exact") - share
        pace = (self.clock.seconds - self.passes_began) / made
        self.line.update(done, self.growing.objective, max(left, 0.0) * pace)

    # The first pass.

    def _count(self) -> None:
        held = None if self.progress is None else self.progress.moments()
        if held is None:
            held = self._known()
            if self.progress is not None:
                self.progress.keep_moments(held)
        self.moments, self.longest, self.bad = held
        if self.bad or self.bad_places:
            self.notes.append(left_out(max(self.bad, len(self.bad_places)), self.bad_places))
        self.classes = None if self.moments.classes is None else np.array(self.moments.classes)
        if self.classes is not None and len(self.classes) == 1 and self.source.rows > 1:
            raise InputError(
                f"y holds a single class ({self.classes.tolist()[0]!r}); two are needed."
            )
        self.outer = self._centre_targets() if self.classes is None else self._centre_classes()
        self.quotas = Quotas.of(self.request.quotas, self.classes, self.request.size)

    def _known(self) -> tuple[Moments, float, int]:
        """Moments of what is judged by; longest and bad rows of those that may be chosen."""
        if self.outer_source is None:
            return self._counted(self.source)
        moments = self._counted(self.outer_source)[0]
        longest, bad = self._measured(moments)
        return moments, longest, bad

    def _counted(self, source: ShardSource) -> tuple[Moments, float, int]:
        empty = self._empty(source)
        total, longest, bad = empty, 0.0, 0
        shift = self._shift(source) if empty.classes is None else None
        counting = Counting(self.request.features, empty, self.request.skip_bad, shift)
        for part, one in zip(source.parts, self._each(counting, source), strict=True):
            total = total + one.moments
            longest, bad = max(longest, one.longest), bad + one.bad
            self.bad_places += [part.place] * one.bad
        if total.classes is not None:
            total = total._ordered(sorted(total.classes))
        return total, longest, bad

    def _measured(self, moments: Moments) -> tuple[float, int]:
        """Of the rows that may be chosen, where others are judged by."""
        measuring = Measuring(self.request.features, self.request.skip_bad)
        known = None if moments.classes is None else set(moments.classes)
        longest, bad = 0.0, 0
        for part, one in zip(self.source.parts, self._each(measuring, self.source), strict=True):
            longest, bad = max(longest, one.longest), bad + one.bad
            self.bad_places += [part.place] * one.bad
            strange = [] if known is None else [name for name in one.classes if name not in known]
            if strange:
                raise InputError(
                    f"{part.place or self.source.name} holds the class {strange[0]!r}, which "
                    "outer has no row of; add such rows to outer, or leave the class out."
                )
        return longest, bad

    def _empty(self, source: ShardSource) -> Moments:
        """Moments of no rows, for labels or targets as the first part has them."""
        y = source.read(source.parts[0]).y
        width = self.request.features.width
        apart = self.request.prior != "data"
        outputs = 1
        if y is None:
            raise InputError(
                f"{source.name} has no labels; name them (target=…, labels=…): moments of "
                "unlabelled rows are not selected by yet."
            )
        targets = y.dtype.kind == "f"
        if targets:
            outputs = int(np.prod(y.shape[1:])) or 1
        check_room(width, outputs, apart, self.runtime.memory_bytes())
        if targets:
            return Moments.empty(width, classes=None, targets=outputs)
        return Moments.empty(width, apart=apart)

    def _shift(self, source: ShardSource) -> Array:
        """A value near the mean of the targets; sums of what is left keep their digits.

        Zeros without a constant feature: the mean itself is then not known.
        """
        y = first_rows(source).y
        assert y is not None
        targets = np.asarray(y, np.float64).reshape(len(y), -1)
        sound = targets[np.isfinite(targets).all(1)]
        if self._constant is None or not len(sound):
            return np.zeros(targets.shape[1])
        return np.asarray(sound.mean(0))

    @property
    def _constant(self) -> float | None:
        """The constant feature, behind all others."""
        features = self.request.features
        return features.value if isinstance(features, WithConstant) else None

    def _centre_targets(self) -> Outer:
        """The objective for targets less their mean, as on rows in memory."""
        outer = self.moments.outer()
        self.centre = self._shift(self.outer_source or self.source)
        constant = self._constant
        if constant is None:
            return outer
        means = outer.means(constant)
        self.centre = self.centre + means[1]
        return outer.centred(*means)

    def _centre_classes(self) -> Outer:
        """The objective for one-hot labels less the share of each class, as on rows in memory."""
        assert self.classes is not None
        prior = "stream" if self.request.prior == "data" else self.request.prior
        outer = self.moments.outer(prior)
        self.centre = self.moments.shares(prior)
        if prior != "stream" and np.count_nonzero(self.centre) < 2 <= len(self.classes):
            raise InputError(
                f"prior={prior!r} must give at least two classes of the data a share above 0; "
                f"the classes are {', '.join(map(repr, self.classes.tolist()))}."
            )
        return outer.centred(outer.cross.sum(1), self.centre)

    # Further passes.

    def _pass(self) -> bool:
        """Score all rows; take points among the best. False if no row may be taken."""
        if self.quotas is not None and not self.quotas.next(self._counts()).any():
            return False
        found = self._shortlist(self._open(), self._gains())
        if found is None:
            return False
        shortlist, below = found
        self._see_spent(shortlist)
        before = 1.0 * self.growing.change, 1.0 * self.growing.model
        for _ in range(self._points_of_a_pass()):
            self._require_second_class()
            shortlist.allow(self._allowed(shortlist.targets))
            place, value = shortlist.peak(self.request.rule)
            if not np.isfinite(value):
                break  # all of the shortlist that may be taken is
            self.certain += self._sure(value, below, before)
            shortlist.take(self.growing, place)
            self._keep(
                int(shortlist.positions[place]), shortlist.features[place], shortlist.targets[place]
            )
        if self._exact_gains:
            shortlist.allow(self._allowed(shortlist.targets))
            self.floor = shortlist.peak(self.request.rule)[1]
        return True

    def _sure(self, value: float, below: float, before: tuple[Any, Any]) -> bool:
        """Whether no row that the pass left out can be worth more by now."""
        if value < below:
            return False
        shares = None if self.classes is None else self.centre
        most = below + growth(before, self.growing, self.longest, shares)
        if self.request.rule == "gain" and not self._exact_gains:
            most = max(most, 0.0)  # the gain of a row is at most its slope where that is above 0
        return value >= most

    @property
    def _exact_gains(self) -> bool:
        return self.request.passes == "exact" and self.request.rule == "gain"

    def _gains(self) -> Gains | None:
        """What rows are judged by in a pass that gives one point, by its gain."""
        if not self._exact_gains:
            return None
        inverse = self.growing.inverse
        turned = inverse @ self.growing.second @ inverse
        return Gains(on_host(inverse), on_host(turned), self.floor)

    # Quotas.

    @property
    def _needs_two_classes(self) -> bool:
        """Whether points of a single class are refused: they train no classifier."""
        several = self.classes is not None and len(self.classes) > 1 and self.request.size > 1
        return several and self._constant is not None and not self.kept

    def _require_second_class(self) -> None:
        """Keep the last point for another class if all others are of one."""
        if not self._needs_two_classes or self.quotas is not None:
            return
        last = self.request.size - 1
        counts = self._counts()
        if len(self.positions) == last == counts.max():
            assert self.classes is not None
            label = self.classes.tolist()[int(counts.argmax())]
            self.quotas = Quotas.of({label: last}, self.classes, self.request.size)
            self.notes.append(f"classes: the last point is of another class than {label!r}")

    def _limits(self) -> Array | None:
        """The most points of each class that exchanges may lead to."""
        if self.quotas is not None:
            return self.quotas.limits(self._counts())
        if not self._needs_two_classes:
            return None
        assert self.classes is not None
        return np.full(len(self.classes), len(self.positions) - 1)

    def _counts(self) -> Array:
        """How many points each class has."""
        assert self.classes is not None
        codes = self._codes(np.array(self.targets).reshape(len(self.targets), len(self.classes)))
        return np.bincount(codes, minlength=len(self.classes))

    def _codes(self, targets: Array) -> Array:
        """Places of classes, from one-hot labels less the shares."""
        found: Array = (targets + self.centre).argmax(1)
        return found

    def _open(self) -> Array | None:
        """Places of the classes of which a pass looks for rows; None: all."""
        if self.quotas is None:
            return None
        exact = self.request.passes == "exact"
        found = (self.quotas.next if exact else self.quotas.open)(self._counts())
        return np.flatnonzero(found)

    def _allowed(self, targets: Array) -> Array | None:
        """Which of some rows the quotas let be the next point; None: all."""
        if self.quotas is None:
            return None
        allowed: Array = self.quotas.next(self._counts())[self._codes(targets)]
        return allowed

    def _see_spent(self, shortlist: Shortlist) -> None:
        """Classes that were looked for and of which no row is free are spent."""
        if self.quotas is None:
            return
        gone = np.zeros(len(self.quotas.spent), dtype=bool)
        gone[self._open()] = True
        gone[self._codes(shortlist.targets)] = False
        self.quotas = replace(self.quotas, spent=self.quotas.spent | gone)

    def _too_few(self) -> tuple[Status, str]:
        """Why there are fewer points than requested."""
        why = "no other row has a weight above 0"
        if self.quotas is not None:
            why = "the quotas allow no more"
        return Status.FEWER, f"{len(self.positions)} of {self.request.size} points: {why}"

    # Rows that are worth a closer look.

    def _shortlist(
        self, classes: Array | None = None, gains: Gains | None = None
    ) -> tuple[Shortlist, float] | None:
        """The best rows of a pass, and what others are worth at most; None if there are none."""
        found = self._found(classes, gains)
        self.passes += 1
        if not len(found.positions):
            return None
        assert found.y is not None
        features = found.features(self._fetch(found.missing()))
        rows = Shortlist(self.growing, found.positions, features, self._targets(found.y))
        return rows, found.below

    def _found(self, classes: Array | None, gains: Gains | None) -> Merged:
        count = rows_of_a_pass(self.request)
        scoring = Scoring(
            self.request.features,
            on_host(self.growing.change),
            on_host(self.growing.model),
            self.centre,
            self.classes,
            count,
            np.array(sorted(self.positions), dtype=np.int64),
            some_bad=self.bad > 0,
            gains=gains,
            open=classes,
            listed=rows_of_a_part(self.request, len(self.source.parts)),
        )
        merged = Merged(count, self.classes, classes)
        for one in self._each(scoring, self.source):
            merged.add(one)
        return merged

    def _fetch(self, positions: Array) -> Array:
        """The features of rows at these positions, read again."""
        if not len(positions):
            return np.empty((0, self.request.features.width))
        fetching = Fetching(self.request.features, positions)
        return np.concatenate(list(self.executor.map(fetching, self.source)))

    def _points_of_a_pass(self) -> int:
        exact = self.request.passes == "exact"
        return points_of_a_pass(len(self.positions), self.request.size, exact)

    def _targets(self, y: Array) -> Array:
        if self.classes is None:
            return np.asarray(np.asarray(y, np.float64).reshape(len(y), -1) - self.centre)
        return np.asarray(np.eye(len(self.classes))[codes_of(y, self.classes)] - self.centre)

    # The end.

    def _verify(self) -> None:
        """Compare the sum of the steps with a refit; if they differ, report the refit."""
        if not self.rows:
            return
        summed = self.growing.objective
        try:
            fitted = self.growing.refit(np.array(self.rows), np.array(self.targets))
        except np.linalg.LinAlgError:
            self.unverified = "objective: not verified, the refit failed; raise inner_reg"
            return
        if not abs(fitted - summed) <= DRIFT * self.outer.constant:
            self.objectives[-1] = fitted
            self.unverified = (
                f"objective: {fitted:.6g} by a refit; the selection computed {summed:.6g}; raise "
                "inner_reg"
            )

    def _exchange(self) -> None:
        """Exchanges among the chosen and the best that are not, where their pairs can be held.

        A pass with the points as they are finds who else is worth a look; another follows while
        exchanges help.
        """
        asked = self.request.exchange and self.request.passes != "exact" and not self.unverified
        room = self.request.most_exchanged - len(self.positions)
        if not asked or room < 1:
            return
        made, before = 0, self.growing.objective
        for _ in range(ROUNDS):
            self._look()
            try:
                helped = self._exchanged_once(room)
            except NumericalError as error:  # the points chosen so far are kept
                self.notes.append(f"exchanges stopped: {error}")
                break
            made += helped
            if not helped:
                break
        if made:
            self.objectives = [*self.objectives[:-1], self.growing.objective]
            self.notes.append(
                f"{made} exchanges lowered the objective from {before:.6g} to "
                f"{self.growing.objective:.6g}"
            )

    def _exchanged_once(self, room: int) -> int:
        every = None if self.quotas is None else np.arange(len(self.quotas.spent))
        found = self._shortlist(every)
        if found is None:
            return 0
        shortlist = found[0]
        others = shortlist.leaders(room)
        features = np.vstack([np.array(self.rows), shortlist.features[others]])
        targets = np.vstack([np.array(self.targets), shortlist.targets[others]])
        numbers = np.arange(len(features))
        inside = numbers < len(self.positions)
        limits = self._limits()
        rows = Bounded(
            self.outer,
            features,
            targets,
            self.growing.ridge,
            inside,
            kept=numbers < self.kept,
            codes=None if limits is None else self._codes(targets),
            limits=limits,
        )
        made = improve(rows)
        if made:
            positions = np.concatenate([self.positions, shortlist.positions[others]]).astype(int)
            own = np.flatnonzero(rows.inside)  # those that stayed, then those that came
            self.positions = positions[own].tolist()
            self.rows, self.targets = list(features[own]), list(targets[own])
            self.growing = Growing.of(
                self.outer,
                self.growing.ridge,
                features[own],
                targets[own],
                self.executor.device,
            )
        return made

    def _coreset(self, status: Status, message: str) -> Coreset:
        if self.source.fingerprint() != self.fingerprint:
            raise InputError(
                f"{self.source.name} changed while it was selected from; select again."
            )
        provenance = Provenance(
            method=f"shards, {self.request.rule}",
            rows=self.source.rows,
            seconds=self.clock.seconds,
            fingerprint=self.fingerprint,
            empty_objective=self.outer.constant,
            inner_reg=self.growing.ridge,
            classes=None if self.classes is None else tuple(self.classes.tolist()),
            notes=tuple(self.notes),
        )
        details = {"passes": self.passes, "certain": self.certain, "bad_rows": self.bad}
        coreset = Coreset(
            np.array(self.positions, dtype=np.int64),
            objectives=np.array(self.objectives),
            status=status,
            message=message,
            provenance=provenance,
            details=details,
        )
        return mark_unverified(coreset, self.unverified) if self.unverified else coreset

    # State.

    def _restore(self, initial: Sequence[int]) -> None:
        held = None if self.progress is None else self.progress.points()
        if held is None:
            self._begin(initial)
            return
        positions, features, targets, self.passes, self.certain = held
        for position, row, target in zip(positions.tolist(), features, targets, strict=True):
            self._join(position, row, target)

    def _begin(self, initial: Sequence[int]) -> None:
        """Points that are in from the start, read from their parts."""
        for position in initial:
            part = next(one for one in self.source.parts if one.start <= position < one.stop)
            chunk = self.source.read(part)
            place = slice(position - part.start, position - part.start + 1)
            assert chunk.y is not None
            row = exact_features(chunk.x[place], self.request.features)[0]
            self._join(position, row, self._targets(chunk.y[place])[0])

    def _join(self, position: int, row: Array, target: Array) -> None:
        self.growing.take(row, target)
        self._keep(position, row, target)

    def _keep(self, position: int, row: Array, target: Array) -> None:
        self.positions.append(position)
        self.rows.append(np.array(row))  # of its own: a view keeps its whole shortlist
        self.targets.append(np.array(target))
        self.objectives.append(self.growing.objective)

    def _save(self) -> None:
        if self.progress is not None:
            self.progress.keep_points(
                np.array(self.positions, dtype=np.int64),
                np.array(self.rows),
                np.array(self.targets),
                self.passes,
                self.certain,
            )

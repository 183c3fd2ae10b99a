"""A coreset of rows that are never loaded whole.

The first pass counts all rows into moments: the objective is p² numbers from then on. Every further
pass scores all rows by their slopes, and each part gives its steepest ones; among these, points are
taken by their exact gains, which bring all of the shortlist up to date. One point a pass is exact.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch

from bicore.coreset import Coreset, Provenance, Status
from bicore.data import Array, Dataset
from bicore.errors import InputError, NumericalError, TimeLimitError, unknown_name
from bicore.moments.candidates import Candidates
from bicore.moments.choosing import improve
from bicore.moments.features import FeatureMap, Rows, as_feature_map
from bicore.moments.moments import Moments, Outer, check_room
from bicore.picking import as_start
from bicore.runtime import Clock, Runtime
from bicore.runtime.clock import TimeOver
from bicore.runtime.progress import ProgressLine
from bicore.shards.arithmetic import on_host
from bicore.shards.bound import growth
from bicore.shards.executors import Executor, Threads, Work
from bicore.shards.growing import Growing
from bicore.shards.room import Shape, most_pairs, shape_of
from bicore.shards.shortlist import Shortlist
from bicore.shards.source import ShardSource
from bicore.shards.state import Progress
from bicore.shards.work import Counting, Found, Measuring, Scoring, codes_of, exact_features

T = TypeVar("T")

#: ρ as a share of the mean of ‖φ‖².
SHARE = 0.1
#: Rows that a pass returns in all, and at least of a part.
SHORTLIST, LEAST_OF_PART = 8192, 16
#: Points taken from a pass: at least, and as a share of those there are. In trials with 10 000
#: embeddings the objective stayed within half a percent of one point a pass.
LEAST_A_PASS, SHARE_A_PASS = 1, 0.2
#: Exchanges at the end are made among so many rows at most, fewer under a memory limit: their pairs
#: are held.
MOST_EXCHANGED = 1500
#: Passes that look for exchanges, at most.
ROUNDS = 3
#: What steps may be off a fit from nothing, as a share of the empty model's loss.
DRIFT = 1e-6
RULES = ("gain", "gradient")


@dataclass(frozen=True)
class Request:
    """What is asked of a selection from shards, checked.

    Parameters
    ----------
    size : int
        How many points.
    features : FeatureMap
        What rows are compared in; by default the rows, brought to length 1.
    rule : {"gain", "gradient"}
        How points are taken from a shortlist.
    passes : {"auto", "exact"}
        How many points a pass gives: some, or one, which is exact for the slopes.
    inner_reg : float, optional
        ρ as a share of the mean of ‖φ‖².
    prior : str or mapping
        "data", "equal", or shares by label.
    exchange : bool
        Whether exchanges are made among the chosen and their runners-up at the end.
    skip_bad : bool
        Whether rows that are not finite are left out and counted; else they are an error.
    shortlist : int
        Rows that a pass returns.
    most_exchanged : int
        Rows among which exchanges are made, at most: their pairs are held.

    Examples
    --------
    >>> Request(10).rule
    'gain'
    """

    size: int
    features: FeatureMap = field(default_factory=lambda: Rows().unit())
    rule: str = "gain"
    passes: str = "auto"
    inner_reg: float = SHARE
    prior: Any = "data"
    exchange: bool = True
    skip_bad: bool = False
    shortlist: int = SHORTLIST
    most_exchanged: int = MOST_EXCHANGED

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise unknown_name("rule", self.rule, RULES)
        if self.passes not in ("auto", "exact"):
            raise unknown_name("passes", self.passes, ("auto", "exact"))
        self._check_regulariser()

    def within(self, runtime: Runtime) -> Request:
        """The same under a memory limit, where one was given: what is free changes no picks.

        Parameters
        ----------
        runtime : Runtime
            With the limit.

        Returns
        -------
        Request
            With fewer rows among which exchanges are made, where their pairs would not fit.
        """
        if runtime.memory is None:
            return self
        fits = most_pairs(runtime.memory_bytes())
        return replace(self, most_exchanged=min(self.most_exchanged, fits))

    def _check_regulariser(self) -> None:
        if not (np.isfinite(self.inner_reg) and self.inner_reg > 0):
            raise InputError(
                f"inner_reg={self.inner_reg!r} is not a positive number; give a share of the mean "
                "of ‖φ‖² such as 0.1."
            )


def select_from_shards(
    source: ShardSource,
    size: int | float,
    *,
    outer: ShardSource | None = None,
    initial: Coreset | Sequence[int] = (),
    features: Any = None,
    executor: Executor | None = None,
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
    executor : Executor, optional
        Who works on parts; by default threads of this process, as many as the runtime has.
    state : path, optional
        A folder: a selection that was stopped goes on from what it holds, to the same points.
    runtime : Runtime, optional
        Memory, threads, time limit, progress (a step after every part of a pass).
    **options
        Of the selection: rule, passes, inner_reg, prior, exchange, skip_bad.

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
    >>> from bicore.shards.sources import ArrayShards
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 8))
    >>> source = ArrayShards(x, (x[:, 0] > 0).astype(int), part_rows=300)
    >>> len(select_from_shards(source, 10))
    10
    """
    runtime = runtime or Runtime()
    count = size_of(size, source.rows)
    given = Rows().unit() if features is None else as_feature_map(features)
    request = Request(count, given.settled(first_rows(source)), **options).within(runtime)
    workers = executor or _threads(source, request, runtime)
    # A source has a length and a fingerprint, which is what points are checked against.
    points = as_start(initial, cast(Dataset, source), count).points
    with workers, runtime.applied():
        return Selection(source, outer, request, workers, runtime, state).run(points)


#: Rows that a feature map is settled on.
FIRST_ROWS = 1000


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
        self.notes: list[str] = list(getattr(source, "notes", ()))
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
            "outer": None if self.outer_source is None else self.outer_source.fingerprint(),
            "initial": [int(position) for position in initial],
            **asked,
        }

    def run(self, initial: Sequence[int]) -> Coreset:
        if self.state is not None:
            self.progress = Progress(Path(self.state), self._named(initial))
        with ProgressLine(self.runtime, self.clock, self.request.size, "selecting") as self.line:
            try:
                self._count()
                ridge = self.request.inner_reg * self.outer.energy
                self.growing = Growing(self.outer, ridge, self.executor.device)
                self._restore(initial)
                self.passes_began, self.passes_before = self.clock.seconds, self.passes
                while len(self.positions) < self.request.size:
                    self._look()
                    self._pass()
                    self._save()
                self._check()
                self._exchange()
            except (TimeOver, KeyboardInterrupt) as stop:
                return self._coreset(*self._stopped(stop))
        return self._coreset(Status.COMPLETE, "")

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
            self.notes.append(_left_out(max(self.bad, len(self.bad_places)), self.bad_places))
        self.classes: Array | None = None
        self.centre = self.moments.cross.sum(0) * 0.0
        if self.moments.classes is not None:
            self.classes = np.array(self.moments.classes)
            self.centre = self.moments.counts / self.moments.weight
        self.outer = self._centred()

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
        counting = Counting(self.request.features, empty, self.request.skip_bad)
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

    def _centred(self) -> Outer:
        """The objective for one-hot labels less the share of each class, as on rows in memory."""
        prior = "stream" if self.request.prior == "data" else self.request.prior
        outer = self.moments.outer(prior)
        if self.classes is None:
            return outer
        if prior != "stream":
            shares = self.moments.shares(prior)
            self.centre = shares
        mean = outer.cross.sum(1)
        cross = outer.cross - np.multiply.outer(mean, self.centre)
        constant = 1.0 - float(self.centre @ self.centre)
        return Outer(outer.second, cross, constant, outer.share)

    # Further passes.

    def _pass(self) -> None:
        """Score all rows; take points among the steepest."""
        shortlist, below = self._shortlist()
        before = 1.0 * self.growing.change, 1.0 * self.growing.model
        for _ in range(self._points_of_a_pass()):
            place, value = shortlist.peak(self.request.rule)
            if not np.isfinite(value):
                break  # all of the shortlist is taken
            if value >= below:  # the gain of a row is at most its slope
                grown = growth(before, self.growing, self.longest, self.centre)
                self.certain += value >= below + grown
            shortlist.take(self.growing, place)
            self._keep(
                int(shortlist.positions[place]), shortlist.features[place], shortlist.targets[place]
            )

    def _shortlist(self) -> tuple[Shortlist, float]:
        """The steepest rows of a pass, and the steepest slope of the others."""
        found = self._found()
        self.passes += 1
        positions = np.concatenate([one.positions for one in found])
        if not len(positions):
            raise InputError(
                f"{self.source.name} has {len(self.positions)} rows that may be chosen, and "
                f"size={self.request.size}; ask for fewer."
            )
        features = np.concatenate([one.features for one in found])
        labels = np.concatenate([one.y for one in found if one.y is not None and len(one.y)])
        rows = Shortlist(self.growing, positions, features, self._targets(labels))
        return rows, max(one.below for one in found)

    def _found(self) -> list[Found]:
        count = rows_of_a_part(self.request, len(self.source.parts))
        scoring = Scoring(
            self.request.features,
            on_host(self.growing.change),
            on_host(self.growing.model),
            self.centre,
            self.classes,
            count,
            np.array(sorted(self.positions), dtype=np.int64),
            some_bad=self.bad > 0,
        )
        return list(self._each(scoring, self.source))

    def _points_of_a_pass(self) -> int:
        exact = self.request.passes == "exact"
        return points_of_a_pass(len(self.positions), self.request.size, exact)

    def _targets(self, y: Array) -> Array:
        if self.classes is None:
            return np.asarray(np.asarray(y, np.float64).reshape(len(y), -1) - self.centre)
        return np.asarray(np.eye(len(self.classes))[codes_of(y, self.classes)] - self.centre)

    # The end.

    def _check(self) -> None:
        """What the steps add up to is held against a fit from nothing."""
        if not self.rows:
            return
        fitted = self.growing.refit(np.array(self.rows), np.array(self.targets))
        if not abs(fitted - self.growing.objective) <= DRIFT * self.outer.constant:
            raise NumericalError(
                f"the objective of {len(self.rows)} points is {fitted:.6g}, and its steps add up "
                f"to {self.growing.objective:.6g}; raise inner_reg."
            )

    def _exchange(self) -> None:
        """Exchanges among the chosen and the best that are not, where their pairs can be held.

        A pass with the points as they are finds who else is worth a look; another follows while
        exchanges help.
        """
        asked = self.request.exchange and self.request.passes != "exact"
        room = self.request.most_exchanged - len(self.positions)
        if not asked or room < 1:
            return
        made, before = 0, self.growing.objective
        for _ in range(ROUNDS):
            self._look()
            helped = self._exchanged_once(room)
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
        shortlist = self._shortlist()[0]
        values = shortlist.values("gain")
        others = np.argsort(-values, kind="stable")[:room]
        features = np.vstack([np.array(self.rows), shortlist.features[others]])
        targets = np.vstack([np.array(self.targets), shortlist.targets[others]])
        inside = np.arange(len(features)) < len(self.positions)
        rows = Candidates(self.outer, features, targets, self.growing.ridge, inside)
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
        return Coreset(
            np.array(self.positions, dtype=np.int64),
            objectives=np.array(self.objectives),
            status=status,
            message=message,
            provenance=provenance,
            details=details,
        )

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


def rows_of_a_part(request: Request, parts: int) -> int:
    """How many rows of each part are looked at closely."""
    exact = request.passes == "exact"
    return LEAST_OF_PART if exact else max(LEAST_OF_PART, request.shortlist // parts)


def lengths(source: ShardSource, request: Request) -> Shape:
    """What memory and work of a selection depend on."""
    parts = len(source.parts)
    listed = min(source.rows, parts * rows_of_a_part(request, parts))
    most = request.most_exchanged
    asked = request.exchange and request.passes != "exact" and request.size < most
    exchanged = min(most, request.size + listed) if asked else 0
    return shape_of(
        source, request.features, request.size, listed, exchanged, request.prior != "data"
    )


def _threads(source: ShardSource, request: Request, runtime: Runtime) -> Threads:
    """As many as the runtime has and its memory limit lets work at a time."""
    most = runtime.threads or torch.get_num_threads()
    if most > 1:
        most = lengths(source, request).workers_within(runtime.memory_bytes(), most)
    return Threads(most)


def points_of_a_pass(done: int, size: int, exact: bool) -> int:
    """How many points the next pass gives."""
    if exact:
        return 1
    return min(size - done, max(LEAST_A_PASS, int(SHARE_A_PASS * done)))


def passes_left(done: int, size: int, exact: bool) -> int:
    """How many passes the points that are missing take, exchanges apart."""
    if exact:
        return size - done
    count = 0
    while done < size:
        done += points_of_a_pass(done, size, exact)
        count += 1
    return count


#: How many files with bad rows are named.
MOST_NAMED = 5


def _left_out(bad: int, places: list[str]) -> str:
    """How many rows were left out, and where: ``places`` has a name for each of them."""
    counts = Counter(place for place in places if place)
    named = ", ".join(f"{count} in {place}" for place, count in counts.most_common(MOST_NAMED))
    more = " …" if len(counts) > MOST_NAMED else ""
    return f"{bad} rows with values that are not finite were left out" + (
        f" ({named}{more})" if named else ""
    )


def first_rows(source: ShardSource) -> Array:
    """What a map is settled on; rows that are not finite are someone else's matter."""
    rows = np.array(source.read(source.parts[0]).x[:FIRST_ROWS])
    sound = np.isfinite(rows).reshape(len(rows), -1).all(1)
    return rows[sound] if sound.any() else np.zeros_like(rows[:1])


def size_of(size: Any, rows: int) -> int:
    """How many points, from a count or a fraction."""
    count = int(size * rows) if 0 < size < 1 else int(size)
    if not 1 <= count <= rows or (size >= 1 and count != size):
        raise InputError(
            f"size={size!r} is neither a whole number from 1 to the {rows} rows nor a fraction of "
            "them."
        )
    return count

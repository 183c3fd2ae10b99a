"""Select a coreset in passes over rows, which are never loaded at once.

The first pass sums all rows into moments, after which the objective is p² numbers. Every further
pass scores all rows by their gradients, and each part returns a shortlist; from the shortlist,
points are taken by their exact gains, which are updated after each point. With one point per pass
the selection is exact: it takes the row of the steepest gradient, or the largest gain, of all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar, cast

import numpy as np
import torch

from bicore._deprecated import renamed_keywords
from bicore.arguments import TIE, Relative, as_size, read_initial
from bicore.bilevel.greedy import AtMost, Outcome, QuotaRule, unrefined_outcome
from bicore.coreset import Coreset, Provenance, Status, describe_early_end, mark_unverified
from bicore.data import Array, Dataset
from bicore.errors import InputError, NumericalError, TimeLimitError
from bicore.kernels.scaling import SINGLE_RANGE, check_scale
from bicore.moments.features import FeatureMap
from bicore.moments.moments import Moments, Outer, as_inner_reg, check_room, refuse_bad_shares
from bicore.moments.ridge import DRIFT, FeatureRows, FeatureState, exchange_rows, to_host
from bicore.runtime.clock import Clock, ProgressLine, TimeOver
from bicore.runtime.context import Runtime
from bicore.shards.counting import CountWork, FetchWork, PartCounts, PartRows, encode
from bicore.shards.executors import DaskExecutor, Executor, GPUExecutor, Threads, Work
from bicore.shards.request import (
    MOST_EXCHANGED,
    ROUNDS,
    SHORTLIST,
    ClassLimits,
    Request,
    Shape,
    first_rows,
    make_request,
)
from bicore.shards.scoring import GainTerms, ScoreWork, Shortlist
from bicore.shards.state import StateFolder
from bicore.sources.parts import Chunk, ShardSource, check_values
from bicore.types import PathLike

T = TypeVar("T")

#: Digits of a gain, relative to the largest, that decide exchanges.
TIE_DIGITS = 10
#: Maximum number of files named in a note on bad rows.
MOST_NAMED = 5


@renamed_keywords()
def select_from_shards(
    source: ShardSource,
    size: int | float,
    *,
    outer: ShardSource | None = None,
    initial: Coreset | Sequence[int] = (),
    feature_map: str | FeatureMap | torch.nn.Module | None = None,
    intercept: float | str = "auto",
    rule: str = "gain",
    exact: bool = False,
    inner_reg: float | str | Relative = "auto",
    prior: str | Mapping[Any, float] = "data",
    quotas: str | Mapping[Any, int] | QuotaRule | None = None,
    exchange: bool = True,
    skip_bad: bool = False,
    shortlist: int = SHORTLIST,
    executor: Executor | str | None = None,
    state: PathLike | None = None,
    runtime: Runtime | None = None,
) -> Coreset:
    """Select points from a source of any length in bounded memory.

    Parameters
    ----------
    source : ShardSource
        The rows; see :func:`bicore.sources.open_shards`.
    size : int or float
        Number of rows to select, or a fraction of all rows.
    outer : ShardSource, optional
        Rows on which the objective is measured; by default the source itself.
    initial : Coreset or sequence of int
        Positions of points that are in from the start.
    feature_map : str, FeatureMap or torch.nn.Module, optional
        Features in which rows are compared; by default the rows themselves, scaled to length 1.
    intercept : float or "auto"
        The square of a constant feature, as a share of the mean of ‖φ‖² over the first rows; "auto"
        is 1. With 0 there is none: points may then all come from one class, and targets are used
        without subtracting their mean.
    rule : "gain" or "gradient"
        How points are scored.
    exact : bool
        Take one point a pass, the best of all rows.
    inner_reg : float, Relative or "auto"
        The regulariser ρ, or a share of the mean of ‖φ‖²; "auto" is "relative:0.1".
    prior : "data", "equal" or mapping
        Whether classes count by their frequency, equally, or by shares by label.
    quotas : "balanced" or mapping, optional
        One point of every class per round, or the most points of each class by its label.
    exchange : bool
        Whether rows are exchanged at the end; never with ``exact``, or from 1,500 rows.
    skip_bad : bool
        Leave out rows that are not finite.
    shortlist : int
        Rows that a pass returns.
    executor : Executor or str, optional
        Works on the parts; by default the runtime's GPU if it has one, else threads of this
        process, as many as the runtime has. The address of a Dask scheduler such as
        ``"tcp://10.0.0.1:8786"`` means its workers.
    state : path, optional
        A folder: a selection that was stopped continues from it, to the same points.
    runtime : Runtime, optional
        Memory, threads, time limit, progress (a step after every part of a pass).

    Returns
    -------
    Coreset
        Positions in the order of selection; ``details`` count the passes, and the picks that no
        unseen row could have beaten.

    Raises
    ------
    InputError
        If an argument is invalid, or the source changed between passes.
    MemoryLimitError
        If moments do not fit the memory limit.
    TimeLimitError
        If the time is over before the first point.

    Examples
    --------
    >>> from bicore.sources.parts import ArrayShards
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 8))
    >>> source = ArrayShards(x, (x[:, 0] > 0).astype(int), part_rows=300)
    >>> len(select_from_shards(source, 10))
    10
    """
    runtime = runtime or Runtime()
    count = as_size(size, source.rows)
    options = {
        "rule": rule,
        "exact": exact,
        "inner_reg": inner_reg,
        "prior": prior,
        "quotas": quotas,
        "exchange": exchange,
        "skip_bad": skip_bad,
        "shortlist": shortlist,
    }
    request = make_request(source, count, feature_map, intercept, runtime, options)
    workers = as_executor(executor, source, request, runtime)
    # A source has a length and a fingerprint, against which points are checked.
    points = read_initial(initial, cast(Dataset, source), count).points
    with workers, runtime.apply():
        return Selection(source, outer, request, workers, runtime).run(points, state)


def as_executor(
    executor: Executor | str | None, source: ShardSource, request: Request, runtime: Runtime
) -> Executor:
    """Return the given executor, a cluster by its address, the runtime's GPU, or threads."""
    if executor is not None:
        return executor if isinstance(executor, Executor) else DaskExecutor(executor)
    device = runtime.torch_device
    if device.type != "cpu":
        return GPUExecutor(str(device))
    most = runtime.threads or torch.get_num_threads()
    if most > 1:
        most = Shape.of(source, request).count_workers(runtime.memory_bytes(), most)
    return Threads(most)


class Selection:
    """The state of a selection: its objective, its points and its passes."""

    def __init__(
        self,
        source: ShardSource,
        outer: ShardSource | None,
        request: Request,
        executor: Executor,
        runtime: Runtime,
    ) -> None:
        self.source, self.outer_source, self.request = source, outer, request
        self.executor, self.runtime = executor, runtime
        self.clock = Clock(runtime.max_seconds)
        self._intercept = request.features.intercept
        self.fingerprint = source.fingerprint()
        self.folder: StateFolder | None = None
        #: Positions, features and targets of the points so far.
        self.points: list[tuple[int, Array, Array]] = []
        self.objectives: list[float] = []
        self.passes = 0
        self.certain_picks = 0
        #: Number of initial points, which are never exchanged.
        self.initial_count = 0
        #: A lower bound of the largest gain of an open row.
        self.floor = -np.inf
        self.limits: ClassLimits | None = None
        self.notes = [*getattr(source, "notes", ()), *self._memory_notes()]
        #: Reason why the objective could not be verified; empty if it was.
        self.unverified = ""
        #: Seconds and passes at the start of this run, to estimate the remaining time.
        self.pace_start = (0.0, 0)

    def run(self, initial: Sequence[int], state: PathLike | None) -> Coreset:
        self.initial_count = len(initial)
        if state is not None:
            self.folder = StateFolder(state, self._identity(initial))
        line = ProgressLine(self.runtime.progress, self.clock, self.request.size, "selecting")
        with self.folder or nullcontext(), line as self.line:
            try:
                self._prepare()
                self._restore(initial)
                self.pace_start = self.clock.seconds, self.passes
                complete = True
                while complete and len(self.points) < self.request.size:
                    self._check_time()
                    complete = self._pass()
                    self._save()
                self._verify()
                self._exchange()
            except (TimeOver, KeyboardInterrupt) as stop:
                return self._coreset(self._stop(stop))
            return self._coreset(Outcome() if complete else self._too_few())

    def _identity(self, initial: Sequence[int]) -> dict[str, Any]:
        """Return the facts that must match to continue a saved state."""
        request, outer = self.request, self.outer_source
        identity = {
            "version": 2,
            "fingerprint": self.fingerprint,
            "features": request.features.identity,
            "outer": None if outer is None else outer.fingerprint(),
            "initial": [int(position) for position in initial],
        }
        for name in ("inner_reg", "prior", "quotas"):
            identity[name] = repr(getattr(request, name))
        for name in ("size", "rule", "exact", "exchange", "skip_bad", "shortlist"):
            identity[name] = getattr(request, name)
        return identity

    def _stop(self, stop: BaseException) -> Outcome:
        """Refit the points and return the outcome."""
        status = Status.OUT_OF_TIME if isinstance(stop, TimeOver) else Status.INTERRUPTED
        count = len(self.points)
        if not count:
            if status is Status.INTERRUPTED:
                raise stop
            raise TimeLimitError(
                f"max_seconds={self.runtime.max_seconds:.3g} was reached after "
                f"{self.clock.seconds:.2g} s, before the first row: all rows are read twice "
                "before that; raise max_seconds."
            ) from None
        self.state: FeatureState = self.state.refit(*self._points())
        self.objectives = [*self.objectives[: count - 1], self.state.objective]
        if count == self.request.size:
            return unrefined_outcome("after the last row", status is Status.INTERRUPTED)
        return Outcome(status, describe_early_end(status, count, self.request.size))

    @property
    def _positions(self) -> Array:
        return np.array([position for position, _, _ in self.points], dtype=np.int64)

    def _points(self) -> tuple[Array, Array]:
        """Return features and targets of the points."""
        return np.array([x for _, x, _ in self.points]), np.array([y for _, _, y in self.points])

    # Passes in general.

    def _iterate_pass(self, work: Work[T], source: ShardSource) -> Iterator[T]:
        """Yield the results of a pass over all parts; report progress and check the time."""
        parts = len(source.parts)
        for done, one in enumerate(self.executor.map(work, source), 1):
            yield one
            self._report(done / parts)
            if done < parts:
                self._check_time()

    def _check_time(self) -> None:
        if self.clock.over:
            raise TimeOver

    def _report(self, share: float) -> None:
        """Report the points so far, and the remaining time estimated from earlier passes."""
        if not self.points:
            self.line.prepare(share)
            return
        seconds, passes = self.pace_start
        left = self.request.passes_left(len(self.points)) - share
        pace = (self.clock.seconds - seconds) / (self.passes - passes + share)
        self.line.update(len(self.points), self.state.objective, max(left, 0.0) * pace)

    # The first pass.

    def _prepare(self) -> None:
        """Count all rows; set up the objective, the quotas and an empty coreset."""
        empty, self.shift = self._make_empty_moments(self.outer_source or self.source)
        held = None if self.folder is None else self.folder.moments()
        if held is None:
            held = self._count_all(empty)
            if self.folder is not None:
                self.folder.save_moments(held, self.request.features, self.shift)
        self.moments, self.bad = cast(Moments, held.moments), held.bad
        self.largest_square = held.largest_square
        self.classes = None if self.moments.classes is None else np.array(self.moments.classes)
        if len(held.available) == 1 and self.source.rows > 1:
            raise InputError(f"y holds a single class ({min(held.available)!r}); two are needed.")
        self.outer = self._centre()
        labels = [] if self.classes is None else self.classes.tolist()
        self.available = np.array([held.available[label] for label in labels], dtype=np.int64)
        self.limits = ClassLimits.of(self.request.quotas, self.classes, self.available)
        check_scale(self.outer.energy, self.moments.cross, SINGLE_RANGE)
        ridge = self.outer.rho(as_inner_reg(self.request.inner_reg))
        self.state = FeatureState(self.outer, ridge, self.executor.device)

    def _count_all(self, empty: Moments) -> PartCounts:
        """Sum the outer rows; measure the rows that may be selected."""
        counted = self._count(self.outer_source or self.source, empty)
        if self.outer_source is not None:
            own = self._count(self.source, None)
            known = cast(Moments, counted.moments).classes
            strange = [] if known is None else [one for one in +own.available if one not in known]
            if strange:
                wrong = f"{self.source.name} holds the class {strange[0]!r}"
                fix = "add such rows to outer, or exclude the class"
                raise InputError(f"{wrong}, which outer does not contain; {fix}.")
            counted = PartCounts(counted.moments, own.bad, own.largest_square, own.available)
        return counted

    def _count(self, source: ShardSource, empty: Moments | None) -> PartCounts:
        total, bad, largest = empty, 0, 0.0
        available: Counter[Any] = Counter()
        places: Counter[str] = Counter()
        shift = None if empty is None else self.shift
        work = CountWork(self.request.features, empty, self.request.skip_bad, shift)
        for part, one in zip(source.parts, self._iterate_pass(work, source), strict=True):
            if total is not None and one.moments is not None:
                total = total + one.moments
            bad, largest = bad + one.bad, max(largest, one.largest_square)
            available.update(one.available)
            if one.bad:
                places[part.place] += one.bad
        if bad:
            named = [f"{n} in {place}" for place, n in places.most_common(MOST_NAMED) if place]
            more = " …" if len(places) > MOST_NAMED else ""
            words = f" ({', '.join(named)}{more})" if named else ""
            self.notes.append(f"{bad} rows that are not finite were left out{words}")
        if total is not None and total.classes is not None:
            total = total.with_classes(sorted({*total.classes, *available}))
        if total is not None and not total.weight > 0:
            raise InputError(f"{source.name} has no good row of weight above 0; give one at least.")
        return PartCounts(total, bad, largest, available)

    def _make_empty_moments(self, source: ShardSource) -> tuple[Moments, Array | None]:
        """Return empty moments for labels or targets, and the shift of the targets.

        The shift is near their mean, so that sums of differences keep their precision; it is 0
        without a constant feature, because the mean is unknown then.
        """
        y = first_rows(source).y
        if y is None:
            raise InputError(f"{source.name} has no labels; give target=… or labels=….")
        width, apart = self.request.features.width, self.request.prior != "data"
        targets = np.asarray(y, np.float64).reshape(len(y), -1) if y.dtype.kind == "f" else None
        if targets is not None and apart:
            raise InputError(f"prior={self.request.prior!r} needs class labels; y holds numbers.")
        outputs = 1 if targets is None else targets.shape[1]
        own = y if source is self.source else cast(Array, first_rows(self.source).y)
        count = math.prod(own.shape[1:])
        if (own.dtype.kind == "f" and targets is None) or count != outputs:
            labels = f"outer has {outputs} {y.dtype} per row as labels, and {self.source.name} has"
            raise InputError(f"{labels} {count} {own.dtype}; give the same kind and number.")
        check_room(width, outputs, apart, self.runtime.memory_bytes())
        if targets is None:
            return Moments.empty(width, apart=apart), None
        finite = targets[np.isfinite(targets).all(1)]
        known = self._intercept is not None and len(finite)
        shift = finite.mean(0) if known else np.zeros(outputs)
        return Moments.empty(width, classes=None, targets=outputs), shift

    def _centre(self) -> Outer:
        """Return the objective for centred outputs, as for rows in memory."""
        prior = self.request.prior
        outer = self.moments.outer(prior)
        if prior != "data" and outer.shares is not None:
            refuse_bad_shares(prior, outer.shares, self.moments.classes or ())
        outer, self.centre = outer.centre(self._intercept)
        if self.shift is not None:
            self.centre = self.centre + self.shift
        return outer

    # Further passes.

    def _pass(self) -> bool:
        """Score all rows and take points among the best. Return False if no row may be taken."""
        open_classes = None
        if self.limits is not None:
            limit = self.limits.next if self.request.exact else self.limits.open
            open_classes = np.flatnonzero(limit(self._counts()))
            if not len(open_classes):
                return False
        shortlist = self._shortlist(open_classes, gains=self._exact_gains)
        if shortlist is None:
            return False
        best, rows = shortlist
        before = 1.0 * self.state.both
        for _ in range(self.request.points_of_pass(len(self.points))):
            self._require_second_class()
            place, value = self._find_best(best, rows)
            if not np.isfinite(value):
                break  # all rows of the shortlist that may be taken are
            self.certain_picks += self._is_certain(value, best.below, before)
            rows.change(place)
            self._add_point(int(best.positions[place]), rows.features[place], rows.targets[place])
        if self._exact_gains:
            self.floor = self._find_best(best, rows)[1]
        return True

    def _find_best(self, best: Shortlist, rows: FeatureRows) -> tuple[int, float]:
        """Return the best row that may be taken and its value; ties go to the first position."""
        values = rows.gains() if self.request.rule == "gain" else rows.gradients()
        closed = rows.inside
        if self.limits is not None:
            closed = closed | ~self.limits.next(self._counts())[self._codes(rows.targets)]
        values = np.where(closed, -np.inf, values)
        most = float(values.max())
        equal = np.flatnonzero(values >= most - TIE * abs(most))
        return int(equal[np.argmin(best.positions[equal])]), most

    def _is_certain(self, value: float, below: float, before: Any) -> bool:
        """Return whether no row outside the shortlist can be better."""
        if value < below:
            return False
        shares = None if self.classes is None else self.centre
        most = below + self.state.growth_since(before, self.largest_square, shares)
        if self.request.rule == "gain" and not self._exact_gains:
            most = max(most, 0.0)  # a gain is at most the slope if that is above 0
        return bool(value >= most)

    @property
    def _exact_gains(self) -> bool:
        return self.request.exact and self.request.rule == "gain"

    def _shortlist(
        self, open_classes: Array | None, gains: bool = False
    ) -> tuple[Shortlist, FeatureRows] | None:
        """Find the best rows in a pass; None if there are none."""
        request, state = self.request, self.state
        scoring = ScoreWork(
            request.features,
            to_host(state.both),
            self.centre,
            self.classes,
            request.listed,
            request.listed_of_part(len(self.source.parts)),
            np.sort(self._positions),
            some_bad=self.bad > 0,
            gains=self._gain_terms() if gains else None,
            floor=self.floor if gains else -np.inf,
            open=open_classes,
        )
        best = Shortlist(scoring)
        for one in self._iterate_pass(scoring, self.source):
            best.add(one)
        self.passes += 1
        if not len(best.positions):
            return None
        features = self._features(best)
        return best, FeatureRows(state, features, self._targets(best.y))

    def _gain_terms(self) -> GainTerms:
        state = self.state
        inverse = to_host(state.inverse)
        turned = to_host(state.inverse @ state.second @ state.inverse)
        rows = self._points()[0].reshape(-1, len(turned))
        if len(rows) >= len(turned):
            return GainTerms(inverse, turned)
        system = rows @ rows.T + state.ridge * np.eye(len(rows))
        try:
            reach = np.linalg.solve(np.linalg.cholesky(system), rows)
        except np.linalg.LinAlgError:  # equal rows and a ρ below rounding
            return GainTerms(inverse, turned)
        return GainTerms(inverse, turned, reach, state.ridge)

    def _features(self, best: Shortlist) -> Array:
        """Return the features of the best rows; missing ones are read."""
        positions, known = best.listed_features()
        there = np.isin(best.positions, positions)
        found: Array = np.empty((len(there), known.shape[1]))
        found[there] = known
        if not there.all():
            fetching = FetchWork(self.request.features, best.positions[~there])
            found[~there] = np.concatenate(list(self.executor.map(fetching, self.source)))
        return found

    def _targets(self, y: Any) -> Array:
        if self.classes is None:
            return np.asarray(np.asarray(y, np.float64).reshape(len(y), -1) - self.centre)
        return np.asarray(np.eye(len(self.classes))[encode(y, self.classes)] - self.centre)

    # Classes.

    def _counts(self) -> Array:
        """Count the points of each class."""
        assert self.classes is not None
        targets = np.array([target for _, _, target in self.points])
        codes = self._codes(targets.reshape(-1, len(self.classes)))
        return np.bincount(codes, minlength=len(self.classes))

    def _codes(self, targets: Array) -> Array:
        """Return the class indices, from centred one-hot labels."""
        found: Array = (targets + self.centre).argmax(1)
        return found

    @property
    def _needs_two_classes(self) -> bool:
        """Whether points of a single class, which train no classifier, are refused."""
        several = int(np.count_nonzero(self.available)) > 1 and self.request.size > 1
        return several and self._intercept is not None and not self.initial_count

    def _require_second_class(self) -> None:
        """Reserve the last point for another class if all others have one class."""
        if not self._needs_two_classes or self.limits is not None:
            return
        last = self.request.size - 1
        if len(self.points) == last == self._counts().max():
            assert self.classes is not None
            label = self.classes.tolist()[int(self._counts().argmax())]
            self.limits = ClassLimits.of(AtMost({label: last}), self.classes, self.available)
            self.notes.append(f"classes: one row must be of another class than {label!r}")

    def _too_few(self) -> Outcome:
        why = "no other row has a weight above 0"
        if self.limits is not None:
            why = "the quotas allow no more"
        return Outcome(Status.FEWER, f"{len(self.points)} of {self.request.size} rows: {why}")

    # The end.

    def _verify(self) -> None:
        """Compare the sum of all changes with a refit; if they differ, report the refit."""
        if not self.points:
            return
        summed = self.state.objective
        try:
            fitted = self.state.refit(*self._points()).objective
        except np.linalg.LinAlgError:
            self.unverified = "objective: not verified, the refit failed; raise inner_reg"
            return
        if not abs(fitted - summed) <= DRIFT * self.outer.constant:
            self.objectives[-1] = fitted
            both = f"{fitted:.6g} by a refit; the selection computed {summed:.6g}"
            self.unverified = f"objective: {both}; raise inner_reg"

    def _exchange(self) -> None:
        """Exchange points for the best other rows, found in new passes while this helps."""
        if not self.request.exchanges or self.unverified or not self.points:
            return
        made, before = 0, self.state.objective
        for _ in range(ROUNDS):
            self._check_time()
            try:
                helped = self._exchange_once()
            except NumericalError as error:  # the points so far are kept
                self.notes.append(f"exchanges stopped: {error}")
                break
            made += helped
            if not helped:
                break
        if made:
            self.objectives = [*self.objectives[:-1], self.state.objective]
            change = f"from {before:.6g} to {self.state.objective:.6g}"
            self.notes.append(f"{made} exchanges lowered the objective {change}")

    def _exchange_once(self) -> int:
        every = None if self.limits is None else np.arange(len(self.available))
        shortlist = self._shortlist(every)
        if shortlist is None:
            return 0
        best, rows = shortlist
        others = _largest_places(best.positions, rows.gains(), MOST_EXCHANGED - len(self.points))
        own_features, own_targets = self._points()
        features = np.vstack([own_features, rows.features[others]])
        targets = np.vstack([own_targets, rows.targets[others]])
        numbers = np.arange(len(features))
        inside = numbers < len(own_features)
        candidates = FeatureRows(self.state.copy(), features, targets, inside)
        made = exchange_rows(candidates, self._may_leave(targets, numbers < self.initial_count))
        if made:
            positions = np.concatenate([self._positions, best.positions[others]])
            own = np.flatnonzero(candidates.inside)  # remaining points, then new ones
            self.points = [(int(positions[k]), features[k], targets[k]) for k in own]
            self.state = self.state.refit(features[own], targets[own])
        return made

    def _may_leave(self, targets: Array, initial: Array) -> Any:
        """Return which rows may leave: not the initial points, and within the class limits."""
        most = None
        if self.limits is not None:
            most = self.limits.most(self._counts())
        elif self._needs_two_classes and self.classes is not None:
            most = np.full(len(self.classes), len(self.points) - 1)
        if most is None:
            return lambda inside: ~initial
        codes, limit = self._codes(targets), most

        def may_leave(inside: Array) -> Array:
            over = np.bincount(codes[inside], minlength=len(limit)) > limit
            return ~initial & over[codes] if over.any() else ~initial

        return may_leave

    def _memory_notes(self) -> list[str]:
        """Add a note if a given memory limit is too small for a single worker."""
        if self.runtime.memory is None:
            return []
        shape = Shape.of(self.source, self.request)
        needed, limit = shape.worker_bytes(1), self.runtime.memory_bytes()
        if needed <= limit:
            return []
        return [
            f"memory: about {needed / 1e6:.0f} MB in addition to the process, beyond the limit of "
            f"{limit / 1e6:.0f} MB; parts of {shape.largest} rows take "
            f"{shape.largest * shape.row_bytes / 1e6:.0f} MB of it (smaller parts take less)"
        ]

    def _coreset(self, outcome: Outcome) -> Coreset:
        if self.source.fingerprint() != self.fingerprint:
            fix = "select again"
            raise InputError(f"{self.source.name} changed while it was selected from; {fix}.")
        provenance = Provenance(
            method=f"bilevel in passes, {self.request.rule}",
            rows=self.source.rows,
            seconds=self.clock.seconds,
            fingerprint=self.fingerprint,
            empty_objective=self.outer.constant,
            inner_reg=self.state.ridge,
            classes=None if self.classes is None else tuple(self.classes.tolist()),
            notes=tuple(self.notes),
        )
        coreset = Coreset(
            self._positions,
            objectives=np.array(self.objectives),
            status=outcome.status,
            message=outcome.message,
            provenance=provenance,
            details={"passes": self.passes, "certain": self.certain_picks, "bad_rows": self.bad},
        )
        return mark_unverified(coreset, self.unverified) if self.unverified else coreset

    # Points and state.

    def _restore(self, initial: Sequence[int]) -> None:
        """Add the points of a saved state, or the initial points."""
        held = None if self.folder is None else self.folder.points()
        if held is not None:
            points, self.passes, self.certain_picks = held
        else:
            points = [self._read_point(position) for position in initial]
        for position, row, target in points:
            self.state.change(row, target)
            self._add_point(position, row, target)

    def _read_point(self, position: int) -> tuple[int, Array, Array]:
        part = next(one for one in self.source.parts if one.start <= position < one.stop)
        chunk = self.source.read(part)
        assert chunk.y is not None
        place = slice(position - part.start, position - part.start + 1)
        chunk, bad = check_values(Chunk(chunk.x[place], chunk.y[place]), part, skip_bad=True)
        if bad:
            raise InputError(f"initial holds row {position}, which is not finite; leave it out.")
        row = PartRows(part, chunk.x).features(self.request.features, slice(None))[0]
        return position, row, self._targets(chunk.y)[0]

    def _add_point(self, position: int, row: Array, target: Array) -> None:
        # Copies, because a view keeps its whole shortlist in memory.
        self.points.append((position, np.array(row), np.array(target)))
        self.objectives.append(self.state.objective)

    def _save(self) -> None:
        if self.folder is not None:
            columns = (self._positions, *self._points())
            self.folder.save_points(columns, self.passes, self.certain_picks)


def _largest_places(positions: Array, gains: Array, count: int) -> Array:
    """Return the sorted places of the largest gains; ties go to the smallest positions."""
    largest = float(np.abs(gains[np.isfinite(gains)]).max(initial=0.0)) or 1.0
    order = np.lexsort((positions, -np.round(gains / largest, TIE_DIGITS)))
    return np.sort(order[:count])

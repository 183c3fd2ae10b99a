"""Large data: what a selection would take, and what stands in for it where that is too much.

One rule for every door. The bytes come from the plan of the operator, the seconds from a probe of
the kernel and from how many passes over all pairs of points the method makes. Where products would
have to be made in blocks and take longer than ``LONG``, or than the time limit, Nyström landmarks
stand in for a kernel, and facility location sums over a sample of the rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, singledispatch
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.contract import Quantity
from bicore.bilevel.effort import Effort
from bicore.bilevel.foresight import PASSES_A_POINT, TOGETHER
from bicore.bilevel.prepare import planned
from bicore.bilevel.regularisation import SUBSET_SIZE, SUBSETS
from bicore.coreset import Coreset
from bicore.data import Dataset, as_tensor
from bicore.errors import MemoryLimitError
from bicore.kernels.base import Kernel
from bicore.kernels.building import TRIVIAL_BYTES, Held, OperatorPlan, Reserve, plan_operators
from bicore.kernels.classical import Nystrom
from bicore.kernels.operators import BLOCK_BYTES, Features
from bicore.picking import as_size
from bicore.runtime import Clock, Context, Runtime, human_bytes, wide
from bicore.selectors.base import Selector
from bicore.selectors.baselines.cover import KCenter, KMeansPlusPlus, OverSpace
from bicore.selectors.baselines.design import ADesign, VDesign
from bicore.selectors.baselines.facility import ROOM, FacilityLocation
from bicore.selectors.baselines.inducing import InducingPoints
from bicore.selectors.baselines.spaces import KernelSpace, squared_distances
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.joint import JointSelector
from bicore.selectors.quality_curve import UNKNOWN_SIZE
from bicore.selectors.reconstruction import Reconstruction

#: Seconds above which products in blocks are no longer waited for without being asked to.
LONG = 600.0
#: The most landmarks that stand in for a kernel, and rows that facility location is summed over.
LANDMARKS = 1000
SAMPLE = 4000
#: Share of the data, and of the memory limit, that landmarks or their features may be.
LANDMARK_SHARE, MEMORY_SHARE = 0.25, 0.25
#: Share of a time limit that may pass before the first point where something stands in.
PREPARATION_SHARE = 0.25
#: The fewest landmarks or rows that still say something about the data.
FEWEST = 32
#: A probe takes the fastest of a few calls, and doubles the rows of its tile up to so many; it ends
#: after so many seconds where a pair has not become cheaper by this factor and a tile takes so long
#: that it is pairs that are timed: waking threads can take milliseconds.
PROBE_CALLS, PROBE_ROWS = 3, 512
PROBE_SECONDS, CHEAPER, TILE_SECONDS = 0.05, 0.7, 0.02
#: Seconds of one number read from memory, on one core of a common machine.
READ = 1e-9
#: Products of features that come before the first point, of a row with itself and with columns: K
#: through the landmarks and its moment, and the subsets of an automatic regulariser.
MOMENTS, COLUMNS = 3, SUBSETS * SUBSET_SIZE
#: Rows of the data that a plan is made from: enough to fit a bandwidth, and no copy of all.
FIRST_ROWS = 2000


class Large(StrEnum):
    """What is done about data that would take too long.

    Examples
    --------
    >>> Large("exact") is Large.EXACT
    True
    """

    #: Something stands in, with a notice.
    APPROXIMATE = "approximate"
    #: All is computed as it is, within the memory limit.
    EXACT = "exact"


@dataclass(frozen=True)
class Estimate:
    """What a selection is expected to take.

    Parameters
    ----------
    seconds : float or None
        On this machine, within a factor of two or so; None where the method has no estimate.
    bytes : int or None
        Beside the data, as the limit on memory counts them.
    operator : str or None
        How the kernel matrix is held: "gram", "features" or "blocked".
    approximation : str or None
        What stands in for the kernel or the method, as a sentence; None where nothing does.

    Examples
    --------
    >>> import bicore
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> bicore.estimate(x, x[:, 0] > 0, 5, kernel="rbf").operator
    'gram'
    """

    seconds: float | None = None
    bytes: int | None = None
    operator: str | None = None
    approximation: str | None = None


@dataclass(frozen=True, eq=False)
class Decision:
    """The selector to use, what it is expected to take, and what to tell about it."""

    selector: Selector
    estimate: Estimate
    note: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The note, if there is one."""
        return () if self.note is None else (self.note,)


def decided(
    selector: Selector,
    data: Dataset,
    size: int | float | str,
    outer: Dataset | None,
    context: Context,
    large: Large,
    begun: Coreset | None = None,
) -> Decision:
    """The selector itself with what it leaves to the data decided, or one that is feasible in its
    place; a coreset that was ``begun`` is to be continued."""
    count = UNKNOWN_SIZE if size == "auto" else as_size(size, int((data.weights > 0).sum()))
    count = min(count, len(data))
    with context.runtime.applied():
        request = _Request(data, count, outer, context.runtime)
        given, selector = selector, selector.settled(data, count, begun)
        work = work_of(selector, request)
        if work is None:
            return Decision(selector, Estimate())
        exact = work.exact()
        if exact.seconds == math.inf and given.plain() is not given:
            # what nobody asked for is no reason to refuse
            selector = given.plain().settled(data, count, begun)
            work = work_of(selector, request) or work
            exact = work.exact()
        if large is Large.EXACT or not work.too_much(exact):
            return Decision(selector, exact, work.patience(exact))
        return work.approximated(exact)


def trivial(data: Dataset, outer: Dataset | None, runtime: Runtime) -> bool:
    """Whether no look at the data is needed to say that nothing has to stand in."""
    pairs = len(data) * (len(data) + (0 if outer is None else len(outer)))
    free = runtime.max_seconds is None and runtime.memory is None
    return free and 8 * pairs * runtime.itemsize <= TRIVIAL_BYTES


@dataclass(frozen=True, eq=False)
class _Request:
    data: Dataset
    size: int
    outer: Dataset | None
    runtime: Runtime

    @property
    def rows(self) -> int:
        """Of the outer set, or of the data where there is none."""
        return len(self.data) if self.outer is None else len(self.outer)


class Work(ABC):
    """What one selection does over all pairs of points."""

    def __init__(self, request: _Request) -> None:
        self.request = request
        #: Seconds before the first point, where all pairs are stored; the exact way sets it.
        self.first: float | None = None

    def too_much(self, exact: Estimate) -> bool:
        """Whether the exact way cannot be waited for, or does not fit at all.

        What is stored is computed once and then read, however long that takes: it is too much only
        where a time limit leaves no room for it.
        """
        if exact.seconds is None or exact.operator == Held.FEATURES:
            return False
        if self.limit is None:
            return exact.operator != Held.GRAM and exact.seconds > LONG
        waited = exact.seconds if self.first is None else self.first
        return waited > self.limit + Clock(self.limit).grace

    def patience(self, exact: Estimate) -> str | None:
        """What to say where the exact way is taken and takes long."""
        if exact.seconds is None or exact.operator != Held.BLOCKED or not exact.seconds > LONG:
            return None
        took = human_seconds(exact.seconds)
        return f"large='exact': computed block by block, which takes about {took}"

    @property
    def limit(self) -> float | None:
        """The time limit."""
        return self.request.runtime.max_seconds

    @abstractmethod
    def exact(self) -> Estimate:
        """As it is."""

    @abstractmethod
    def approximated(self, exact: Estimate) -> Decision:
        """With something in its place."""

    def affordable(self, most: int, dear: float, quadratic: float = 0.0) -> int:
        """At most so many landmarks or rows, of which each costs ``dear`` seconds, and
        ``quadratic`` times their number more, within its share of the time limit."""
        n = len(self.request.data)
        itemsize = self.request.runtime.itemsize
        memory = int(MEMORY_SHARE * self.request.runtime.memory_bytes()) // (n * itemsize)
        count = min(most, int(LANDMARK_SHARE * n), memory)
        if self.limit is not None:
            room = PREPARATION_SHARE * self.limit
            # quadratic c² + dear c = room
            inside = dear**2 + 4 * quadratic * room
            within = (math.sqrt(inside) - dear) / (2 * quadratic) if quadratic else room / dear
            count = min(count, max(int(within), FEWEST))
        return max(1, min(count, n))


class KernelWork(Work):
    """Passes over a kernel matrix: stored, in features or in blocks.

    ``passes`` counts those of products in blocks, ``plan`` says how a kernel would be held,
    ``put`` makes the selector with another kernel, and ``refining`` is what follows growing.
    """

    def __init__(
        self,
        request: _Request,
        kernel: Kernel,
        passes: float,
        plan: Callable[[Kernel], OperatorPlan],
        put: Callable[[Kernel], Selector],
        refining: Effort | None = None,
    ) -> None:
        super().__init__(request)
        self.kernel = kernel
        self.refining = refining or Effort()
        self.passes = passes
        self.plan = plan
        self.put = put
        self.fitted = kernel.fitted(some_rows(request.data))

    @cached_property
    def pair(self) -> float:
        """Seconds of one pair of points."""
        return probed(self.fitted.evaluate, self.request)

    @cached_property
    def multiplication(self) -> float:
        """Seconds of one multiplication in a product of matrices."""
        runtime = self.request.runtime
        square = torch.ones(
            PROBE_ROWS, PROBE_ROWS, dtype=runtime.torch_dtype, device=runtime.torch_device
        )
        fastest = min(_timed(torch.matmul, square, square) for _ in range(PROBE_CALLS))
        return fastest / PROBE_ROWS**3

    def exact(self) -> Estimate:
        n = len(self.request.data)
        pairs: float = n * self.request.rows
        try:
            plan = self.plan(self.fitted)
        except MemoryLimitError:
            return Estimate(math.inf)
        if plan.held is Held.FEATURES:
            return Estimate(self._with_features(plan.width, 0.0), plan.needed, plan.held.value)
        if plan.held is Held.GRAM:
            self.first = pairs * self.pair / (2 if self.request.outer is None else 1)
            seconds = self.first + (self.request.size + self.refining.passes) * pairs * READ
            return Estimate(seconds + self._refined(pairs), plan.needed, plan.held.value)
        if self.request.outer is None:
            pairs /= 2  # a tile serves its mirror image too
        # a tile, and its products with the columns that are looked ahead, from both sides
        dear = self.pair + 2 * TOGETHER * self.multiplication
        seconds = (self.passes + self.refining.passes) * pairs * dear
        return Estimate(seconds + self._refined(pairs), plan.needed, plan.held.value)

    def _refined(self, numbers: float, width: int | None = None) -> float:
        """Seconds of refining beside its passes, where a column times the kernel matrix is a
        product with so many numbers, and features have this width."""
        work = self.refining
        length = self.request.rows if width is None else min(width, self.request.rows)
        multiplications = work.products * numbers + work.multiplications + work.pairs * length
        return multiplications * self.multiplication + work.reads * READ

    def _with_features(self, width: int, pair: float) -> float:
        rows = len(self.request.data)
        made = rows * width * (pair + (COLUMNS + MOMENTS * width) * self.multiplication)
        passes = self.request.size + self.refining.passes
        return made + passes * rows * width * READ + self._refined(rows * width, width)

    def approximated(self, exact: Estimate) -> Decision:
        if isinstance(self.kernel, Nystrom):
            return Decision(self.put(self.kernel), exact)
        rows = len(self.request.data)
        limit = self.request.runtime.memory_bytes()
        dear = rows * (self.pair + COLUMNS * self.multiplication)
        most = self.affordable(LANDMARKS, dear, MOMENTS * rows * self.multiplication)
        landmarks, plan = self._fitting(most)
        why = "does not fit it even in blocks"
        if exact.seconds is not None and math.isfinite(exact.seconds):
            why = f"would take about {human_seconds(exact.seconds)}"
        stored = human_bytes(rows * self.request.rows * self.request.runtime.itemsize)
        words = (
            f"kernel: its matrix of {stored} ({human_bytes(limit)} are allowed) {why}, so "
            f"{landmarks} Nyström landmarks stand in for it (large='exact' computes it as it is)"
        )
        seconds = self._with_features(landmarks, self.pair)
        estimate = Estimate(seconds, plan.needed, plan.held.value, words)
        return Decision(self.put(Nystrom(self.kernel, landmarks)), estimate, words)

    def _fitting(self, landmarks: int) -> tuple[int, OperatorPlan]:
        """At most so many landmarks whose features fit the memory limit."""
        first = as_tensor(self.request.data.x[:1]).to(torch.float64)
        while True:
            shaped = Nystrom(
                self.fitted, landmarks, _rows=first, _root=torch.zeros(1, landmarks).double()
            )
            plan = self.plan(shaped)
            if plan.held is Held.FEATURES or landmarks == 1:
                return landmarks, plan
            landmarks //= 2


class DistanceWork(Work):
    """Facility location: all pairs of distances, stored or computed again."""

    def __init__(self, request: _Request, selector: FacilityLocation) -> None:
        super().__init__(request)
        self.selector = selector
        over = selector._space
        kernel = over.kernel if isinstance(over, KernelSpace) else None
        if kernel is not None:
            self.pair = probed(kernel.fitted(some_rows(request.data)).evaluate, request)
        else:
            self.pair = probed(_distances, request) / 2  # which sees both sets beside one another

    def exact(self) -> Estimate:
        n = len(self.request.data)
        summed = min(self.selector.sample or n, n)
        stored = int(ROOM * summed * n * self.request.runtime.itemsize)
        if stored <= self.request.runtime.memory_bytes():
            self.first = summed * n * (self.pair + 4 * READ)
            return Estimate(self.first, stored, Held.GRAM.value)
        # The largest distance, the first gains, and what is visited again: n/k rows at step k.
        passes = 2 + sum(1 / k for k in range(1, self.request.size + 1))
        seconds = passes * summed * n * (self.pair + READ)
        return Estimate(seconds, BLOCK_BYTES, Held.BLOCKED.value)

    def approximated(self, exact: Estimate) -> Decision:
        if self.selector.sample is not None:
            return Decision(self.selector, exact)
        n = len(self.request.data)
        assert exact.seconds is not None
        sample = self.affordable(SAMPLE, n * (self.pair + 4 * READ))
        words = (
            f"facility location: all pairs would take about {human_seconds(exact.seconds)}, so "
            f"gains are summed over {sample} rows drawn at random (large='exact' sums over all)"
        )
        seconds = sample * n * (self.pair + 4 * READ)
        needed = int(ROOM * sample * n * self.request.runtime.itemsize)
        estimate = Estimate(seconds, needed, Held.GRAM.value, words)
        return Decision(replace(self.selector, sample=sample), estimate, words)


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Of the rows of two sets, as facility location computes them."""
    rows = torch.cat([a, b]).flatten(1)
    operator = Features(rows, rows)
    index = torch.arange(len(a), device=rows.device)
    return squared_distances(operator, operator.diagonal(), index).sqrt()


@singledispatch
def work_of(selector: Selector, request: _Request) -> Work | None:
    """What a selector does over all pairs of points; None where it does nothing of the kind, or
    that is not known."""
    return None


@work_of.register
def _bilevel(selector: BilevelSelector, request: _Request) -> Work | None:
    available = int((request.data.weights > 0).sum())
    grown = selector.strategy.grown(request.size, available)
    room = selector.room(grown, len(request.data))

    def plan(kernel: Kernel) -> OperatorPlan:
        proxy = replace(selector.proxy, kernel=kernel)
        return planned(proxy, request.data, request.outer, room, request.runtime)

    if selector.kernel.precomputed or request.data.y is None:
        return None
    return KernelWork(
        request,
        selector.kernel,
        _passes(selector, grown, len(request.data)),
        plan,
        lambda kernel: replace(selector, kernel=kernel),
        selector.strategy.effort(grown, len(request.data), request.rows),
    )


def _passes(selector: BilevelSelector, grown: int, n: int) -> float:
    """Over all pairs while points are taken, where products are made in blocks."""
    if not selector.proxy.closed_form:  # one product for every look at the scores
        share = 1.0 if selector.candidates is None else min(selector.candidates / n, 1.0)
        return grown * share
    begin = 2.0 if selector.rule.quantity is Quantity.GAIN else 1.0
    return begin + PASSES_A_POINT * grown


@work_of.register
def _reconstruction(selector: Reconstruction, request: _Request) -> Work | None:
    centred = request.data.x.reshape(len(request.data), -1)
    width = min(selector.components, centred.shape[1])
    stand_in = Dataset(request.data.x, np.zeros((len(centred), width)), request.data.weight)
    inner = work_of(selector.chooser, replace(request, data=stand_in))
    if isinstance(inner, KernelWork):
        inner.put = lambda kernel: replace(selector, kernel=kernel)
    return inner


@work_of.register
def _facility(selector: FacilityLocation, request: _Request) -> Work | None:
    return DistanceWork(request, selector)


@work_of.register
def _over(selector: OverSpace, request: _Request) -> Work | None:
    space = selector._space
    columns_only = isinstance(selector, (KMeansPlusPlus, KCenter, InducingPoints))
    if not isinstance(space, KernelSpace) or columns_only or space.kernel.precomputed:
        return None
    beside = 8 * len(request.data) * request.size

    def plan(kernel: Kernel) -> OperatorPlan:
        found = plan_operators(kernel, request.data.x, 0, Reserve(beside, beside), request.runtime)
        if isinstance(selector, ADesign) and found.held is Held.BLOCKED:
            raise MemoryLimitError("the parameters of this design need the matrix itself.")
        return found

    design = isinstance(selector, (VDesign, ADesign))
    passes = 1.0 + (PASSES_A_POINT * request.size if design else 0.0)
    return KernelWork(
        request, space.kernel, passes, plan, lambda kernel: replace(selector, over=kernel)
    )


@work_of.register
def _joint(selector: JointSelector, request: _Request) -> Work | None:
    each = replace(request, runtime=selector._divided(request.runtime))
    works = [work_of(one, each) for one in selector.selectors]
    known = [one for one in works if one is not None]
    return JointWork(request, selector, known) if len(known) == len(works) else None


class JointWork(Work):
    """Several models side by side."""

    def __init__(self, request: _Request, selector: JointSelector, parts: list[Work]) -> None:
        super().__init__(request)
        self.selector = selector
        self.parts = parts

    def exact(self) -> Estimate:
        found = [part.exact() for part in self.parts]
        if any(part.first is not None for part in self.parts):
            self.first = sum(part.first or 0.0 for part in self.parts)
        dearest = max(found, key=lambda one: one.seconds or 0.0)
        total = sum(one.bytes or 0 for one in found)
        return Estimate(sum(one.seconds or 0.0 for one in found), total, dearest.operator)

    def approximated(self, exact: Estimate) -> Decision:
        found = []
        for one, part in zip(self.selector.selectors, self.parts, strict=True):
            own = part.exact()
            cheap = own.operator == Held.FEATURES
            found.append(Decision(one, own) if cheap else part.approximated(own))
        words = "; ".join(note for one in found for note in one.notes) or None
        seconds = sum(one.estimate.seconds or 0.0 for one in found)
        needed = sum(one.estimate.bytes or 0 for one in found)
        models = [cast(BilevelSelector, one.selector) for one in found]
        chosen = replace(self.selector, selectors=models)
        return Decision(chosen, Estimate(seconds, needed, Held.FEATURES.value, words), words)


def some_rows(data: Dataset) -> Any:
    """Evenly spaced rows that a kernel can be fitted to for an estimate."""
    return data.x[:: max(1, len(data) // FIRST_ROWS)]


def probed(evaluate: Callable[[Tensor, Tensor], Tensor], request: _Request) -> float:
    """Seconds that a pair of rows takes, from a tile that grows while that makes pairs cheaper."""
    runtime = request.runtime
    x = request.data.x
    rows = 2
    before = math.inf
    whole: Clock | None = None
    while True:
        a, b = (
            as_tensor(part).to(runtime.torch_device, runtime.torch_dtype)
            for part in (x[:rows], x[-rows:])
        )
        if whole is None:
            _timed(evaluate, a, b)  # what a first call sets up is not the price of a pair
            whole = Clock(PROBE_SECONDS)
        tile = min(_timed(evaluate, a, b) for _ in range(PROBE_CALLS))
        pair = tile / (len(a) * len(b))
        settled = whole.over and pair > CHEAPER * before and tile > TILE_SECONDS
        if settled or rows >= min(PROBE_ROWS, len(x)):
            return pair
        before = pair
        rows *= 2


def _timed(evaluate: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> float:
    with wide(math.inf):  # as the tiles of a long product are evaluated
        clock = Clock()
        float(evaluate(a, b).sum())  # the number itself: a device is waited for
        return clock.seconds


def human_seconds(seconds: float) -> str:
    """A duration as people read it.

    Parameters
    ----------
    seconds : float
        How long.

    Returns
    -------
    str
        Two digits and a unit.

    Examples
    --------
    >>> human_seconds(50400), human_seconds(90), human_seconds(2.345)
    ('14 h', '1.5 min', '2.3 s')
    """
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.2g} {unit}"
    return f"{seconds:.2g} s"

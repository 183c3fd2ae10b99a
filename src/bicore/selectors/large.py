"""Large data: which method replaces an exact one, and what a selection will take.

Decisions count rows only. Neither a clock nor the free memory changes an answer: measured speed is
used to tell how long a selection will take, and for nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.contract import Effort, Quantity
from bicore.bilevel.posterior import PASSES_A_POINT, TOGETHER
from bicore.bilevel.prepare import planned
from bicore.bilevel.regularisation import SUBSET_SIZE, SUBSETS
from bicore.data import Dataset, as_tensor
from bicore.kernels.building import Held
from bicore.kernels.classical import Nystrom
from bicore.kernels.operators import BLOCK_BYTES, Features
from bicore.picking import as_size
from bicore.runtime import Clock, Context, Runtime, wide
from bicore.selectors.base import Selector
from bicore.selectors.baselines.covering import ROOM, FacilityLocation, KCenter, KMeansPlusPlus
from bicore.selectors.baselines.design import InducingPoints
from bicore.selectors.baselines.spaces import KernelSpace, OverSpace, squared_distances
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.quality_curve import UNKNOWN_SIZE
from bicore.selectors.reconstruction import Reconstruction

#: With more rows than this, landmarks replace a kernel matrix of all pairs, and facility location
#: sums over a sample.
MANY = 20_000
#: Number of landmarks, and of the rows that facility location sums over.
LANDMARKS, SAMPLE = 1000, 4000
#: A probe takes the fastest of a few calls, and doubles its rows up to a limit.
PROBE_CALLS, PROBE_ROWS = 3, 512
PROBE_SECONDS, CHEAPER, TILE_SECONDS = 0.05, 0.7, 0.02
#: Seconds to read one number from memory, on one core of a common machine.
READ = 1e-9
#: Products of features before the first point: moments, and the subsets of an automatic ρ.
MOMENTS, COLUMNS = 3, SUBSETS * SUBSET_SIZE
#: Rows from which a kernel is fitted for an estimate.
FIRST_ROWS = 2000


class Large(StrEnum):
    """Whether large data may be approximated.

    Examples
    --------
    >>> Large("exact") is Large.EXACT
    True
    """

    #: A sample or landmarks are used, with a warning.
    APPROXIMATE = "approximate"
    #: All rows are used.
    EXACT = "exact"


@dataclass(frozen=True)
class Estimate:
    """The expected cost of a selection.

    Parameters
    ----------
    seconds : float or None
        On this machine, within a factor of two or so; None if the method has no estimate.
    bytes : int or None
        In addition to the data, as the memory limit counts them.
    operator : str or None
        How the kernel matrix is held: "gram", "features" or "blocked".
    approximation : str or None
        What replaces the exact computation, as a sentence; None if nothing does.
    passes : ShardEstimate or None
        The details of a selection by passes over files; None for others.

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
    passes: Any = None


@dataclass(frozen=True, eq=False)
class Decision:
    """The selector to use, and a note if it replaces another one."""

    selector: Selector
    note: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The note, if there is one."""
        return () if self.note is None else (self.note,)


def decided(selector: Selector, data: Dataset, large: Large) -> Decision:
    """Replace a selector by one that is feasible for this many rows."""
    if isinstance(selector, (BilevelSelector, Reconstruction)) and large is Large.EXACT:
        return Decision(replace(selector, exact=True))
    return Decision(selector) if large is Large.EXACT else _feasible(selector, len(data))


@singledispatch
def _feasible(selector: Selector, rows: int) -> Decision:
    return Decision(selector)


@_feasible.register
def _(selector: FacilityLocation, rows: int) -> Decision:
    if rows <= MANY or selector.sample is not None:
        return Decision(selector)
    note = (
        f"large data: facility location sums over {SAMPLE} of {rows} rows, drawn at random "
        "(large='exact' sums over all)"
    )
    return Decision(replace(selector, sample=SAMPLE), note)


@_feasible.register
def _(selector: OverSpace, rows: int) -> Decision:
    space = selector.space
    columns_only = isinstance(selector, (KMeansPlusPlus, KCenter, InducingPoints))
    if rows <= MANY or columns_only or not isinstance(space, KernelSpace):
        return Decision(selector)
    if space.kernel.precomputed or isinstance(space.kernel, Nystrom):
        return Decision(selector)
    note = (
        f"large data: {LANDMARKS} Nyström landmarks replace the kernel matrix of {rows} rows "
        "(large='exact' computes it)"
    )
    return Decision(replace(selector, over=Nystrom(space.kernel, LANDMARKS)), note)


def estimate_selection(
    selector: Selector,
    data: Dataset,
    size: int | float | str,
    outer: Dataset | None,
    context: Context,
    large: Large,
) -> Estimate:
    """Estimate the time and memory of a selection, without selecting."""
    count = UNKNOWN_SIZE if size == "auto" else as_size(size, int((data.weights > 0).sum()))
    decision = decided(selector, data, large)
    with context.runtime.applied():
        request = _Request(data, min(count, len(data)), outer, context.runtime)
        found = _cost(decision.selector, request)
    return found if decision.note is None else replace(found, approximation=decision.note)


@dataclass(frozen=True, eq=False)
class _Request:
    data: Dataset
    size: int
    outer: Dataset | None
    runtime: Runtime


@singledispatch
def _cost(selector: Selector, request: _Request) -> Estimate:
    return Estimate()


@_cost.register
def _(selector: BilevelSelector, request: _Request) -> Estimate:
    data, outer, runtime = request.data, request.outer, request.runtime
    if data.y is None or selector.kernel.precomputed:
        return Estimate()
    chooser = selector.settled(data, request.size)
    words = None
    sample = chooser.sample_for(data, request.size, 0)
    if sample is not None:
        words = sample.note(len(data))
        outer = sample.judging(data) if outer is None else outer
        data = data[sample.candidates]
    grown = chooser.strategy.grown(request.size, int((data.weights > 0).sum()))
    plan = planned(chooser.proxy, data, outer, chooser.room(grown, len(data)), runtime)
    refining = chooser.strategy.effort(grown, len(data), len(data))
    rows = len(data) if outer is None else len(outer)
    multiplication = _time_multiplication(runtime)
    numbers = float(len(data) * (plan.width if plan.held is Held.FEATURES else rows))
    passes = grown + refining.passes
    seconds = _refining_seconds(refining, numbers, min(plan.width or rows, rows), multiplication)
    if plan.held is Held.FEATURES:
        seconds += numbers * (COLUMNS + MOMENTS * plan.width) * multiplication
        seconds += passes * numbers * READ
        return Estimate(seconds, plan.needed, plan.held.value, words)
    pair = probed(chooser.kernel.fitted(some_rows(data)).evaluate, data, runtime)
    pairs = numbers if outer is not None else numbers / 2
    if plan.held is Held.GRAM:
        seconds += pairs * pair + passes * numbers * READ
    else:
        blocks = _passes_in_blocks(chooser, grown, len(data)) + refining.passes
        seconds += blocks * pairs * (pair + 2 * TOGETHER * multiplication)
    return Estimate(seconds, plan.needed, plan.held.value, words)


def _refining_seconds(work: Effort, numbers: float, length: int, multiplication: float) -> float:
    """Seconds of exchanges, in addition to their passes."""
    count = work.products * numbers + work.multiplications + work.pairs * length
    return count * multiplication + work.reads * READ


def _passes_in_blocks(selector: BilevelSelector, grown: int, n: int) -> float:
    """Passes over all pairs while points are taken, if products are made in blocks."""
    if not selector.proxy.closed_form:  # one product for every look at the scores
        share = 1.0 if selector.candidates is None else min(selector.candidates / n, 1.0)
        return grown * share
    begin = 2.0 if selector.rule.quantity is Quantity.GAIN else 1.0
    return begin + PASSES_A_POINT * grown


@_cost.register
def _(selector: Reconstruction, request: _Request) -> Estimate:
    data = request.data
    width = min(selector.components, data.x.reshape(len(data), -1).shape[1])
    targets = Dataset(data.x, np.zeros((len(data), width)), data.weight)
    return _cost(selector.chooser, replace(request, data=targets))


@_cost.register
def _(selector: FacilityLocation, request: _Request) -> Estimate:
    data, runtime = request.data, request.runtime
    over = selector.space
    if isinstance(over, KernelSpace):
        pair = probed(over.kernel.fitted(some_rows(data)).evaluate, data, runtime)
    else:
        pair = probed(_distances, data, runtime) / 2  # which sees both sets
    summed = min(selector.sample or len(data), len(data))
    stored = int(ROOM * summed * len(data) * runtime.itemsize)
    if stored <= runtime.memory_bytes():
        seconds = summed * len(data) * (pair + 4 * READ)
        return Estimate(seconds, stored, Held.GRAM.value)
    # The largest distance, the first gains, and what is visited again: n/k rows at step k.
    passes = 2 + sum(1 / k for k in range(1, request.size + 1))
    seconds = passes * summed * len(data) * (pair + READ)
    return Estimate(seconds, BLOCK_BYTES, Held.BLOCKED.value)


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Compute distances as facility location does."""
    rows = torch.cat([a, b]).flatten(1)
    operator = Features(rows, rows)
    index = torch.arange(len(a), device=rows.device)
    return squared_distances(operator, operator.diagonal(), index).sqrt()


def some_rows(data: Dataset) -> Any:
    """Take evenly spaced rows to fit a kernel on for an estimate."""
    return data.x[:: max(1, len(data) // FIRST_ROWS)]


def _time_multiplication(runtime: Runtime) -> float:
    """Measure the seconds of one multiplication in a product of matrices."""
    like = {"dtype": runtime.torch_dtype, "device": runtime.torch_device}
    square = torch.ones(PROBE_ROWS, PROBE_ROWS, **like)  # type: ignore[call-overload]
    return min(_timed(torch.matmul, square, square) for _ in range(PROBE_CALLS)) / PROBE_ROWS**3


def probed(evaluate: Callable[[Tensor, Tensor], Tensor], data: Dataset, runtime: Runtime) -> float:
    """Measure the seconds of one pair of rows, on a tile that grows while pairs get cheaper."""
    x = data.x
    rows = 2
    before = math.inf
    whole: Clock | None = None
    while True:
        a, b = (
            as_tensor(part).to(runtime.torch_device, runtime.torch_dtype)
            for part in (x[:rows], x[-rows:])
        )
        if whole is None:
            _timed(evaluate, a, b)  # the first call sets things up
            whole = Clock(PROBE_SECONDS)
        tile = min(_timed(evaluate, a, b) for _ in range(PROBE_CALLS))
        pair = tile / (len(a) * len(b))
        steady = whole.over and pair > CHEAPER * before and tile > TILE_SECONDS
        if steady or rows >= min(PROBE_ROWS, len(x)):
            return pair
        before = pair
        rows *= 2


def _timed(evaluate: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> float:
    with wide(math.inf):  # as the tiles of a long product are evaluated
        clock = Clock()
        float(evaluate(a, b).sum())  # the number itself: a device is waited for
        return clock.seconds


def human_seconds(seconds: float) -> str:
    """Format a duration for people.

    Parameters
    ----------
    seconds : float
        The duration.

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

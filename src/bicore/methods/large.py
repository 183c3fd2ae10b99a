"""Large data: the approximation that replaces an exact method, and the cost of a selection.

Approximations depend on the number of rows only. Measured speed is used only to estimate how long a
selection takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from bicore.arguments import as_size
from bicore.bilevel.contract import Quantity
from bicore.bilevel.engines.ridge import PASSES_A_POINT, PREFETCH_WIDTH
from bicore.bilevel.prepare import plan_memory
from bicore.bilevel.regularisation import SUBSET_SIZE, SUBSETS
from bicore.data import Dataset, as_tensor
from bicore.kernels.building import MatrixForm
from bicore.kernels.classical import Nystrom
from bicore.methods.base import Selector
from bicore.methods.baselines.base import KernelSpace, OverSpace
from bicore.methods.baselines.covering import FacilityLocation
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.quality_curve import UNKNOWN_SIZE
from bicore.methods.variants import Reconstruction
from bicore.runtime.clock import Clock
from bicore.runtime.context import Runtime
from bicore.runtime.threads import all_threads

#: With more rows than this, landmarks replace a kernel matrix of all pairs, and facility location
#: sums over a sample.
MANY = 20_000
#: Number of landmarks, and of the rows that facility location sums over.
LANDMARKS, SAMPLE = 1000, 4000
#: A probe takes the fastest of several calls, and doubles its rows until a call takes this long.
PROBE_CALLS, PROBE_ROWS, PROBE_SECONDS = 3, 512, 0.03
#: Seconds to read one number from memory, on one core of a common machine.
READ = 7.5e-10
#: Seconds of the calls of a selection, and of one step of a greedy search, on such a core.
START, STEP = 0.2, 5e-4
#: Cost of the preparation, in products of features: moments and orthogonal bases, and the subsets
#: of an automatic ρ.
MOMENTS, COLUMNS = 12, SUBSETS * SUBSET_SIZE
#: Number of reads of the data for checks and the fingerprint.
CHECKS = 5
#: Rows from which a kernel is fitted for an estimate.
FIRST_ROWS = 2000


@dataclass(frozen=True)
class Estimate:
    """The expected cost of a selection; without seconds for methods other than bilevel ones."""

    seconds: float | None = None
    bytes: int | None = None
    operator: str | None = None
    approximation: str | None = None
    passes: Any = None


def make_feasible(
    selector: Selector, data: Dataset, exact: bool
) -> tuple[Selector, tuple[str, ...]]:
    """Replace a selector by one that is feasible for this many rows, with a note if it differs."""
    rows = len(data)
    if exact and isinstance(selector, (BilevelSelector, Reconstruction)):
        return replace(selector, exact=True), ()
    if exact or rows <= MANY or not isinstance(selector, OverSpace) or not selector.all_pairs:
        return selector, ()
    if isinstance(selector, FacilityLocation):
        if selector.sample is not None:
            return selector, ()
        return replace(selector, sample=SAMPLE), (
            f"large data: facility location sums over {SAMPLE} of {rows} rows, drawn at random "
            "(exact=True sums over all)",
        )
    kernel = selector.space.kernel if isinstance(selector.space, KernelSpace) else None
    if kernel is None or kernel.precomputed or isinstance(kernel, Nystrom):
        return selector, ()
    return replace(selector, over=Nystrom(kernel, LANDMARKS)), (
        f"large data: {LANDMARKS} Nyström landmarks replace the kernel matrix of {rows} rows "
        "(exact=True computes it)",
    )


def estimate_selection(
    selector: Selector,
    data: Dataset,
    size: int | float | str,
    outer: Dataset | None,
    runtime: Runtime,
    exact: bool,
) -> Estimate:
    """Estimate the time and memory of a selection, without selecting."""
    count = UNKNOWN_SIZE if size == "auto" else as_size(size, int((data.weights > 0).sum()))
    count = min(count, len(data))
    selector, notes = make_feasible(selector, data, exact)
    if isinstance(selector, Reconstruction):
        width = min(selector.components, data.x.reshape(len(data), -1).shape[1])
        data = Dataset(data.x, np.zeros((len(data), width)), data.sample_weight)
        selector = selector.chooser
    if not isinstance(selector, BilevelSelector):
        return Estimate(approximation=notes[0] if notes else None)
    with runtime.apply():
        return _bilevel_cost(selector, data, count, outer, runtime)


def _bilevel_cost(
    selector: BilevelSelector, data: Dataset, size: int, outer: Dataset | None, runtime: Runtime
) -> Estimate:
    if data.y is None or selector.kernel.precomputed:
        return Estimate()
    selector = selector.resolve_defaults(data, size)
    words, checks = None, CHECKS * math.prod(data.x.shape)
    sample = selector.draw_candidates(data, size, 0)
    if sample is not None:
        words = sample.note(len(data))
        outer = sample.objective_data(data) if outer is None else outer
        data = data[sample.candidates]
    greedy_size = selector.strategy.greedy_size(size, int((data.weights > 0).sum()))
    plan = plan_memory(selector, data, outer, greedy_size, runtime)
    rows = len(data) if outer is None else len(outer)
    depth = plan.width if plan.form is MatrixForm.FEATURES else rows
    work = selector.strategy.refinement_cost(greedy_size, len(data), depth)
    numbers = float(len(data) * depth)
    passes = greedy_size + work.passes
    multiplication = _time_multiplication(runtime)
    steps = 2 * greedy_size if work.passes else greedy_size  # refined points are put into order
    seconds = START + STEP * steps + work.multiplications * multiplication
    seconds += (work.reads + checks) * READ
    if plan.form is not MatrixForm.BLOCKED:
        seconds += passes * numbers * READ
    if plan.form is MatrixForm.FEATURES:
        seconds += numbers * (COLUMNS + MOMENTS * plan.width) * multiplication
        return Estimate(seconds, plan.needed, plan.form.value, words)
    some = data.x[:: max(1, len(data) // FIRST_ROWS)]  # evenly spaced
    pair = _time_pair(selector.kernel.fit(some).evaluate, data, runtime)
    blocks = 1.0
    if plan.form is MatrixForm.BLOCKED:
        pair += 2 * PREFETCH_WIDTH * multiplication
        blocks = _passes_in_blocks(selector, greedy_size, len(data)) + work.passes
    seconds += blocks * pair * (numbers if outer is not None else numbers / 2)
    return Estimate(seconds, plan.needed, plan.form.value, words)


def _passes_in_blocks(selector: BilevelSelector, greedy_size: int, n: int) -> float:
    """Count passes over all pairs while points are taken, if products are made in blocks."""
    if not selector.closed_form:  # one product for every evaluation of the scores
        share = 1.0 if selector.candidates is None else min(selector.candidates / n, 1.0)
        return greedy_size * share
    begin = 2.0 if selector.rule.quantity is Quantity.GAIN else 1.0
    return begin + PASSES_A_POINT * greedy_size


def _time_multiplication(runtime: Runtime) -> float:
    """Measure the seconds of one multiplication in a product of matrices."""
    square = Dataset(np.ones((PROBE_ROWS, PROBE_ROWS)))
    return _time_pair(lambda a, b: a @ b.T, square, runtime) / PROBE_ROWS


def _time_pair(
    evaluate: Callable[[Tensor, Tensor], Tensor], data: Dataset, runtime: Runtime
) -> float:
    """Measure the seconds of one pair of rows, on a tile that is large enough to measure."""
    rows = 2
    while True:
        a, b = (
            as_tensor(part).to(runtime.torch_device, runtime.torch_dtype)
            for part in (data.x[:rows], data.x[-rows:])
        )
        if rows == 2:
            _time(evaluate, a, b)  # the first call initialises libraries
        seconds = min(_time(evaluate, a, b) for _ in range(PROBE_CALLS))
        if seconds > PROBE_SECONDS or rows >= min(PROBE_ROWS, len(data)):
            return seconds / (len(a) * len(b))
        rows *= 2


def _time(evaluate: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> float:
    with all_threads(math.inf):  # like the tiles of a long product
        clock = Clock()
        float(evaluate(a, b).sum())  # reading the number waits for a device
        return clock.seconds


def human_seconds(seconds: float) -> str:
    """Format a duration for people."""
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.2g} {unit}"
    return f"{seconds:.2g} s"

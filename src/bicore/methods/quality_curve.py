"""Find the smallest sufficient size from the loss of the prefixes of one selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bicore._deprecated import renamed_keywords
from bicore.arguments import as_seed, as_size, coreset_or_none, in_id_order
from bicore.bilevel.engines import choose
from bicore.bilevel.prepare import prepare
from bicore.bilevel.problem import Constant, PerPoint
from bicore.bilevel.strategies.base import Greedy
from bicore.bilevel.weights import WeightMode
from bicore.coreset import Coreset, Status
from bicore.data import Array, Dataset, read_targets
from bicore.errors import InputError, check_number
from bicore.methods.base import Selector, need_labels
from bicore.methods.bilevel import BilevelSelector
from bicore.runtime.clock import Clock
from bicore.runtime.context import Runtime
from bicore.types import RandomState

#: The first size that is evaluated; each next one is twice as large.
FIRST = 32
#: Default distance from the full model's loss, as a share.
TOLERANCE = 0.02
#: Ratio of evaluated sizes if every prefix costs a fit.
RATIO = 1.1
#: The size for estimates and choices while the size itself is unknown.
UNKNOWN_SIZE = 100


@dataclass(frozen=True, eq=False)
class QualityCurve:
    """Loss of the proxy on points that could not be selected, along one run."""

    sizes: Array
    losses: Array
    empty: float
    full: float
    held_out: int
    coreset: Coreset

    def smallest(self, tolerance: float = 0.02) -> int | None:
        """Return the smallest size from which on the loss stays near the full model's loss.

        A single small loss may be chance, if there are few held-out points.
        """
        beyond = np.flatnonzero(self.losses > (1 + tolerance) * self.full)
        first = 0 if not len(beyond) else int(beyond[-1]) + 1
        return int(self.sizes[first]) if first < len(self.sizes) else None


@renamed_keywords(largest="max_size", most="max_size")
def quality_curve(
    selector: BilevelSelector,
    data: Dataset,
    max_size: int | None = None,
    *,
    tolerance: float | None = None,
    held_out: float = 0.2,
    outer: Dataset | None = None,
    random_state: RandomState = 0,
    runtime: Runtime | None = None,
) -> QualityCurve:
    """Measure the held-out loss along one nested run, point by point with weights of 1.

    With an outer set nothing is held out: the run is on all data, and its objective is the loss on
    that set. As the points were chosen by it, these losses are too low for yet other points.

    Parameters
    ----------
    selector : BilevelSelector
        Kernel, loss, regulariser and rule.
    data : Dataset
        Rows with labels or targets.
    max_size : int, optional
        The largest size; default: all rows.
    tolerance : float, optional
        Stop at the first doubling of the size whose second half stays within this share of the
        full model's loss.
    held_out : float
        Share of the rows to hold out if there is no outer set.
    outer : Dataset, optional
        Points on which the loss is measured, with labels or targets.
    random_state : int, Generator, RandomState or None
        Seed of the split and of the run.
    runtime : Runtime, optional
        Device, precision and limits.

    Returns
    -------
    QualityCurve
        Sizes and losses.

    Raises
    ------
    InputError
        If the data cannot be split, or have no labels.

    Examples
    --------
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> curve = quality_curve(BilevelSelector("rbf", inner_reg=0.1), Dataset(x, np.sin(x)), 10)
    >>> curve.sizes.tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    check_number("held_out", held_out, above=0, below=1)
    need_labels(selector, data)
    if selector.kernel.precomputed and outer is None:
        raise InputError(
            "a precomputed matrix cannot be split; give x and a kernel, or an outer set."
        )
    seed = as_seed(random_state)
    runtime = runtime or Runtime()
    clock = Clock(runtime.max_seconds)
    part, measured = data, outer
    if measured is None:
        eligible_rows = data[np.flatnonzero(data.weights > 0)]
        part, measured = _split(eligible_rows, selector.task, held_out, seed)
    eligible = int((part.weights > 0).sum())
    limit = eligible if max_size is None else as_size(max_size, eligible, "max_size", "None")
    size = limit if tolerance is None else min(FIRST, limit)
    nested = replace(selector, weighting=WeightMode.UNIFORM, strategy=Greedy())
    nested = nested.resolve_defaults(part, min(limit, UNKNOWN_SIZE))
    coreset: Coreset | Sequence[int] = ()
    while True:
        left = runtime.for_part(clock)
        coreset = nested.select(
            part, size, outer=outer, initial=coreset, random_state=seed, runtime=left
        )
        curve = _measure(nested, part, measured, coreset, seed, runtime)
        found = None if tolerance is None else curve.smallest(tolerance)
        complete = coreset.status in (Status.COMPLETE, Status.UNVERIFIED)
        if size >= limit or not complete or (found is not None and 2 * found <= size):
            return curve
        size = min(2 * size, limit)


def select_smallest(
    selector: Selector,
    data: Dataset,
    tolerance: float | None = None,
    *,
    outer: Dataset | None = None,
    initial: Coreset | Sequence[int] = (),
    random_state: RandomState = 0,
    model: Any = None,
    runtime: Runtime | None = None,
) -> Coreset:
    """Select the smallest coreset within ``tolerance`` of the full model (``size="auto"``).

    A quality curve of the selector's own model gives the size, on the outer set if there is one.
    """
    seed = as_seed(random_state)
    more: dict[str, Any] = {"outer": outer, "initial": initial, "random_state": seed}
    tolerance = TOLERANCE if tolerance is None else tolerance
    check_number("tolerance", tolerance, least=0, fix="a share of the full model's loss")
    runtime = runtime or Runtime()
    clock = Clock(runtime.max_seconds)
    with runtime.apply(), clock.running():
        # One kernel for the curve and for the selection.
        known = selector.resolve_defaults(
            data, min(UNKNOWN_SIZE, len(data)), coreset_or_none(initial)
        )
    bilevel, rows, outer_rows = known.as_bilevel(data, outer)
    curve = quality_curve(
        bilevel, rows, tolerance=tolerance, outer=outer_rows, random_state=seed, runtime=runtime
    )
    if curve.coreset.status is Status.INTERRUPTED:
        raise KeyboardInterrupt  # the size is unknown
    found = curve.smallest(tolerance)
    if found is None:
        raise _no_size(curve.coreset, tolerance)
    count = max(found, len(initial))
    coreset = known.select(data, count, model=model, runtime=runtime.for_part(clock), **more)
    loss = float(curve.losses[np.searchsorted(curve.sizes, found)])
    note = (
        f"size: with {found} or more rows the loss on {curve.held_out} "
        f"{'held-out' if outer is None else 'outer'} rows is at most {100 * tolerance:.3g}% above "
        f"that of all rows ({loss:.4g}; all rows {curve.full:.4g}, no rows {curve.empty:.4g})"
    )
    details = {
        "tolerance": tolerance,
        "held_out": curve.held_out,
        "full_loss": curve.full,
        "empty_loss": curve.empty,
        "loss": loss,
    }
    return coreset.with_details({"notes": (note, *coreset.provenance.notes)}, auto_size=details)


def _no_size(coreset: Coreset, tolerance: float) -> InputError:
    if coreset.status is Status.FEWER:
        return InputError(
            f"the quotas allow {len(coreset)} rows, and no size up to that is within "
            f"tolerance={tolerance:g}; raise the quotas or the tolerance, or give a size."
        )
    # Only a run that ended early lacks such a size.
    return InputError(
        f"size='auto' was {coreset.message} and found no size within tolerance={tolerance:g}; "
        "raise max_seconds or the tolerance, or give a size."
    )


def _split(data: Dataset, task: str, held_out: float, seed: int) -> tuple[Dataset, Dataset]:
    """Hold out a share of every class, drawn by id so that row order does not matter."""
    assert data.y is not None
    rng = np.random.default_rng((seed, 1))
    is_held_out = np.zeros(len(data), dtype=bool)
    by_id = in_id_order(np.arange(len(data)), data.ids)
    targets = read_targets(data.y, task)
    labels = np.zeros(len(data)) if targets.classes is None else targets.values
    for label in np.unique(labels):
        rows = by_id[labels[by_id] == label]
        is_held_out[rng.permutation(rows)[: round(held_out * len(rows))]] = True
    if not is_held_out.any() or is_held_out.all():
        raise InputError(f"held_out={held_out} of {len(data)} rows leaves one part empty.")
    return data[np.flatnonzero(~is_held_out)], data[np.flatnonzero(is_held_out)]


def _measure(
    selector: BilevelSelector,
    part: Dataset,
    outer: Dataset,
    coreset: Coreset,
    seed: int,
    runtime: Runtime,
) -> QualityCurve:
    """Measure the loss on held-out rows along a run on ``part``, with the regulariser of the
    run."""
    known = coreset.provenance
    assert known.inner_reg is not None
    form = PerPoint if known.per_point else Constant
    fixed = replace(selector, inner_reg=form(known.inner_reg), classes=known.classes)
    with runtime.apply():
        prepared = prepare(fixed, part, outer, len(part), seed, runtime)
        requirements = fixed.requirements(len(part), solvers=prepared.solvers)
        engine = choose(prepared.problem, requirements)
        empty = engine.objective
        order = coreset.indices.tolist()
        sizes = list(range(1, len(order) + 1)) if engine.cheap_steps else _sizes(len(order))
        losses = []
        for before, size in zip([0, *sizes], sizes, strict=False):
            engine.extend(order[before:size])
            losses.append(engine.objective)
        full = choose(prepared.problem, requirements)
        full.extend(np.flatnonzero(prepared.counted).tolist())
        return QualityCurve(
            np.array(sizes), np.array(losses), empty, full.objective, len(outer), coreset
        )


def _sizes(most: int) -> list[int]:
    """Return 1, 2, 3 … and then a constant ratio, up to ``most``."""
    found = []
    size = 1
    while size < most:
        found.append(size)
        size = max(size + 1, int(size * RATIO))
    return [*found, most]

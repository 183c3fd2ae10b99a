"""How many points are enough: the loss on held-out points or an outer set, along one nested run.

It drives a bilevel selector from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from bicore.bilevel.engines import choose
from bicore.bilevel.prepare import prepare
from bicore.bilevel.problem import Constant, PerPoint
from bicore.coreset import Coreset, Status
from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.picking import as_seed, as_size, continued, in_id_order
from bicore.runtime import Clock, Context
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector

#: The first look at a growing run; each next one is at twice as many points.
FIRST = 32
#: How far above the full model's loss is near enough, where nobody says.
TOLERANCE = 0.02
#: Where every prefix costs a fit, sizes are looked at in this ratio.
RATIO = 1.1
#: The size that estimates and choices go by where the size itself is to be found.
UNKNOWN_SIZE = 100


@dataclass(frozen=True, eq=False)
class QualityCurve:
    """The loss of the proxy on points that were not to be chosen, along one run.

    Parameters
    ----------
    sizes, losses : array
        The loss after each of these sizes.
    empty, full : float
        The loss of the model of no points, and of all.
    held_out : int
        How many points judged, none of which could be chosen: held out, or of the outer set.
    coreset : Coreset
        The run itself.

    Examples
    --------
    >>> curve = QualityCurve(np.arange(1, 4), np.array([3.0, 1.0, 1.0]), 4.0, 1.0, 10, None)
    >>> curve.smallest(0.02)
    2
    """

    sizes: Array
    losses: Array
    empty: float
    full: float
    held_out: int
    coreset: Coreset

    def smallest(self, tolerance: float = 0.02) -> int | None:
        """The smallest size from which on the loss stays near the full model's.

        That it stays there is asked because a few judging points may praise a small coreset by
        chance.

        Parameters
        ----------
        tolerance : float
            How near, as a share of the full model's loss.

        Returns
        -------
        int or None
            None where no size is.
        """
        beyond = np.flatnonzero(self.losses > (1 + tolerance) * self.full)
        first = 0 if not len(beyond) else int(beyond[-1]) + 1
        return int(self.sizes[first]) if first < len(self.sizes) else None


def quality_curve(
    selector: BilevelSelector,
    data: Dataset,
    largest: int | None = None,
    *,
    tolerance: float | None = None,
    held_out: float = 0.2,
    outer: Dataset | None = None,
    rng: int | np.random.Generator = 0,
    context: Context | None = None,
) -> QualityCurve:
    """One nested run on a part of the data, point by point with weights of 1, judged on the rest.

    With an outer set nothing is held out: the run is on all of the data, its objective is the loss
    on that set, and so is every loss of the curve. The points were chosen by it: as an estimate for
    yet other points the losses are too low, as those on any validation set that was chosen by.

    Parameters
    ----------
    selector : BilevelSelector
        Kernel, loss, regulariser and rule.
    data : Dataset
        With labels or targets.
    largest : int, optional
        The size it grows to; by default all of its part.
    tolerance : float, optional
        Stop at the first doubling of the size of which the second half stays within this share of
        the full model's loss.
    held_out : float
        The share of the points that judge, where there is no outer set.
    outer : Dataset, optional
        The points that judge, with labels or targets.
    rng : int or numpy.random.Generator
        Of the split, and of the run.
    context : Context, optional
        Device and limits.

    Returns
    -------
    QualityCurve
        Sizes and losses.

    Raises
    ------
    InputError
        Where the data cannot be split, or have no labels.

    Examples
    --------
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> curve = quality_curve(BilevelSelector("rbf", inner_reg=0.1), Dataset(x, np.sin(x)), 10)
    >>> curve.sizes.tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    if not 0 < held_out < 1:
        raise InputError(
            f"held_out={held_out!r} is outside 0 … 1; give the share of the points that judge."
        )
    if data.y is None:
        raise InputError("a quality curve needs labels or targets, and data has none; give y.")
    if selector.kernel.precomputed and outer is None:
        raise InputError(
            "a precomputed matrix cannot be split into points that are chosen and points that "
            "judge; give x and a kernel, or an outer set."
        )
    seed = as_seed(rng)
    context = context or Context()
    clock = Clock(context.runtime.max_seconds)
    part, judge = data, outer
    if judge is None:
        part, judge = _split(data[np.flatnonzero(data.weights > 0)], held_out, seed)
    eligible = int((part.weights > 0).sum())
    limit = eligible if largest is None else as_size(largest, eligible)
    size = limit if tolerance is None else min(FIRST, limit)
    nested = selector.nested().settled(part, min(limit, UNKNOWN_SIZE))
    coreset: Coreset | Sequence[int] = ()
    while True:
        coreset = nested.select(
            part, size, outer=outer, initial=coreset, rng=seed, context=context.within(clock)
        )
        curve = _judged(nested, part, judge, coreset, seed, context)
        found = None if tolerance is None else curve.smallest(tolerance)
        settled = found is not None and 2 * found <= size
        grown = coreset.status in (Status.COMPLETE, Status.UNVERIFIED)
        if size >= limit or not grown or settled:
            return curve
        size = min(2 * size, limit)


def select_sized(
    selector: Selector,
    data: Dataset,
    size: int | float | str,
    tolerance: float = TOLERANCE,
    **more: Any,
) -> Coreset:
    """A selection whose size may be "auto": the smallest within ``tolerance`` of the full model.

    For the doors, where people write such words; ``more`` are the other arguments of
    :meth:`Selector.select`.
    """
    if size == "auto":
        return auto_sized(selector, data, tolerance=tolerance, **more)
    return selector.select(data, size, **more)  # type: ignore[arg-type]  # which refuses words


def auto_sized(
    selector: Selector,
    data: Dataset,
    *,
    tolerance: float = TOLERANCE,
    outer: Dataset | None = None,
    initial: Coreset | Sequence[int] = (),
    rng: int | np.random.Generator = 0,
    context: Context | None = None,
) -> Coreset:
    """The size by a quality curve of the selector's own model, on the outer set where there is one,
    then a selection of that size from all of the data."""
    check_tolerance(tolerance)
    seed = as_seed(rng)
    context = context or Context()
    clock = Clock(context.runtime.max_seconds)
    begun = continued(initial)
    with context.runtime.applied(), clock.running():
        # One kernel for the curve and for what is selected by it.
        known = selector.settled(data, min(UNKNOWN_SIZE, len(data)), begun)
    chooser, predicted, judge = known.judged_by(data, outer)
    curve = quality_curve(
        chooser, predicted, tolerance=tolerance, outer=judge, rng=seed, context=context
    )
    found = curve.smallest(tolerance)
    if found is None:
        raise _no_size(curve.coreset, tolerance)
    coreset = known.select(
        data,
        max(found, len(initial)),
        outer=outer,
        initial=initial,
        rng=seed,
        context=context.within(clock),
    )
    loss = float(curve.losses[np.searchsorted(curve.sizes, found)])
    note = (
        f"size: from here on within {tolerance:.3g} of the full model's loss on {curve.held_out} "
        f"{'held-out' if outer is None else 'outer'} points ({loss:.4g}, full {curve.full:.4g}, "
        f"none {curve.empty:.4g})"
    )
    details = {
        "tolerance": tolerance,
        "held_out": curve.held_out,
        "full_loss": curve.full,
        "empty_loss": curve.empty,
        "loss": loss,
    }
    return coreset.annotated({"notes": (note, *coreset.provenance.notes)}, auto_size=details)


def check_tolerance(tolerance: float) -> None:
    """Refuse what is no share."""
    number = isinstance(tolerance, Real) and not isinstance(tolerance, bool)
    if not number or not 0 <= tolerance < float("inf"):
        raise InputError(
            f"tolerance={tolerance!r} is not a share >= 0; 0.02 is two per cent of the full "
            "model's loss."
        )


def _no_size(coreset: Coreset, tolerance: float) -> InputError:
    if coreset.status is Status.FEWER:
        return InputError(
            f"the quotas allow {len(coreset)} points, and no size up to that is within "
            f"tolerance={tolerance:g}; raise the quotas or the tolerance, or give a size."
        )
    # The run was cut short: at its full length it meets any tolerance.
    return InputError(
        f"size='auto' was {coreset.message} and saw no size within tolerance={tolerance:g} so far; "
        "give it more time, a larger tolerance, or a size."
    )


def _split(data: Dataset, held_out: float, seed: int) -> tuple[Dataset, Dataset]:
    """Drawn among ids, so that the order of rows plays no part; classes in proportion."""
    assert data.y is not None
    rng = np.random.default_rng((seed, 1))
    judges = np.zeros(len(data), dtype=bool)
    by_id = in_id_order(np.arange(len(data)), data.ids)
    classes = data.y.dtype.kind != "f" and data.y.ndim == 1
    labels = data.y if classes else np.zeros(len(data))
    for label in np.unique(labels):
        rows = by_id[labels[by_id] == label]
        judges[rng.permutation(rows)[: round(held_out * len(rows))]] = True
    if not judges.any() or judges.all():
        raise InputError(
            f"held_out={held_out} of {len(data)} points leaves one part empty; give more points, "
            "or another share."
        )
    return data[np.flatnonzero(~judges)], data[np.flatnonzero(judges)]


def _judged(
    selector: BilevelSelector,
    part: Dataset,
    judge: Dataset,
    coreset: Coreset,
    seed: int,
    context: Context,
) -> QualityCurve:
    """The loss on ``judge`` along a run on ``part``, by the regulariser the run had."""
    runtime = context.runtime
    story = coreset.provenance
    assert story.inner_reg is not None
    form = PerPoint if story.per_point else Constant
    fixed = replace(selector, inner_reg=form(story.inner_reg), classes=story.classes)
    room = fixed.room(len(part), len(part))
    with runtime.applied():
        prepared = prepare(fixed.proxy, part, judge, room, seed, runtime)
        demand = replace(fixed.demand(len(part)), solvers=prepared.solvers)
        engine = choose(prepared.problem, demand)
        whole = choose(prepared.problem, demand)
        empty = engine.objective
        order = coreset.indices.tolist()
        sizes = list(range(1, len(order) + 1)) if engine.cheap_steps else _sizes(len(order))
        losses = []
        for before, size in zip([0, *sizes], sizes, strict=False):
            engine.extend(order[before:size], [1.0] * (size - before))
            losses.append(engine.objective)
        points = np.flatnonzero(prepared.counted).tolist()
        whole.extend(points, [1.0] * len(points))
        return QualityCurve(
            np.array(sizes), np.array(losses), empty, whole.objective, len(judge), coreset
        )


def _sizes(most: int) -> list[int]:
    """1, 2, 3 … and then in a constant ratio, up to ``most``."""
    found = []
    size = 1
    while size < most:
        found.append(size)
        size = max(size + 1, int(size * RATIO))
    return [*found, most]

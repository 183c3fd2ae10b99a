"""How many points are enough: the loss on held-out points of the proxy fitted on every prefix of
one nested run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bicore.bilevel.engines.implicit import ImplicitForward
from bicore.bilevel.greedy import Forward
from bicore.coreset import Coreset
from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.kernels.base import Precomputed
from bicore.picking import as_seed, as_size
from bicore.runtime import Clock, Context
from bicore.selectors.names import as_kernel

#: The first look at a growing run; each next one is at twice as many points.
FIRST = 32
#: Where every prefix costs a fit, sizes are looked at in this ratio.
RATIO = 1.1


@dataclass(frozen=True, eq=False)
class QualityCurve:
    """Loss of the proxy on ``held_out`` points that nothing was chosen from, after each of
    ``sizes``; of the model of no points (``empty``) and of all (``full``). ``coreset`` is the run
    itself.
    """

    sizes: Array
    losses: Array
    empty: float
    full: float
    held_out: int
    coreset: Coreset

    def smallest(self, tolerance: float = 0.02) -> int | None:
        """The smallest size from which on the loss stays within ``tolerance`` (a share) of the full
        model's; None where none is.

        That it stays there is asked because a few held-out points may praise a small coreset by
        chance.
        """
        beyond = np.flatnonzero(self.losses > (1 + tolerance) * self.full)
        first = 0 if not len(beyond) else int(beyond[-1]) + 1
        return int(self.sizes[first]) if first < len(self.sizes) else None


class Judging(Protocol):
    """A selector with a model of its own, by which a run can be judged."""

    @property
    def kernel(self) -> Any: ...

    def select(
        self,
        data: Dataset,
        size: int | float | str,
        *,
        initial: Coreset | Sequence[int],
        rng: int,
        context: Context | None,
    ) -> Coreset: ...

    def nested(self) -> Judging: ...

    def judged(
        self, part: Dataset, judge: Dataset, coreset: Coreset, seed: int, context: Context | None
    ) -> QualityCurve: ...


def quality_curve(
    selector: Judging,
    data: Dataset,
    largest: int | None = None,
    *,
    tolerance: float | None = None,
    held_out: float = 0.2,
    rng: int | np.random.Generator = 0,
    context: Context | None = None,
) -> QualityCurve:
    """One nested run on a part of the data, point by point with weights of 1, judged on the rest.

    ``largest`` is the size it grows to (default: all of its part); with ``tolerance`` it stops at
    the first doubling of the size of which the second half stays within it.
    """
    if not 0 < held_out < 1:
        raise InputError(
            f"held_out={held_out!r} is outside 0 … 1; give the share of the points that judge."
        )
    if data.y is None:
        raise InputError("a quality curve needs labels or targets, and data has none; give y.")
    if isinstance(as_kernel(selector.kernel), Precomputed):
        raise InputError(
            "a precomputed matrix cannot be split into points that are chosen and points that "
            "judge; give x and a kernel."
        )
    seed = as_seed(rng)
    context = context or Context()
    clock = Clock(context.runtime.max_seconds)
    part, judge = _split(data[np.flatnonzero(data.weights > 0)], held_out, seed)
    eligible = int((part.weights > 0).sum())
    plain = selector.nested()
    limit = eligible if largest is None else as_size(largest, eligible)
    coreset = None
    size = limit if tolerance is None else min(FIRST, limit)
    while True:
        left = context.within(clock)
        coreset = plain.select(
            part, size, initial=() if coreset is None else coreset, rng=seed, context=left
        )
        curve = plain.judged(part, judge, coreset, seed, context)
        found = None if tolerance is None else curve.smallest(tolerance)
        if (
            size >= limit
            or coreset.status != "complete"
            or (found is not None and 2 * found <= size)
        ):
            return curve
        size = min(2 * size, limit)


def _split(data: Dataset, held_out: float, seed: int) -> tuple[Dataset, Dataset]:
    """Drawn among ids, so that the order of rows plays no part; classes in proportion."""
    assert data.y is not None
    rng = np.random.default_rng((seed, 1))
    judges = np.zeros(len(data), dtype=bool)
    by_id = np.argsort(data.ids, kind="stable")
    labels = data.y if data.y.dtype.kind != "f" and data.y.ndim == 1 else np.zeros(len(data))
    for label in np.unique(labels):
        rows = by_id[labels[by_id] == label]
        judges[rng.permutation(rows)[: round(held_out * len(rows))]] = True
    if not judges.any() or judges.all():
        raise InputError(
            f"held_out={held_out} of {len(data)} points leaves one part empty; give more points, "
            "or another share."
        )
    return data[np.flatnonzero(~judges)], data[np.flatnonzero(judges)]


def judged(
    engine: Forward, whole: Forward, points: list[int], held_out: int, coreset: Coreset
) -> QualityCurve:
    """The objective of two empty engines, which is that of the held-out points: along the coreset,
    and with all points taken."""
    order = coreset.indices.tolist()
    losses = []
    start = 0
    empty = engine.objective
    sizes = (
        _sizes(len(order))
        if isinstance(engine, ImplicitForward)
        else list(range(1, len(order) + 1))
    )
    for size in sizes:
        if isinstance(engine, ImplicitForward):
            engine.extend(order[start:size], [1.0] * (size - start))
        else:
            engine.add(order[size - 1])
        losses.append(engine.objective)
        start = size
    whole.extend(points, [1.0] * len(points))
    return QualityCurve(
        np.array(sizes), np.array(losses), empty, whole.objective, held_out, coreset
    )


def _sizes(most: int) -> list[int]:
    """1, 2, 3 … and then in a constant ratio, up to ``most``."""
    found = []
    size = 1
    while size < most:
        found.append(size)
        size = max(size + 1, int(size * RATIO))
    return [*found, most]

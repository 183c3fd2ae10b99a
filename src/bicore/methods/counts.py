"""Select a given number of rows of each class."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bicore.bilevel.greedy import AtMost
from bicore.bilevel.strategies.base import Greedy
from bicore.bilevel.weights import WeightMode
from bicore.coreset import Coreset, Status
from bicore.data import Array, Dataset, Task
from bicore.errors import LargeDataWarning
from bicore.methods.base import Selector
from bicore.methods.bilevel import BilevelSelector
from bicore.methods.large import make_feasible
from bicore.methods.sampling import EXACT_ROWS
from bicore.runtime.context import Runtime

#: Large data are split into parts of about this many rows, with at least this many points each.
#: Parts of a sixth of the rows gave results as good as all rows together, and the cost is quadratic
#: in the number of rows.
PART_ROWS, PART_POINTS = 1000, 250


def select_counts(
    selector: Selector,
    data: Dataset,
    counts: Mapping[Any, int],
    random_state: int,
    runtime: Runtime | None,
) -> Coreset:
    """Select given numbers of rows of each class: by quotas, or in each class without them.

    A class whose count is the number of its rows is kept whole, and the others are selected in
    addition to it. Weights are learned when all rows are chosen; a row of weight 0 stays.
    """
    more: dict[str, Any] = {"random_state": random_state, "runtime": runtime}
    if isinstance(selector, BilevelSelector):
        return _select_bilevel(selector, data, counts, more)
    parts = []
    for label, count in counts.items():
        rows = np.flatnonzero(data.y == label)
        found = Coreset(np.arange(count))
        if 0 < count < len(rows):
            feasible, _ = make_feasible(selector, data[rows], exact=False)
            found = feasible.select(data[rows], count, **more)
        parts.append((rows, found))
    return _join(f"{selector.name}, in each class separately", data, parts)


def _select_bilevel(
    selector: BilevelSelector, data: Dataset, counts: Mapping[Any, int], more: dict[str, Any]
) -> Coreset:
    size, count = sum(counts.values()), 1
    if not (selector.exact or len(data) <= EXACT_ROWS or selector.kernel.precomputed):
        count = max(1, min(math.ceil(len(data) / PART_ROWS), size // PART_POINTS))
    # floats without fraction are classes here
    selector = replace(selector, task=Task.CLASSIFICATION, quotas=AtMost(counts))
    if selector.strategy.unset:  # exchanging hundreds of rows would take minutes
        selector = replace(selector, strategy=Greedy())
    selector = selector.resolve_defaults(data, size // count)
    if count == 1:
        return _select_part(selector, data, counts, more)
    note = (
        f"large data: rows were selected in {count} parts of {len(data) // count} rows "
        "(BilevelSelector(exact=True) selects from all at once)"
    )
    warnings.warn(note, LargeDataWarning, stacklevel=2)
    rng = np.random.default_rng(more["random_state"])
    shuffled = [rng.permutation(np.flatnonzero(data.y == label)) for label in counts]
    parts = []
    for part in range(count):
        # rows and points of a class are split in proportion
        picks = {label: len(range(part, counts[label], count)) for label in counts}
        members = np.sort(np.concatenate([one[part::count] for one in shuffled]))
        parts.append((members, _select_part(selector, data[members], picks, more)))
    return _join(f"{selector.name}, in {count} parts", data, parts, (note,))


def _select_part(
    selector: BilevelSelector, data: Dataset, counts: Mapping[Any, int], more: dict[str, Any]
) -> Coreset:
    labels = np.asarray(data.y)
    rows = {label: np.flatnonzero(labels == label) for label in counts}
    counts = {label: count for label, count in counts.items() if len(rows[label])}
    whole = [rows[label] for label, count in counts.items() if count == len(rows[label])]
    begun = np.concatenate([np.zeros(0, np.int64), *whole]).tolist()
    plain = replace(selector, quotas=AtMost(counts), weighting=WeightMode.UNIFORM)
    found = plain.select(data, sum(counts.values()), initial=begun, **more)
    if found.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    # Points with contradicted labels are no candidates, but the counts are exact.
    missing = [
        np.setdiff1d(rows[label], found.indices)[: count - (labels[found.indices] == label).sum()]
        for label, count in counts.items()
    ]
    indices = np.concatenate([found.indices, *missing])
    weights = np.ones(len(data))
    if selector.weighting is not WeightMode.UNIFORM:
        learned = selector.reweight(data, indices.tolist(), **more)
        weights = np.zeros(len(data))
        weights[learned.indices] = learned.weights
    return replace(found, indices=indices, weights=weights[indices], ids=data.ids[indices])


def _join(
    method: str, data: Dataset, parts: list[tuple[Array, Coreset]], notes: tuple[str, ...] = ()
) -> Coreset:
    """Return the coreset of some parts, each the numbers of its rows and its own coreset."""
    indices = np.concatenate([rows[found.indices] for rows, found in parts])
    weights = np.concatenate([found.weights for _, found in parts])
    ended = next((found for _, found in parts if not found.status.whole), parts[0][1])
    coreset = Coreset(
        indices, weights, data.ids[indices], status=ended.status, message=ended.message
    )
    return coreset.with_details({"method": method, "rows": len(data), "notes": notes})

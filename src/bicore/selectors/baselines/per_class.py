"""Any label-free method within each class: the strongest simple baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bicore.coreset import Coreset, Provenance, Status, labels_in
from bicore.data import Array, Dataset, read_targets
from bicore.errors import InputError
from bicore.picking import as_seed, as_size, as_start
from bicore.runtime import Clock, Context
from bicore.selectors.base import Selector, need_labels

SHARES = ("proportional", "balanced")


@dataclass(frozen=True)
class PerClass(Selector):
    """Select within each class, with a share of the points for each.

    Parameters
    ----------
    selector : Selector
        The method that selects among the rows of a class, such as ``FacilityLocation()``.
    shares : "proportional" or "balanced"
        As many points per class as its share of the rows, or the same number for every class. Every
        class has at least one point if there are enough.

    Raises
    ------
    InputError
        If ``shares`` is unknown, or y holds targets instead of classes.

    Examples
    --------
    >>> from bicore.selectors import FacilityLocation
    >>> data = Dataset(np.arange(8.0)[:, None], ["a"] * 6 + ["b"] * 2)
    >>> PerClass(FacilityLocation()).select(data, 4).indices.tolist()
    [2, 4, 0, 6]
    """

    selector: Selector
    shares: str = "proportional"

    def __post_init__(self) -> None:
        if self.shares not in SHARES:
            raise InputError(f"shares={self.shares!r} must be 'proportional' or 'balanced'.")

    @property
    def name(self) -> str:
        return f"{self.selector.name} per class ({self.shares})"

    @property
    def needs_labels(self) -> bool:
        return True

    @property
    def needs_model(self) -> bool:
        return self.selector.needs_model

    @property
    def ordered(self) -> bool:
        return False

    def select(
        self,
        data: Dataset,
        size: int | float,
        *,
        outer: Dataset | None = None,
        initial: Coreset | Sequence[int] = (),
        rng: int | np.random.Generator = 0,
        context: Context | None = None,
    ) -> Coreset:
        need_labels(self, data)
        assert data.y is not None
        targets = read_targets(data.y)
        if targets.classes is None:
            raise InputError("y holds targets, and a selection per class needs classes.")
        seed = as_seed(rng)
        clock = Clock()
        counted = data.weights > 0
        counts = np.bincount(targets.values[counted], minlength=len(targets.classes))
        total = as_size(size, int(counted.sum()))
        start = np.array(as_start(initial, data, total).points, dtype=int)
        given = np.bincount(targets.values[start], minlength=len(counts))
        wanted = allocate_points(counts, total, self.shares, given)
        found = [start]
        for code in np.flatnonzero(wanted > given):
            rows = np.flatnonzero(counted | np.isin(np.arange(len(data)), start))
            rows = rows[targets.values[rows] == code]
            own = start[targets.values[start] == code]
            picked = self.selector.select(
                data[rows].with_columns(y=None),
                int(wanted[code]),
                initial=np.searchsorted(rows, own).tolist(),
                rng=seed,
                context=context,
            )
            found.append(rows[picked.indices[len(own) :]])
        indices = np.concatenate(found)
        return Coreset(
            indices,
            np.ones(len(indices)),
            data.ids[indices],
            np.zeros(0),
            Status.COMPLETE,
            "",
            replace(
                Provenance(method=self.name, rows=len(data), seed=seed, seconds=clock.seconds),
                fingerprint=data.fingerprint(),
                classes=labels_in(targets.classes),
                task=targets.task,
            ),
            {},
        )


def allocate_points(
    counts: Array, total: int, shares: str = "proportional", given: Array | int = 0
) -> Array:
    """Split points over classes, at least one each if there are enough, and those ``given``."""
    present = counts > 0
    share = counts if shares == "proportional" else present.astype(int)
    exact = share / share.sum() * total
    found = np.floor(exact).astype(int)
    if total >= present.sum():
        found = np.maximum(found, present)
    found = np.maximum(np.minimum(found, counts), given)
    least = np.maximum(given, 1)
    while found.sum() > total:
        spare = found > least
        if not spare.any():  # the points given leave none for some class
            spare = found > given
        found[np.argmax(np.where(spare, found - exact, -np.inf))] -= 1
    while found.sum() < total:
        found[np.argmax(np.where(found < counts, exact - found, -np.inf))] += 1
    return np.asarray(found)

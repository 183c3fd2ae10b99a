"""Ways to choose a coreset of some size among candidates: elimination, addition, exchange."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from bicore.arguments import TIE
from bicore.data import Array
from bicore.errors import NumericalWarning, check_name
from bicore.moments.moments import Outer
from bicore.moments.ridge import Candidates, RidgeRows

#: Exchanges that lower the objective by less than this share of it are not made.
WORTHWHILE = 1e-6
#: Largest difference between the sum of all changes and a refit, as a share of the loss of no rows.
DRIFT = 1e-6

#: The products of the first rows, if they are known already.
Known = tuple[Array, Array] | None


def _eliminate(rows: Candidates, size: int) -> None:
    """Drop the row with the smallest loss, one at a time; of equal ones the last."""
    for _ in range(len(rows.inside) - size):
        losses = rows.losses()
        least = float(losses.min())
        equal = losses <= least + TIE * max(abs(least), rows.outer.constant)
        rows.change(int(equal.nonzero()[0][-1]))


def _add(worth: Callable[[Candidates], Array], rows: Candidates, size: int) -> None:
    """Add the row that is worth most, one at a time; of equal ones the first."""
    for _ in range(size):
        found = np.where(rows.inside, -np.inf, worth(rows))
        most = float(found.max())
        equal = found >= most - TIE * max(abs(most), rows.outer.constant)
        rows.change(int(np.flatnonzero(equal)[0]))


def _exchange(rows: Candidates, size: int) -> None:
    """Eliminate, then exchange while that helps."""
    _eliminate(rows, size)
    improve(rows)


def _choose(
    search: Callable[[Candidates, int], None],
    from_all: bool,
    outer: Outer,
    features: Array,
    targets: Array,
    ridge: float,
    size: int,
    known: Known = None,
) -> Candidates:
    """Run a search that starts with all rows in or with none."""
    inside = np.full(len(features), from_all)
    rows = Candidates(outer, features, targets, ridge, inside, known)
    search(rows, size)
    return _verify(rows)


#: How the rows of a memory may be chosen: by loss, by slope as the paper does, or by exact gain.
WAYS: dict[str, Callable[..., Candidates]] = {
    "elimination": partial(_choose, _eliminate, True),
    "gradient": partial(_choose, partial(_add, Candidates.gradients), False),
    "gain": partial(_choose, partial(_add, Candidates.gains), False),
    "exchange": partial(_choose, _exchange, True),
}


def as_way(strategy: str) -> str:
    """Check a name of WAYS."""
    check_name("strategy", strategy, WAYS)
    return strategy


def improve(rows: RidgeRows, may_leave: Callable[[Array], Array] | None = None) -> int:
    """Exchange the best row outside for the one with the smallest loss, while that helps."""
    for made in range(len(rows.inside)):
        before = rows.objective
        comes = _first_largest(rows.gains())
        rows.change(comes)
        losses = rows.losses()
        if may_leave is not None:
            losses[~may_leave(rows.inside)] = np.inf
        leaves = _first_largest(-losses)
        rows.change(leaves)
        if rows.objective > before - WORTHWHILE * abs(before):
            if leaves != comes:  # take it back
                rows.change(comes)
                rows.change(leaves)
            return made
    return len(rows.inside)


def _first_largest(values: Array) -> int:
    """Return the first of the values that are the largest up to rounding."""
    most = float(values.max())
    return int((values >= most - TIE * abs(most)).argmax())


def _verify(rows: Candidates) -> Candidates:
    """Compare the sum of the changes with a refit; warn and use the refit if they differ."""
    fitted = rows.refit()
    # If only one class counts, the loss of no points is 0 and rows of others still have targets.
    size = float(np.einsum("ij,ij->", rows.targets, rows.targets)) / len(rows.targets)
    if not abs(fitted - rows.objective) <= DRIFT * max(rows.outer.constant, abs(fitted), size):
        warnings.warn(
            f"the objective of {rows.inside.sum()} rows is {fitted:.6g} by a refit; the selection "
            f"computed {rows.objective:.6g}; raise inner_reg (ridge={rows.ridge:.3g}), or scale "
            "the rows",
            NumericalWarning,
            stacklevel=2,
        )
        rows.objective = fitted
    return rows

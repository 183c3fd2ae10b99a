"""Searches for a coreset of given size among candidates: elimination, addition, exchange."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from bicore.arguments import TIE
from bicore.data import Array
from bicore.errors import NumericalWarning
from bicore.moments.moments import Outer
from bicore.moments.ridge import Candidates, RidgeRows

#: Minimum relative decrease of the objective for an exchange.
WORTHWHILE = 1e-6
#: Maximum difference between the sum of all changes and a refit, as a share of the empty coreset's
#: loss.
DRIFT = 1e-6

#: Known products of the first rows.
Known = tuple[Array, Array] | None


def _eliminate(rows: Candidates, size: int) -> None:
    """Repeatedly remove the row with the smallest removal cost; of equal ones the last."""
    for _ in range(len(rows.inside) - size):
        removal_costs = rows.removal_costs()
        least = float(removal_costs.min())
        equal = removal_costs <= least + TIE * max(abs(least), rows.outer.constant)
        rows.change(int(equal.nonzero()[0][-1]))


def _add(worth: Callable[[Candidates], Array], rows: Candidates, size: int) -> None:
    """Repeatedly add the row with the largest score; of equal ones the first."""
    for _ in range(size):
        scores = np.where(rows.inside, -np.inf, worth(rows))
        rows.change(_first_largest(scores, rows.outer.constant))


def _exchange(rows: Candidates, size: int) -> None:
    """Eliminate, then exchange while that lowers the objective."""
    _eliminate(rows, size)
    exchange_rows(rows)


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
    """Run a search that starts with all rows inside or with none."""
    inside = np.full(len(features), from_all)
    rows = Candidates(outer, features, targets, ridge, inside, known)
    search(rows, size)
    return _verify(rows)


#: Searches for the rows of a memory: by removal cost, by gradient as in the paper, or by gain.
SEARCHES: dict[str, Callable[..., Candidates]] = {
    "elimination": partial(_choose, _eliminate, True),
    "gradient": partial(_choose, partial(_add, Candidates.gradients), False),
    "gain": partial(_choose, partial(_add, Candidates.gains), False),
    "exchange": partial(_choose, _exchange, True),
}


def exchange_rows(rows: RidgeRows, may_leave: Callable[[Array], Array] | None = None) -> int:
    """Repeatedly exchange the best row outside for the one with the smallest removal cost."""
    for exchanges in range(len(rows.inside)):
        before = rows.objective
        joining = _first_largest(rows.gains())
        rows.change(joining)
        removal_costs = rows.removal_costs()
        if may_leave is not None:
            removal_costs[~may_leave(rows.inside)] = np.inf
        leaving = _first_largest(-removal_costs)
        rows.change(leaving)
        if rows.objective > before - WORTHWHILE * abs(before):
            if leaving != joining:  # undo it
                rows.change(joining)
                rows.change(leaving)
            return exchanges
    return len(rows.inside)


def _first_largest(values: Array, scale: float = 0.0) -> int:
    """Return the index of the first value that is largest up to rounding."""
    most = float(values.max())
    return int((values >= most - TIE * max(abs(most), scale)).argmax())


def _verify(rows: Candidates) -> Candidates:
    """Compare the sum of the changes with a refit; warn and use the refit if they differ."""
    fitted = rows.refit()
    # With a single class, the loss of an empty coreset is 0, and rows of other classes still have
    # targets.
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

"""Ways to a coreset of some size among candidates: dropping, adding, exchanging."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from bicore.data import Array
from bicore.errors import NumericalWarning, unknown_name
from bicore.moments.candidates import Candidates
from bicore.moments.outer import Outer

#: Values closer than this share of the largest are one: the earlier row stays, or joins.
TIE = 1e-10
#: Exchanges that lower the objective by less than this share of it are not made.
WORTHWHILE = 1e-6
#: What steps may be off a fit from nothing, as a share of the empty model's loss.
DRIFT = 1e-6

#: The products of the first rows, where they are known already.
Known = tuple[Array, Array] | None
Way = Callable[[Outer, Array, Array, float, int, Known], Candidates]


def eliminated(
    outer: Outer, features: Array, targets: Array, ridge: float, size: int, known: Known = None
) -> Candidates:
    """All candidates, less one at a time the row that is missed least.

    Parameters
    ----------
    outer : Outer
        The objective.
    features, targets : array (N, p), (N, C)
        Of the candidates; of equal ones the last goes first.
    ridge : float
        ρ.
    size : int
        How many stay.
    known : tuple of array, optional
        Products of the first rows.

    Returns
    -------
    Candidates
        With those that stay in.
    """
    rows = Candidates(outer, features, targets, ridge, np.ones(len(features), dtype=bool), known)
    for _ in range(len(features) - size):
        losses = rows.losses()
        least = float(losses.min())
        equal = losses <= least + TIE * max(abs(least), outer.constant)
        rows.change(int(np.flatnonzero(equal)[-1]))
    return _verify(rows)


def added_by_gain(
    outer: Outer, features: Array, targets: Array, ridge: float, size: int, known: Known = None
) -> Candidates:
    """One at a time the row that lowers the objective most."""
    return _verify(_grown(outer, features, targets, ridge, size, known, Candidates.gains))


def added_by_gradient(
    outer: Outer, features: Array, targets: Array, ridge: float, size: int, known: Known = None
) -> Candidates:
    """One at a time the row with the steepest slope, as the paper does."""
    return _verify(_grown(outer, features, targets, ridge, size, known, Candidates.gradients))


def exchanged(
    outer: Outer, features: Array, targets: Array, ridge: float, size: int, known: Known = None
) -> Candidates:
    """By elimination, then the best row outside for the one that is missed least."""
    rows = eliminated(outer, features, targets, ridge, size, known)
    improve(rows)
    return _verify(rows)


def improve(rows: Candidates) -> int:
    """Exchange the best row outside for the one that is missed least, while that helps.

    Parameters
    ----------
    rows : Candidates
        Changed in place.

    Returns
    -------
    int
        How many exchanges helped.
    """
    for made in range(len(rows.inside)):
        before = rows.objective
        comes = _first_largest(rows.gains())
        rows.change(comes)
        leaves = _first_largest(-rows.losses())
        rows.change(leaves)
        if rows.objective > before - WORTHWHILE * abs(before):
            if leaves != comes:  # take it back
                rows.change(comes)
                rows.change(leaves)
            return made
    return len(rows.inside)


def _first_largest(values: Array) -> int:
    """The first of the values that are the largest up to rounding."""
    most = float(values.max())
    return int((values >= most - TIE * abs(most)).argmax())


#: How a memory's rows may be chosen.
WAYS: dict[str, Way] = {
    "elimination": eliminated,
    "gradient": added_by_gradient,
    "gain": added_by_gain,
    "exchange": exchanged,
}


def as_way(rule: str) -> str:
    """A name of WAYS, or an error that lists them."""
    if rule not in WAYS:
        raise unknown_name("rule", rule, WAYS)
    return rule


def _grown(
    outer: Outer,
    features: Array,
    targets: Array,
    ridge: float,
    size: int,
    known: Known,
    worth: Callable[[Candidates], Array],
) -> Candidates:
    rows = Candidates(outer, features, targets, ridge, known=known)
    for _ in range(size):
        found = worth(rows).copy()
        found[rows.inside] = -np.inf
        most = float(found.max())
        rows.change(int(np.flatnonzero(found >= most - TIE * max(abs(most), outer.constant))[0]))
    return rows


def _verify(rows: Candidates) -> Candidates:
    """Compare the sum of the steps with a refit; warn and use the refit if they differ."""
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

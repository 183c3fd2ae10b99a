"""Which new rows are worth a closer look beside those that a memory holds.

Scoring a row by its slope needs two p×C matrices and the row; what it costs to hold it to all
others needs its products with A and with every other candidate. So a batch is scored first.
"""

from __future__ import annotations

import numpy as np

from bicore.data import Array
from bicore.moments.candidates import inverse_of
from bicore.moments.moments import Outer


def slopes(
    outer: Outer, kept: Array, kept_targets: Array, ridge: float, fresh: Array, targets: Array
) -> Array:
    """−∂G/∂w of new rows, the rows kept being the coreset.

    Parameters
    ----------
    outer : Outer
        The objective.
    kept, kept_targets : array (m, p), (m, C)
        The coreset.
    ridge : float
        ρ.
    fresh, targets : array (n, p), (n, C)
        The new rows.

    Returns
    -------
    array (n,)
        By how much the objective falls, for a little weight.
    """
    inverse = inverse_of(kept @ kept.T, ridge)
    model = kept.T @ (inverse @ kept_targets)
    pull = outer.times(np.ascontiguousarray(model.T)).T - outer.cross
    change = (-2.0 / ridge) * (pull - kept.T @ (inverse @ (kept @ pull)))
    found: Array = np.einsum("ij,ij->i", fresh @ change, targets - fresh @ model)
    return found


def promising(found: Array, count: int) -> Array:
    """The places of the steepest slopes, in order of place; of equal ones the first."""
    return np.sort(np.argsort(-found, kind="stable")[:count])

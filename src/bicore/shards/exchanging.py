"""Exchanges at the end, within what must stay: points from the start, and quotas of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bicore.data import Array
from bicore.moments.ridge import Candidates


class Bounded(Candidates):
    """Candidates of which some may not leave, and whose classes may hold so many points at most.

    Parameters
    ----------
    *given : object
        As of :class:`~bicore.moments.candidates.Candidates`.
    kept : array of bool (N,)
        Rows that stay in.
    codes : array of int (N,), optional
        The class of every row; None: there are no limits.
    limits : array of int (C,), optional
        The most rows of each class that may be in.

    Examples
    --------
    >>> from bicore.moments import Moments
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(40, 5)), np.eye(2)[rng.integers(0, 2, 40)]
    >>> outer = Moments.empty(5, classes=None, targets=2).with_rows(x, y).outer()
    >>> rows = Bounded(outer, x, y, 0.1, np.arange(40) < 3, kept=np.arange(40) < 1)
    >>> np.isinf(rows.losses()[:3]).tolist()
    [True, False, False]
    """

    def __init__(
        self,
        *given: Any,
        kept: Array,
        codes: Array | None = None,
        limits: Array | None = None,
    ) -> None:
        self.kept = kept
        self.codes = codes
        self.limits = limits
        super().__init__(*given)

    def losses(self) -> Array:
        """By how much the objective rises if a row leaves.

        Returns
        -------
        array (N,)
            ∞ for those that are out or must stay, and while a class has too many, for all others.
        """
        found = super().losses()
        found[self.kept] = np.inf
        if self.codes is not None and self.limits is not None:
            counts = np.bincount(self.codes[self.inside], minlength=len(self.limits))
            over = counts > self.limits
            if over.any():
                found[~over[self.codes]] = np.inf
        return found

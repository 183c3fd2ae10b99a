"""Rows that a pass found worth a closer look: their exact gains, kept up to date."""

from __future__ import annotations

import numpy as np

from bicore.data import Array
from bicore.shards.growing import Growing, Step


class Shortlist:
    """Candidates of one pass; a point that joins costs each of them p products.

    Parameters
    ----------
    growing : Growing
        The coreset as it was when the pass was made.
    positions : array of int (K,)
        Of the rows in the source.
    features, targets : array (K, p), (K, C)
        The rows.

    Examples
    --------
    >>> from bicore.moments import Moments
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(40, 5)), np.eye(2)[rng.integers(0, 2, 40)]
    >>> outer = Moments.empty(5, classes=None, targets=2).with_rows(x, y).outer()
    >>> growing = Growing(outer, 0.1)
    >>> rows = Shortlist(growing, np.arange(40), x, y)
    >>> place = rows.best("gain")
    >>> rows.take(growing, place)
    >>> bool(np.allclose(rows.values("gain")[1:3], growing.gains(x[1:3], y[1:3])))
    True
    """

    def __init__(self, growing: Growing, positions: Array, features: Array, targets: Array) -> None:
        self.positions = positions
        self.features = features
        self.targets = targets
        self.taken = np.zeros(len(positions), dtype=bool)
        reached = features @ growing.inverse
        self._d = 1.0 + np.einsum("ij,ij->i", reached, features)
        self._q = np.einsum("ij,ij->i", reached @ growing.second, reached)
        self._residuals = targets - features @ growing.model
        self._slopes = features @ growing.change

    def values(self, rule: str) -> Array:
        """What each row is worth now, by its slope or by its exact gain; −∞ once it is taken.

        Parameters
        ----------
        rule : {"gradient", "gain"}
            Which.

        Returns
        -------
        array (K,)
            The values.
        """
        found: Array = np.einsum("ij,ij->i", self._slopes, self._residuals)
        if rule == "gain":
            squares = np.einsum("ij,ij->i", self._residuals, self._residuals)
            found = found / self._d - self._q * squares / self._d**2
        found[self.taken] = -np.inf
        return found

    def best(self, rule: str) -> int:
        """The row that is worth most; of equal ones the one at the smallest position.

        Parameters
        ----------
        rule : {"gradient", "gain"}
            By what.

        Returns
        -------
        int
            Its place here.
        """
        found = self.values(rule)
        most = float(found.max())
        equal = np.flatnonzero(found >= most - TIE * abs(most))
        return int(equal[np.argmin(self.positions[equal])])

    def take(self, growing: Growing, place: int) -> None:
        """Let a row join the coreset, and bring the others up to date.

        Parameters
        ----------
        growing : Growing
            The coreset.
        place : int
            The row's place here.
        """
        self.follow(growing.take(self.features[place], self.targets[place]))
        self.taken[place] = True

    def follow(self, step: Step) -> None:
        """Bring all rows up to date after a point joined.

        Parameters
        ----------
        step : Step
            What it changed.
        """
        t, v = self.features @ step.reach, self.features @ step.turned
        u = v - (0.5 * step.own / step.d) * t
        self._d -= t * t / step.d
        self._q -= 2.0 * t * u / step.d
        self._residuals -= np.multiply.outer(t, step.pull)
        self._slopes -= np.multiply.outer(t, step.turn) + np.multiply.outer(v, 2.0 * step.pull)


#: Values closer than this share are one.
TIE = 1e-10

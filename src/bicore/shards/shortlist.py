"""Rows that a pass found worth a closer look: their exact gains, kept up to date."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bicore.data import Array
from bicore.runtime.threads import wide
from bicore.shards.arithmetic import along, on_host, outer, placed
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
        self._features = placed(features, growing.device)
        self._taken = placed(np.zeros(len(positions)), growing.device) > 0
        self._shut = self._taken
        self._device = growing.device
        with wide(float(features.size) * len(growing.second)):
            reached = self._features @ growing.inverse
            turned = reached @ growing.second
        self._d = 1.0 + along(reached, self._features)
        self._q = along(turned, reached)
        self._residuals = placed(targets, growing.device) - self._features @ growing.model
        self._slopes = self._features @ growing.change

    def allow(self, allowed: Array | None) -> None:
        """Say which rows may be taken next; the others are worth −∞ until then.

        Parameters
        ----------
        allowed : array of bool (K,), optional
            None: all that are not taken.
        """
        self._shut = self._taken
        if allowed is not None:
            self._shut = self._taken | (placed(~allowed, self._device) > 0)

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
        found: Array = on_host(self._values(rule))
        return found

    def _values(self, rule: str) -> Any:
        found = along(self._slopes, self._residuals)
        if rule == "gain":
            squares = along(self._residuals, self._residuals)
            found = found / self._d - self._q * squares / self._d**2
        found[self._shut] = -np.inf
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
        return self.peak(rule)[0]

    def peak(self, rule: str) -> tuple[int, float]:
        """The row that is worth most, and what it is worth.

        Parameters
        ----------
        rule : {"gradient", "gain"}
            By what.

        Returns
        -------
        tuple of int and float
            Its place here; −∞ where all are taken.
        """
        found = self._values(rule)
        most = float(found.max())
        equal = on_host(found >= most - TIE * abs(most)).nonzero()[0]
        place = int(equal[np.argmin(self.positions[equal])])
        return place, most

    def leaders(self, count: int) -> Array:
        """The rows with the largest gains; among equal ones those at the smallest positions.

        Parameters
        ----------
        count : int
            How many.

        Returns
        -------
        array of int
            Their places here, in order.
        """
        values = self.values("gain")
        largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
        order = np.lexsort((self.positions, -np.round(values / largest, TIE_DIGITS)))
        return np.sort(order[:count])

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
        self._taken[place] = True

    def follow(self, step: Step) -> None:
        """Bring all rows up to date after a point joined.

        Parameters
        ----------
        step : Step
            What it changed.
        """
        both = self._features @ _columns(step.reach, step.turned)
        t, v = both[:, 0], both[:, 1]
        u = v - (0.5 * step.own / step.d) * t
        self._d -= t * t / step.d
        self._q -= 2.0 * t * u / step.d
        self._residuals -= outer(t, step.pull)
        self._slopes -= outer(t, step.turn) + outer(v, 2.0 * step.pull)


def _columns(a: Any, b: Any) -> Any:
    """Two vectors side by side: the rows are read once for both."""
    return torch.stack([a, b], 1) if torch.is_tensor(a) else np.stack([a, b], 1)


#: Values closer than this share are one; in digits of the largest value.
TIE, TIE_DIGITS = 1e-10, 10

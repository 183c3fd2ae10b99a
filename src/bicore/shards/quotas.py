"""How many points a class may have, where rows are read in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError

#: One point of every class a round.
BALANCED = "balanced"


@dataclass(frozen=True, eq=False)
class Quotas:
    """Which classes may have another point.

    Parameters
    ----------
    caps : array (C,), optional
        The most points of each class; None: one of every class a round.
    spent : array of bool (C,)
        Classes of which a pass found no row that is free.

    Examples
    --------
    >>> quotas = Quotas.of("balanced", np.array(["cat", "dog"]), 3)
    >>> quotas.next(np.array([1, 0])).tolist(), quotas.open(np.array([1, 0])).tolist()
    ([False, True], [True, True])
    """

    caps: Array | None
    spent: Array

    @classmethod
    def of(cls, wish: Any, classes: Array | None, size: int) -> Quotas | None:
        """The quotas of some classes.

        Parameters
        ----------
        wish : None, "balanced" or mapping
            What is asked: the most points by label, classes that are not named without a limit.
        classes : array (C,), optional
            The labels that occur; None where y holds targets.
        size : int
            How many points are to be chosen.

        Returns
        -------
        Quotas
            None where every row may be taken.
        """
        if wish is None:
            return None
        if classes is None:
            raise InputError(
                "quotas are for classes, and y holds targets; leave them out, or give labels."
            )
        spent = np.zeros(len(classes), dtype=bool)
        if wish == BALANCED:
            return cls(None, spent)
        return cls(_caps(wish, classes, size), spent)

    def next(self, counts: Array) -> Array:
        """Of which classes the next point may be.

        Parameters
        ----------
        counts : array of int (C,)
            How many points each class has.

        Returns
        -------
        array of bool (C,)
            Those with room, or the smallest ones.
        """
        free = self.open(counts)
        if self.caps is not None or not free.any():
            return free
        found: Array = free & (counts == counts[free].min())
        return found

    def open(self, counts: Array) -> Array:
        """Which classes may have points again at some time.

        Parameters
        ----------
        counts : array of int (C,)
            How many points each class has.

        Returns
        -------
        array of bool (C,)
            Those that are not full.
        """
        found: Array = ~self.spent if self.caps is None else ~self.spent & (counts < self.caps)
        return found

    def limits(self, counts: Array) -> Array:
        """How many points each class may have after exchanges.

        Parameters
        ----------
        counts : array of int (C,)
            How many each has.

        Returns
        -------
        array of int (C,)
            As many as now where they take turns.
        """
        return counts if self.caps is None else self.caps


def check_wish(wish: Any) -> None:
    """Refuse what can be no quotas, before any row is read."""
    if wish is None or wish == BALANCED:
        return
    if not hasattr(wish, "items"):
        raise InputError(
            f"quotas={wish!r} is neither 'balanced' nor a mapping of labels to counts; for example "
            "quotas={'cat': 10}."
        )
    for label, count in wish.items():
        if not (hasattr(count, "__index__") and count >= 0):
            raise InputError(
                f"quotas[{label!r}]={count!r} is not a count >= 0; give the most points this class "
                "may have."
            )


def _caps(wish: Mapping[Any, int], classes: Array, size: int) -> Array:
    known = classes.tolist()
    caps = np.full(len(known), size, dtype=np.int64)
    for label, count in wish.items():
        if label not in known:
            raise InputError(
                f"quotas names {label!r}, which is no class of y ({known[:10]}); name classes that "
                "occur."
            )
        caps[known.index(label)] = int(count)
    return caps

"""Taking from several groups in turn, so that every prefix is as even as the groups allow."""

from __future__ import annotations

import numpy as np

from bicore.data import Array


def in_rounds(groups: Array, rank: Array, priority: Array, taken: Array) -> Array:
    """The order in which points leave their groups.

    Each round takes one point of every group that still has one, by ``priority`` (lower first);
    within a group the point of lowest ``rank`` goes first. ``taken`` holds how many of each group
    were taken before: those rounds are over for it.
    """
    rounds = np.empty(len(groups), dtype=np.int64)
    for group in np.unique(groups):
        places = np.flatnonzero(groups == group)
        ranked = places[np.argsort(rank[places], kind="stable")]
        rounds[ranked] = np.arange(len(places)) + taken[group]
    return np.lexsort((priority[groups], rounds))

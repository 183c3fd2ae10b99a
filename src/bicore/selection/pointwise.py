"""Selectors that judge each point alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bicore._version import __version__
from bicore.coreset import Coreset
from bicore.data import Dataset
from bicore.runtime import Clock, Context
from bicore.selection.base import Selector, as_initial, as_seed, as_size


@dataclass(frozen=True)
class Uniform(Selector):
    """Points drawn at random without replacement, all equally likely; the order drawn is the order of selection.

    Examples
    --------
    >>> len(Uniform().select(Dataset(np.eye(5)), 3, rng=1))
    3
    """

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
        clock, seed = Clock(), as_seed(rng)
        open_points = np.flatnonzero(data.weights > 0)
        count = as_size(size, len(open_points))
        given, _ = as_initial(initial, len(data), count)
        drawn = np.random.default_rng(seed).permutation(open_points)
        fresh = drawn[~np.isin(drawn, given)][: count - len(given)]
        indices = np.concatenate([np.array(given, dtype=np.int64), fresh])
        info = {
            "method": "uniform",
            "n": len(data),
            "seed": seed,
            "seconds": clock.seconds,
            "fingerprint": data.fingerprint(),
            "versions": {"bicore": __version__, "numpy": np.__version__},
        }
        return Coreset(indices, ids=data.ids[indices], info=info)

"""For each seed a pool to choose from, and test data that no method sees."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bicore.data import Array, Dataset, Targets, read_targets
from bicore.errors import InputError
from bicore.sources.base import Source, scaling

TEST_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class Pools:
    """All the data, and how pools and test data are taken from it; see :func:`make_pools`.

    Parameters
    ----------
    source : Source
        The data.
    size : int
        How many points a pool has.
    test : Dataset, optional
        A test set of the source's own, its labels as codes.
    test_size : int
        How many points are tested on.
    standardise : bool
        Whether features are scaled by each pool's own numbers.
    targets : Targets
        The labels or targets of all the data.

    Examples
    --------
    >>> from bicore.sources.opening import open_source
    >>> pools = make_pools(open_source("digits"), None, "auto", 100, 2000, 50)
    >>> pool, test = pools.of(seed=0)
    >>> len(pool), len(test), pools.outputs
    (100, 50, 10)
    """

    source: Source
    size: int
    test: Dataset | None
    test_size: int
    standardise: bool
    targets: Targets

    @property
    def outputs(self) -> int:
        """Number of classes, or of targets."""
        return self.targets.outputs

    @property
    def classification(self) -> bool:
        """Whether the labels are classes."""
        return self.targets.classes is not None

    def rows(self, seed: int, in_order: bool = False) -> Array:
        """Which rows of the source are the pool of one seed.

        Parameters
        ----------
        seed : int
            Of the draw.
        in_order : bool
            Whether the pool keeps the order of the source; if not, it is as it was drawn.

        Returns
        -------
        array of int
            For each place in the pool the row of the source.
        """
        first = 0 if self.test is not None else self.test_size
        drawn = self._order(seed)[first : first + self.size]
        return np.sort(drawn) if in_order else drawn

    def _order(self, seed: int) -> Array:
        """All rows as they are drawn: those tested on first, unless the source has its own."""
        return np.random.default_rng((seed, 0)).permutation(len(self.source.data))

    def of(self, seed: int, in_order: bool = False) -> tuple[Dataset, Dataset]:
        """The pool and the test data of one seed.

        Parameters
        ----------
        seed : int
            Of the draw.
        in_order : bool
            Whether the pool keeps the order of the source; if not, it is as it was drawn.

        Returns
        -------
        pool, test : Dataset
            They share no row; labels are codes 0 … C−1, and scaling is fitted on the pool alone.
        """
        data = replace(self.source.data, y=self.targets.values)
        own = self.test
        chosen = data[self._order(seed)[: self.test_size]] if own is None else own[: self.test_size]
        pool = data[self.rows(seed, in_order)]
        pool = Dataset(pool.x, pool.y, pool.weight)  # ids are places in the pool
        if not self.standardise:
            return pool, chosen
        scale = scaling(pool.x, self.source.keep)
        return replace(pool, x=scale(pool.x)), replace(chosen, x=scale(chosen.x))


def make_pools(
    source: Source,
    test: Source | None,
    task: str,
    pool: int | None,
    most: int,
    test_size: int | None,
) -> Pools:
    """Pools of a source, once the numbers asked for are checked.

    Parameters
    ----------
    source : Source
        The data.
    test : Source, optional
        A test set of the source's own.
    task : {"auto", "classification", "regression"}
        How labels are read.
    pool : int, optional
        How many points a pool has; by default all that is not tested on, at most ``most``.
    most : int
        See ``pool``.
    test_size : int, optional
        How many points are tested on; by default a quarter, or all of the source's own test set.

    Returns
    -------
    Pools
        From which every seed draws its own.

    Raises
    ------
    InputError
        Where the source has no labels or one class, or a number is out of its range.

    Examples
    --------
    >>> from bicore.sources.opening import open_source
    >>> make_pools(open_source("digits", limit=200), None, "auto", None, 2000, None).size
    150
    """
    if source.data.y is None:
        raise InputError(f"{source.name} holds no labels; a comparison trains and tests on them.")
    targets = read_targets(source.data.y, task)
    if targets.classes is not None and len(targets.classes) < 2:
        raise InputError(f"{source.name} holds a single class; a comparison needs at least two.")
    rows = len(source.data)
    own = None if test is None else _coded(test.data, targets)
    if test_size is None:
        test_size = len(own) if own is not None else max(1, min(round(TEST_SHARE * rows), 10_000))
    bound = len(own) if own is not None else rows - 2
    if not 1 <= test_size <= bound:
        raise InputError(
            f"--test {test_size} is outside 1 … {bound}, the rows that can be tested on."
        )
    free = rows if own is not None else rows - test_size
    size = min(free, most) if pool is None else pool
    if not 2 <= size <= free:
        raise InputError(
            f"--pool {size} is outside 2 … {free}, the rows left beside the {test_size} tested on."
        )
    return Pools(source, size, own, test_size, source.scale == "standard", targets)


def _coded(data: Dataset, targets: Targets) -> Dataset:
    assert data.y is not None
    return replace(data, y=read_targets(data.y, targets.task, targets.classes).values)


def labels_of(data: Dataset, classification: bool) -> Array:
    """Codes (n,) or targets (n, outputs)."""
    assert data.y is not None
    return data.y.reshape(-1) if classification else data.y.reshape(len(data), -1)

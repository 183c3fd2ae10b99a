"""Pools to select from and held-out test data, for every seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from bicore.api import as_dataset, is_in_parts
from bicore.data import Array, Dataset, Targets, read_targets
from bicore.errors import InputError, check_integer, check_type, shown
from bicore.evaluate.models import Sample, as_sample
from bicore.methods.passes import open_rows
from bicore.runtime.context import Runtime
from bicore.sources.base import Source, fit_scaling
from bicore.sources.opening import open_source, open_table, read_in_parts
from bicore.sources.standard_sets import STANDARD_SETS

TEST_SHARE = 0.25
#: Default limits of the test rows, and of the rows of a pool.
MOST_TESTED, MOST_POOL = 10_000, 2000


@dataclass(frozen=True, eq=False)
class PoolRows:
    """Rows of a pool or test set, copied and scaled when they are read.

    ``scale`` fits the scaling of the features. It is called when rows are first read, because it
    reads a whole pool.
    """

    data: Dataset
    places: Array
    scale: Callable[[], Callable[[Array], Array]] | None = None

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, places: Any) -> Dataset:
        taken = self.data[self.places[places]]
        x = taken.x if self.scale is None else self.scale()(taken.x)
        return Dataset(x, taken.y, taken.sample_weight)  # ids count these rows


@dataclass(frozen=True, eq=False)
class Split:
    """One seed: rows to select from, and rows to test on."""

    seed: int
    pool: PoolRows
    test: PoolRows


@dataclass(frozen=True, eq=False)
class Pools:
    """A source and the sizes of its pools and test sets; see :func:`make_pools`."""

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
        """Return the row numbers of the pool of one seed."""
        first = 0 if self.test is not None else self.test_size
        drawn = self._order(seed)[first : first + self.size]
        return np.sort(drawn) if in_order else drawn

    def _order(self, seed: int) -> Array:
        """Return all rows in random order; without a test set the first ones are test rows."""
        return np.random.default_rng((seed, 0)).permutation(len(self.source.data))

    def split(self, seed: int, in_order: bool = False, resample: bool = False) -> Split:
        """Return the rows of one seed, without copying them."""
        data = self.source.data.with_columns(y=self.targets.values)
        pool = self.rows(seed, in_order)
        fit = cache(lambda: fit_scaling(data.x[pool], self.source.unscaled))
        scale = fit if self.standardise else None
        tested = self._order(seed)[: self.test_size]
        if self.test is not None:
            rng = np.random.default_rng((seed, 1))
            size = self.test_size
            tested = rng.integers(len(self.test), size=size) if resample else np.arange(size)
        test = PoolRows(data if self.test is None else self.test, tested, scale)
        return Split(seed, PoolRows(data, pool, scale), test)

    def of(self, seed: int, in_order: bool = False) -> tuple[Dataset, Dataset]:
        """Return the pool and the test data of one seed."""
        split = self.split(seed, in_order)
        return split.pool[:], split.test[:]

    def sample(self, data: Dataset, device: torch.device) -> Sample:
        """Return rows as input of an evaluation model."""
        labels = labels_of(data, self.classification)
        return as_sample(data.x, labels, data.weights, device, self.classification)


def as_source(
    x: Any, y: Any = None, sample_weight: Any = None, runtime: Runtime | None = None, **opening: Any
) -> Source:
    """Read rows as :func:`bicore.select` does, or a file or built-in name as the command does."""
    given = {name: value for name, value in opening.items() if value is not None}
    memory = None if runtime is None else runtime.memory
    if isinstance(x, str) and x in STANDARD_SETS:
        if y is not None or sample_weight is not None:
            raise InputError(f"x={x!r} has its own labels; leave y and sample_weight out.")
        return open_source(x, later=True, memory=memory, **given)
    if is_in_parts(x):
        table = open_table(x, y, sample_weight, memory=memory, **given)
        if table is not None:
            return table
        return read_in_parts(open_rows(x, y, sample_weight, **given), runtime or Runtime())
    if given:
        name = next(iter(given))
        raise InputError(f"{name} needs a file or a table as x; got {shown(x)}. Leave {name} out.")
    data = as_dataset(x.data if isinstance(x, Source) else x, y, sample_weight)
    return x if isinstance(x, Source) else Source("data", data)


def make_pools(
    source: Source,
    test: Dataset | None = None,
    task: str = "auto",
    pool: int | None = None,
    most: int = MOST_POOL,
    test_size: int | None = None,
) -> Pools:
    """Check the requested numbers and build the pools of a source."""
    targets = _read_labels(source, task)
    rows = len(source.data)
    own = None if test is None else _read_test(test, source.data, targets)
    if test_size is None:
        quarter = max(1, min(round(TEST_SHARE * rows), MOST_TESTED))
        test_size = quarter if own is None else len(own)
    check_integer("test", test_size, 1, rows - 2 if own is None else len(own))
    free = rows - test_size if own is None else rows
    size = min(free, most) if pool is None else pool
    check_integer("pool", size, 2, free, f"because {test_size} rows are held out for the test")
    return Pools(source, size, own, test_size, source.scale == "standard", targets)


def _read_labels(source: Source, task: str) -> Targets:
    """Return the labels of a source; raise an error if no model can be trained on them."""
    if source.data.y is None:
        raise InputError(f"{source.name} has no labels, which evaluation models need; give y.")
    targets = read_targets(source.data.y, task)
    if targets.classes is not None and len(targets.classes) < 2:
        wrong = f"{source.name} has a single class, {targets.classes.tolist()[0]!r}"
        raise InputError(f"{wrong}; two are needed.")
    return targets


def _read_test(test: Dataset, data: Dataset, targets: Targets) -> Dataset:
    """Return a test set with labels read like those of the data."""
    check_type("test", test, Dataset, "a tuple (x, y) or a Dataset (compare: or a number of rows)")
    if test.y is None:
        raise InputError("test has no labels; give a tuple (x, y), or a Dataset with both.")
    try:
        values = read_targets(test.y, targets.task, targets.classes).values
    except InputError as error:
        raise InputError(f"test: {error}") from error
    pairs = {"features": (test.x, data.x), "targets": (values, targets.values)}
    for what, (own, other) in pairs.items():
        if own.shape[1:] != other.shape[1:]:
            shapes = f"{own.shape[1:]} per row, and the data have {other.shape[1:]}"
            raise InputError(f"test has {what} of shape {shapes}; give the same {what}.")
    return test.with_columns(y=values)


def labels_of(data: Dataset, classification: bool) -> Array:
    """Return codes (n,) or targets (n, outputs)."""
    assert data.y is not None
    return data.y.reshape(-1) if classification else data.y.reshape(len(data), -1)

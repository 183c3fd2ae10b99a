"""What is done to a part of a source: counted into moments, or scored. Both can be sent elsewhere.

Rows are looked at in blocks that fit a processor's cache; features are computed in float32 for
float16 and float32 rows, sums in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bicore.data import Array
from bicore.errors import InputError
from bicore.moments.features import FeatureMap
from bicore.moments.moments import Moments
from bicore.shards.source import Chunk, Part, ShardSource
from bicore.shards.sources.checking import checked

#: Numbers of a block: 4 MB of float32.
BLOCK = 2**20


@dataclass(frozen=True, eq=False)
class Counted:
    """The moments of a part, and what else is known once all rows were seen."""

    moments: Moments
    rows: int
    #: Rows left out for values that are not finite.
    bad: int
    #: The largest ‖φ‖².
    longest: float


@dataclass(frozen=True, eq=False)
class Counting:
    """Moments of a part."""

    map: FeatureMap
    empty: Moments
    skip_bad: bool = False

    def __call__(self, source: ShardSource, part: Part) -> Counted:
        chunk, bad = checked(source.read(part), part, self.skip_bad)
        moments, longest = self.empty, 0.0
        for rows, features in blocks(chunk, self.map):
            exact = features.astype(np.float64)
            weight = None if chunk.weight is None else chunk.weight[rows]
            if weight is None or np.any(weight > 0):
                y = None if chunk.y is None else chunk.y[rows]
                moments = moments.with_rows(exact, y, weight)
            longest = max(longest, float(np.einsum("ij,ij->i", features, features).max()))
        return Counted(moments, len(chunk), bad, longest)


@dataclass(frozen=True, eq=False)
class Measured:
    """What is known of a part whose rows may be chosen and are not judged by."""

    bad: int
    longest: float
    classes: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Measuring:
    """What a pass needs to know of rows, where another set is what the moments are of."""

    map: FeatureMap
    skip_bad: bool = False

    def __call__(self, source: ShardSource, part: Part) -> Measured:
        chunk, bad = checked(source.read(part), part, self.skip_bad)
        longest = 0.0
        for _, features in blocks(chunk, self.map):
            longest = max(longest, float(np.einsum("ij,ij->i", features, features).max()))
        labels = chunk.y
        if labels is None or labels.dtype.kind == "f":
            return Measured(bad, longest, ())
        return Measured(bad, longest, tuple(np.unique(labels).tolist()))


@dataclass(frozen=True, eq=False)
class Found:
    """The rows of a part that are worth a closer look."""

    positions: Array
    features: Array
    y: Array | None
    #: The best value among the rows that are not here.
    below: float


@dataclass(frozen=True, eq=False)
class Scoring:
    """The steepest rows of a part.

    ``change`` and ``model`` are M and W; of classes, ``classes`` says in which order their columns
    are and ``centre`` what is subtracted from one-hot labels.
    """

    map: FeatureMap
    change: Array
    model: Array
    centre: Array
    classes: Array | None
    count: int
    taken: Array
    #: Whether the first pass found rows to leave out: no others are looked for.
    some_bad: bool = False

    def __call__(self, source: ShardSource, part: Part) -> Found:
        chunk = source.read(part)
        if self.some_bad:
            chunk, _ = checked(chunk, part, skip_bad=True)
        values = np.empty(len(chunk))
        scorer = _Scorer(self)
        for rows, features in blocks(chunk, self.map):
            values[rows] = scorer.values(features, None if chunk.y is None else chunk.y[rows])
        if chunk.weight is not None:
            values[~(chunk.weight > 0)] = -np.inf
        own = self.taken[(self.taken >= part.start) & (self.taken < part.stop)] - part.start
        values[own] = -np.inf
        best = _largest(values, self.count)
        rest = np.ones(len(values), dtype=bool)
        rest[best] = False
        below = float(values[rest].max()) if rest.any() else -np.inf
        best = best[values[best] > -np.inf]
        picked = Chunk(chunk.x[best])
        features = np.concatenate([own for _, own in blocks(picked, self.map)] or [self._none()])
        return Found(best + part.start, features, None if chunk.y is None else chunk.y[best], below)

    def _none(self) -> Array:
        return np.empty((0, len(self.change)), dtype=np.float32)


class _Scorer:
    """Slopes of rows by two products, or for many classes by a quadratic form."""

    def __init__(self, scoring: Scoring) -> None:
        self.scoring = scoring
        width, outputs = scoring.change.shape
        self.quadratic = scoring.classes is not None and 2 * outputs > width + 2
        change, model = scoring.change, scoring.model
        if self.quadratic:
            form = change @ model.T
            self.form = (0.5 * (form + form.T)).astype(np.float32)
            self.mean = (change @ scoring.centre).astype(np.float32)
            self.columns = np.ascontiguousarray(change.T, dtype=np.float32)
        else:
            self.both = np.hstack([change, model]).astype(np.float32)

    def values(self, features: Array, y: Any) -> Array:
        scoring = self.scoring
        if scoring.classes is None:
            slopes, predicted = np.hsplit(features @ self.both, 2)
            targets = np.asarray(y, dtype=np.float32).reshape(len(features), -1) - scoring.centre
            return np.asarray(np.einsum("ij,ij->i", slopes, targets - predicted))
        codes = codes_of(y, scoring.classes)
        if self.quadratic:
            found = np.einsum("ij,ij->i", features, self.columns[codes] - self.mean)
            return np.asarray(found - np.einsum("ij,ij->i", features @ self.form, features))
        slopes, predicted = np.hsplit(features @ self.both, 2)
        own = slopes[np.arange(len(codes)), codes]
        centre = scoring.centre.astype(np.float32)
        return np.asarray(own - np.einsum("ij,ij->i", slopes, predicted + centre))


def blocks(chunk: Chunk, map: FeatureMap) -> Iterator[tuple[slice, Array]]:
    """Features of a chunk, some rows at a time."""
    size = max(1, BLOCK // max(1, int(np.prod(chunk.x.shape[1:]))))
    for start in range(0, len(chunk), size):
        rows = slice(start, start + size)
        x = np.array(chunk.x[rows])  # a map of a file is not writable, and torch asks for that
        yield rows, map.features(torch.from_numpy(x)).numpy()


def codes_of(y: Any, classes: Array) -> Array:
    """Places of labels among the classes, which are in order."""
    labels = np.asarray(y).reshape(-1)
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    strange = np.flatnonzero(classes[codes] != labels)
    if len(strange):
        raise InputError(
            f"y holds the class {labels[strange[0]]!r}, which the first pass did not see: the "
            "source has changed; select again."
        )
    return np.asarray(codes)


def _largest(values: Array, count: int) -> Array:
    """Places of the largest values, in order of place."""
    if count >= len(values):
        return np.arange(len(values))
    return np.sort(np.argpartition(-values, count - 1)[:count])

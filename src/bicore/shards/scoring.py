"""What rows of a part are worth: slopes of all of them, or the exact gains of those that may lead.

A gain is s/d − q‖r‖²/d² with d = 1 + φᵀΣφ ≥ 1 and q = φᵀΣAΣφ ≥ 0, so it is at most s/d, and at
most s where that is above 0. A row that stays below a gain which some row is known to have is
settled by its slope, 2pC multiply-adds, or by d, p² more; only what is left needs q.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.moments.features import FeatureMap, WithConstant
from bicore.moments.features.base import in_full_precision
from bicore.shards.blocks import (
    DEVICE_BLOCK,
    codes_of,
    converted,
    exact_features,
    row_size,
    slices,
)
from bicore.shards.work import Held
from bicore.sources.parts import Chunk, Part, ShardSource
from bicore.sources.rows import checked

#: Squared lengths outside of these may have lost digits in float32.
LEAST_SQUARE, MOST_SQUARE = 1e-30, 1e30
#: The steepest rows of a block whose gains say first what others must reach.
LEADERS = 16
#: What a bound may lack to count as reached: products are in float32.
SLACK = 1e-4


@dataclass(frozen=True, eq=False)
class Found:
    """The rows of a part that are worth a closer look, in order of their positions."""

    positions: Array
    #: Of the best of these rows only.
    features: Array
    y: Array | None
    #: What the rows that are not here are worth at most.
    below: float
    #: What each row is worth.
    values: Array
    #: Places of the rows that have features here.
    listed: Array


@dataclass(frozen=True, eq=False)
class Gains:
    """What makes gains of slopes: Σ, ΣAΣ, and a gain that some free row is known to have."""

    inverse: Array
    turned: Array
    floor: float


@dataclass(frozen=True, eq=False)
class Scoring:
    """The rows of a part that are worth most.

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
    #: Where rows are judged by gains; by slopes where not.
    gains: Gains | None = None
    #: Places of the classes that may have another point, each with a share of the rows found.
    open: Array | None = None
    #: How many rows come with their features; by default all.
    listed: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scorers", {})

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made from the rest."""
        return {**vars(self), "_scorers": {}}

    def scorer(self, device: torch.device) -> _Scorer:
        """What all parts are scored by, made once: for many classes that is a product of p²C.

        Parameters
        ----------
        device : torch.device
            Where rows are.

        Returns
        -------
        _Scorer
            The same for all parts.
        """
        made: dict[torch.device, _Scorer] = vars(self)["_scorers"]
        if device not in made:
            made[device] = _Scorer(self, device)
        return made[device]

    def chunk(self, source: ShardSource, part: Part) -> tuple[Chunk, int]:
        chunk = source.read(part)
        return checked(chunk, part, skip_bad=True) if self.some_bad else (chunk, 0)

    def __call__(self, source: ShardSource, part: Part) -> Found:
        chunk, _ = self.chunk(source, part)
        outputs = self._outputs(chunk.y, torch.device("cpu"))
        weight = None if chunk.weight is None else torch.from_numpy(np.array(chunk.weight))
        places, values, below = self._best(converted(chunk.x), outputs, weight, part)
        listed = self._listed(values)
        features = exact_features(chunk.x[places[listed]], self.map)
        y = _some(chunk.y, places)
        return Found(places + part.start, features, y, below, values, listed)

    def on(self, held: Held) -> Found:
        """The same for rows on a device.

        Parameters
        ----------
        held : Held
            The rows.

        Returns
        -------
        Found
            On the host.
        """
        classes = self.classes
        outputs = self._outputs(held.y, held.x.device) if classes is None else held.codes(classes)
        rows = slices(len(held.x), row_size(held.x), DEVICE_BLOCK)
        with in_full_precision(held.x):
            blocks = ((some, held.x[some]) for some in rows)
            places, values, below = self._best(blocks, outputs, held.weight, held.part)
        listed = self._listed(values)
        best = torch.as_tensor(places[listed], device=held.x.device)
        features = self.map.exact(held.x[best]).cpu().numpy()
        y = _some(held.y, places)
        return Found(places + held.part.start, features, y, below, values, listed)

    def _listed(self, values: Array) -> Array:
        """Places of the rows that come with their features: the best."""
        if self.listed is None or self.listed >= len(values):
            return np.arange(len(values))
        return np.sort(np.argsort(-values, kind="stable")[: self.listed])

    def _outputs(self, y: Any, device: torch.device) -> Tensor:
        if self.classes is not None:
            return torch.as_tensor(codes_of(y, self.classes), device=device)
        targets = np.asarray(y, dtype=np.float64).reshape(len(y), -1) - self.centre
        return torch.as_tensor(targets.astype(np.float32), device=device)

    def _best(
        self,
        blocks: Iterable[tuple[slice, Tensor]],
        outputs: Tensor,
        weight: Tensor | None,
        part: Part,
    ) -> tuple[Array, Array, float]:
        """Places and values of the rows that are worth most; what the others are worth at most."""
        scorer = self.scorer(outputs.device)
        shut = self._shut(outputs, weight, part)
        values = torch.empty(len(outputs), dtype=torch.float32, device=outputs.device)
        floor = -np.inf if self.gains is None else self.gains.floor
        for rows, x in blocks:
            values[rows], floor = scorer.worth(x, outputs[rows], shut[rows], floor)
        if self.open is None:
            best, below = largest(values, self.count)
        else:
            best, below = largest_of_each(values, outputs, self.open, self.count)
        return best.cpu().numpy(), values[best].cpu().numpy(), below

    def _shut(self, outputs: Tensor, weight: Tensor | None, part: Part) -> Tensor:
        """Which rows may not be taken: those that are in, and those that count for nothing."""
        own = self.taken[(self.taken >= part.start) & (self.taken < part.stop)] - part.start
        shut = torch.zeros(len(outputs), dtype=torch.bool, device=outputs.device)
        shut[torch.as_tensor(own, device=outputs.device)] = True
        if weight is not None:
            shut |= ~(weight > 0)
        if self.open is not None:
            shut |= ~torch.isin(outputs, torch.as_tensor(self.open, device=outputs.device))
        return shut


class _Scorer:
    """Slopes of rows by two products, or for many classes by a quadratic form; gains from them."""

    def __init__(self, scoring: Scoring, device: torch.device) -> None:
        self.whole, self.constant = _split_constant(scoring.map)
        self.map = self.whole.plain
        self.unit = self.map is not self.whole
        self.classes = scoring.classes is not None
        width, outputs = scoring.change.shape
        self.quadratic = self.classes and 2 * outputs > width + 2
        change, model = scoring.change, scoring.model

        def short(array: Array) -> Tensor:
            return torch.tensor(array, dtype=torch.float32, device=device)

        self.centre = short(scoring.centre)
        if self.quadratic:
            form = change @ model.T
            self.form = short(0.5 * (form + form.T))
            self.columns = short((change - (change @ scoring.centre)[:, None]).T.copy())
        else:
            both = np.hstack([change, model])
            self.both = short(both if self.constant is None else both[:-1])
            # The constant feature adds the same products to every row.
            self.added = None if self.constant is None else short(self.constant * both[-1])
        self.gains = scoring.gains is not None
        if scoring.gains is not None:
            self.model = short(model)
            self.inverse, self.turned = short(scoring.gains.inverse), short(scoring.gains.turned)

    def worth(self, x: Tensor, outputs: Tensor, shut: Tensor, floor: float) -> tuple[Tensor, float]:
        """Slopes or gains of rows, −∞ for those that are shut; and the best gain so far."""
        block = _Block(*self._features(x), outputs, self.constant)
        slopes = self._slopes(block)
        if not math.isfinite(slopes.sum()):
            self.whole.features(x)  # names the rows that are not finite
        slopes.masked_fill_(shut, -torch.inf)
        return self._gained(block, slopes, floor) if self.gains else (slopes, floor)

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features and what they are to be multiplied by; lengths are not divided by here."""
        features = self.map.unchecked(x).float()
        if not self.unit:
            return features, None
        squares = _along(features, features)
        if not (squares.min() >= LEAST_SQUARE and squares.max() <= MOST_SQUARE):
            return self.whole.features(x).float(), None
        return features, squares.rsqrt_()

    def _slopes(self, block: _Block) -> Tensor:
        if self.quadratic:
            rows = block.whole()
            own = (rows * self.columns[block.outputs]).sum(1)
            return own - (rows @ self.form).mul_(rows).sum(1)
        slopes, predicted = self._products(block).tensor_split(2, 1)
        if not self.classes:
            return _along(slopes, block.outputs - predicted)
        own = slopes.gather(1, block.outputs[:, None])[:, 0] - slopes @ self.centre
        return own - _along(slopes, predicted)

    def _products(self, block: _Block) -> Tensor:
        """Mᵀφ and Wᵀφ of rows; the shorter of the matrices is scaled, not the features."""
        found = _times(block.features, self.both)
        if block.scale is not None:
            found *= block.scale[:, None]
        if self.added is not None:
            found += self.added
        return found

    def _gained(self, block: _Block, slopes: Tensor, floor: float) -> tuple[Tensor, float]:
        """Gains of the rows that may reach the best so far; of others what they are at most."""
        values = torch.where(slopes > -torch.inf, slopes.clamp(min=0), slopes)
        leaders = torch.topk(values, min(LEADERS, len(values))).indices
        floor = max(floor, float(self._gains_of(block.some(leaders), slopes[leaders]).max()))
        near = torch.nonzero(values > _reached(floor))[:, 0]
        if not len(near):
            return values, floor
        rows = block.some(near)
        bounds = slopes[near] / self._lengths(rows)
        values[near] = bounds
        rest = torch.nonzero(bounds > _reached(floor))[:, 0]
        if len(rest):
            found = self._gains_of(rows.some(rest), slopes[near[rest]])
            values[near[rest]] = found
            floor = max(floor, float(found.max()))
        return values, floor

    def _lengths(self, rows: _Block) -> Tensor:
        """d = 1 + φᵀΣφ."""
        features = rows.whole()
        return (features @ self.inverse).mul_(features).sum(1) + 1.0

    def _gains_of(self, rows: _Block, slopes: Tensor) -> Tensor:
        d = self._lengths(rows)
        features = rows.whole()
        q = (features @ self.turned).mul_(features).sum(1)
        left = -(features @ self.model)
        if self.classes:
            left -= self.centre
            left[torch.arange(len(left), device=left.device), rows.outputs] += 1.0
        else:
            left += rows.outputs
        return slopes / d - q * left.square_().sum(1) / d**2


@dataclass(frozen=True, eq=False)
class _Block:
    """Features of some rows, what they are to be multiplied by, and their labels or targets."""

    features: Tensor
    scale: Tensor | None
    outputs: Tensor
    #: The feature that all rows share, behind the others.
    constant: float | None

    def some(self, places: Tensor) -> _Block:
        scale = None if self.scale is None else self.scale[places]
        return _Block(self.features[places], scale, self.outputs[places], self.constant)

    def whole(self) -> Tensor:
        """The features as the map has them."""
        rows = self.features if self.scale is None else self.features * self.scale[:, None]
        if self.constant is None:
            return rows
        return torch.cat([rows, rows.new_full((len(rows), 1), self.constant)], 1)


def _split_constant(features: FeatureMap) -> tuple[FeatureMap, float | None]:
    """The map without its constant feature, and that feature."""
    if isinstance(features, WithConstant):
        return features.map, features.value
    return features, None


def _reached(floor: float) -> float:
    """What a bound must be above; −∞ where the best is below 0, for slopes bound no such gain."""
    return floor * (1.0 - SLACK) if floor >= 0 else -np.inf


def _times(rows: Tensor, matrix: Tensor) -> Tensor:
    """Their product; NumPy has the shorter way to each of many small ones."""
    if rows.is_cuda:
        return rows @ matrix
    return torch.from_numpy(rows.numpy() @ matrix.numpy())


def _along(a: Tensor, b: Tensor) -> Tensor:
    """Products of rows with rows; NumPy writes no products of numbers out."""
    if a.is_cuda:
        return (a * b).sum(1)
    return torch.from_numpy(np.einsum("ij,ij->i", a.numpy(), b.numpy()))


def largest(values: Tensor, count: int) -> tuple[Tensor, float]:
    """Places of the largest values that are not −∞, in order, and the largest of the others.

    Of equal values the first are taken, wherever they are looked at.

    Parameters
    ----------
    values : Tensor (n,)
        On any device.
    count : int
        How many places.

    Returns
    -------
    tuple of Tensor and float
        Places; −∞ where there are no others.

    Examples
    --------
    >>> places, below = largest(torch.tensor([1.0, 3.0, 2.0, 2.0]), 2)
    >>> places.tolist(), below
    ([1, 2], 2.0)
    """
    top = torch.topk(values, min(count + 1, len(values))).values
    if count >= len(values):
        return torch.nonzero(values > -torch.inf)[:, 0], -np.inf
    least, below = float(top[count - 1]), float(top[count])
    places = torch.nonzero((values >= least) & (values > -torch.inf))[:, 0]
    if len(places) > count:
        equal = torch.nonzero(values[places] == least)[:, 0]
        kept = torch.ones(len(places), dtype=torch.bool, device=values.device)
        kept[equal[len(equal) - (len(places) - count) :]] = False
        places = places[kept]
    return places, below


def largest_of_each(
    values: Tensor, codes: Tensor, classes: Array, count: int
) -> tuple[Tensor, float]:
    """The same with an equal share of the places for each of some classes, one at least.

    Parameters
    ----------
    values, codes : Tensor (n,)
        What rows are worth, and their classes.
    classes : array of int
        Those that have a share.
    count : int
        How many places in all.

    Returns
    -------
    tuple of Tensor and float
        As of :func:`largest`.

    Examples
    --------
    >>> values, codes = torch.tensor([1.0, 3.0, 2.0, 0.0]), torch.tensor([0, 1, 1, 0])
    >>> places, below = largest_of_each(values, codes, np.array([0, 1]), 2)
    >>> places.tolist(), below
    ([0, 1], 2.0)
    """
    each = max(1, count // max(1, len(classes)))
    found, below = [torch.empty(0, dtype=torch.int64, device=values.device)], -np.inf
    for code in classes.tolist():
        own = torch.nonzero(codes == code)[:, 0]
        if len(own):
            places, rest = largest(values[own], each)
            found.append(own[places])
            below = max(below, rest)
    return torch.cat(found).sort().values, below


def _some(y: Array | None, places: Array) -> Array | None:
    return None if y is None else y[places]

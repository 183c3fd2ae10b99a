"""A pass that scores all rows by their slopes, or by exact gains where these can be large.

A gain is s/d − q‖r‖²/d² with d = 1 + φᵀΣφ ≥ 1 and q = φᵀΣAΣφ ≥ 0, so it is at most s/d, and at
most s if that is above 0. A row whose bound is below the gain of another row is done after its
slope, 2pC multiply-adds, or after d; only the other rows need q, p² more. With m points whose
features are Φ_S and K + ρI = LLᵀ, φᵀΣφ = (‖φ‖² − ‖Rφ‖²)/ρ for R = L⁻¹Φ_S: pm multiply-adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.moments.features import FeatureMap
from bicore.moments.features.base import WithConstant, in_full_precision
from bicore.numerics.linear_algebra import exact_gain, row_products
from bicore.shards.counting import PartRows, PartWork, encode
from bicore.sources.parts import Part, ShardSource, check_values

#: Squared lengths outside of these may have lost digits in float32.
LEAST_SQUARE, MOST_SQUARE = 1e-30, 1e30
#: Number of rows of a block with the largest slopes, whose gains are computed first as a threshold
#: for the others.
LEADERS = 16
#: Tolerance of a bound, because products are in float32.
SLACK = 1e-4
#: Features of rows that are no longer among the best are dropped once there are this many times as
#: many.
SPARE = 2


@dataclass(frozen=True, eq=False)
class PartShortlist:
    """The best rows of a part, in order of their positions."""

    positions: Array
    values: Array
    y: Array | None
    #: Upper bound of the values of all other rows.
    below: float
    #: Indices of the rows with features, and the features.
    listed: Array
    features: Array


@dataclass(frozen=True, eq=False)
class GainTerms:
    """Σ and ΣAΣ of the state and, with fewer points than features, R and ρ."""

    inverse: Array
    turned: Array
    #: With as many points as features, ‖φ‖² − ‖Rφ‖² would cancel, and R is as expensive as Σ.
    reach: Array | None = None
    ridge: float = 0.0


@dataclass(frozen=True, eq=False)
class ScoreWork(PartWork[PartShortlist]):
    """Find the best rows of a part.

    ``both`` holds −W and M side by side. ``centre`` is subtracted from targets or one-hot labels,
    whose columns are in the order of ``classes``.
    """

    map: FeatureMap
    both: Array
    centre: Array
    classes: Array | None
    #: Number of rows to find, and of those returned with features.
    count: int
    listed: int
    #: Sorted positions of the points so far.
    taken: Array
    #: Whether the first pass skipped rows; otherwise rows are not checked again.
    some_bad: bool = False
    #: Terms of gains if gains score the rows, and the known gain of a free row.
    gains: GainTerms | None = None
    floor: float = -np.inf
    #: Classes that may have more points, each with a share of the shortlist; None: all.
    open: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scorers", {})

    def __getstate__(self) -> dict[str, Any]:
        """Drop values that each process computes for itself."""
        return {**vars(self), "_scorers": {}}

    def _read_chunk(self, source: ShardSource, part: Part) -> tuple[Any, int]:
        chunk = source.read(part)
        return check_values(chunk, part, skip_bad=True) if self.some_bad else (chunk, 0)

    def run(self, rows: PartRows) -> PartShortlist:
        scorers: dict[torch.device, _Scorer] = vars(self)["_scorers"]
        if rows.device not in scorers:  # once for all parts: for many classes it takes p²C products
            scorers[rows.device] = _Scorer(self, rows.device)
        with in_full_precision(scorers[rows.device].centre):
            places, values, below = self._best(rows, scorers[rows.device])
        listed = np.arange(len(values))
        if self.listed < len(values):
            listed = np.sort(np.argsort(-values, kind="stable")[: self.listed])
        wanted: Any = places[listed]
        if torch.is_tensor(rows.x):
            wanted = torch.as_tensor(wanted, device=rows.device)
        features = rows.features(self.map, wanted)
        y = None if rows.y is None else rows.y[places]
        features = features.cpu().numpy() if torch.is_tensor(features) else features
        return PartShortlist(places + rows.part.start, values, y, below, listed, features)

    def _best(self, rows: PartRows, scorer: _Scorer) -> tuple[Array, Array, float]:
        """Return indices and values of the best rows, and a bound for the others."""
        outputs = self._outputs(rows)
        closed = self._closed_rows(rows, outputs)
        values = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
        floor = self.floor
        for some, x in rows.blocks():
            values[some], floor = scorer.score(x, outputs[some], closed[some], floor)
        best, below = largest_per_class(values, outputs, self.open, self.count)
        return best.cpu().numpy(), values[best].cpu().numpy(), below

    def _outputs(self, rows: PartRows) -> Tensor:
        """Return the codes of labels, or centred targets."""
        if self.classes is not None:
            return rows.codes(self.classes)
        targets = np.asarray(rows.y, dtype=np.float64).reshape(len(rows), -1) - self.centre
        return torch.as_tensor(targets.astype(np.float32), device=rows.device)

    def _closed_rows(self, rows: PartRows, outputs: Tensor) -> Tensor:
        """Mark rows that may not be taken: points, rows of weight 0, and full classes."""
        part = rows.part
        closed = np.zeros(len(rows), dtype=bool) if rows.weight is None else ~(rows.weight > 0)
        first, last = np.searchsorted(self.taken, (part.start, part.stop))
        closed[self.taken[first:last] - part.start] = True
        found = torch.as_tensor(closed, device=rows.device)
        if self.open is not None:
            found |= ~torch.isin(outputs, torch.as_tensor(self.open, device=rows.device))
        return found


class _Scorer:
    """Slopes of rows by two products, or for many classes by a quadratic form; gains from these."""

    def __init__(self, scoring: ScoreWork, device: torch.device) -> None:
        def single(array: Array) -> Tensor:
            return torch.tensor(array, dtype=torch.float32, device=device)

        self.whole, constant = scoring.map, None
        if isinstance(scoring.map, WithConstant):
            self.whole, constant = scoring.map.map, scoring.map.value
        self.constant = constant
        self.map = self.whole.unscaled
        self.unit = self.map is not self.whole
        self.classes = scoring.classes is not None
        self.centre = single(scoring.centre)
        minus_model, change = np.hsplit(scoring.both, 2)
        width, outputs = change.shape
        self.quadratic = self.classes and 2 * outputs > width + 2
        if self.quadratic:
            form = -change @ minus_model.T
            self.form = single(0.5 * (form + form.T))
            self.columns = single((change - (change @ scoring.centre)[:, None]).T.copy())
        else:
            self.both, self.added = self._split(scoring.both)
        self.gains = scoring.gains is not None
        if scoring.gains is not None:
            self.minus_model = single(minus_model)
            terms = scoring.gains
            self.inverse, self.turned = single(terms.inverse), single(terms.turned)
            self.ridge = terms.ridge
            self.reach = None if terms.reach is None else self._split(terms.reach.T)

    def _split(self, matrix: Array) -> tuple[Tensor, Tensor | None]:
        """Return the matrix for the features, and the contribution of the constant feature."""
        columns = torch.tensor(matrix, dtype=torch.float32, device=self.centre.device)
        if self.constant is None:
            return columns, None
        return columns[:-1].contiguous(), self.constant * columns[-1]

    def score(self, x: Tensor, outputs: Tensor, closed: Tensor, floor: float) -> tuple[Any, float]:
        """Return slopes or gains of rows, −∞ for closed ones, and the best gain."""
        block = _Block(*self._features(x), outputs, self.constant)
        slopes = self._slopes(block)
        if not math.isfinite(slopes.sum()):
            self.whole.features(x)  # names the rows that are not finite
        slopes.masked_fill_(closed, -torch.inf)
        return self._gains(block, slopes, floor) if self.gains else (slopes, floor)

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return features and their factors: products are scaled instead of features."""
        features = self.map.unchecked(x).float()
        if not self.unit:
            return features, None
        squares = row_products(features, features)
        if not (squares.min() >= LEAST_SQUARE and squares.max() <= MOST_SQUARE):
            return self.whole.features(x).float(), None
        return features, squares.rsqrt_()

    def _slopes(self, block: _Block) -> Tensor:
        if self.quadratic:
            rows = block.features_of()
            own = (rows * self.columns[block.outputs]).sum(1)
            return own - (rows @ self.form).mul_(rows).sum(1)
        minus_predicted, slopes = self._products(block, self.both, self.added).tensor_split(2, 1)
        if not self.classes:
            return row_products(slopes, block.outputs + minus_predicted)
        own = slopes.gather(1, block.outputs[:, None])[:, 0] - slopes @ self.centre
        return own + row_products(slopes, minus_predicted)

    def _products(self, block: _Block, matrix: Tensor, added: Tensor | None) -> Tensor:
        """Multiply the features of rows; the constant feature adds the same number to every row."""
        found = _multiply(block.features, matrix)
        if block.scale is not None:
            found *= block.scale[:, None]
        if added is not None:
            found += added
        return found

    def _gains(self, block: _Block, slopes: Tensor, floor: float) -> tuple[Tensor, float]:
        """Return gains of the rows that may be best, and bounds for the others."""
        t = self._t(block)
        values = torch.where(slopes > -torch.inf, slopes.clamp(min=0), slopes) / (1.0 + t)
        near = torch.topk(values, min(LEADERS, len(values))).indices
        for _ in range(2):  # the leaders, then those that may reach them
            if not len(near):
                break
            rows = block.features_of(near)
            found = self._gains_of(rows, block.outputs[near], slopes[near], t[near])
            values[near] = found
            floor = max(floor, float(found.max()))
            near = torch.nonzero(values > _reach(floor))[:, 0]
        return values, floor

    def _t(self, block: _Block) -> Tensor:
        """Return φᵀΣφ, at least 0."""
        if self.reach is None:
            rows = block.features_of()
            return row_products(_multiply(rows, self.inverse), rows).clamp_(min=0)
        inside = self._products(block, *self.reach)
        unit_length = block.scale is not None  # scaled rows have the length 1
        squares = 1.0 if unit_length else row_products(block.features, block.features)
        lengths = squares + (block.constant or 0.0) ** 2
        return ((lengths - row_products(inside, inside)) / self.ridge).clamp_(min=0)

    def _gains_of(self, features: Tensor, outputs: Tensor, slopes: Tensor, t: Tensor) -> Tensor:
        q = row_products(_multiply(features, self.turned), features)
        residuals = features @ self.minus_model
        if self.classes:
            residuals -= self.centre
            residuals[torch.arange(len(q), device=q.device), outputs] += 1.0
        else:
            residuals += outputs
        found: Tensor = exact_gain(slopes, q, residuals.square_().sum(1), 1.0 + t)
        return found


@dataclass(frozen=True, eq=False)
class _Block:
    """Features of some rows, their factors, and their labels or targets."""

    features: Tensor
    scale: Tensor | None
    outputs: Tensor
    #: The constant feature.
    constant: float | None

    def features_of(self, places: Tensor | None = None) -> Tensor:
        """Return the features of some rows, or of all, as computed by the map."""
        rows, scale = self.features, self.scale
        if places is not None:
            rows = rows[places]
        if scale is not None:
            rows = rows * (scale if places is None else scale[places])[:, None]
        if self.constant is None:
            return rows
        return torch.cat([rows, rows.new_full((len(rows), 1), self.constant)], 1)


def _reach(floor: float) -> float:
    """Return the smallest useful bound of a leader; −∞ below 0, where slopes are no bounds."""
    return floor * (1.0 - SLACK) if floor >= 0 else -np.inf


def _multiply(rows: Tensor, matrix: Tensor) -> Tensor:
    """Multiply with NumPy, which has less overhead for many small products."""
    if rows.is_cuda:
        return rows @ matrix
    return torch.from_numpy(rows.numpy() @ matrix.numpy())


def largest(values: Tensor, count: int) -> tuple[Tensor, float]:
    """Return the sorted indices of the largest values, and the largest of the others.

    Values of −∞ are left out; of equal values the first are taken, on every device.
    """
    if count >= len(values):
        return torch.nonzero(values > -torch.inf)[:, 0], -np.inf
    top = torch.topk(values, count + 1).values
    least, below = float(top[count - 1]), float(top[count])
    places = torch.nonzero((values >= least) & (values > -torch.inf))[:, 0]
    if len(places) > count:
        equal = torch.nonzero(values[places] == least)[:, 0]
        kept = torch.ones(len(places), dtype=torch.bool, device=values.device)
        kept[equal[len(equal) - (len(places) - count) :]] = False
        places = places[kept]
    return places, below


def largest_per_class(
    values: Tensor, codes: Tensor, classes: Array | None, count: int
) -> tuple[Tensor, float]:
    """Return the same with an equal share for each of some classes, at least one."""
    if classes is None:
        return largest(values, count)
    each = max(1, count // max(1, len(classes)))
    found, below = [torch.empty(0, dtype=torch.int64, device=values.device)], -np.inf
    for code in classes.tolist():
        own = torch.nonzero(codes == code)[:, 0]
        if len(own):
            places, rest = largest(values[own], each)
            found.append(own[places])
            below = max(below, rest)
    return torch.cat(found).sort().values, below


class Shortlist:
    """The best rows of all parts, independent of the division into parts."""

    def __init__(self, scoring: ScoreWork) -> None:
        self.scoring = scoring
        self.below = -np.inf
        self.positions: Array = np.empty(0, dtype=np.int64)
        self.values: Array = np.empty(0, dtype=np.float32)
        self.y: Array | None = None
        self._known: list[tuple[Array, Array]] = []

    def add(self, found: PartShortlist) -> None:
        """Add the best rows of the next part; of equal ones those at the smallest positions are
        kept."""
        assert found.y is not None
        scoring = self.scoring
        positions = np.concatenate([self.positions, found.positions])
        values = np.concatenate([self.values, found.values])
        y = found.y if self.y is None else np.concatenate([self.y, found.y])
        codes = positions
        if scoring.open is not None and scoring.classes is not None:
            codes = encode(y, scoring.classes)
        tensors = torch.from_numpy(values), torch.from_numpy(codes)
        places, below = largest_per_class(*tensors, scoring.open, scoring.count)
        best = places.numpy()
        self.below = max(self.below, found.below, below)
        self.positions, self.values, self.y = positions[best], values[best], y[best]
        self._known.append((found.positions[found.listed], found.features))
        if sum(len(one) for one, _ in self._known) > SPARE * scoring.count:
            self._known = [self.listed_features()]

    def listed_features(self) -> tuple[Array, Array]:
        """Return the sorted positions of best rows with known features, and these features."""
        positions = np.concatenate([one for one, _ in self._known])
        places = np.flatnonzero(np.isin(positions, self.positions))
        places = places[np.argsort(positions[places])]
        return positions[places], np.concatenate([one for _, one in self._known])[places]

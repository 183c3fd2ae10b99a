"""Exchanges and removals of sets with more points than the kernel has features.

With the features Φ_S of the points, Σ = (Φ_SᵀΦ_S + ρI)⁻¹ and A = ΦᵀDΦ (p×p), the tables of
:mod:`bicore.bilevel.pool` follow for every row from its features:

    K' = ρ ΦΣΦᵀ      K'DK' = ρ² ΦΣAΣΦᵀ      K[:, S] Q = ΦΣΦ_Sᵀ      K'DU = ρ ΦΣAΣΦ_Sᵀ

:mod:`bicore.moments.ridge` follows Σ, the fit and the diagonals when a point joins or leaves.
Nothing of n·m numbers is held: a pass over all pairs multiplies blocks of rows by p×m matrices.

The outer set enters by the triangular factor of its weighted rows, which are as many as features
and targets together and have the same objective.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.pool import Others, Removals
from bicore.bilevel.problem import Problem
from bicore.bilevel.strategies.exact import (
    ExchangePool,
    ExchangeSet,
    ExchangeTerms,
    MatrixSet,
    SharedTerms,
    allowed_drift,
    misfit,
)
from bicore.data import Array
from bicore.moments.moments import Outer
from bicore.moments.ridge import FeatureRows, FeatureState, to_device
from bicore.picking import TIE
from bicore.runtime.clock import checkpoint
from bicore.runtime.threads import wide

#: Fewest rows of a pool whose exchanges are computed together.
SCORED = 64
#: More rows are computed together if they have at most this many pairs with the chosen points.
PAIRS = 1 << 17


class FeatureTerms(ExchangeTerms):
    """Terms of sets by their features: features, targets and the outer objective."""

    def __init__(self, problem: Problem) -> None:
        assert problem.train.feature_rows is not None
        features = problem.train.feature_rows[1]
        self.rho = problem.regulariser.rho(1)
        self.device = features.device if features.is_cuda else None
        self.features: Array = features.double().cpu().numpy()
        self.targets: Array = problem.inner_targets.double().cpu().numpy()
        few = problem.with_few_outer_rows()
        assert few.cross.feature_rows is not None
        root = few.outer_weights[:, None].double().sqrt()
        outer, goals = few.cross.feature_rows[0], few.outer_targets
        #: Few rows and targets with the objective of the outer set.
        self.outer, self.goals = ((root * part.double()).cpu().numpy() for part in (outer, goals))
        quadratic, linear = self.outer.T @ self.outer, self.outer.T @ self.goals
        moments = Outer(quadratic, linear, float(np.vdot(self.goals, self.goals)))
        self.state = FeatureState(moments, self.rho, self.device)

    def objective(self, state: FeatureState) -> float:
        """Compute G of a fit."""
        outer, goals = (to_device(part, self.device) for part in (self.outer, self.goals))
        missing = goals + outer @ state.both[:, : goals.shape[1]]
        return float((missing * missing).sum())

    def removals(self, rows: FeatureRows, index: Any) -> Removals:
        """Return the effect of removing each of some chosen rows."""
        outputs = self.targets.shape[1]
        both = rows.both[index]
        own = (1.0 - rows.t[index]) / self.rho
        return Removals(
            own, rows.q[index], both[:, :outputs] / self.rho, 0.5 * both[:, outputs:], self.rho
        )

    def others(self, rows: FeatureRows, index: Any, own: Any) -> Others:
        """Return the tables of some rows, with the features of the chosen ones."""
        outputs, rho = self.targets.shape[1], self.rho
        both, state = rows.both[index], rows.state
        reach = to_device(rows.features[index], self.device) @ state.inverse
        turned = (reach @ state.second) @ state.inverse
        with wide(2.0 * len(reach) * own.shape[0] * own.shape[1]):
            back, image = reach @ own.T, (rho * turned) @ own.T
        variance, energy = rho * rows.t[index], rho * rho * rows.q[index]
        pull = (0.5 * rho) * both[:, outputs:]
        return Others(both[:, :outputs], pull, variance, energy, back, image)

    def misfit(self, state: FeatureState, features: Array, targets: Array) -> float:
        """Compute how far W is from the fit of some points, relative to Φ_SᵀY_S."""
        rows, goals = (to_device(part, self.device) for part in (features, targets))
        model = -state.both[:, : goals.shape[1]]
        return misfit(rows.T @ (goals - rows @ model) - self.rho * model, rows.T @ goals)


class FeatureSet(ExchangeSet):
    """A set of points by their features."""

    terms: FeatureTerms

    def __init__(
        self, problem: Problem, points: Sequence[int], terms: FeatureTerms | None = None
    ) -> None:
        self.problem = problem
        self.points = list(points)
        self.terms = terms or FeatureTerms(problem)
        own, targets = self.terms.features[self.points], self.terms.targets[self.points]
        self.state = self.terms.state.refit(own, targets)
        self.rows = FeatureRows(self.state, own, targets)
        self.objective = self.terms.objective(self.state)
        self.allowed = allowed_drift(self.terms.misfit(self.state, own, targets))

    def moved_to(self, points: Sequence[int]) -> FeatureSet:
        return FeatureSet(self.problem, points, self.terms)

    def removals(self) -> Removals:
        return self.terms.removals(self.rows, slice(None))

    @cached_property
    def _own(self) -> Any:
        """The features of the points."""
        return to_device(self.rows.features, self.terms.device)

    def others(self, rows: Tensor | slice) -> Others:
        checkpoint()
        index = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        terms = self.terms
        some = FeatureRows(self.state, terms.features[index], terms.targets[index])
        return terms.others(some, slice(None), self._own)

    def pool(self, shortlist: Tensor | None = None) -> FeaturePool:
        more = [] if shortlist is None else shortlist.tolist()
        return FeaturePool(self, [*self.points, *more])


class FeaturePool(ExchangePool):
    """The pool of a set by features.

    A swap changes the gains of all pairs, but little. So those of a row are computed again only if
    they may be the largest: their best so far, changed by as much as the gain of adding the row and
    the least cost of a removal, must reach the best of the rows that were computed.
    """

    def __init__(self, chosen: FeatureSet, points: list[int]) -> None:
        self.terms: FeatureTerms = chosen.terms
        self.points = points
        self.size = len(chosen.points)
        self.objective = chosen.objective
        self.allowed = chosen.allowed
        inside = np.arange(len(points)) < self.size
        features, targets = self.terms.features[points], self.terms.targets[points]
        self.rows = FeatureRows(chosen.state.copy(), features, targets, inside)
        #: The row of every place.
        self.order = np.arange(len(points))
        #: Features of the chosen, place by place.
        self.own = 1.0 * to_device(features[: self.size], self.terms.device)
        #: The largest gain of every row when it was computed, and the level at that time.
        self.best = np.full(len(points), np.inf)
        self.level = np.zeros(len(points))

    @property
    def drift(self) -> float:
        rows, own = self.rows, self.order[: self.size]
        return self.terms.misfit(rows.state, rows.features[own], rows.targets[own])

    def removals(self) -> Removals:
        return self.terms.removals(self.rows, self.order[: self.size])

    def score(self, fixed: int, barred: Collection[tuple[int, int]]) -> tuple[Any, Any]:
        removals = self.removals()
        others = np.arange(self.size, len(self.points))
        level = self.rows.gains()[self.order[others]] - float(removals.costs[fixed:].min())
        bounds = self.best[others] + level - self.level[others]
        together = max(SCORED, PAIRS // self.size)
        blocks: list[Any] = []
        found: list[Array] = []
        top = -np.inf
        while len(others) and not bounds.max() < top - TIE * self.objective:
            checkpoint()
            likely = np.zeros(len(others), dtype=bool)
            likely[np.argsort(-bounds, kind="stable")[:together]] = True
            some = others[likely]
            tables = self.terms.others(self.rows, self.order[some], self.own)
            joining, leaving = [self.points[row] for row in some], self.points[: self.size]
            gains = self.terms.swap_gains(removals, tables, joining, leaving)
            self.exclude(gains, some, fixed, barred)
            self.best[some] = torch.as_tensor(gains).amax(1).cpu().numpy()
            self.level[some] = level[likely]
            top = max(top, float(self.best[some].max()))
            blocks.append(gains)
            found.append(some)
            others, bounds, level = others[~likely], bounds[~likely], level[~likely]
        gains = torch.cat(blocks) if torch.is_tensor(blocks[0]) else np.concatenate(blocks)
        return gains, np.concatenate(found)

    def swap(self, place: int, row: int) -> None:
        for one in (place, row):
            self.rows.change(int(self.order[one]))
        self._exchange(place, row)
        self.best[row] = np.inf
        self.objective = self.terms.objective(self.rows.state)

    def remove(self, place: int) -> None:
        self.rows.change(int(self.order[place]))
        self.size -= 1
        self._exchange(place, self.size)

    def _exchange(self, place: int, other: int) -> None:
        """Exchange a chosen place and another one."""
        for table in (self.points, self.order):
            table[place], table[other] = table[other], table[place]
        features = self.rows.features[self.order[place]]
        self.own[place] = to_device(features, self.terms.device)


def fit_set(problem: Problem, points: Sequence[int], terms: Any = None) -> ExchangeSet:
    """Fit some points: in features if the kernel has fewer than there are points.

    ``terms`` are those of another set of the problem.
    """
    features = problem.train.feature_rows
    if features is not None and features[1].shape[1] < len(points):
        return FeatureSet(problem, points, terms if isinstance(terms, FeatureTerms) else None)
    return MatrixSet(problem, points, terms if isinstance(terms, SharedTerms) else None)

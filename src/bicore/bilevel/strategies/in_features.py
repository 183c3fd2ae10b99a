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

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from bicore.bilevel.pool import Others, Removals, others_of, removals_of
from bicore.bilevel.problem import Problem
from bicore.bilevel.strategies.exact import (
    ExchangePool,
    ExchangeSet,
    MatrixSet,
    SharedTerms,
    allowed_drift,
    relative_residual,
)
from bicore.data import Array
from bicore.moments.moments import Outer
from bicore.moments.ridge import FeatureRows, FeatureState, to_device
from bicore.runtime.clock import checkpoint


class FeatureTerms:
    """Features, targets and the outer objective, which exchanges do not change."""

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
        #: A few rows and targets with the objective of the outer set.
        self.outer, self.goals = ((root * part.double()).cpu().numpy() for part in (outer, goals))
        quadratic, linear = self.outer.T @ self.outer, self.outer.T @ self.goals
        moments = Outer(quadratic, linear, float(np.vdot(self.goals, self.goals)))
        self.state = FeatureState(moments, self.rho, self.device)

    def objective(self, state: FeatureState) -> float:
        """Compute G of a fit."""
        outer, goals = (to_device(part, self.device) for part in (self.outer, self.goals))
        missing = goals + outer @ state.both[:, : goals.shape[1]]
        return float((missing * missing).sum())

    def relative_residual(self, state: FeatureState, features: Array, targets: Array) -> float:
        """Return the residual of the fit of W, relative to Φ_SᵀY_S."""
        rows, goals = (to_device(part, self.device) for part in (features, targets))
        model = -state.both[:, : goals.shape[1]]
        return relative_residual(rows.T @ (goals - rows @ model) - self.rho * model, rows.T @ goals)


class FeatureSet(ExchangeSet):
    """A set of points represented by features."""

    terms: FeatureTerms

    def __init__(
        self, problem: Problem, points: Sequence[int], terms: FeatureTerms | None = None
    ) -> None:
        self.problem = problem
        self.points = list(points)
        self.terms = terms or FeatureTerms(problem)
        self.rho = self.terms.rho
        own, targets = self.terms.features[self.points], self.terms.targets[self.points]
        self.state = self.terms.state.refit(own, targets)
        self.rows = FeatureRows(self.state, own, targets, np.ones(len(own), dtype=bool))
        self.objective = self.terms.objective(self.state)
        self.allowed = allowed_drift(self.terms.relative_residual(self.state, own, targets))

    def with_points(self, points: Sequence[int]) -> FeatureSet:
        return FeatureSet(self.problem, points, self.terms)

    def removals(self) -> Removals:
        return removals_of(self.rows, slice(None))

    @cached_property
    def _own(self) -> Any:
        """The features of the points."""
        return to_device(self.rows.features, self.terms.device)

    def others(self, rows: Tensor | slice) -> Others:
        checkpoint()
        index = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        terms = self.terms
        some = FeatureRows(self.state, terms.features[index], terms.targets[index])
        return others_of(some, slice(None), self._own)

    def pool(self, shortlist: Tensor | None = None) -> FeaturePool:
        more = [] if shortlist is None else shortlist.tolist()
        return FeaturePool(self, [*self.points, *more])


class FeaturePool(ExchangePool):
    """The pool of a set represented by features."""

    terms: FeatureTerms
    rows: FeatureRows

    def __init__(self, chosen: FeatureSet, points: list[int]) -> None:
        super().__init__(chosen, points)
        inside = np.arange(len(points)) < self.size
        features, targets = self.terms.features[points], self.terms.targets[points]
        self.rows = FeatureRows(chosen.state.copy(), features, targets, inside)

    @property
    def drift(self) -> float:
        rows, size = self.rows, self.size
        return self.terms.relative_residual(rows.state, rows.features[:size], rows.targets[:size])

    def _evaluate(self, place: int) -> float:
        return self.terms.objective(self.rows.state)


def fit_set(problem: Problem, points: Sequence[int], terms: Any = None) -> ExchangeSet:
    """Fit some points, in features if the kernel has fewer features than points.

    ``terms`` are those of another set of the problem.
    """
    features = problem.train.feature_rows
    if features is not None and features[1].shape[1] < len(points):
        return FeatureSet(problem, points, terms if isinstance(terms, FeatureTerms) else None)
    return MatrixSet(problem, points, terms if isinstance(terms, SharedTerms) else None)

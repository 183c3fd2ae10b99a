"""The squared error with a constant regulariser: rank-one updates instead of inner iterations.

    ∂G/∂w_k at w_k = 0          −2⟨(K'D r)_k, r_k⟩/ρ                                  (gradient)
    exact decrease of G          2⟨(K'D r)_k, r_k⟩/d_k − (K'D K')_kk ‖r_k‖²/d_k²      (gain)

with r = t − h the residuals, K' the posterior kernel, d_k = ρ + K'_kk, and D the data weights of
the outer set, scaled to sum 1. :class:`RidgeEngine` updates K'Dr, (K'DK')_kk and K'_kk as
:mod:`bicore.bilevel.posterior` has it, so that both rules cost one product with K' a step.
:class:`DenseRidgeEngine` is for a few hundred points, where the number of calls sets the time: it
holds K' as a matrix in plain arrays. A stream of small batches selects this way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.contract import Demand, DeviceChooser, ListedEngine, Quantity, Scoring, Turn
from bicore.bilevel.pool import PoolState, add_outer, copy_rows
from bicore.bilevel.posterior import (
    Downdate,
    FeaturePosterior,
    Foresight,
    MomentPosterior,
    Posterior,
    check_variance,
    posterior_of,
    rounding_allowed,
    smallest_regulariser,
    solve_lower,
)
from bicore.bilevel.problem import Problem, finite_objective
from bicore.data import Array
from bicore.numerics.linear_algebra import cholesky_factor, exact_gain, row_products
from bicore.picking import ranks_of

#: Entries of the kernel matrices up to which the dense form is used.
LARGEST = 512 * 512
#: Numbers of features from which a step sets the time by reading them: several points are then
#: looked for together, among this many of the best scores.
LONG_READ, AHEAD = 1 << 22, 256


class SquaredErrorEngine(ListedEngine):
    """Scores of all points from r, K'Dr, (K'DK')_kk and K'_kk; a subclass follows these.

    They are tensors or arrays in float64, for which the formulas are the same.
    """

    offers = frozenset(Quantity)
    #: K'_kk.
    variance: Any

    @classmethod
    def supports(cls, demand: Demand) -> bool:
        return demand.closed_form and not demand.reweighs

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        largest = float(problem.train.diagonal().abs().max())
        dtype = problem.train.like.dtype
        self.rho = max(problem.regulariser.rho(1), smallest_regulariser(dtype, largest))
        self.allowed = rounding_allowed(dtype, largest, self.rho)
        self.outer_weights = self._copy(problem.outer_weights)
        self._reset()

    def _reset(self) -> None:
        """Begin with no points."""
        problem = self.problem
        self.chosen: list[int] = []
        self.objective = problem.outer_value(torch.zeros_like(problem.outer_targets))
        self.outer_residual = self.residual = self._copy(problem.outer_targets)
        if not problem.one_target:
            self.residual = self._copy(problem.inner_targets)

    def drop(self, places: Sequence[int]) -> None:
        points = [self.chosen[place] for place in self.places_without(places)]
        self._reset()
        self.extend(points)

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        self.check_offer(what)
        index: Any = columns
        if columns is not None and not isinstance(self.residual, Tensor):
            index = columns.numpy()

        def some(values: Any) -> Any:
            return values if index is None else values[index]

        residual = some(self.residual)
        if what is Quantity.LOSS:
            return torch.as_tensor(row_products(residual, residual))
        pull = self._prior_pull() if what is Quantity.FIRST_ORDER else self._pull()
        found = row_products(some(pull), residual)
        if what is Quantity.FIRST_ORDER:
            found *= -4
        elif what is Quantity.GRADIENT:
            found *= -2 / self.rho
        else:
            norm, divisor = row_products(residual, residual), self.rho + some(self.variance)
            found = exact_gain(2 * found, some(self._energy()), norm, divisor)
        return torch.as_tensor(found)

    def _outer_error(self) -> Any:
        """Compute G from the residuals of the outer set."""
        return self.outer_weights @ row_products(self.outer_residual, self.outer_residual)

    @staticmethod
    def _copy(values: Tensor) -> Any:
        """Return a copy in float64."""
        return values.double().clone()

    @abstractmethod
    def _pull(self) -> Any:
        """Return K'Dr."""

    @abstractmethod
    def _prior_pull(self) -> Any:
        """Return KᵀDr, with the prior kernel."""

    @abstractmethod
    def _energy(self) -> Any:
        """Return (K'DK')_kk."""


class DenseRidgeEngine(SquaredErrorEngine):
    """The state under the squared error, with K' as an array in float64."""

    @classmethod
    def fits(cls, problem: Problem) -> bool:
        """Whether the problem is small, on the CPU and stored."""
        train, cross = problem.train, problem.cross
        if train.matrix is None or cross.matrix is None:
            return False
        entries = train.shape[1] * (train.shape[0] + cross.shape[0])
        return train.like.device.type == "cpu" and entries <= LARGEST

    @classmethod
    def build(cls, problem: Problem, demand: Demand) -> DenseRidgeEngine:
        return cls(problem)

    def _reset(self) -> None:
        super()._reset()
        train, cross = self.problem.train.matrix, self.problem.cross.matrix
        assert train is not None, "only problems with stored matrices fit"
        assert cross is not None
        self.kernel = cross.double().numpy()
        self.train = self._copy(train)
        self.outer = self.train if self.problem.same else self._copy(cross)

    @staticmethod
    def _copy(values: Tensor) -> Any:
        return copy_rows(values.double())

    @property
    def variance(self) -> Any:
        return np.maximum(self.train.diagonal(), 0.0)

    def extend(self, points: Sequence[int]) -> None:
        for k in points:
            self._add(k)

    def _add(self, k: int) -> None:
        column, own = self.train[k].copy(), self.residual[k].copy()
        divisor = self.rho + max(float(column[k]), 0.0)
        scaled = column / -divisor
        if not self.problem.one_target:
            outer = self.outer[:, k].copy()
            self.outer_residual -= outer[:, None] * (own / divisor)
            if not self.problem.same:
                add_outer(self.outer, outer, scaled)
        self.residual += scaled[:, None] * own
        add_outer(self.train, scaled, column)
        check_variance(float(self.train.diagonal().min()), self.allowed)
        self.chosen.append(k)
        self.objective = finite_objective(float(self._outer_error()))

    def _pull(self) -> Any:
        return self.outer.T @ (self.outer_weights[:, None] * self.outer_residual)

    def _prior_pull(self) -> Any:
        return self.kernel.T @ (self.outer_weights[:, None] * self.outer_residual)

    def _energy(self) -> Any:
        return self.outer_weights @ np.square(self.outer)


class RidgeEngine(SquaredErrorEngine):
    """The state under the squared error. Running sums are float64 whatever the kernel's dtype."""

    residual: Tensor
    outer_residual: Tensor

    @classmethod
    def build(cls, problem: Problem, demand: Demand) -> RidgeEngine:
        # With one target the outer set needs no products of its own; few rows are in float64.
        if not problem.one_target and problem.train.like.dtype == torch.float64:
            problem = problem.with_few_outer_rows()
        gains, outer = (one in demand.needs for one in (Quantity.GAIN, Quantity.FIRST_ORDER))
        reads_outer = outer or not problem.moment_pays(demand.capacity)
        return cls(problem, demand.capacity, gains, reads_outer)

    def __init__(
        self, problem: Problem, capacity: int, gains: bool = False, reads_outer: bool = True
    ) -> None:
        self.capacity = capacity
        self.reads_outer = reads_outer
        if not gains:  # (K'DK')_kk must be kept from the first point on
            self.offers = self.offers - {Quantity.GAIN}
        if not reads_outer:
            self.offers = self.offers - {Quantity.FIRST_ORDER}
        self._last_scores: Tensor | None = None
        self.foresight: Foresight | None = None
        if room := Foresight.width(problem.train, problem.cross, capacity):
            self.foresight = Foresight(
                problem.train, problem.cross, problem.outer_weights, self._likely, room
            )
        super().__init__(problem)

    def _reset(self) -> None:
        super()._reset()
        problem = self.problem
        train, cross, weights = problem.train, problem.cross, problem.outer_weights
        self._taken: list[tuple[Tensor, Tensor]] = []
        self._chooser: DeviceChooser | None = None
        self.posterior: Posterior
        if self.reads_outer:
            self.posterior = posterior_of(train, cross, weights, self.capacity, self.foresight)
        else:
            self.posterior = MomentPosterior(train, problem.moment, self.capacity)
        self.pull = cross.transposed_matmul(weights[:, None] * problem.outer_targets).double()
        self.variance = train.diagonal().double().clone().clamp_min_(0)
        self.lowest = self.variance.new_zeros(())
        # The objective, if the residuals of the outer set are not followed.
        self.left = self.lowest + self.objective
        # K D r with the prior kernel, which only the first-order rule reads; kept from its first
        # use on.
        self.prior_pull: Tensor | None = None
        self.energy: Tensor | None = None
        if Quantity.GAIN in self.offers:
            self.energy = cross.weighted_column_norms(weights)

    @property
    def on_device(self) -> bool:
        """Whether reading a number back costs a wait."""
        return self.residual.is_cuda

    def extend(self, points: Sequence[int]) -> None:
        """Add points: several take one Cholesky factor and block products, not a pass each."""
        if points:
            self.advance(torch.tensor(list(points), device=self.residual.device))
            self.read_back()

    def advance(self, index: Tensor) -> None:
        """Take the points whose numbers the tensor holds; :meth:`read_back` tells the host."""
        lower, step = self._join(index)
        self._update(index, lower, step)

    def _join(self, index: Tensor) -> tuple[Tensor, Downdate]:
        """Let points join the posterior: the factor of their K' + ρI, and the step."""
        columns = self.posterior.columns(index)
        if len(index) == 1:
            lower = (self.variance[index] + self.rho).sqrt()[:, None]
        else:
            own = columns.train[:, index].double()
            own = (own + own.T) / 2
            own.diagonal().add_(self.rho)
            lower = cholesky_factor(own)
        return lower, self.posterior.join(columns, lower)

    def _update(self, index: Tensor, lower: Tensor, step: Downdate) -> None:
        """Bring everything but the posterior up to date with points that joined it."""
        head = solve_lower(lower, self.residual[index])
        pulled = solve_lower(lower, self.pull[index])
        step.update_residuals(self.residual, self.pull, head, pulled)
        step.update_diagonals(self.variance, self.energy)
        self.lowest = torch.minimum(self.lowest, self.variance.min())
        self.variance.clamp_min_(0)
        self._taken.append((index, self._objective_after(step, head, pulled)))

    def _objective_after(self, step: Downdate, head: Tensor, pulled: Tensor) -> Any:
        if step.outer is None:
            self.left = self.left - step.gain(head, pulled)
            return self.left
        if self.prior_pull is not None:
            self.prior_pull -= self._multiply_prior(step.outer.T @ head)
        if not self.problem.one_target:
            self.outer_residual.addmm_(step.outer.T, head, alpha=-1)
        return self._outer_error()

    def read_back(self) -> list[float]:
        """Read the points that :meth:`advance` took and the objective after each; check them."""
        if not self._taken:
            return []
        read = [part for index, value in self._taken for part in (index.double(), value[None])]
        numbers = torch.cat([*read, self.lowest[None]]).tolist()
        objectives: list[float] = []
        for index, _ in self._taken:
            *points, value = numbers[: len(index) + 1]
            del numbers[: len(index) + 1]
            self.chosen += [int(k) for k in points]
            objectives += [value] * len(points)
        self._taken = []
        check_variance(numbers[-1], self.allowed)
        self.objective = finite_objective(objectives[-1])
        return objectives

    def scores(self, rule: Scoring, columns: Tensor | None = None) -> Tensor:
        found = super().scores(rule, columns)
        self._last_scores = found if columns is None else None
        return found

    def _likely(self, count: int) -> list[int]:
        """Return the points of the best scores at the last look, best first."""
        if self._last_scores is None:
            return []
        scores = self._last_scores.clone()
        scores[self.chosen] = torch.inf
        best: list[int] = scores.topk(min(count, len(scores)), largest=False).indices.tolist()
        return best

    def take_best(self, rule: Scoring, turn: Turn) -> list[float]:
        """Take the best open points; a GPU is read every few points, not after each."""
        if self._reads_long(rule, turn) and (objectives := self._take_ahead(rule, turn)):
            return objectives
        if not (self.on_device and turn.alone):
            return super().take_best(rule, turn)
        if self._chooser is None or not self._chooser.serves(turn):
            self._chooser = DeviceChooser(turn, self.residual.device)
        before = len(self.chosen)
        for _ in range(turn.steps_unread(before)):
            self._chooser.step(self.scores(rule), self.advance)
        objectives = self.read_back()
        self._chooser.check(self.chosen[before:])
        return objectives

    def _reads_long(self, rule: Scoring, turn: Turn) -> bool:
        """Whether reading features sets the time, and several points may be taken."""
        if not isinstance(self.posterior, FeaturePosterior) or self.on_device:
            return False
        several = turn.alone and turn.steps_unread(len(self.chosen)) > 1
        exact = rule.quantity in (Quantity.GAIN, Quantity.GRADIENT)
        return several and exact and self.posterior.train.numel() >= LONG_READ

    def _take_ahead(self, rule: Scoring, turn: Turn) -> list[float]:
        """Take several points by one pass over the features; none if the first guess is wrong.

        The guess is what greedy selection takes among the best scores. Each point of it is taken
        if it is the best of all at its turn.
        """
        assert isinstance(self.posterior, FeaturePosterior)
        scores = self.scores(rule).numpy()
        places = np.flatnonzero(turn.open)
        count = min(turn.steps_unread(len(self.chosen)), len(places) - 1)
        if count <= 1:
            return []
        most = min(AHEAD, len(places))
        shortlist = places[np.argpartition(scores[places], most - 1)[:most]]
        points = self.pick_from(shortlist, rule, replace(turn, count=count))
        index = torch.tensor(points)
        lower, step = self._join(index)
        now = replace(turn, open=turn.open.copy())
        for taken, (k, one) in enumerate(zip(points, step.one_by_one(), strict=True)):
            if self.best(rule, now) != [k]:
                self.posterior.keep(taken)
                break
            last = slice(taken, taken + 1)
            self._update(index[last], lower[last, last], one)
            now.open[k] = False
        return self.read_back()

    def pick_from(self, shortlist: Array, rule: Scoring, turn: Turn) -> list[int]:
        """Return the points that greedy selection takes if only the shortlist may be taken.

        (K'DK') between its points needs their columns alone, so that no pass over K is made.
        """
        exact = rule.quantity is Quantity.GAIN
        if not (exact or rule.quantity is Quantity.GRADIENT) or len(shortlist) <= turn.count:
            return super().pick_from(shortlist, rule, turn)
        index = torch.from_numpy(shortlist).to(self.residual.device)
        places = list(range(len(shortlist)))
        tables = (*self.posterior.pairs(index), self.residual[index], self.pull[index])
        pool = PoolState.empty(places, *tables, self.rho, turn.count)
        ranks = ranks_of(turn.ids[shortlist]).tolist()
        for _ in range(turn.count):
            pool.add(pool.best(ranks, exact))
        return [int(shortlist[place]) for place in pool.points[: turn.count]]

    def _pull(self) -> Tensor:
        return self.pull

    def _prior_pull(self) -> Tensor:
        if self.prior_pull is None:
            self.prior_pull = self._multiply_prior(self.outer_residual)
        return self.prior_pull

    def _energy(self) -> Tensor:
        assert self.energy is not None
        return self.energy

    def _multiply_prior(self, values: Tensor) -> Tensor:
        """Compute KᵀD values with the prior kernel."""
        weighted = (self.outer_weights[:, None] * values).to(self.problem.train.like)
        return self.problem.cross.transposed_matmul(weighted).double()

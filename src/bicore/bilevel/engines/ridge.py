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

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.contract import (
    Demand,
    DeviceChooser,
    ListedEngine,
    Quantity,
    Scoring,
    Turn,
    one_by_one,
    unasked,
)
from bicore.bilevel.pool import PoolState
from bicore.bilevel.posterior import (
    Downdate,
    Foresight,
    MomentPosterior,
    Posterior,
    check_variance,
    exact_gain,
    posterior_of,
    rounding_allowed,
    smallest_regulariser,
    solve_lower,
)
from bicore.bilevel.problem import Problem, finite_objective
from bicore.data import Array
from bicore.numerics.linear_algebra import cholesky_factor, row_products
from bicore.picking import ranks_of

#: Entries of the kernel matrices up to which the dense form is used.
LARGEST = 512 * 512


class SquaredErrorEngine(ListedEngine):
    """What both engines of the squared error share."""

    offers = frozenset(Quantity)

    @classmethod
    def supports(cls, demand: Demand) -> bool:
        return demand.closed_form and not demand.reweighs

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        largest = float(problem.train.diagonal().abs().max())
        dtype = problem.train.like.dtype
        self.rho = max(problem.regulariser.rho(1), smallest_regulariser(dtype, largest))
        self.allowed = rounding_allowed(dtype, largest, self.rho)
        self.same = problem.same
        self.one_target = problem.one_target

    @abstractmethod
    def _empty(self) -> None:
        """Begin with no points."""
        self.chosen: list[int] = []
        self._weights: list[float] = []

    @property
    def weights(self) -> Tensor:
        return torch.tensor(self._weights, dtype=torch.float64)

    def drop(self, places: Sequence[int]) -> None:
        kept = self.without(places)
        points = [self.chosen[place] for place in kept]
        weights = [self._weights[place] for place in kept]
        self._empty()
        self.extend(points, weights)


class DenseRidgeEngine(SquaredErrorEngine):
    """The state under the squared error, with K' as a matrix in float64."""

    @classmethod
    def fits(cls, problem: Problem) -> bool:
        """Whether the problem is small, on the CPU and stored."""
        train = problem.train
        cross = problem.cross
        if train.matrix is None or cross.matrix is None:
            return False
        entries = train.shape[1] * (train.shape[0] + cross.shape[0])
        return train.like.device.type == "cpu" and entries <= LARGEST

    @classmethod
    def build(cls, problem: Problem, demand: Demand) -> DenseRidgeEngine:
        return cls(problem)

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._empty()

    def _empty(self) -> None:
        super()._empty()
        problem = self.problem
        self.kernel = _array(problem.cross.matrix)
        self.train = np.array(_array(problem.train.matrix))
        self.outer = self.train if self.same else np.array(self.kernel)
        self.outer_residual = np.array(_array(problem.outer_targets))
        self.residual = self.outer_residual
        if not self.one_target:
            self.residual = np.array(_array(problem.inner_targets))
        self.outer_weights = _array(problem.outer_weights)
        self.weighted = self.outer_weights[:, None] * self.outer_residual
        self.objective = float(np.vdot(self.weighted, self.outer_residual))
        self.variance = self.train.diagonal()

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        for k, weight in zip(points, weights, strict=True):
            self._add(k, weight)

    def _add(self, k: int, weight: float) -> None:
        column = self.train[k].copy()
        own = self.residual[k].copy()
        divisor = self.rho / weight + max(float(column[k]), 0.0)
        scaled = column / divisor
        if not self.one_target:
            outer = self.outer[:, k, None].copy()
            self.outer_residual -= outer * (own / divisor)
            if not self.same:
                self.outer -= outer * scaled
        self.residual -= scaled[:, None] * own
        self.train -= scaled[:, None] * column
        check_variance(float(self.variance.min()), self.allowed)
        self.chosen.append(k)
        self._weights.append(float(weight))
        self.weighted = self.outer_weights[:, None] * self.outer_residual
        self.objective = finite_objective(float(np.vdot(self.weighted, self.outer_residual)))

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        values = self._values(what)
        return torch.from_numpy(values if columns is None else values[columns.numpy()])

    def _values(self, what: Quantity) -> Array:
        if what is Quantity.LOSS:
            norms: Array = np.square(self.residual).sum(1)
            return norms
        if what is Quantity.FIRST_ORDER:
            return self._agreement(self.kernel) * -4
        agreement = self._agreement(self.outer)
        if what is Quantity.GRADIENT:
            return agreement * (-2 / self.rho)
        divisor = self.rho + np.maximum(self.variance, 0.0)
        energy = self.outer_weights @ np.square(self.outer)
        norm = np.square(self.residual).sum(1)
        gains: Array = exact_gain(agreement, energy, norm, divisor)
        return gains

    def _agreement(self, kernel: Array) -> Array:
        """⟨(KᵀD r)_k, r_k⟩ for every training point."""
        agreement: Array = np.einsum("kc,kc->k", kernel.T @ self.weighted, self.residual)
        return agreement


def _array(values: Tensor | None) -> Array:
    assert values is not None, "only problems whose matrices are held fit"
    array: Array = values.double().numpy()
    return array


class RidgeEngine(SquaredErrorEngine):
    """The state under the squared error. Running sums are float64 whatever the kernel's dtype."""

    @classmethod
    def build(cls, problem: Problem, demand: Demand) -> RidgeEngine:
        gains, outer = (one in demand.needs for one in (Quantity.GAIN, Quantity.FIRST_ORDER))
        reads_outer = outer or not problem.moment_pays(demand.capacity)
        return cls(problem, demand.capacity, gains, reads_outer)

    def __init__(
        self, problem: Problem, capacity: int, gains: bool = False, reads_outer: bool = True
    ) -> None:
        super().__init__(problem)
        self.capacity = capacity
        self.reads_outer = reads_outer
        if not gains:  # (K'DK')_kk must be kept from the first point on
            self.offers = self.offers - {Quantity.GAIN}
        if not reads_outer:
            self.offers = self.offers - {Quantity.FIRST_ORDER}
        self.outer_weights = problem.outer_weights.double()
        self._scores: Tensor | None = None
        self.foresight: Foresight | None = None
        if room := Foresight.width(problem.train, problem.cross, capacity):
            self.foresight = Foresight(
                problem.train, problem.cross, problem.outer_weights, self._likely, room
            )
        self._empty()

    def _empty(self) -> None:
        super()._empty()
        problem = self.problem
        self._taken: list[tuple[Tensor, Tensor]] = []
        self._chooser: DeviceChooser | None = None
        self.objective = problem.outer_value(torch.zeros_like(problem.outer_targets))
        self.outer_residual = problem.outer_targets.double().clone()
        self.residual = self.outer_residual
        if not self.one_target:
            self.residual = problem.inner_targets.double().clone()
        weights = problem.outer_weights
        self.posterior: Posterior
        if self.reads_outer:
            self.posterior = posterior_of(
                problem.train, problem.cross, weights, self.capacity, self.foresight
            )
        else:
            self.posterior = MomentPosterior(problem.train, problem.moment, self.capacity)
        self.pull = problem.cross.transposed_matmul(weights[:, None] * problem.outer_targets)
        self.pull = self.pull.double()
        self.variance = problem.train.diagonal().double().clone().clamp_min_(0)
        self.lowest = self.variance.new_zeros(())
        # The objective, if the residuals of the outer set are not followed.
        self.left = self.lowest + self.objective
        # K D r with the prior kernel, which only the first-order rule reads; kept from its first
        # use on.
        self.prior_pull: Tensor | None = None
        # (K'DK')_kk, which only gains read.
        self.energy: Tensor | None = None
        if Quantity.GAIN in self.offers:
            self.energy = problem.cross.weighted_column_norms(weights)

    @property
    def on_device(self) -> bool:
        """Whether reading a number back costs a wait."""
        return self.residual.is_cuda

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        """Several points take one Cholesky factor and block products instead of a pass over K for
        each."""
        if points:
            index = torch.tensor(list(points), device=self.residual.device)
            self.advance(index, weights)
            self._weights += [float(weight) for weight in weights]
            self.read_back()

    def advance(self, index: Tensor, weights: Sequence[float] = (1.0,)) -> None:
        """Take the points whose numbers the tensor holds; :meth:`read_back` tells the host."""
        columns = self.posterior.columns(index)
        if len(weights) == 1:
            lower = (self.variance[index] + self.rho / weights[0]).sqrt()[:, None]
        else:
            own = columns.train[:, index].double()
            shift = self.rho / torch.tensor(list(weights), dtype=torch.float64, device=own.device)
            lower = cholesky_factor((own + own.T) / 2 + torch.diag(shift))
        step = self.posterior.join(columns, lower)
        head = solve_lower(lower, self.residual[index])
        pulled = solve_lower(lower, self.pull[index])
        step.pull(self.pull, head, pulled)
        if self.energy is not None:
            step.energy(self.energy)
        step.variance(self.variance)
        self.lowest = torch.minimum(self.lowest, self.variance.min())
        self.variance.clamp_min_(0)
        step.residual(self.residual, head)
        self._taken.append((index, self._objective_after(step, head, pulled)))

    def _objective_after(self, step: Downdate, head: Tensor, pulled: Tensor) -> Tensor:
        if step.outer is None:
            self.left = self.left - step.gain(head, pulled)
            return self.left
        if self.prior_pull is not None:
            self.prior_pull -= self._pulled(step.outer.T @ head)
        if not self.one_target:
            self.outer_residual.addmm_(step.outer.T, head, alpha=-1)
        return self.outer_weights @ row_products(self.outer_residual, self.outer_residual)

    def read_back(self) -> list[float]:
        """Tell the host what :meth:`advance` did since the last time: the points, the objective
        after each, and whether all is well."""
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
        self._scores = found if columns is None else None
        return found

    def _likely(self, count: int) -> list[int]:
        """The points of the best scores at the last look, best first."""
        if self._scores is None:
            return []
        scores = self._scores.clone()
        scores[self.chosen] = torch.inf
        best: list[int] = scores.topk(min(count, len(scores)), largest=False).indices.tolist()
        return best

    def take_best(self, rule: Scoring, turn: Turn) -> list[float]:
        """On a GPU the numbers come back every few points, not after each."""
        if not (self.on_device and one_by_one(turn)):
            return super().take_best(rule, turn)
        if self._chooser is None or not self._chooser.serves(turn):
            self._chooser = DeviceChooser(turn, self.residual.device)
        before = len(self.chosen)
        for _ in range(unasked(turn, before)):
            self._chooser.step(self.scores(rule), self.advance)
        objectives = self.read_back()
        self._chooser.check()
        self._chooser.took(self.chosen[before:])
        self._weights += [1.0] * len(objectives)
        return objectives

    def pick_from(self, shortlist: Array, rule: Scoring, turn: Turn) -> list[int]:
        """Those that greedy selection takes when only the shortlist may be taken.

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

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        def some(values: Tensor) -> Tensor:
            return values if columns is None else values[columns]

        residual = some(self.residual)
        if what is Quantity.LOSS:
            return residual.square().sum(1)
        if what is Quantity.FIRST_ORDER:
            if not self.reads_outer:
                raise self.not_offered(what)
            if self.prior_pull is None:
                self.prior_pull = self._pulled(self.outer_residual)
            return (some(self.prior_pull) * residual).sum(1).mul_(-4)
        agreement = row_products(some(self.pull), residual)
        if what is Quantity.GRADIENT:
            return agreement.mul_(-2 / self.rho)
        if self.energy is None:
            raise self.not_offered(what)
        norm = residual.square().sum(1)
        divisor = self.rho + some(self.variance)
        gains: Tensor = exact_gain(agreement, some(self.energy), norm, divisor)
        return gains

    def _pulled(self, values: Tensor) -> Tensor:
        """Kᵀ D values: the pull with the prior kernel."""
        weighted = (self.outer_weights[:, None] * values).to(self.problem.train.like)
        return self.problem.cross.transposed_matmul(weighted).double()

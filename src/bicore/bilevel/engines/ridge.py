"""The engine of :mod:`bicore.bilevel.engines.ridge` with K' held as a matrix, for a few points.

With a few hundred of them a step is no arithmetic to speak of, and what counts is the number of
calls. Plain arrays and a dense K' need the fewest; a stream of small batches selects this way.

The squared error with a constant regulariser: rank-one updates instead of inner iterations.

    ∂G/∂w_k at w_k = 0          −2⟨(K'D r)_k, r_k⟩/ρ                                  (gradient)
    exact decrease of G          2⟨(K'D r)_k, r_k⟩/d_k − (K'D K')_kk ‖r_k‖²/d_k²      (gain)

with r = t − h the residuals, K' the posterior kernel, d_k = ρ + K'_kk, and D the data weights of
the outer set, scaled to sum 1. K'Dr, (K'DK')_kk and K'_kk are updated as
:mod:`bicore.bilevel.posterior` has it, so that both rules cost one product with K' a step.
"""

from __future__ import annotations

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
from bicore.bilevel.posterior import (
    Downdate,
    Foresight,
    check_variance,
    downdate_arrays,
    exact_gain,
    posterior_of,
    rounding_allowed,
)
from bicore.bilevel.problem import Problem, finite_objective
from bicore.bilevel.solvers.factors import lower_factor
from bicore.data import Array
from bicore.picking import TIE, ranks_of

#: Entries of the kernel matrices up to which the dense form is used.
LARGEST = 512 * 512


class DenseRidgeEngine(ListedEngine):
    """The state under the squared error, in float64."""

    offers = frozenset(Quantity)

    @classmethod
    def supports(cls, demand: Demand) -> bool:
        return demand.closed_form and not demand.reweighs

    @classmethod
    def fits(cls, problem: Problem) -> bool:
        """Whether the problem is small, on the CPU and stored."""
        train = problem.train
        cross = problem.cross
        if train.matrix_or_none is None or cross.matrix_or_none is None:
            return False
        entries = train.shape[1] * (train.shape[0] + cross.shape[0])
        return train.like.device.type == "cpu" and entries <= LARGEST

    @classmethod
    def build(cls, problem: Problem, demand: Demand) -> DenseRidgeEngine:
        return cls(problem)

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rho = problem.regulariser.rho(1)
        self.same = problem.same
        self.one_target = problem.one_target
        self._empty()

    def _empty(self) -> None:
        problem = self.problem
        self.chosen: list[int] = []
        self._weights: list[float] = []
        self.kernel = _array(problem.cross.matrix_or_none)
        self.train = np.array(_array(problem.train.matrix_or_none))
        self.outer = self.train if self.same else np.array(self.kernel)
        self.outer_residual = np.array(_array(problem.outer_targets))
        self.residual = self.outer_residual
        if not self.one_target:
            self.residual = np.array(_array(problem.inner_targets))
        self.outer_weights = _array(problem.outer_weights)
        self.weighted = self.outer_weights[:, None] * self.outer_residual
        self.objective = float(np.vdot(self.weighted, self.outer_residual))
        self.variance = self.train.diagonal()
        largest = float(np.abs(self.variance).max(initial=0.0))
        self.allowed = rounding_allowed(problem.train.like.dtype, largest, self.rho)

    @property
    def weights(self) -> Tensor:
        return torch.tensor(self._weights, dtype=torch.float64)

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        for k, weight in zip(points, weights, strict=True):
            self._add(k, weight)

    def _add(self, k: int, weight: float) -> None:
        column = self.train[k].copy()
        own = self.residual[k].copy()
        divisor = self.rho / weight + max(float(column[k]), 0.0)
        scaled = column / divisor
        if not self.one_target:
            outer = self.outer[:, k].copy()
            if not self.same:
                downdate_arrays(self.outer, outer, scaled)
            downdate_arrays(self.outer_residual, outer, own / divisor)
        downdate_arrays(self.residual, scaled, own)
        downdate_arrays(self.train, scaled, column)
        check_variance(float(self.variance.min()), self.allowed)
        self.chosen.append(k)
        self._weights.append(float(weight))
        self.weighted = self.outer_weights[:, None] * self.outer_residual
        self.objective = finite_objective(float(np.vdot(self.weighted, self.outer_residual)))

    def drop(self, places: Sequence[int]) -> None:
        kept = self.without(places)
        points = [self.chosen[place] for place in kept]
        weights = [self._weights[place] for place in kept]
        self._empty()
        self.extend(points, weights)

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


class RidgeEngine(ListedEngine):
    """The state under the squared error. Running sums are float64 whatever the kernel's dtype."""

    offers = frozenset(Quantity)

    @classmethod
    def supports(cls, demand: Demand) -> bool:
        return demand.closed_form and not demand.reweighs

    @classmethod
    def build(cls, problem: Problem, demand: Demand) -> RidgeEngine:
        return cls(problem, demand.capacity, gains=Quantity.GAIN in demand.needs)

    def __init__(self, problem: Problem, capacity: int, gains: bool = False) -> None:
        self.problem = problem
        self.rho = problem.regulariser.rho(1)
        self.capacity = capacity
        if not gains:  # (K'DK')_kk must be kept from the first point on
            self.offers = self.offers - {Quantity.GAIN}
        self.same = problem.same
        self.one_target = problem.one_target
        self.outer_weights = problem.outer_weights.double()
        self._scores: Tensor | None = None
        self.foresight: Foresight | None = None
        if room := Foresight.width(problem.train, problem.cross, capacity):
            self.foresight = Foresight(
                problem.train, problem.cross, problem.outer_weights, self._likely, room
            )
        self._empty()

    def _empty(self) -> None:
        problem = self.problem
        self.chosen: list[int] = []
        self._weights: list[float] = []
        self._taken: list[tuple[Tensor, Tensor]] = []
        self._chooser: DeviceChooser | None = None
        self.objective = problem.outer_value(torch.zeros_like(problem.outer_targets))
        self.outer_residual = problem.outer_targets.double().clone()
        self.residual = self.outer_residual
        if not self.one_target:
            self.residual = problem.inner_targets.double().clone()
        weights = problem.outer_weights
        self.posterior = posterior_of(
            problem.train, problem.cross, weights, self.capacity, self.foresight
        )
        self.pull = problem.cross.transposed_matmul(weights[:, None] * problem.outer_targets)
        self.pull = self.pull.double()
        self.variance = problem.train.diagonal().double().clone().clamp_min_(0)
        largest = float(self.variance.abs().max())
        self.allowed = rounding_allowed(problem.train.like.dtype, largest, self.rho)
        self.lowest = self.variance.new_zeros(())
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

    @property
    def weights(self) -> Tensor:
        return torch.tensor(self._weights, dtype=torch.float64)

    def extend(self, points: Sequence[int], weights: Sequence[float]) -> None:
        """One point by a rank-one step; several by one Cholesky factor and block products instead
        of a pass over K for each."""
        self._weights += [float(weight) for weight in weights]
        if len(points) == 1:
            self.advance(torch.tensor([points[0]], device=self.residual.device), weights[0])
            self.settle()
        elif points:
            self._extend_block(points, weights)

    def drop(self, places: Sequence[int]) -> None:
        kept = self.without(places)
        points = [self.chosen[place] for place in kept]
        weights = [self._weights[place] for place in kept]
        self._empty()
        self.extend(points, weights)

    def advance(self, k: Tensor, weight: float = 1.0) -> None:
        """Take the point whose number the tensor holds; :meth:`settle` reads back what it did."""
        column = self.posterior.column(k)
        divisor = self.variance[k] + self.rho / weight
        self.posterior.downdate(column, divisor)
        train = column.train.double()
        outer = train if self.same else column.outer.double()
        squares = torch.dot(outer * self.outer_weights, outer)
        step = Downdate(train, column.image.double(), divisor, squares)
        own = self.residual[k][0] / divisor
        step.pull(self.pull, own, self.pull[k][0] / divisor)
        if self.energy is not None:
            step.energy(self.energy)
        if self.prior_pull is not None:
            self.prior_pull.addr_(self._pulled(outer[:, None])[:, 0], own, alpha=-1)
        step.variance(self.variance)
        self.lowest = torch.minimum(self.lowest, self.variance.min())
        self.variance.clamp_min_(0)
        step.residual(self.residual, own)
        if not self.one_target:
            self.outer_residual.addr_(outer, own, alpha=-1)
        squares = row_products(self.outer_residual, self.outer_residual)
        self._taken.append((k, self.outer_weights @ squares))

    def settle(self) -> list[float]:
        """Read back what :meth:`advance` did since the last time: the points, the objective after
        each, and whether all is well."""
        if not self._taken:
            return []
        read = torch.stack([torch.cat([k.double(), value[None]]) for k, value in self._taken])
        numbers = torch.cat([read.flatten(), self.lowest[None]]).tolist()
        self.chosen += [int(k) for k in numbers[:-1:2]]
        objectives: list[float] = numbers[1:-1:2]
        self._taken = []
        check_variance(numbers[-1], self.allowed)
        self.objective = finite_objective(objectives[-1])
        return objectives

    def _extend_block(self, points: Sequence[int], weights: Sequence[float]) -> None:
        index = torch.tensor(list(points), device=self.residual.device)
        scale = self.rho / torch.tensor(list(weights), dtype=torch.float64, device=index.device)
        rows, outer_rows = self.posterior.rows(index)
        own = rows[:, index].double()
        lower = lower_factor((own + own.T) / 2 + torch.diag(scale))
        train = torch.linalg.solve_triangular(lower, rows.double(), upper=False)
        outer = train
        if not self.same:
            outer = torch.linalg.solve_triangular(lower, outer_rows.double(), upper=False)
        self._downdate_block(index, lower, train, outer)
        self.chosen += [int(k) for k in points]
        objective = self.outer_weights @ self.outer_residual.square().sum(1)
        self.objective = finite_objective(float(objective))

    def _downdate_block(self, index: Tensor, lower: Tensor, train: Tensor, outer: Tensor) -> None:
        """The rank-one steps of several points at once, by the factors L = lower⁻¹ K'[S, :] at the
        training points and at the outer set."""
        like = self.problem.train.like
        head = torch.linalg.solve_triangular(lower, self.residual[index], upper=False)
        image = self.posterior.images(outer.to(like)).double()
        self.residual -= train.T @ head
        if not self.one_target:
            self.outer_residual -= outer.T @ head
        spread = outer * self.outer_weights
        self.pull -= image.T @ head + train.T @ (spread @ self.outer_residual)
        if self.energy is not None:
            self.energy += ((spread @ outer.T) @ train * train).sum(0) - 2 * (train * image).sum(0)
            self.energy.clamp_min_(0)
        if self.prior_pull is not None:
            self.prior_pull -= self._pulled(outer.T @ head)
        self.variance.sub_(train.square().sum(0))
        check_variance(float(self.variance.min()), self.allowed)
        self.variance.clamp_min_(0)
        self.posterior.downdate_all(index, lower, train.to(like), outer.to(like))

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
        objectives = self.settle()
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
        pool = torch.from_numpy(shortlist).to(self.residual.device)
        ranks = torch.from_numpy(ranks_of(turn.ids[shortlist])).to(pool.device)
        rows, outer = self.posterior.rows(pool)
        kernel = rows[:, pool].double()
        moment = (outer.double() * self.outer_weights) @ outer.double().T
        residual = self.residual[pool].clone()
        pull = self.pull[pool].clone()
        closed = torch.zeros_like(pool, dtype=torch.bool)
        found: list[int] = []
        for _ in range(turn.count):
            worth = (pull * residual).sum(1)
            if exact:
                norm = residual.square().sum(1)
                worth = exact_gain(worth, moment.diagonal(), norm, self.rho + kernel.diagonal())
            worth = worth.masked_fill(closed, -torch.inf)
            tied = worth >= worth.max() - TIE * worth.max().abs()
            place = int(ranks.masked_fill(~tied, self.problem.size).argmin())
            found.append(place)
            closed[place] = True
            divisor = self.rho + kernel[place, place]
            step = Downdate(
                kernel[:, place].clone(), moment[:, place].clone(), divisor, moment[place, place]
            )
            own = residual[place] / divisor
            step.pull(pull, own, pull[place] / divisor)
            step.residual(residual, own)
            step.moment(moment)
            step.kernel(kernel)
        return [int(k) for k in pool[found]]

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        residual = _rows(self.residual, columns)
        if what is Quantity.LOSS:
            return residual.square().sum(1)
        if what is Quantity.FIRST_ORDER:
            return (_rows(self._prior_pull(), columns) * residual).sum(1).mul_(-4)
        agreement = row_products(_rows(self.pull, columns), residual)
        if what is Quantity.GRADIENT:
            return agreement.mul_(-2 / self.rho)
        if self.energy is None:
            raise self.not_offered(what)
        divisor = self.rho + _rows(self.variance, columns)
        norm = residual.square().sum(1)
        gains: Tensor = exact_gain(agreement, _rows(self.energy, columns), norm, divisor)
        return gains

    def _prior_pull(self) -> Tensor:
        """K D r: the pull with the identity in place of the inverse Hessian."""
        if self.prior_pull is None:
            self.prior_pull = self._pulled(self.outer_residual)
        return self.prior_pull

    def _pulled(self, values: Tensor) -> Tensor:
        """Kᵀ D values."""
        weighted = (self.outer_weights[:, None] * values).to(self.problem.train.like)
        return self.problem.cross.transposed_matmul(weighted).double()


def row_products(left: Tensor, right: Tensor) -> Tensor:
    """⟨a_i, b_i⟩ for every row."""
    if left.is_cuda:
        return (left * right).sum(1)
    # one pass and no matrix of products, which takes half the time
    return torch.from_numpy(np.einsum("nc,nc->n", left.numpy(), right.numpy()))


def _rows(values: Tensor, columns: Tensor | None) -> Tensor:
    return values if columns is None else values[columns]

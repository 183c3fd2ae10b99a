"""The squared error with a constant regulariser: rank-one updates instead of inner iterations.

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

from bicore.arguments import TIE, ranks_of
from bicore.bilevel.contract import (
    DeviceChooser,
    ListedEngine,
    Quantity,
    Requirements,
    Rule,
    StepOptions,
)
from bicore.bilevel.posterior import (
    Downdate,
    allowed_rounding,
    check_variance,
    posterior_of,
    smallest_regulariser,
    solve_lower,
)
from bicore.bilevel.problem import Problem, finite_objective
from bicore.data import Array
from bicore.moments.ridge import PairRows
from bicore.numerics.linear_algebra import cholesky_factor, exact_gain, row_products
from bicore.runtime.clock import checkpoint

#: Maximum number of open points that are compared by the matrices of their pairs, and the smallest
#: ρ for that, as a share of the largest variance: below it, rounding would decide.
PAIRED, LEAST_PAIRED = 1024, 1e-6
#: Multiplications that take as long as the calls of a single step.
STEP_COST = 4e6


class RidgeEngine(ListedEngine):
    """Scores of all points from r, K'Dr, (K'DK')_kk and K'_kk, in float64 for any dtype of K."""

    @classmethod
    def supports(cls, requirements: Requirements) -> bool:
        return requirements.closed_form and not requirements.reweighs

    @classmethod
    def build(cls, problem: Problem, requirements: Requirements) -> RidgeEngine:
        # With the same targets the outer set needs no products of its own; few rows are in float64.
        if not problem.same_targets and problem.train.like.dtype == torch.float64:
            problem = problem.with_few_outer_rows()
        return cls(problem, requirements.capacity, Quantity.GAIN in requirements.needs)

    def __init__(self, problem: Problem, capacity: int, gains: bool = False) -> None:
        self.problem = problem
        self.capacity = capacity
        # (K'DK')_kk must be updated from the first point on.
        missing = set() if gains else {Quantity.GAIN}
        self.supported_quantities = frozenset(Quantity) - missing
        largest = float(problem.train.diagonal().abs().max())
        dtype = problem.train.like.dtype
        self.rho = max(problem.regulariser.rho(1), smallest_regulariser(dtype, largest))
        self.allowed = allowed_rounding(dtype, largest, self.rho)
        self.outer_weights = problem.outer_weights.double()
        precise = self.rho >= LEAST_PAIRED * largest
        #: Whether several points may be chosen by the matrices of all pairs.
        self.pairs = precise and not self.outer_weights.is_cuda
        self._last_scores: Tensor | None = None
        self._reset()

    def _reset(self) -> None:
        """Remove all points."""
        problem = self.problem
        train, cross, weights = problem.train, problem.cross, problem.outer_weights
        self.chosen: list[int] = []
        self.objective = problem.outer_value(torch.zeros_like(problem.outer_targets))
        self.outer_residual = self.residual = problem.outer_targets.double().clone()
        if not problem.same_targets:
            self.residual = problem.inner_targets.double().clone()
        self._taken: list[tuple[Tensor, Tensor]] = []
        self._chooser: DeviceChooser | None = None
        self.posterior = posterior_of(train, cross, weights, self.capacity, self._likely)
        self.pull = cross.transposed_matmul(weights[:, None] * problem.outer_targets).double()
        self.variance = train.diagonal().double().clone().clamp_min_(0)
        self.lowest = self.variance.new_zeros(())
        # K D r with the prior kernel, which only the first-order rule reads; updated from its first
        # use on.
        self.prior_pull: Tensor | None = None
        self.energy: Tensor | None = None
        if Quantity.GAIN in self.supported_quantities:
            self.energy = cross.weighted_column_norms(weights)

    def drop(self, places: Sequence[int]) -> None:
        points = [self.chosen[place] for place in self.places_except(places)]
        self._reset()
        self.extend(points)

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        self.check_supported(what)

        def some(values: Tensor) -> Tensor:
            return values if columns is None else values[columns]

        residual = some(self.residual)
        if what is Quantity.LOSS:
            return row_products(residual, residual)
        pull = self._prior_pull() if what is Quantity.FIRST_ORDER else self.pull
        found = row_products(some(pull), residual)
        if what is Quantity.FIRST_ORDER:
            return found.mul_(-4)
        if what is Quantity.GRADIENT:
            return found.mul_(-2 / self.rho)
        assert self.energy is not None
        norm, divisor = row_products(residual, residual), self.rho + some(self.variance)
        gains: Tensor = exact_gain(2 * found, some(self.energy), norm, divisor)
        return gains

    @property
    def on_device(self) -> bool:
        """Whether reading a number back has to wait for the device."""
        return self.residual.is_cuda

    def extend(self, points: Sequence[int]) -> None:
        """Add points together, with one Cholesky factor and block products."""
        if points:
            self.advance(torch.tensor(list(points), device=self.residual.device))
            self.read_back()

    def advance(self, index: Tensor, one_by_one: bool = False) -> None:
        """Take the points whose indices the tensor holds; :meth:`read_back` reads the results.

        With ``one_by_one`` there is an objective after each point instead of one for all.
        """
        rows = self.posterior.rows_and_images(index)
        if len(index) == 1:
            lower = (self.variance[index] + self.rho).sqrt()[:, None]
        else:
            own = rows.train[:, index].double()
            own = (own + own.T) / 2
            own.diagonal().add_(self.rho)
            lower = cholesky_factor(own)
        step = self.posterior.join(rows, lower)
        head = solve_lower(lower, self.residual[index])
        pulled = solve_lower(lower, self.pull[index])
        objectives = self._update_residuals(step, head, one_by_one)
        self.pull.addmm_(step.images.T, head, alpha=-1)
        self.pull.addmm_(step.rows.T, pulled - step.spread @ head, alpha=-1)
        step.update_diagonals(self.variance, self.energy)
        self.lowest = torch.minimum(self.lowest, self.variance.min())
        self.variance.clamp_min_(0)
        self._taken.append((index, objectives))

    def _update_residuals(self, step: Downdate, head: Tensor, one_by_one: bool) -> Tensor:
        """Update the residuals and return the objective after each point."""
        if self.prior_pull is not None:
            self.prior_pull -= self._multiply_prior(step.outer.T @ head)
        size, residual, found = 1 if one_by_one else len(head), self.outer_residual, []
        parts = [torch.split(part, size) for part in (step.rows, step.outer, head)]
        for rows, outer, some in zip(*parts, strict=True):
            self.residual.addmm_(rows.T, some, alpha=-1)
            if not self.problem.same_targets:
                residual.addmm_(outer.T, some, alpha=-1)
            found.append(self.outer_weights @ row_products(residual, residual))
        return torch.stack(found).expand(len(head))

    def read_back(self) -> list[float]:
        """Read the points that :meth:`advance` took and the objective after each; check them."""
        if not self._taken:
            return []
        points, values = zip(*self._taken, strict=True)
        *numbers, lowest = torch.cat([*points, *values, self.lowest[None]]).tolist()
        self._taken = []
        count = len(numbers) // 2
        self.chosen += [int(k) for k in numbers[:count]]
        objectives: list[float] = numbers[count:]
        check_variance(lowest, self.allowed)
        self.objective = finite_objective(objectives[-1])
        return objectives

    def scores(self, rule: Rule, columns: Tensor | None = None) -> Tensor:
        found = super().scores(rule, columns)
        self._last_scores = found if columns is None else None
        return found

    def _likely(self, count: int) -> list[int]:
        """Return the points with the best scores of the last step, best first."""
        if self._last_scores is None:
            return []
        scores = self._last_scores.clone()
        scores[self.chosen] = torch.inf
        best: list[int] = scores.topk(min(count, len(scores)), largest=False).indices.tolist()
        return best

    def take_best(self, rule: Rule, options: StepOptions) -> list[float]:
        """Take the best open points; a GPU is read after several points."""
        if self._compares_pairs(rule, options):
            picked = self._order(np.flatnonzero(options.open), rule, options, options.steps)
            self.advance(torch.tensor(picked), one_by_one=True)
            return self.read_back()
        if not (self.on_device and options.one_by_one):
            return super().take_best(rule, options)
        if self._chooser is None or not self._chooser.matches(options):
            self._chooser = DeviceChooser(options, self.residual.device)
        before = len(self.chosen)
        for _ in range(options.unread_steps if before else 1):  # the first is read at once
            self._chooser.step(self.scores(rule), self.advance)
        objectives = self.read_back()
        self._chooser.check(self.chosen[before:])
        return objectives

    def pick_from(self, shortlist: Array, rule: Rule, options: StepOptions) -> list[int]:
        """Return the points that greedy selection takes if only the shortlist may be taken.

        (K'DK') between its points needs their columns alone, so that no pass over K is made.
        """
        if not _is_paired(rule) or len(shortlist) <= options.count:
            return super().pick_from(shortlist, rule, options)
        return self._order(shortlist, rule, options, options.count)

    def _compares_pairs(self, rule: Rule, options: StepOptions) -> bool:
        """Whether the matrices of all pairs of open points cost less than the remaining steps."""
        steps, points = options.steps, np.count_nonzero(options.open)
        allowed = self.pairs and options.one_by_one and _is_paired(rule)
        if not allowed or steps == 1 or points > PAIRED:
            return False
        cross = self.problem.cross
        cost = cross.shape[0] * (points**2 - 4 * steps**2)
        return bool(points == steps or (cross.stored and cost <= STEP_COST * steps))

    def _order(self, shortlist: Array, rule: Rule, options: StepOptions, count: int) -> list[int]:
        """Return the first points of a shortlist in greedy order, from their pairs alone."""
        exact = rule.quantity is Quantity.GAIN
        index = torch.from_numpy(shortlist).to(self.residual.device)
        kernel, moment = (one.cpu().numpy() for one in self.posterior.pairs(index))
        residual, pull = (one[index].cpu().numpy() for one in (self.residual, self.pull))
        both = np.hstack([residual, (2 / self.rho) * pull])
        matrices = np.hstack([kernel / self.rho, moment / self.rho**2])
        rows = PairRows(residual, None, matrices, both)
        ranks = ranks_of(options.ids[shortlist])
        picked: list[int] = []
        for _ in range(count):
            checkpoint()
            worth = rows.gains() if exact else np.where(rows.inside, -np.inf, rows.gradients())
            tied = np.flatnonzero(worth >= worth.max() - TIE * abs(worth.max()))
            picked.append(int(tied[ranks[tied].argmin()]))
            rows.change(picked[-1])
        return [int(shortlist[place]) for place in picked]

    def _prior_pull(self) -> Tensor:
        if self.prior_pull is None:
            self.prior_pull = self._multiply_prior(self.outer_residual)
        return self.prior_pull

    def _multiply_prior(self, values: Tensor) -> Tensor:
        """Compute KᵀD values with the prior kernel."""
        weighted = (self.outer_weights[:, None] * values).to(self.problem.train.like)
        return self.problem.cross.transposed_matmul(weighted).double()


def _is_paired(rule: Rule) -> bool:
    """Whether the scores of a rule follow from the matrices of pairs."""
    return rule.quantity in (Quantity.GAIN, Quantity.GRADIENT)

"""The squared error with a constant regulariser: rank-one updates instead of inner iterations.

The posterior kernel is K' = K − K[:, S](K_SS + ρ W⁻¹)⁻¹K[S, :]. S are the chosen points, W is the
diagonal matrix of their weights, D that of the weights of the outer set, and r are the residuals.
Next to D, K' and L are taken at the outer set: K'DK' is short for K'[:, O] D K'[O, :]. When points
T of weights w join, let F Fᵀ = K'_TT + ρ diag(w)⁻¹, L = F⁻¹ K'[T, :], M = F⁻¹ (K'DK')[T, :] and
B = L D Lᵀ. Then

    K' ← K' − LᵀL                               r ← r − Lᵀh,   h = F⁻¹ r_T
    K'Dr ← K'Dr − Mᵀh − Lᵀ(F⁻¹(K'Dr)_T − B h)
    (K'DK')_jj ← (K'DK')_jj + Σ_t L_tj ((B L)_tj − 2 M_tj)

Scores follow from these:

    ∂G/∂w_k at w_k = 0          −2⟨(K'D r)_k, r_k⟩/ρ                                  (gradient)
    exact decrease of G          2⟨(K'D r)_k, r_k⟩/d_k − (K'D K')_kk ‖r_k‖²/d_k²      (gain)

with r = t − h, d_k = ρ + K'_kk, and D scaled to sum 1. Both rules cost one product with K' a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
from bicore.bilevel.problem import Problem, finite_objective
from bicore.data import Array
from bicore.errors import NumericalError
from bicore.kernels.operators import KernelOperator, split_rows
from bicore.moments.ridge import PairRows
from bicore.numerics.linear_algebra import cholesky_factor, exact_gain, row_products, weighted_gram
from bicore.runtime.clock import checkpoint
from bicore.runtime.threads import all_threads

#: Tolerated rounding error of a variance, as a multiple of v · eps · max(1, v/ρ), where v is the
#: largest variance …
ROUNDING = 1e4
#: … and its upper limit as a share of v, above which scores are meaningless.
MOST_ROUNDING = 1e-3
#: Minimum ρ of a step, in rounding errors of the largest variance.
LEAST_REGULARISER = 4
#: Maximum number of rows prefetched in one pass: the products with them then cost about as much as
#: computing the tile.
PREFETCH_WIDTH = 64
#: Estimated passes per point with prefetching; more per point at the start.
PASSES_A_POINT = 0.2
#: Number of stored rows, in passes; those with the worst scores are dropped first.
HELD = 4
#: Number of points whose energies are computed at a time.
ENERGY_ROWS = 64


#: Takes a count, and returns up to that many points that are likely to be chosen next, best first.
Likely = Callable[[int], list[int]]
#: Maximum number of open points that are compared by the matrices of their pairs, and the smallest
#: ρ for that, as a share of the largest variance: below it, rounding would decide.
PAIRED, LEAST_PAIRED = 1024, 1e-6
#: Multiplications that take as long as the calls of a single step.
STEP_COST = 4e6


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """Return lower⁻¹ right; a single point needs a division only."""
    if len(lower) == 1:
        return right / lower
    solved: Tensor = torch.linalg.solve_triangular(lower, right, upper=False)
    return solved


class Downdate(NamedTuple):
    """The update when points join, in float64.

    ``rows`` is L at the training points, ``outer`` is L at the outer set, ``images`` is M and
    ``spread`` is B.
    """

    rows: Tensor
    outer: Tensor
    images: Tensor
    spread: Tensor

    def update_diagonals(self, variance: Tensor, energy: Tensor | None) -> None:
        """Update the diagonals of K' and K'DK' in place; the caller checks the variances."""
        for row in self.rows:
            variance.addcmul_(row, row, value=-1)
        if energy is not None:
            changes = torch.add(self.spread @ self.rows, self.images, alpha=-2)
            for row, change in zip(self.rows, changes, strict=True):
                energy.addcmul_(row, change)
            energy.clamp_min_(0)  # negative by rounding only


class KernelRows(NamedTuple):
    """Rows of K' at the training points and at the outer set, and rows of K'DK'.

    If they are prefetched, those of K and of KDK for a single point.
    """

    train: Tensor
    outer: Tensor
    images: Tensor


class Posterior(ABC):
    """The posterior kernel K' at the training points and the outer set."""

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights
        self._double_weights = weights.double()

    @abstractmethod
    def rows_and_images(self, index: Tensor) -> KernelRows:
        """Return K'[index, :] and (K'DK')[index, :], one row per point."""

    @abstractmethod
    def rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return K'[index, :] at the training points and at the outer set, one row per point."""

    @abstractmethod
    def energies(self) -> Tensor:
        """Compute (K'DK')_jj of all training points directly, without accumulated updates."""

    @abstractmethod
    def _downdate(self, lower: Tensor, train: Tensor, outer: Tensor) -> None:
        """Apply K' ← K' − LᵀL, with L = lower⁻¹ K'[T, :] of the last :meth:`rows_and_images`."""

    def join(self, rows: KernelRows, lower: Tensor) -> Downdate:
        """Add the points of the last :meth:`rows_and_images`, with F = ``lower``."""
        train = solve_lower(lower, rows.train.double())
        outer = train
        if rows.outer is not rows.train:
            outer = solve_lower(lower, rows.outer.double())
        self._downdate(lower, train.to(rows.train), outer.to(rows.train))
        images = solve_lower(lower, rows.images.double())
        return Downdate(train, outer, images, (outer * self._double_weights) @ outer.T)

    def pairs(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return K' and K'DK' among some points, in float64."""
        train, outer = self.rows(index)
        outer = outer.double()
        return train[:, index].double(), (outer * self._double_weights) @ outer.T


class FactorPosterior(Posterior):
    """K' = K − LᵀL with one row of L per chosen point, for any operator."""

    def __init__(
        self,
        train: KernelOperator,
        cross: KernelOperator,
        weights: Tensor,
        capacity: int,
        likely: Likely | None = None,
    ) -> None:
        super().__init__(weights)
        self.train = train
        self.cross = cross
        self.size = 0
        self._train_factor = train.like.new_empty(capacity, train.shape[0])
        self._outer_factor = self._train_factor
        if cross is not train:
            self._outer_factor = train.like.new_empty(capacity, cross.shape[0])
        room = 0 if likely is None else RowPrefetcher.room(train, cross, capacity)
        self.prefetcher: RowPrefetcher | None = None
        # Every row of the factor times DK, from which the images of prefetched rows follow.
        self._factor_images: Tensor | None = None
        if likely is not None and room:
            self.prefetcher = RowPrefetcher(train, cross, weights, likely, room)
            self._factor_images = torch.empty_like(self._train_factor)
        # K'DK of the last :meth:`rows_and_images`; a placeholder until then.
        self._last_images = weights

    def rows(self, index: Tensor, prefetched: KernelRows | None = None) -> tuple[Tensor, Tensor]:
        own = self._train_factor[: self.size, index].T
        train = self.train.columns(index).T if prefetched is None else prefetched.train
        train = train - _multiply(own, self._train_factor[: self.size])
        if self._outer_factor is self._train_factor:
            return train, train
        outer = self.cross.columns(index).T if prefetched is None else prefetched.outer
        return train, outer - _multiply(own, self._outer_factor[: self.size])

    def rows_and_images(self, index: Tensor) -> KernelRows:
        alone = len(index) == 1
        prefetched = (
            self.prefetcher.rows_of(int(index)) if self.prefetcher is not None and alone else None
        )
        train, outer = self.rows(index, prefetched)
        weighted = self.weights * outer
        if prefetched is not None and self._factor_images is not None:
            own = self._train_factor[: self.size, index].T
            self._last_images = prefetched.images - _multiply(own, self._factor_images[: self.size])
        elif alone:  # products with a vector are faster
            self._last_images = self.cross.transposed_matmul(weighted[0])[None]
        else:
            self._last_images = self.cross.transposed_matmul(weighted.T.contiguous()).T
        along = _multiply(weighted, self._outer_factor[: self.size].T)
        images = self._last_images - _multiply(along, self._train_factor[: self.size])
        return KernelRows(train, outer, images)

    def energies(self) -> Tensor:
        every = torch.arange(self.train.shape[0], device=self.weights.device)
        found = []
        for index in torch.split(every, ENERGY_ROWS):
            checkpoint()
            found.append(self.rows(index)[1].double().square() @ self._double_weights)
        return torch.cat(found)

    def _downdate(self, lower: Tensor, train: Tensor, outer: Tensor) -> None:
        added = slice(self.size, self.size + len(train))
        self._train_factor[added] = train
        if self._outer_factor is not self._train_factor:
            self._outer_factor[added] = outer
        if self._factor_images is not None:
            self._factor_images[added] = solve_lower(lower.to(train), self._last_images)
        self.size = added.stop


def _multiply(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right; a single row is faster as a vector."""
    return (left[0] @ right)[None] if len(left) == 1 else left @ right


class FeaturePosterior(Posterior):
    """K' = Φ Σ Φᵀ with Σ (p×p): one pass over Φ per step instead of n·m stored numbers."""

    def __init__(self, train: Tensor, outer: Tensor, weights: Tensor) -> None:
        super().__init__(weights)
        self.train = train
        self.outer = outer
        self.covariance = torch.eye(train.shape[1], dtype=torch.float64, device=train.device)
        self.moment = weighted_gram(outer, weights)
        # K'[T, :] = directions Φᵀ of the last :meth:`rows_and_images`; a placeholder until then.
        self._directions = self.covariance

    def rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        directions = self.train[index].double() @ self.covariance
        (train,) = _project(self.train, directions)
        return train, train if self.outer is self.train else _project(self.outer, directions)[0]

    def rows_and_images(self, index: Tensor) -> KernelRows:
        self._directions = directions = self.train[index].double() @ self.covariance
        second = directions @ self.moment @ self.covariance
        train, images = _project(self.train, directions, second)
        outer = train
        if self.outer is not self.train:
            (outer,) = _project(self.outer, directions)
        return KernelRows(train, outer, images)

    def pairs(self, index: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.train[index].double()
        directions = rows @ self.covariance
        return directions @ rows.T, directions @ self.moment @ directions.T

    def energies(self) -> Tensor:
        found = []
        for rows in split_rows(self.train):
            directions = rows @ self.covariance
            found.append(row_products(directions @ self.moment, directions))
        return torch.cat(found)

    def _downdate(self, lower: Tensor, train: Tensor, outer: Tensor) -> None:
        halves = solve_lower(lower, self._directions)
        self.covariance.addmm_(halves.T, halves, alpha=-1)


def _project(rows: Tensor, *directions: Tensor) -> list[Tensor]:
    """Return directions @ rowsᵀ for each matrix of directions.

    A GPU needs one pass over the rows. On a CPU two products with one vector each are faster than
    one with two.
    """
    if rows.is_cuda:
        every = torch.cat(directions).to(rows) @ rows.T
        return list(every.split(len(directions[0])))  # type: ignore[no-untyped-call]
    checkpoint()
    with all_threads(sum(one.shape[0] for one in directions) * rows.numel()):
        if len(directions[0]) == 1:
            return [(rows @ one[0].to(rows))[None] for one in directions]
        return [one.to(rows) @ rows.T for one in directions]


def posterior_of(
    train: KernelOperator,
    cross: KernelOperator,
    weights: Tensor,
    capacity: int,
    likely: Likely | None = None,
) -> Posterior:
    """Return K' before any point is chosen; ``cross`` and ``weights`` belong to the outer set.

    ``likely`` returns the points that are likely to be chosen next, best first.
    """
    own = train.feature_rows
    other = cross.feature_rows
    if own is not None and other is not None:
        return FeaturePosterior(own[1], other[0], weights)
    return FactorPosterior(train, cross, weights, capacity, likely)


def allowed_rounding(dtype: torch.dtype, variance: float, rho: float) -> float:
    """Return the tolerance of negative posterior variances; ``variance`` is the largest prior one.

    m steps compute a Cholesky factor of K + ρ, whose entries have errors e of m roundings of the
    largest variance v. The error of a posterior variance is at most e (1 + ‖g‖₁)², where g are the
    coefficients that predict the point from the m others and ‖g‖₂ ≤ ½ √(v/ρ). For large v/ρ this is
    at most about e m v/(4ρ), which is m²/4 roundings times v/ρ. ``ROUNDING`` replaces m²/4, and
    ``MOST_ROUNDING`` is the upper limit.
    """
    worst = ROUNDING * torch.finfo(dtype).eps * max(1.0, variance / rho)
    return variance * min(worst, MOST_ROUNDING)


def smallest_regulariser(dtype: torch.dtype, variance: float) -> float:
    """Return the smallest ρ that steps can use for the largest prior variance ``variance``.

    After the points span a kernel of low rank, K' consists of rounding errors, and dividing by a
    smaller ρ would magnify them.
    """
    return LEAST_REGULARISER * torch.finfo(dtype).eps * variance


def check_variance(lowest: float, allowed: float) -> None:
    """Raise an error if a variance is negative by more than rounding: K is then not a kernel."""
    if lowest < -allowed:
        raise NumericalError(
            f"the kernel matrix is not positive semi-definite at this precision (the posterior "
            f"variance of a point is {lowest:.3g}); use float64, a larger inner_reg, or another "
            "kernel."
        )


@dataclass(eq=False)
class RowPrefetcher:
    """Rows of K and of KDK for the points that are likely to be chosen next.

    If the kernel matrix is not stored, a pass over all pairs costs almost the same for one row as
    for dozens. ``likely`` returns the points with the best scores now. The next points are often
    among them, so that one pass serves several steps. The rows are exact and do not depend on the
    coreset.
    """

    train: KernelOperator
    cross: KernelOperator
    weights: Tensor
    likely: Likely
    #: Number of rows that may be held.
    most: int
    prefetched: dict[int, KernelRows] = field(default_factory=dict)

    @property
    def width_of_pass(self) -> int:
        """Number of rows prefetched in one pass."""
        return max(1, min(PREFETCH_WIDTH, self.most // HELD))

    @staticmethod
    def room(train: KernelOperator, cross: KernelOperator, capacity: int) -> int:
        """Return how many rows fit in the spare memory, next to the images of ``capacity`` chosen
        points."""
        if train.stored:
            return 0
        itemsize = train.like.element_size()
        spare = train.spare - capacity * train.shape[0] * itemsize
        numbers = train.shape[0] * 2 + (0 if cross is train else cross.shape[0])
        # another set of rows exists during a pass
        return max(0, min(HELD * PREFETCH_WIDTH, spare // (2 * numbers * itemsize)))

    def rows_of(self, k: int) -> KernelRows:
        """Return the rows of a point; this takes a pass if they were not prefetched."""
        if k not in self.prefetched:
            self._prefetch(k)
        return self.prefetched[k]

    def _prefetch(self, k: int) -> None:
        best = self.likely(HELD * self.width_of_pass)
        self.prefetched = {
            point: self.prefetched[point] for point in best if point in self.prefetched
        }
        fresh = [k, *(point for point in best if point not in self.prefetched and point != k)]
        fresh = fresh[: self.width_of_pass]
        index = torch.tensor(fresh, device=self.train.like.device)
        train = self.train.columns(index)
        outer = train if self.cross is self.train else self.cross.columns(index)
        product = self.cross.transposed_matmul(self.weights[:, None] * outer)
        # one row per point, because columns of a matrix are slow to read
        rows = (one.T.contiguous() for one in (train, outer, product))
        for point, *parts in zip(fresh, *rows, strict=True):
            self.prefetched[point] = KernelRows(*(part[None] for part in parts))


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
            scores = rows.gains() if exact else np.where(rows.inside, -np.inf, rows.gradients())
            tied = np.flatnonzero(scores >= scores.max() - TIE * abs(scores.max()))
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

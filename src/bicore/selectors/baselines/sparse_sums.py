"""Weighted points that sum to a given vector, from inner products alone.

With the target L = Σ_i v_i g_i and S the chosen points, orthogonal matching pursuit and Frank–Wolfe
both need ⟨L, g_i⟩ for all i and the columns ⟨g_i, g_k⟩ of the points they touch; the error
‖L − Σ w_k g_k‖² follows from these.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import NumericalError
from bicore.kernels.operators import KernelOperator
from bicore.picking import lowest
from bicore.runtime import checkpoint
from bicore.selectors.baselines.base import Growth

#: Relative to ‖L‖·‖g_i‖ (or, for a step, ‖L‖²) this little correlation is rounding: no point lowers
#: the error any more.
NEGLIGIBLE = 1e-10
#: Frank–Wolfe takes points again and again; it ends after this many steps a point asked for.
STEPS_A_POINT = 50
#: Added to the diagonal of normal equations, relative to it, so that equal points do not make them
#: singular.
JITTER = 1e-12
#: Relative to the largest entry of the right-hand side, a gradient this small is zero.
STATIONARY = 1e-10
#: Relative to the largest weight, one this small lies on the border of the cone.
ON_BORDER = 1e-14


class Match:
    """The target, the points touched so far and their weights."""

    def __init__(self, operator: KernelOperator, weights: Tensor, capacity: int) -> None:
        self.operator = operator
        total = operator.matmul(weights.to(operator.like)[:, None])[:, 0].double()
        self.toward = total.cpu().numpy()
        self.square = float(weights.double() @ total)
        self.norms = operator.diagonal().double().clamp_min(0).sqrt().cpu().numpy()
        if self.square <= 0 or not self.norms.any():
            raise NumericalError(
                "the points sum to zero in this space: nothing to match; use another space, or "
                "weighting='equal'."
            )
        self._columns = np.empty((capacity, len(self.toward)))
        self.places: list[int] = []
        self.numbers: dict[int, int] = {}
        self.learnt = np.empty(0)

    @property
    def columns(self) -> Array:
        """⟨g_k, g_i⟩, a row for each point k touched."""
        return self._columns[: len(self.places)]

    def touch(self, place: int) -> int:
        """The number of the point among those touched; its column is computed once."""
        if place not in self.numbers:
            if len(self.places) == len(self._columns):
                self._columns = np.concatenate([self._columns, np.empty_like(self._columns)])
            index = torch.tensor([place], device=self.operator.like.device)
            column = self.operator.columns(index)[:, 0].double().cpu().numpy()
            self._columns[len(self.places)] = column
            self.numbers[place] = len(self.places)
            self.places.append(place)
            self.learnt = np.append(self.learnt, 0.0)
        return self.numbers[place]

    def correlations(self) -> Array:
        """⟨L − Σ w_k g_k, g_i⟩/‖g_i‖ for every i; zero where g_i is zero."""
        missing = self.toward - self.learnt @ self.columns
        zeros = np.zeros_like(missing)
        return np.asarray(np.divide(missing, self.norms, out=zeros, where=self.norms > 0))

    def error(self) -> float:
        """‖L − Σ w_k g_k‖²/‖L‖²."""
        own = self.columns[:, self.places]
        towards = 2 * self.learnt @ self.toward[self.places]
        missing = float(self.square - towards + self.learnt @ own @ self.learnt)
        return max(missing, 0.0) / max(self.square, np.finfo(float).tiny)

    def best(self, among: Array) -> tuple[int, float]:
        """The point whose direction the difference has most of, and how much."""
        scores = np.where(among & (self.norms > 0), self.correlations(), -np.inf)
        place = lowest(-scores, np.arange(len(scores)))
        return place, float(scores[place])

    def finish(self, growth: Growth) -> None:
        """Hand the weights over, in the order of selection."""
        growth.order = [place for place in growth.order if place in self.numbers]
        growth.weights = np.array([self.learnt[self.numbers[place]] for place in growth.order])


class OrthogonalPursuit(Match):
    """Take the point that correlates most with what is missing, then fit all weights >= 0 anew.

    A point whose weight is zero leaves.
    """

    def __init__(self, operator: KernelOperator, weights: Tensor, capacity: int) -> None:
        super().__init__(operator, weights, capacity)
        self._lower = torch.zeros(0, 0, dtype=torch.float64)
        self._factored = list[int]()

    def run(self, growth: Growth) -> None:
        """Until the size is reached or no point lowers the error."""
        given = list(growth.order)
        for place in given:
            self.touch(place)
        self._fit(given)
        try:
            while growth.wants():
                if not (growth.open & (self.norms > 0)).any():
                    break
                best, correlation = self.best(growth.open)
                if correlation <= NEGLIGIBLE * self.square**0.5:
                    break
                self.touch(best)
                self._fit([*growth.order, best])
                growth.take(best)
                self._leave(growth)
        finally:
            self.finish(growth)

    def _fit(self, support: list[int]) -> None:
        """Least squares with weights >= 0 on the support.

        While no weight is at its bound, a factor bordered by the new point gives them; otherwise
        Lawson and Hanson's active set does, from the weights at hand.
        """
        numbers = [self.numbers[place] for place in support]
        if not support:
            return
        solved = self._bordered(numbers, support)
        if solved is None:
            gram = self.columns[np.ix_(numbers, support)]
            right = self.toward[support]
            solved = non_negative_least_squares(gram, right, self.learnt[numbers])
            self._factored = []
        self.learnt = np.zeros_like(self.learnt)
        self.learnt[numbers] = solved

    def _bordered(self, numbers: list[int], support: list[int]) -> Array | None:
        """The unconstrained solution, if every weight of it is positive."""
        if len(support) > 1 and self._factored == support[:-1]:
            factored = self._border(self.columns[numbers[-1], support])
        else:
            factored = self._factor(self.columns[np.ix_(numbers, support)])
        if not factored:
            return None
        self._factored = list(support)
        right = torch.from_numpy(self.toward[support])[:, None]
        solved = torch.cholesky_solve(right, self._lower)[:, 0].numpy()
        return solved if (solved > 0).all() else None

    def _border(self, products: Array) -> bool:
        """Grow the factor by a point; False where the others already span it."""
        gram = torch.from_numpy(products)
        gram[-1] *= 1 + JITTER
        size = len(gram) - 1
        row = torch.linalg.solve_triangular(self._lower, gram[:size, None], upper=False)[:, 0]
        rest = float(gram[size] - row @ row)
        if rest <= JITTER * float(gram[size]):
            return False
        self._lower = torch.nn.functional.pad(self._lower, (0, 1, 0, 1))
        self._lower[size, :size] = row
        self._lower[size, size] = rest**0.5
        return True

    def _factor(self, products: Array) -> bool:
        """Factor all anew; False where rounding does not allow it."""
        whole = torch.from_numpy(products)
        whole.diagonal().mul_(1 + JITTER)
        self._lower, failed = torch.linalg.cholesky_ex(whole)
        return not int(failed)

    def _leave(self, growth: Growth) -> None:
        """Drop the points of weight zero, and note the error with those that stay."""
        growth.order = [place for place in growth.order if self.learnt[self.numbers[place]] > 0]
        growth.objectives = [*growth.objectives[: max(len(growth.order) - 1, 0)], self.error()]


def non_negative_least_squares(gram: Array, right: Array, start: Array) -> Array:
    """min ½wᵀGw − rᵀw over w >= 0, from a feasible ``start``."""
    weights = np.maximum(start, 0.0)
    scale = float(np.abs(right).max()) or 1.0
    active = weights > 0
    for _ in range(3 * len(right) + 10):  # rounding may bring it round in circles
        checkpoint()
        gradient = right - gram @ weights
        if not active.any() or np.abs(gradient[active]).max() <= STATIONARY * scale:
            waiting = np.where(active, -np.inf, gradient)
            entering = int(waiting.argmax())
            if waiting[entering] <= STATIONARY * scale:
                break
            active[entering] = True
        weights, active = _toward_solution(gram, right, weights, active)
    return weights


def _toward_solution(
    gram: Array, right: Array, weights: Array, active: Array
) -> tuple[Array, Array]:
    """Solve on the active set, without leaving the cone.

    Where the solution leaves it, go as far as the border and drop what lies on it, until it does
    not.
    """
    while True:
        places = np.flatnonzero(active)
        solved = _solved(gram[np.ix_(places, places)], right[places])
        inside = bool((solved > 0).all())
        reached = solved if inside else _to_border(weights[places], solved)
        weights = np.zeros_like(weights)
        weights[places] = reached
        if inside:
            return weights, active
        active = weights > 0
        if not active.any():
            return weights, active


def _solved(gram: Array, right: Array) -> Array:
    """Solve the normal equations, with a little on their diagonal."""
    size = len(right)
    mean = np.trace(gram) / max(size, 1)
    return np.asarray(np.linalg.solve(gram + JITTER * max(mean, 1e-300) * np.eye(size), right))


def _to_border(current: Array, solved: Array) -> Array:
    """From weights in the cone as far towards ``solved`` as it reaches; at least one becomes 0."""
    falling = solved <= 0
    drops = np.maximum(current[falling] - solved[falling], np.finfo(float).tiny)
    share = float(np.min(current[falling] / drops))
    moved = current + min(share, 1.0) * (solved - current)
    moved[falling & (moved <= ON_BORDER * max(moved.max(), 0.0))] = 0.0
    moved[np.flatnonzero(falling)[np.argmin(moved[falling])]] = 0.0
    return np.asarray(np.maximum(moved, 0.0))


class FrankWolfe(Match):
    """Move towards the vertex (σ/σ_k) g_k that correlates most with what is missing.

    σ_i = ‖g_i‖ and σ = Σ v_i σ_i.
    """

    def __init__(self, operator: KernelOperator, weights: Tensor, capacity: int) -> None:
        super().__init__(operator, weights, capacity)
        self.sigma = float(weights.double().cpu().numpy() @ self.norms)

    def run(self, growth: Growth) -> None:
        """Until the size is reached, no point lowers the error, or the steps are used up."""
        try:
            growth.order = [place for place in growth.order if self.norms[place] > 0]
            for place in growth.order:
                self._step(place)
            for _ in range(STEPS_A_POINT * growth.size):
                if not growth.wants():
                    break
                among = growth.open.copy()
                among[growth.order] = True
                best, _ = self.best(among)
                if not self._step(best):
                    break
                if growth.open[best]:
                    growth.take(best, self.error())
                else:
                    growth.objectives[-1:] = [self.error()]
        finally:
            self.finish(growth)

    def _step(self, place: int) -> bool:
        """w ← (1 − γ)w + γ(σ/σ_k)e_k with the γ in 0 … 1 that leaves the smallest error.

        False where no such step lowers it.
        """
        number = self.touch(place)
        vertex = np.zeros_like(self.learnt)
        vertex[number] = self.sigma / max(self.norms[place], np.finfo(float).tiny)
        if len(self.places) == 1:
            self.learnt = vertex
            return True
        direction = vertex - self.learnt
        gram = self.columns[:, self.places]
        slope = float(direction @ (self.toward[self.places] - gram @ self.learnt))
        curvature = float(direction @ gram @ direction)
        if slope <= NEGLIGIBLE * self.square or curvature <= 0:
            return False
        self.learnt = self.learnt + min(slope / curvature, 1.0) * direction
        return True

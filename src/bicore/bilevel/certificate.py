"""Every objective that is reported, computed again: one fit in float64 that shares nothing with the
engine but the numbers of the kernel.

Rank-one updates lose digits where k(x, x)/ρ is large, fits stop where their precision ends, and a
coreset that is worth nothing can then come with a fine number. So the points and weights that are
handed out are fitted once more from nothing, from m columns of the kernel matrix. The numbers of
the kernel are rounded themselves, and more where it takes differences of nearly equal points; what
that may do to the objective is seen by changing the last digits of the points and fitting again.
Both differences together stay within the stated tolerance; where it is the numbers of the kernel
alone that leave more open, the coreset says how much, and beyond a thousandth it is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.last_digits import (
    DRAWS,
    SAFETY,
    Draws,
    Redrawn,
    kernel_of,
    rounding_of,
    spread_of,
)
from bicore.bilevel.prepare import Prepared
from bicore.bilevel.problem import finite_objective
from bicore.bilevel.solvers.inner import LBFGS, InnerProblem, InnerSolver, Newton, Ridge
from bicore.bilevel.solvers.linear import Adaptive
from bicore.data import Array
from bicore.errors import NumericalError
from bicore.kernels.operators import KernelOperator
from bicore.runtime import unhurried

#: A reported objective is right to this share of itself, by the precision of the kernel …
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
#: … or of this share of the objective of no points, where it is smaller: a fit that leaves less has
#: nothing left to explain, and what is left of it is a difference of equal numbers.
FLOOR = 1e-3
#: The rounding of the kernel's numbers may leave more open, which is then said, up to this share.
MOST_OPEN = 1e-3
#: The relative residual that an iterative refit is asked for; a hundred times as much still serves.
RESIDUAL = 1e-10
#: That of the linear system of one step more.
STEP_RESIDUAL = 1e-3


def certified(
    prepared: Prepared,
    points: Sequence[int] | Array,
    weights: Sequence[float] | Array,
    reported: float,
) -> float:
    """Compute the objective of these points again; an error where it is not what was reported.

    Returns by how much more than the tolerance the rounding of the kernel leaves it open: 0 for
    nearly all. What a solver gave that stops where it likes (:func:`promised`) stands: no other fit
    is its own.
    """
    if not promised(prepared.solvers.inner):
        return 0.0
    train = prepared.problem.train
    with unhurried():  # whatever is handed out is checked, also when the time is over
        refit = Refit(prepared, points, weights)
        difference = abs(reported - refit.objective)
        # Where they differ by too much there is nothing left to see.
        uncertain = refit.uncertainty(difference) if refit.allows(difference) else 0.0
    if refit.allows(difference + uncertain):
        return 0.0
    if not refit.allows(difference) or uncertain > MOST_OPEN * refit.objective:
        raise NumericalError(
            f"the objective of {refit.size} points came out as {reported:.9g}; fitted again in "
            f"float64 they have {refit.objective:.9g}, give or take {uncertain:.2g} by the "
            f"rounding of a {precision(train)} kernel whose k(x, x)/ρ is up to "
            f"{refit.ratio:.2g}. They must agree to {refit.tolerance:.2g}; "
            f"{mend(train, 'inner_reg')}."
        )
    return uncertain


def promised(solver: InnerSolver) -> bool:
    """Whether a solver fits the inner problem as well as the precision allows, or raises.

    A lenient one, one with a tolerance of its own and one from elsewhere promise less.
    """
    if isinstance(solver, Newton):
        return solver.tolerance is None
    return isinstance(solver, Ridge) or (isinstance(solver, LBFGS) and not solver.lenient)


def precision(operator: KernelOperator) -> str:
    """The dtype of a kernel matrix in a word."""
    return str(operator.like.dtype).removeprefix("torch.")


def mend(operator: KernelOperator, regulariser: str) -> str:
    """What to do about a kernel matrix whose rounding is too much."""
    first = "" if precision(operator) == "float64" else "float64, "
    return f"use {first}a larger {regulariser}, or scale x"


class Refit:
    """The fit of given points from nothing, in float64, and the outer objective of it."""

    def __init__(
        self, prepared: Prepared, points: Sequence[int] | Array, weights: Sequence[float] | Array
    ) -> None:
        problem = self.problem = prepared.problem
        every = np.asarray(weights, dtype=np.float64)
        counted = every > 0  # the others are no part of any fit, and ρ does not count them
        chosen = np.asarray(points, dtype=np.int64)[counted]
        self.size = len(chosen)
        self.rho = problem.regulariser.rho(self.size)
        self.outer_weights = problem.outer_weights.double()
        self.outer_targets = problem.outer_targets.double()
        self.ratio = 0.0
        if not self.size:
            self.objective = self.empty
            return
        device = problem.train.like.device
        self.heaviest = float(every.max())
        self.weights = torch.from_numpy(every[counted]).to(device)
        self.index = torch.from_numpy(chosen).to(device)
        self.targets = problem.inner_targets[self.index].double()
        self.kernel = kernel_of(prepared, chosen, self.index)
        self.gram = self.kernel.gram
        self.largest = float(self.gram.diagonal().max())
        self.ratio = self.largest * self.heaviest / self.rho
        self.alpha = self._fitted(self.gram)
        self.predictions = self.kernel.predictions(self.alpha)
        self.objective = self._value(self.predictions)

    @cached_property
    def empty(self) -> float:
        """The objective of no points."""
        shape = (len(self.outer_targets), self.problem.outputs)
        return self._value(self.outer_targets.new_zeros(shape))

    @property
    def tolerance(self) -> float:
        """How far a reported objective may be from this one."""
        return self._share * max(self.objective, FLOOR * self.empty)

    @property
    def _share(self) -> float:
        return TOLERANCE[self.problem.train.like.dtype]

    def allows(self, error: float) -> bool:
        """Whether an error is within the tolerance; most are, without a look at no points."""
        return error <= self._share * self.objective or error <= self.tolerance

    def _value(self, predictions: Tensor) -> float:
        losses = self.problem.outer_loss.value(predictions, self.outer_targets)
        return finite_objective(float(torch.dot(losses, self.outer_weights)))

    def _fitted(self, gram: Tensor) -> Tensor:
        loss = self.problem.inner_loss
        if loss.quadratic:
            matrix = gram.clone()
            matrix.diagonal().add_(self.rho / self.weights)
            return torch.cholesky_solve(self.targets, factor(matrix, "inner_reg"))
        inner = self._inner(gram)
        start = torch.zeros_like(inner.targets)
        alpha = Newton(tolerance=RESIDUAL).solve(inner, start).alpha
        return (alpha + self._step(inner, alpha)).to(gram.device)

    def _inner(self, gram: Tensor) -> InnerProblem:
        """The fit with the host, where small matrices are quicker than on any device."""
        host = [one.cpu() for one in (gram, self.targets, self.weights)]
        return InnerProblem(host[0], host[1], host[2], self.rho, self.problem.inner_loss)

    def _step(self, inner: InnerProblem, alpha: Tensor) -> Tensor:
        """A step of Newton's method: by how much coefficients are off, as far as can be seen."""
        predictions = inner.gram @ alpha
        system = inner.system(predictions)
        residual = inner.residual(alpha, predictions)[0]
        return Adaptive().solve(system, -residual, STEP_RESIDUAL).z

    def _unsolved(self) -> float:
        """What another step would do to the objective: residuals are small beside the data, and
        with them may be all that decides it."""
        if self.problem.inner_loss.quadratic:
            return 0.0
        step = self._step(self._inner(self.gram), self.alpha.cpu()).to(self.alpha.device)
        return abs(self._value(self.kernel.predictions(self.alpha + step)) - self.objective)

    def uncertainty(self, difference: float) -> float:
        """What the rounding of the kernel's numbers may do to the objective: a bound where that is
        enough for what differs already, and what it does where not."""
        if not self.size:
            return 0.0
        draws = Draws(rounding_of(self.problem.train), self.weights)
        first = self.kernel.redrawn(draws)
        unsolved = self._unsolved()
        bound = unsolved + self._bound(first.worst)
        if self.allows(difference + bound):
            return bound
        others = [first, *(self.kernel.redrawn(draws) for _ in range(DRAWS - 1))]
        values = [self._value(self._moved(one, draws)) for one in others]
        return unsolved + spread_of(values, self.objective)

    def _moved(self, other: Redrawn, draws: Draws) -> Tensor:
        """The predictions when the kernel's last digits are others."""
        alpha = self._fitted(other.kernel.gram)
        moved = other.kernel.predictions(alpha)
        moved.addcmul_(other.kernel.spread(alpha), draws.normal(moved), value=other.usual)
        same = self.kernel.same
        moved[same.outer] = (other.kernel.gram @ alpha)[same.points]
        return moved

    def _bound(self, share: float) -> float:
        """More than numbers off by chance by this share of √(k_ii k_jj) do, to first order.

        With A the weighted curvature, δh = δK α − K[:, S](2ρ + A K_SS)⁻¹A δK_SS α, where a row of
        K[:, S](2ρ + A K_SS)⁻¹A has a norm of at most ½ √(k a/2ρ).
        """
        loss = self.problem.inner_loss
        outputs = self.problem.outputs
        steepest = 2 * self.heaviest
        if not loss.quadratic:
            curvature = loss.curvature(self.gram @ self.alpha, self.targets).scaled(self.weights)
            steepest = float(curvature.typical().max()) * outputs  # a trace
        largest = max(self.largest, self.kernel.largest())
        across = 0.5 * math.sqrt(largest * steepest / (2 * self.rho))
        own = math.sqrt(self.largest) * float(torch.linalg.vector_norm(self.alpha))
        shift = SAFETY * share * math.sqrt(largest) * own * (1 + across)
        if self.problem.outer_loss.quadratic:
            slope = 2 * math.sqrt(outputs * self.objective)
        else:
            slopes = self.problem.outer_loss.gradient(self.predictions, self.outer_targets)
            slope = float(torch.mv(slopes.abs().T, self.outer_weights).sum())
        return shift * slope + outputs * shift**2


def factor(matrix: Tensor, regulariser: str) -> Tensor:
    """The Cholesky factor of K_SS with its diagonal raised, or an error in words."""
    lower: Tensor
    lower, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed):
        raise NumericalError(
            "the points chosen cannot be fitted again in float64: their kernel matrix is not "
            f"positive definite with {regulariser} on its diagonal; use a larger {regulariser}, "
            "scale x, or another kernel."
        )
    return lower

"""Verify a reported objective: fit the chosen points again in float64 and compare.

Rank-one updates lose digits if k(x, x)/ρ is large, and iterative fits stop at a tolerance. So the
points and weights of an answer are fitted once more, from their columns of the kernel matrix alone.
If the objectives differ, the answer is kept: its status, a note and a warning say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bicore.bilevel.prepare import Prepared
from bicore.bilevel.problem import Problem, finite_objective
from bicore.bilevel.solvers.inner import LBFGS, Adaptive, InnerProblem, InnerSolver, Newton, Ridge
from bicore.coreset import Coreset, mark_unverified
from bicore.data import Array
from bicore.errors import NumericalError
from bicore.kernels.operators import KernelOperator, multiply_columns, square_block
from bicore.numerics.linear_algebra import cholesky_factor
from bicore.runtime.clock import without_time_limit

#: Largest relative difference between a reported and a refitted objective, by the kernel's dtype.
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
#: The difference is relative to at least this share of the objective of an empty coreset: smaller
#: objectives are differences of nearly equal numbers.
FLOOR = 1e-3
#: Relative residual of an iterative refit.
RESIDUAL = 1e-10
#: Relative residual of the linear system of its last Newton step.
STEP_RESIDUAL = 1e-3


@dataclass(frozen=True)
class Verification:
    """The objective to report, and a note if it differs from the engine's."""

    objective: float
    note: str = ""

    def apply(self, coreset: Coreset) -> Coreset:
        """Return the coreset, marked as unverified if the objectives differ."""
        return mark_unverified(coreset, self.note, self.objective) if self.note else coreset


def verify_objective(
    prepared: Prepared,
    points: Sequence[int] | Array,
    weights: Sequence[float] | Array,
    reported: float,
) -> Verification:
    """Fit the points again in float64 and compare the objective with the reported one."""
    if not is_exact(prepared.solvers.inner):
        return Verification(reported)
    train = prepared.problem.train
    try:
        with without_time_limit():  # the answer is verified even if the time limit has passed
            objective = refit_objective(prepared.problem, points, weights)
    except NumericalError as error:
        return Verification(reported, f"objective: not verified, the refit failed ({error})")
    share, difference = TOLERANCE[train.like.dtype], abs(reported - objective)
    # In nearly all cases the empty objective is not needed.
    if difference <= share * objective or (
        difference <= share * FLOOR * _empty_objective(prepared.problem)
    ):
        return Verification(reported)
    note = (
        f"objective: {objective:.9g} by a refit in float64; the selection computed {reported:.9g}, "
        f"a relative difference above {share:g}; {suggest_fix(train, 'inner_reg')}"
    )
    return Verification(objective, note)


def verify_coreset(prepared: Prepared, coreset: Coreset) -> Coreset:
    """Verify the last objective of a coreset."""
    if not len(coreset.objectives):
        return coreset
    reported = float(coreset.objectives[-1])
    return verify_objective(prepared, coreset.indices, coreset.weights, reported).apply(coreset)


def is_exact(solver: InnerSolver) -> bool:
    """Whether a solver fits to machine precision, so that a refit must agree with it."""
    if isinstance(solver, Newton):
        return solver.tolerance is None
    return isinstance(solver, Ridge) or (isinstance(solver, LBFGS) and not solver.lenient)


def suggest_fix(operator: KernelOperator, regulariser: str) -> str:
    """Say how to make the kernel matrix better conditioned."""
    first = "" if operator.like.dtype == torch.float64 else "float64, "
    return f"use {first}a larger {regulariser}, or scale x"


def refit_objective(
    problem: Problem, points: Sequence[int] | Array, weights: Sequence[float] | Array
) -> float:
    """Fit weighted points in float64 and return the outer objective of the fit."""
    every = np.asarray(weights, dtype=np.float64)
    counted = every > 0  # points of weight 0 are not part of the fit, and ρ does not count them
    device = problem.train.like.device
    index = torch.from_numpy(np.asarray(points, dtype=np.int64)[counted]).to(device)
    if not len(index):
        return _empty_objective(problem)
    gram = square_block(problem.train, index)
    alpha = _fit(problem, gram, index, torch.from_numpy(every[counted]).to(device))
    return _objective_of(problem, multiply_columns(problem.cross, index, alpha))


def _empty_objective(problem: Problem) -> float:
    """Return the objective of an empty coreset."""
    targets = problem.outer_targets.double()
    return _objective_of(problem, targets.new_zeros((len(targets), problem.outputs)))


def _objective_of(problem: Problem, predictions: Tensor) -> float:
    """Return the outer objective of predictions in float64."""
    losses = problem.outer_loss.value(predictions, problem.outer_targets.double())
    return finite_objective(float(torch.dot(losses, problem.outer_weights.double())))


def _fit(problem: Problem, gram: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Return the coefficients of the inner problem, fitted from zero."""
    rho = problem.regulariser.rho(len(index))
    targets = problem.inner_targets[index].double()
    if problem.inner_loss.quadratic:
        matrix = gram.clone()
        matrix.diagonal().add_(rho / weights)
        return torch.cholesky_solve(targets, cholesky_factor(matrix))
    # Small matrices are faster on the CPU than on any other device.
    inner = InnerProblem(gram.cpu(), targets.cpu(), weights.cpu(), rho, problem.inner_loss)
    alpha: Tensor = Newton(tolerance=RESIDUAL).solve(inner, torch.zeros_like(inner.targets)).alpha
    predictions = inner.gram @ alpha
    residual = inner.residual(alpha, predictions)[0]
    step = Adaptive().solve(inner.system(predictions), -residual, STEP_RESIDUAL).z
    return (alpha + step).to(gram.device)

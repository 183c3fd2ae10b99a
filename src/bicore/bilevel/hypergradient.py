"""The implicit gradient of the outer objective in the weight of every point, chosen or not.

With R the rows v_j ∇ℓ_j(h_j) of the outer set and V = Kᵀ R:

    z   solves (2ρ I + A K_SS) z = A V_S
    u   = (V − K[:, S] z) / 2ρ              the function H⁻¹∇G at every point
    ∂G/∂w_k = −⟨g_k, u_k⟩                   ∂G/∂ρ = −2⟨α, u_S⟩

One product K·R and one small solve give the exact score of all n points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.linear import LinearSolver, NewtonSystem
from bicore.bilevel.support import Support

#: Relative residual asked of the linear system; its error enters the scores linearly.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}


@dataclass(frozen=True, eq=False)
class Hypergradient:
    """∂G/∂w of the points asked for, what the linear system took, and ∂G/∂ρ where only the chosen
    points were asked for."""

    scores: Tensor
    products: int
    rho: float = math.nan


@dataclass(frozen=True, eq=False)
class Point:
    """Where the gradient is taken: a fit on a support with its system, and the outer set's
    predictions."""

    support: Support
    alpha: Tensor
    predictions: Tensor
    system: NewtonSystem | None
    rho: float


def implicit_gradient(
    problem: Problem, point: Point, linear: LinearSolver, columns: Tensor | None = None
) -> Hypergradient:
    """∂G/∂w_k for every training point, or for ``columns`` only."""
    slopes = problem.outer_slopes(point.predictions)
    right = problem.weighed(slopes)
    values = problem.cross.transposed_matmul(right, columns)
    if point.system is None:  # the empty coreset predicts zero
        targets = _rows(problem.inner_targets, columns)
        gradients = problem.inner_loss.gradient(torch.zeros_like(values), targets)
        return Hypergradient(-(gradients * values).sum(1) / (2 * point.rho), 0)
    # V at the chosen points: among the values already, unless only some columns were asked for.
    on_support = values[point.support.index] if columns is None else point.support.outer @ right
    solved = linear.solve_range(point.system, on_support, TOLERANCE[on_support.dtype])
    rows = point.support.train if columns is None else point.support.train[:, columns]
    function = torch.addmm(values, rows.T, solved.z, alpha=-1).mul_(1 / (2 * point.rho))
    if problem.one_model:
        gradients = _rows(slopes, columns)  # of the same loss at the same predictions
    else:
        gradients = _inner_slopes(problem, point, columns)
    return Hypergradient(-(gradients * function).sum(1), point.system.products)


def first_order(problem: Problem, point: Point, columns: Tensor | None = None) -> Tensor:
    """−⟨g_k, (K R)_k⟩: the gradient with the identity in place of the inverse Hessian, as GLISTER
    takes it; no system is solved."""
    values = problem.cross.transposed_matmul(problem.outer_gradient(point.predictions), columns)
    return -(_inner_slopes(problem, point, columns) * values).sum(1)


def _inner_slopes(problem: Problem, point: Point, columns: Tensor | None) -> Tensor:
    """g_k of the training points asked for."""
    if problem.same:
        fitted = _rows(point.predictions, columns)
    else:
        train = point.support.train
        fitted = (train if columns is None else train[:, columns]).T @ point.alpha
    return problem.inner_loss.gradient(fitted, _rows(problem.inner_targets, columns))


def _rows(values: Tensor, columns: Tensor | None) -> Tensor:
    return values if columns is None else values[columns]


def support_gradient(problem: Problem, point: Point, linear: LinearSolver) -> Hypergradient:
    """∂G/∂w of the chosen points alone: no product over the training points."""
    assert point.system is not None
    right = problem.outer_gradient(point.predictions)
    on_support = point.support.outer @ right
    solved = linear.solve_range(point.system, on_support, TOLERANCE[on_support.dtype])
    corrected = on_support - point.support.gram @ solved.z
    own = problem.inner_targets[point.support.index]
    gradients = problem.inner_loss.gradient(point.support.gram @ point.alpha, own)
    scores = -(gradients * corrected).sum(1) / (2 * point.rho)
    rho = -float((point.alpha * corrected).sum()) / point.rho
    return Hypergradient(scores, point.system.products, rho)

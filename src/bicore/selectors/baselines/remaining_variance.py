"""Compute again, in float64, the posterior variance that chosen points leave.

Each form has few differences of nearly equal numbers: with fewer features than points, the variance
is a sum of squares; otherwise it comes from the points' columns of the kernel matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bicore.bilevel.verification import TOLERANCE, split_rows, suggest_fix
from bicore.errors import NumericalError
from bicore.kernels.operators import KernelOperator
from bicore.numerics.linear_algebra import cholesky_factor


def verify_variance(
    train: KernelOperator,
    outer: KernelOperator,
    prior: Tensor,
    weights: Tensor,
    noise: float,
    points: Sequence[int],
    reported: float,
) -> tuple[float, str]:
    """Return the variance that the points leave, and a note if it is not the reported one."""
    try:
        value = remaining_variance(train, outer, prior, weights, noise, points)
    except NumericalError as error:
        return reported, f"objective: not verified, computing it again failed ({error})"
    share = TOLERANCE[train.like.dtype]
    if abs(reported - value) <= share * value:
        return reported, ""
    return value, (
        f"objective: {value:.9g} computed again in float64; the selection computed "
        f"{reported:.9g}, which differs by more than {share:g} of it; {suggest_fix(train, 'noise')}"
    )


def remaining_variance(
    train: KernelOperator,
    outer: KernelOperator,
    prior: Tensor,
    weights: Tensor,
    noise: float,
    points: Sequence[int],
) -> float:
    """Return G(S) = ½ Σ_i v_i K'_ii over the outer set, given its prior variances and weights."""
    index = torch.tensor(list(points), dtype=torch.long, device=train.like.device)
    own, other = train.feature_rows, outer.feature_rows
    if own is not None and other is not None:
        variances = _from_features(other[0], own[1][index].double(), noise)
    else:
        columns = outer.columns(index)
        square = (columns if outer is train else train.columns(index))[index].double()
        lower = _factor(square, noise)
        known = [_squared_norms(lower, block.T) for block in split_rows(columns)]
        variances = prior.double() - torch.cat(known)
    return 0.5 * float(weights.double() @ variances)


def _from_features(outer: Tensor, rows: Tensor, noise: float) -> Tensor:
    """Posterior variances at the outer rows, from the features of both."""
    if rows.shape[1] <= len(rows):  # (I + ΦᵀΦ/σ²)⁻¹ directly, without differences
        lower = _factor(rows.T @ rows / noise, 1.0)
        return torch.cat([_squared_norms(lower, block.T) for block in split_rows(outer)])
    lower = _factor(rows @ rows.T, noise)
    blocks = split_rows(outer)
    left = [block.square().sum(1) - _squared_norms(lower, rows @ block.T) for block in blocks]
    return torch.cat(left)


def _factor(matrix: Tensor, diagonal: float) -> Tensor:
    """The Cholesky factor with a number added to the diagonal."""
    matrix = matrix.clone()
    matrix.diagonal().add_(diagonal)
    return cholesky_factor(matrix, "noise")


def _squared_norms(lower: Tensor, columns: Tensor) -> Tensor:
    """‖L⁻¹c‖² of every column c."""
    halves: Tensor = torch.linalg.solve_triangular(lower, columns, upper=False)
    return halves.square().sum(0)

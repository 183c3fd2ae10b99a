"""Columns and products of a kernel operator in float64, whatever precision it is stored in.

What exact exchanges subtract from one another is larger than what is left by up to the condition of
K_SS + ρI. Rounding of one matrix plays no part in that as long as everything comes from the same
one: its stored numbers are read as they are, and multiplied in float64. A matrix that is evaluated
again for every product stays in its own precision; twice the time would be the price.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bicore.kernels.operators import KernelOperator

#: Numbers of a stored matrix that are copied to float64 at a time.
BLOCK = 1 << 22


def columns(operator: KernelOperator, index: Tensor) -> Tensor:
    """K[:, index]."""
    features = operator.feature_rows
    if features is None or _double(operator):
        return operator.columns(index).double()
    rows, cols = features
    return rows.double() @ cols[index].double().T


def diagonal(operator: KernelOperator) -> Tensor:
    """The diagonal of a square operator."""
    features = operator.feature_rows
    if features is None or _double(operator):
        return operator.diagonal().double()
    rows, cols = features
    return (rows.double() * cols.double()).sum(1)


def transposed_matmul(operator: KernelOperator, right: Tensor) -> Tensor:
    """Kᵀ @ right, for a right side in float64."""
    if _double(operator):
        return operator.transposed_matmul(right)
    if operator.feature_rows is not None:
        rows, cols = operator.feature_rows
        return cols.double() @ (rows.double().T @ right)
    matrix = operator.matrix_or_none
    if matrix is None:
        return operator.transposed_matmul(right.to(operator.like)).double()
    return torch.cat([part.double().T @ right for part in _parts(matrix)])


def weighted_column_norms(operator: KernelOperator, weights: Tensor) -> Tensor:
    """Σ_j weights_j K_jk² for every column k, for weights in float64."""
    if _double(operator):
        return operator.weighted_column_norms(weights).double()
    if operator.feature_rows is not None:
        rows, cols = (part.double() for part in operator.feature_rows)
        return ((cols @ (rows.T @ (weights[:, None] * rows))) * cols).sum(1)
    matrix = operator.matrix_or_none
    if matrix is None:
        return operator.weighted_column_norms(weights.to(operator.like)).double()
    return torch.cat([weights @ part.double().square() for part in _parts(matrix)])


def _double(operator: KernelOperator) -> bool:
    return operator.like.dtype == torch.float64


def _parts(matrix: Tensor) -> Iterator[Tensor]:
    """Some columns at a time."""
    width = max(1, BLOCK // max(len(matrix), 1))
    for start in range(0, matrix.shape[1], width):
        yield matrix[:, start : start + width]

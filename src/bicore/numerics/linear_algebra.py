"""Products of tall matrices in interruptible parts, and conjugate gradients.

An inner product is given by what it pairs a vector with: K v in the K-inner product, v itself in
the ordinary one. ``precondition(r)`` returns P r and its pair, ``image(d, pair)`` the operator's
image of a direction d. The pair of a direction is carried along by the same recurrence as the
direction, and no further product is needed for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import NumericalError
from bicore.runtime.clock import checkpoint
from bicore.runtime.threads import all_threads

#: Multiplications of one part: about a tenth of a second on one core.
PART = 1 << 30
#: Iterations on a GPU between two readings of the residual.
UNREAD_ITERATIONS = 6
#: Number of attempts to add to the diagonal of a Gram matrix, each with ten times more.
JITTERS = 20

Numbers = TypeVar("Numbers", Tensor, Array)
Precondition = Callable[[Tensor], tuple[Tensor, Tensor]]
Image = Callable[[Tensor, Tensor], Tensor]


def height(multiplications: int) -> int:
    """Return the number of rows of a part, if each row costs this many multiplications."""
    return max(1, PART // max(multiplications, 1))


def transposed_product(left: Tensor, right: Tensor, weights: Tensor | None = None) -> Tensor:
    """Compute leftᵀ right, or leftᵀ diag(weights) right, of two tall matrices."""
    width = right.shape[1] if right.dim() > 1 else 1
    step = height(left.shape[1] * width)
    total: Tensor | None = None
    with all_threads(left.numel() * width):
        for top in range(0, max(len(left), 1), step):
            checkpoint()
            part = right[top : top + step]
            if weights is not None:
                part = weights[top : top + step, None] * part
            found = left[top : top + step].T @ part
            total = found if total is None else total.add_(found)
    assert total is not None
    return total


def weighted_gram(rows: Tensor, weights: Tensor) -> Tensor:
    """Compute rowsᵀ diag(weights) rows in float64, of a tall matrix and weights ≥ 0."""
    if rows.is_cuda:
        return transposed_product(rows, rows, weights).double()
    from scipy.linalg import blas  # imported late: it takes time

    width = rows.shape[1]
    total = np.zeros((width, width), order="F")
    double = rows.dtype == torch.float64
    with all_threads(rows.numel() * width / 2):
        step = height(width * width // 2)
        for top in range(0, len(rows), step):
            checkpoint()
            part = (weights[top : top + step].sqrt()[:, None] * rows[top : top + step]).numpy().T
            if double:
                blas.dsyrk(1.0, part, beta=1.0, c=total, overwrite_c=True)
            else:
                total += blas.ssyrk(1.0, part)
    whole = torch.from_numpy(total.T)
    return whole.add_(whole.tril(-1).T)


def tall_product(left: Tensor, right: Tensor) -> Tensor:
    """Compute left @ right for a tall left matrix."""
    step = height(right.numel())
    with all_threads(len(left) * right.numel()):
        if step >= len(left):
            checkpoint()
            return left @ right
        result = left.new_empty(len(left), *right.shape[1:])
        for top in range(0, len(left), step):
            checkpoint()
            result[top : top + step] = left[top : top + step] @ right
        return result


def row_products(left: Numbers, right: Numbers) -> Numbers:
    """Compute ⟨a_i, b_i⟩ for every row of two tensors or arrays."""
    if not isinstance(left, Tensor):
        # one pass without a matrix of products takes half the time
        return np.asarray(np.einsum("nc,nc->n", left, right))
    if left.is_cuda:
        return (left * right).sum(1)
    return torch.from_numpy(row_products(left.numpy(), right.numpy()))


def symmetric_product(lower: Any, right: Any, scale: float = 1.0) -> Any:
    """Multiply a matrix by a symmetric one, reading its lower triangle only."""
    from scipy.linalg import blas  # imported late: it takes time

    multiply = blas.ssymm if lower.dtype == np.float32 else blas.dsymm
    with all_threads(float(lower.size) * right.shape[1]):
        return multiply(scale, lower, right, lower=1)


def exact_gain(slopes: Any, energy: Any, squares: Any, divisor: Any) -> Any:
    """Compute s/d − e‖r‖²/d², the decrease of a ridge objective if a point joins or leaves.

    With the posterior kernel K', the residuals r and the weights D of the outer set, a point that
    joins has s = 2⟨(K'Dr)_k, r_k⟩, e = (K'DK')_kk and d = ρ + K'_kk. For tensors and arrays.
    """
    return (slopes - energy * squares / divisor) / divisor


def cholesky_factor(matrix: Tensor, regulariser: str = "inner_reg") -> Tensor:
    """Return the Cholesky factor, or raise an error that names the regulariser."""
    lower: Tensor
    lower, failed = torch.linalg.cholesky_ex(matrix)
    if bool(failed.any()):
        wrong = f"a kernel matrix with {regulariser} on its diagonal is not positive definite"
        fix = f"use float64, a larger {regulariser}, or scale x"
        raise NumericalError(f"{wrong} at this precision; {fix}.")
    return lower


def jittered_cholesky(matrix: Tensor, jitter: float) -> tuple[Tensor, float]:
    """Return the Cholesky factor of a Gram matrix with an increased diagonal, and the increase.

    The number grows while equal or dependent points, or rounding of the kernel, ask for it.
    """
    unit = torch.eye(len(matrix)).to(matrix)
    for _ in range(JITTERS):
        lower, failed = torch.linalg.cholesky_ex(matrix + jitter * unit)
        if not int(failed):
            return lower, jitter
        jitter *= 10
    raise NumericalError("the inner products of the chosen rows are not a Gram matrix.")


@dataclass(frozen=True, eq=False)
class Solved:
    """z, its relative residual, and the number of iterations."""

    z: Tensor
    reached: float
    iterations: int


def conjugate_gradients(
    right: Tensor,
    precondition: Precondition,
    image: Image,
    tolerance: float,
    iterations: int,
    null_space: Callable[[Tensor], Tensor] | None = None,
    indefinite: Callable[[float], Exception] | None = None,
) -> Solved:
    """Return z with operator(z) = right, to a relative residual of ``tolerance``.

    ``null_space`` solves for a residual whose energy is zero; ``indefinite`` builds the error that
    is raised if the operator shows a direction of no curvature. A GPU is asked how far it got only
    every few iterations.
    """
    goal = float(torch.linalg.vector_norm(right))
    run = ConjugateIteration(right, precondition, image)
    reached = 1.0 if goal else 0.0
    count = 0
    unasked = UNREAD_ITERATIONS if right.is_cuda else 1
    while count < iterations and reached > tolerance:
        checkpoint()
        steps = min(unasked, iterations - count)
        run.advance(steps)
        count += steps
        left = torch.linalg.vector_norm(run.residual)
        size, energy, curvature = torch.stack([left, run.energy, run.curvature]).tolist()
        if indefinite is not None and not curvature > 0:
            raise indefinite(curvature)
        reached = size / goal
        if math.isnan(energy):
            reached = math.nan
        elif reached > tolerance and energy <= 0 and null_space is not None:
            return Solved(run.z + null_space(run.residual), 0.0, count)
    return Solved(run.z, reached, count)


class ConjugateIteration:
    """Conjugate gradients whose numbers stay on the device.

    Once nothing is left but rounding, or what is left lies in the null space of the inner product
    (``energy`` 0), further iterations change nothing: a fixed number of them can be recorded.
    """

    def __init__(self, right: Tensor, precondition: Precondition, image: Image) -> None:
        self.precondition = precondition
        self.image = image
        self.z = torch.zeros_like(right)
        self.residual = right.clone()
        self.direction = self.z
        self.paired = self.z
        self.before = right.new_ones(())
        self.energy = self.before
        self.curvature = self.before
        self.least: Tensor | None = None

    def advance(self, count: int) -> None:
        """Make ``count`` iterations."""
        for _ in range(count):
            step, pair = self.precondition(self.residual)
            self.energy = (self.residual * pair).sum()
            if self.least is None:
                self.least = self.energy * torch.finfo(self.residual.dtype).eps ** 2
            ratio = self.energy / self.before
            self.direction = torch.addcmul(step, self.direction, ratio)
            self.paired = torch.addcmul(pair, self.paired, ratio)
            moved = self.image(self.direction, self.paired)
            going = self.energy > self.least
            self.curvature = (self.paired * moved).sum()
            length = torch.where(going, self.energy / self.curvature, 0.0)
            self.before = torch.where(going, self.energy, 1.0)
            self.z = torch.addcmul(self.z, self.direction, length)
            self.residual = torch.addcmul(self.residual, moved, length, value=-1)

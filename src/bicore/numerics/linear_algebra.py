"""Long products, some rows at a time, with a look at the clock before each part.

Conjugate gradients, once for all: in the K-inner product, in the ordinary one, on host or GPU.

An inner product is given by what it pairs a vector with: K v in the K-inner product, v itself in
the ordinary one. ``precondition(r)`` returns P r and its pair, ``image(d, pair)`` the operator's
image of a direction d. With one routine for both, the pair of a direction is carried along by the
same recurrence as the direction, and no further product is needed for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.runtime import checkpoint, wide

#: Multiplications of one part: about a tenth of a second on one core.
PART = 1 << 30


def height(multiplications: int) -> int:
    """Rows of a part, where each costs so many multiplications."""
    return max(1, PART // max(multiplications, 1))


def summed_over_rows(left: Tensor, right: Tensor, weights: Tensor | None = None) -> Tensor:
    """leftᵀ right, or leftᵀ diag(weights) right, of two matrices with many rows."""
    width = right.shape[1] if right.dim() > 1 else 1
    step = height(left.shape[1] * width)
    total: Tensor | None = None
    with wide(left.numel() * width):
        for top in range(0, max(len(left), 1), step):
            checkpoint()
            part = right[top : top + step]
            if weights is not None:
                part = weights[top : top + step, None] * part
            found = left[top : top + step].T @ part
            total = found if total is None else total.add_(found)
    assert total is not None
    return total


def row_by_row(left: Tensor, right: Tensor) -> Tensor:
    """left @ right of a left matrix with many rows."""
    step = height(right.numel())
    with wide(len(left) * right.numel()):
        if step >= len(left):
            checkpoint()
            return left @ right
        result = left.new_empty(len(left), *right.shape[1:])
        for top in range(0, len(left), step):
            checkpoint()
            result[top : top + step] = left[top : top + step] @ right
        return result


#: Iterations on a GPU between two questions how far they got.
UNASKED = 6

Precondition = Callable[[Tensor], tuple[Tensor, Tensor]]
Image = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Solved:
    """z, the relative residual it has, after how many iterations."""

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
    """z with operator(z) = right, to a relative residual of ``tolerance``.

    ``null_space`` solves for a residual whose energy is zero; ``indefinite`` makes the error that
    is raised where the operator shows a direction of no curvature.
    """
    goal = float(torch.linalg.vector_norm(right))
    if goal == 0:
        return Solved(torch.zeros_like(right), 0.0, 0)
    if right.is_cuda and null_space is not None:
        return _on_device(right, precondition, image, tolerance, iterations, null_space, goal)
    z = torch.zeros_like(right)
    residual = right.clone()
    direction = paired = z
    before = 1.0
    reached = 1.0
    count = 0
    while count < iterations and reached > tolerance:
        checkpoint()
        step, pair = precondition(residual)
        energy = float(torch.dot(residual.view(-1), pair.view(-1)))
        if energy <= 0 and null_space is not None:
            return Solved(z + null_space(residual), 0.0, count)
        direction = torch.add(step, direction, alpha=energy / before)
        paired = direction if pair is step else torch.add(pair, paired, alpha=energy / before)
        moved = image(direction, paired)
        curvature = float(torch.dot(paired.view(-1), moved.view(-1)))
        if indefinite is not None and not curvature > 0:
            raise indefinite(curvature)
        length = energy / curvature if curvature else float("nan")
        z.add_(direction, alpha=length)
        residual.add_(moved, alpha=-length)
        count += 1
        before = energy
        reached = float(torch.linalg.vector_norm(residual)) / goal
    return Solved(z, reached, count)


def _on_device(
    right: Tensor,
    precondition: Precondition,
    image: Image,
    tolerance: float,
    iterations: int,
    null_space: Callable[[Tensor], Tensor],
    goal: float,
) -> Solved:
    """The same with all numbers on the GPU: it is asked how far it got only every few steps."""
    run = DeviceIteration(right, precondition, image)
    reached = 1.0
    count = 0
    while count < iterations and reached > tolerance:
        steps = min(UNASKED, iterations - count)
        run.advance(steps)
        count += steps
        reached = float(torch.linalg.vector_norm(run.residual)) / goal
        if reached > tolerance and float(run.energy) <= 0:
            return Solved(run.z + null_space(run.residual), 0.0, count)
    return Solved(run.z, reached, count)


class DeviceIteration:
    """Conjugate gradients whose numbers never leave the device.

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
        self.least: Tensor | None = None

    def advance(self, count: int) -> None:
        """So many iterations."""
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
            length = torch.where(going, self.energy / (self.paired * moved).sum(), 0.0)
            self.before = torch.where(going, self.energy, 1.0)
            self.z = torch.addcmul(self.z, self.direction, length)
            self.residual = torch.addcmul(self.residual, moved, length, value=-1)

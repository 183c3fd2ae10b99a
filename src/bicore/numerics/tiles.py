"""Long products, some rows at a time, with a look at the clock before each part."""

from __future__ import annotations

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

"""The convolutions of a ResNet-18 without normalisation as one function, with its gradients by
hand.

Between two convolutions there is nothing but a sum and a ReLU, on a GPU passes over memory. Here a
ReLU, and the sum with the shortcut before it, belong to the convolution that precedes them;
backward, the sum of the two gradients that meet in front of a block and the ReLU's mask are one
pass; and all weights are rounded in one.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.masked import masked_sum

Weights = Sequence[Tensor]
#: Of a block: its stride, and whether its shortcut is a convolution.
Shape = tuple[int, bool]


class Trunk(torch.autograd.Function):
    """Images to the maps in front of the average. ``weights`` are the stem's, then of each block
    the first's, the second's and the shortcut's where it has one.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, shapes: Sequence[Shape], *weights: Tensor) -> Tensor:
        rounded = _converted(weights, images.dtype)
        left = iter(rounded)
        x = F.relu(F.conv2d(images, next(left), None, 1, 1))
        maps = [images, x]
        for stride, reshaped in shapes:
            first = next(left)
            second = next(left)
            inner = _rectified(x, first, stride)
            shortcut = F.conv2d(x, next(left), None, stride) if reshaped else x
            x = _rectified(inner, second, 1, shortcut)
            maps += [inner, x]
        ctx.save_for_backward(*maps, *rounded)
        ctx.shapes = shapes
        ctx.kind = weights[0].dtype
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        saved = list(ctx.saved_tensors)
        count = 2 + 2 * len(ctx.shapes)
        maps = saved[:count]
        weights = saved[count:]
        found: list[Tensor] = []  # from the last weight to the first
        below = gradient
        beside = None
        for number in reversed(range(len(ctx.shapes))):
            (stride, reshaped), (x, inner, output) = (
                ctx.shapes[number],
                maps[1 + 2 * number : 4 + 2 * number],
            )
            shortcut = weights.pop() if reshaped else None
            second = weights.pop()
            first = weights.pop()
            of_output = _masked(below, beside, output)
            beside = of_output
            if shortcut is not None:
                beside, of_shortcut = _gradients(of_output, x, shortcut, stride, 0)
                found.append(of_shortcut)
            of_inner, of_second = _gradients(of_output, inner, second, 1, 1)
            below, of_first = _gradients(_masked(of_inner, None, inner), x, first, stride, 1)
            found += [of_second, of_first]
        of_stem = _gradients(
            _masked(below, beside, maps[1]), maps[0], weights.pop(), 1, 1, images=True
        )[1]
        return None, None, *_converted([of_stem, *reversed(found)], ctx.kind)


def _converted(values: Weights, kind: torch.dtype) -> list[Tensor]:
    """All of them in one pass."""
    made = [torch.empty_like(value, dtype=kind) for value in values]
    torch._foreach_copy_(made, list(values))
    return made


def _rectified(x: Tensor, weight: Tensor, stride: int, added: Tensor | None = None) -> Tensor:
    """A 3×3 convolution, what is added to it, and the ReLU."""
    if not x.is_cuda:
        maps = F.conv2d(x, weight, None, stride, 1)
        return F.relu(maps if added is None else maps + added)
    shape = [stride, stride], [1, 1], [1, 1], 1
    if added is None:
        return torch.cudnn_convolution_relu(x, weight, None, *shape)
    return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, None, *shape)


def _gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: int, border: int, images: bool = False
) -> tuple[Any, Tensor]:
    """Of a convolution by its input (of images nobody asks it) and by its weight."""
    shape = [stride, stride], [border, border], [1, 1], False, [0, 0], 1
    found = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, *shape, [not images, True, False]
    )
    return found[0], found[1]


def _masked(below: Tensor, beside: Tensor | None, maps: Tensor) -> Tensor:
    """The sum of two gradients, or one, where the ReLU was on."""
    if beside is None:
        return torch.ops.aten.threshold_backward(below, maps, 0)
    return masked_sum(below, beside, maps)

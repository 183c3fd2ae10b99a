"""Group normalisation in the precision of its maps, for networks whose products are in bfloat16.

Autocast has it in float32, and torch's own wants the channels first: on a GPU most of a network's
time went into copies of its maps. Here nothing but sums is in float32, over maps as they lie. On a
GPU it is one kernel with the ReLU behind it; elsewhere passes of torch.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments import group_kernels

#: Added to the variance, as torch has it.
LEAST = 1e-5


class Grouped(nn.GroupNorm):
    """Channels in groups, each brought to mean 0 and variance 1 within an image."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dtype != torch.bfloat16:
            return super().forward(input)
        found: Tensor = Normalised.apply(input, self.weight, self.bias, self.num_groups)
        return found

    def rectified(self, maps: Tensor, added: Tensor | None = None) -> Tensor:
        """The ReLU of maps that are normalised, and of what is added to them."""
        if maps.dtype == torch.bfloat16 and group_kernels.covered(maps):
            found: Tensor = Rectified.apply(maps, added, self.weight, self.bias, self.num_groups)
            return found
        return summed(self(maps), added)


def summed(maps: Tensor, added: Tensor | None) -> Tensor:
    """The ReLU of maps and of what is added to them."""
    return F.relu(maps if added is None else maps + added)


class Rectified(torch.autograd.Function):
    """The same in one kernel each way."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, groups: int
    ) -> Tensor:
        out, mean, inverse = group_kernels.forward(maps, added, weight, bias, groups, LEAST)
        ctx.save_for_backward(maps, out, weight, mean, inverse)
        ctx.summed = added is not None
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        by_map, by_added, along, plain = group_kernels.backward(
            gradient, *ctx.saved_tensors, summed=ctx.summed
        )
        return by_map, by_added, along.sum(0), plain.sum(0), None


class Normalised(torch.autograd.Function):
    """Maps, normalised by groups, and scaled and moved by channels."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, groups: int) -> Tensor:
        _, channels, height, width = maps.shape
        kind = torch.promote_types(maps.dtype, torch.float32)
        count = channels // groups * height * width
        sums = _by_group(maps.sum((2, 3), dtype=kind), groups)
        squares = torch.linalg.vector_norm(maps, dim=(2, 3), dtype=kind).square()
        mean = sums / count
        variance = (_by_group(squares, groups) / count - mean.square()).clamp_min(0)
        inverse = (variance + LEAST).rsqrt()
        scale = _by_channel(inverse, channels) * weight
        shift = bias - _by_channel(mean, channels) * scale
        ctx.save_for_backward(maps, weight, mean, inverse)
        return _line(maps, scale, shift)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        maps, weight, mean, inverse = ctx.saved_tensors
        _, channels, height, width = maps.shape
        groups = mean.shape[1]
        count = channels // groups * height * width
        wide_mean, wide = _by_channel(mean, channels), _by_channel(inverse, channels)
        plain = gradient.sum((2, 3), dtype=mean.dtype)
        along = (gradient * maps).sum((2, 3), dtype=mean.dtype)
        along = (along - wide_mean * plain) * wide  # the sum of gradient · normalised map
        of_sum = _by_channel(_by_group(plain * weight, groups), channels) / count
        of_along = _by_channel(_by_group(along * weight, groups), channels) / count
        by_map = -wide.square() * of_along
        constant = -wide * of_sum - wide_mean * by_map
        found = _line(maps, by_map, constant, gradient, wide * weight)
        return found, along.sum(0).to(weight.dtype), plain.sum(0).to(weight.dtype), None


def _by_group(values: Tensor, groups: int) -> Tensor:
    """Of values (images, channels) the sums over groups."""
    return values.unflatten(1, (groups, -1)).sum(2)


def _by_channel(values: Tensor, channels: int) -> Tensor:
    """Of values (images, groups) that of every channel."""
    return values.repeat_interleave(channels // values.shape[1], 1)


def _line(
    maps: Tensor,
    scale: Tensor,
    shift: Tensor,
    beside: Tensor | None = None,
    factor: Tensor | None = None,
) -> Tensor:
    """scale · maps + shift, and factor · beside where that is given; rounded once a pass."""
    out = torch.empty_like(maps)
    torch.addcmul(shift[:, :, None, None], maps, scale[:, :, None, None], out=out)
    if beside is not None and factor is not None:
        torch.addcmul(out, beside, factor[:, :, None, None], out=out)
    return out

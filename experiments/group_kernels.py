"""Group normalisation, what is added to it, and the ReLU behind it, by kernels of our own.

One program has one image: it goes over its maps once for their sums and once more for the answer,
which then still lie in the cache of the GPU. Maps have their channels last.
"""

from typing import Any

import torch
from torch import Tensor

try:  # comes with torch for GPUs
    import triton
    import triton.language as tl
except ImportError:
    triton = None

#: Entries of maps that a program has at a time.
TILE = 8192
WARPS = 8


def covered(maps: Tensor) -> bool:
    """Channels and pixels must be powers of two; and nothing else is worth a kernel."""
    _, channels, height, width = maps.shape
    pixels = height * width
    return (
        triton is not None
        and maps.is_cuda
        and channels & (channels - 1) == 0
        and pixels & (pixels - 1) == 0
    )


def forward(
    maps: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, groups: int, least: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The rectified sum, and of every image and group the mean and one over the deviation."""
    maps = _last(maps)
    count = len(maps)
    out = torch.empty_like(maps)
    mean, inverse = (torch.empty(count, groups, device=maps.device) for _ in range(2))
    beside = maps if added is None else _last(added)
    given = (maps, beside, weight, bias, out, mean, inverse, least)
    _forward[(count,)](*given, summed=added is not None, **_shape(maps, groups))
    return out, mean, inverse


def backward(
    gradient: Tensor,
    maps: Tensor,
    out: Tensor,
    weight: Tensor,
    mean: Tensor,
    inverse: Tensor,
    summed: bool,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """By the maps, by what was added, and of every image and channel by weight and bias."""
    gradient, maps, out = (_last(value) for value in (gradient, maps, out))
    count, channels = maps.shape[:2]
    found = torch.empty_like(maps)
    beside = torch.empty_like(maps) if summed else found
    along, plain = (torch.empty(count, channels, device=maps.device) for _ in range(2))
    given = (gradient, maps, out, weight, mean, inverse, found, beside, along, plain)
    _backward[(count,)](*given, summed=summed, **_shape(maps, mean.shape[1]))
    return found, beside if summed else None, along, plain


def _last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


def _shape(maps: Tensor, groups: int) -> dict[str, Any]:
    _, channels, height, width = maps.shape
    pixels = height * width
    rows = max(1, min(pixels, TILE // channels))
    sizes = {"pixels": pixels, "channels": channels, "groups": groups, "rows": rows}
    return {**sizes, "num_warps": WARPS}


if triton is not None:

    @triton.jit
    def _by_group(values, channels: tl.constexpr, groups: tl.constexpr):
        """Of values (channels) the sums over groups, at every channel."""
        size: tl.constexpr = channels // groups
        sums = tl.sum(tl.reshape(values, (groups, size)), 1)
        return tl.reshape(tl.broadcast_to(sums[:, None], (groups, size)), (channels,))

    @triton.jit
    def _at_channel(values, channels: tl.constexpr, groups: tl.constexpr):
        """Of values (groups), in memory, that of every channel."""
        return tl.load(values + tl.arange(0, channels) // (channels // groups))

    @triton.jit
    def _forward(
        maps,
        added,
        weight,
        bias,
        out,
        mean,
        inverse,
        least,
        summed: tl.constexpr,
        pixels: tl.constexpr,
        channels: tl.constexpr,
        groups: tl.constexpr,
        rows: tl.constexpr,
    ):
        image = tl.program_id(0).to(tl.int64)
        channel = tl.arange(0, channels)
        inside = tl.arange(0, rows)[:, None] * channels + channel[None, :]
        start = image * pixels * channels
        total = tl.zeros((rows, channels), tl.float32)
        squares = tl.zeros((rows, channels), tl.float32)
        for top in range(0, pixels, rows):
            values = tl.load(maps + start + top * channels + inside).to(tl.float32)
            total += values
            squares += values * values
        share = 1.0 / (channels // groups * pixels)
        middle = _by_group(tl.sum(total, 0), channels, groups) * share
        spread = _by_group(tl.sum(squares, 0), channels, groups) * share - middle * middle
        narrow = 1.0 / tl.sqrt(tl.maximum(spread, 0.0) + least)
        scale = narrow * tl.load(weight + channel)
        shift = tl.load(bias + channel) - middle * scale
        group = image * groups + channel // (channels // groups)
        tl.store(mean + group, middle)
        tl.store(inverse + group, narrow)
        for top in range(0, pixels, rows):
            at = start + top * channels + inside
            values = tl.load(maps + at).to(tl.float32) * scale[None, :] + shift[None, :]
            if summed:
                values += tl.load(added + at).to(tl.float32)
            tl.store(out + at, tl.maximum(values, 0.0).to(out.dtype.element_ty))

    @triton.jit
    def _backward(
        gradient,
        maps,
        out,
        weight,
        mean,
        inverse,
        found,
        beside,
        along,
        plain,
        summed: tl.constexpr,
        pixels: tl.constexpr,
        channels: tl.constexpr,
        groups: tl.constexpr,
        rows: tl.constexpr,
    ):
        image = tl.program_id(0).to(tl.int64)
        channel = tl.arange(0, channels)
        inside = tl.arange(0, rows)[:, None] * channels + channel[None, :]
        start = image * pixels * channels
        middle = _at_channel(mean + image * groups, channels, groups)
        narrow = _at_channel(inverse + image * groups, channels, groups)
        total = tl.zeros((rows, channels), tl.float32)
        products = tl.zeros((rows, channels), tl.float32)
        for top in range(0, pixels, rows):
            at = start + top * channels + inside
            on = tl.load(out + at).to(tl.float32) > 0
            slope = tl.where(on, tl.load(gradient + at).to(tl.float32), 0.0)
            if summed:
                tl.store(beside + at, slope.to(beside.dtype.element_ty))
            values = (tl.load(maps + at).to(tl.float32) - middle[None, :]) * narrow[None, :]
            total += slope
            products += slope * values
        of_bias = tl.sum(total, 0)
        of_weight = tl.sum(products, 0)
        tl.store(along + image * channels + channel, of_weight)
        tl.store(plain + image * channels + channel, of_bias)
        factor = tl.load(weight + channel)
        share = 1.0 / (channels // groups * pixels)
        of_sum = _by_group(of_bias * factor, channels, groups) * share
        of_along = _by_group(of_weight * factor, channels, groups) * share
        for top in range(0, pixels, rows):
            at = start + top * channels + inside
            on = tl.load(out + at).to(tl.float32) > 0
            slope = tl.where(on, tl.load(gradient + at).to(tl.float32), 0.0)
            values = (tl.load(maps + at).to(tl.float32) - middle[None, :]) * narrow[None, :]
            by_map = slope * factor[None, :] - of_sum[None, :] - values * of_along[None, :]
            tl.store(found + at, (by_map * narrow[None, :]).to(found.dtype.element_ty))

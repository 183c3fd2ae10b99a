"""Stacks of 3×3 convolutions with a pooled read-out on a GPU.

One warp works on a class of displacements; see ``pooled.cu``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.kernels.architecture import Conv, Layer, Pairs, State
from bicore.kernels.gpu import Argument, function, source_of
from bicore.kernels.gpu.fused_network import Network, NotCoveredError

#: A warp holds a column a lane; the rows are registers.
LARGEST_SIDE = 32
#: Warps a block and blocks a multiprocessor: few, for a warp needs all the registers it can get
#: (measured).
WARPS = 4
RESIDENT = 2


@dataclass(frozen=True)
class Folded:
    """The constants of a stack: units τ_l of every layer, the gain on κ0, biases in those units.

    A map is kept as S̃ with S = τ S̃. Convolution and activation then need no factor but the gain g
    on κ0: S̃ ← Σ_window s̃ s̃' κ1 + b/τ, with s̃ = s √(g/τ), and τ_{l+1} = τ_l · (σ_w²/9)/(2g).
    """

    units: list[float]
    gain: float
    biases: list[float]


def prepared(kernel: Network, rows: Tensor, columns: Tensor) -> Callable[[Tensor], State]:
    """A function from pairs to the state after the last layer."""
    convolutions = _stack(kernel.layers)
    channels, height, width = rows.shape[1:]
    if max(height, width) > LARGEST_SIDE:
        raise NotCoveredError(
            f"images of {height}×{width} are larger than {LARGEST_SIDE}×{LARGEST_SIDE}."
        )
    folded = _folded(convolutions, int(channels))
    left = _norms(kernel, rows, folded)
    right = _norms(kernel, columns, folded)
    right = torch.cat([right, right], 2).contiguous()
    second = torch.cat([columns, columns], 2).contiguous()
    first = rows.contiguous()
    biases = rows.new_tensor(folded.biases)
    macros = {
        "WIDTH": width,
        "HEIGHT": height,
        "CHANNELS": channels,
        "LAYERS": len(convolutions),
        "GAIN": repr(folded.gain),
        "BIAS": int(any(folded.biases)),
        "DOUBLE": int(rows.dtype == torch.float64),
        "WARPS": WARPS,
        "RESIDENT": RESIDENT,
    }
    run = function(source_of("activation.cu") + source_of("pooled.cu"), "pooled", macros)
    # The last activation's κ1 and κ0 carry the gain, and halves are left to the caller.
    factor = folded.units[-1] / (2 * folded.gain) / (height * width) ** 2

    def launch(pairs: Tensor) -> State:
        sums = torch.empty(len(pairs), 2, dtype=torch.float64, device=rows.device)
        trained = int(convolutions[0].trained)
        arguments: list[Argument] = [first, second, left, right, pairs, biases, trained, sums]
        run.launch(len(pairs), 32 * WARPS, arguments)
        state = State(sums[:, 0] * factor, sums[:, 1] * factor)
        for layer in kernel.layers[2 * len(convolutions) + 1 :]:
            state = layer.covariance(state, Pairs(()))
        return state

    return launch


def _stack(layers: Sequence[Layer]) -> list[Conv]:
    """The convolutions of a network that is a stack of them; an error in words where it is not."""
    place = next(place for place, layer in enumerate(layers) if layer.averages)
    body = layers[:place]
    found: list[Conv] = []
    for first, second in zip(body[::2], body[1::2], strict=False):
        conv = first.convolution
        if conv is None or not second.rectifies:
            raise NotCoveredError(
                "the fused pooled kernel is for convolutions that are each followed by a ReLU."
            )
        if (conv.window, conv.stride) != (3, 1) or conv.padding not in ("same", 1):
            raise NotCoveredError(
                "the fused pooled kernel is for 3×3 convolutions of stride 1 that keep the size."
            )
        found.append(conv)
    if len(body) % 2 or not found:
        raise NotCoveredError(
            "the fused pooled kernel is for convolutions that are each followed by a ReLU."
        )
    if not all(conv.trained for conv in found[1:]):
        raise NotCoveredError(
            "only the first convolution may be untrained in the fused pooled kernel."
        )
    return found


def _folded(convolutions: list[Conv], channels: int) -> Folded:
    factors = [conv.sigma_w**2 / 9 for conv in convolutions]
    if not all(factors):
        raise NotCoveredError("a convolution with sigma_w=0 has no unit to count in.")
    gain = factors[1] / 2 if len(factors) > 1 else 1.0
    units = [factors[0] / channels]
    for factor in factors[1:]:
        units.append(units[-1] * factor / (2 * gain))
    biases = [conv.sigma_b**2 / unit for conv, unit in zip(convolutions, units, strict=True)]
    return Folded(units, gain, biases)


def _norms(kernel: Network, images: Tensor, folded: Folded) -> Tensor:
    """(n, layers, height, width, 2): √τ/s, and s √(g/τ), of every image, ReLU and position."""
    # s, brought to (n, layer, height, width).
    notes = torch.stack(kernel.notes(images), 0).permute(3, 0, 1, 2)
    units = images.new_tensor(folded.units)[:, None, None]
    inverse = torch.where(notes > 0, units.sqrt() / notes, torch.zeros_like(notes))
    return torch.stack([inverse, notes * (folded.gain / units).sqrt()], -1).contiguous()

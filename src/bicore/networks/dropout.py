"""Monte-Carlo dropout with the same masks for every point.

So draws of one network are comparable across points.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bicore.data import Array
from bicore.errors import InputError
from bicore.networks.observe import BATCH, as_module, batches, evaluating, forward

#: Layers that drop whole channels.
_WHOLE_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def dropout_probabilities(
    model: Any, x: Array, draws: int, seed: int, batch: int = BATCH
) -> Tensor:
    """Class probabilities under networks that are thinned at random.

    Within a draw every point sees the same mask; everything but dropout runs in eval mode.

    Parameters
    ----------
    model : torch.nn.Module
        With a Dropout layer; it returns logits.
    x : array
        The points.
    draws : int
        How many networks are drawn.
    seed : int
        Of the masks.
    batch : int
        Points that pass through together.

    Returns
    -------
    Tensor
        Of shape (draws, n, classes), in float64.

    Raises
    ------
    InputError
        Where the model has no dropout, cannot read the points, or returns anything but logits.

    Examples
    --------
    >>> import numpy as np
    >>> network = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    >>> dropout_probabilities(network, np.zeros((4, 3)), draws=5, seed=0).shape
    torch.Size([5, 4, 2])
    """
    module = as_module(model)
    thinned = [
        part
        for part in module.modules()
        if isinstance(part, (nn.Dropout, *_WHOLE_CHANNELS)) and part.p > 0
    ]
    if not thinned:
        raise InputError(
            "the model has no nn.Dropout layer with p > 0; Monte-Carlo dropout needs one."
        )
    masks = _Masks(seed)
    hooks = [part.register_forward_hook(masks.apply) for part in thinned]
    try:
        with evaluating(module), torch.no_grad():
            seen = []
            for draw in range(draws):
                masks.start(draw)
                outputs = torch.cat(
                    [masks.passed(module, part) for part in batches(module, x, batch)]
                )
                seen.append(torch.softmax(outputs.double(), 1))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(seen)


class _Masks:
    """One mask for each dropout layer and draw, drawn when the layer first runs."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.generator = torch.Generator()
        self.known: dict[tuple[nn.Module, int], Tensor] = {}
        self.calls: dict[nn.Module, int] = {}

    def start(self, draw: int) -> None:
        # The generator is on the CPU so that every device draws the same masks.
        self.generator.manual_seed((self.seed * 1_000_003 + draw) % 2**63)
        self.known = {}

    def passed(self, module: nn.Module, part: Tensor) -> Tensor:
        """One batch; a layer that runs several times has a mask for each time."""
        self.calls = {}
        return forward(module, part)

    def apply(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        self.calls[module] = self.calls.get(module, 0) + 1
        key = module, self.calls[module]
        if key not in self.known:
            shape = list(output.shape[1:])
            if isinstance(module, _WHOLE_CHANNELS):
                shape[1:] = [1] * (len(shape) - 1)
            kept = 1 - float(module.p)  # type: ignore[arg-type]
            drawn = torch.rand(shape, generator=self.generator) < kept
            self.known[key] = drawn.to(output) / max(kept, torch.finfo(output.dtype).tiny)
        return output * self.known[key]

"""Network kernels on a GPU: the whole network for a pair of images in one kernel.

Its covariances never leave the chip.

What is covered: any network of this package with a flatten read-out whose maps fit the shared
memory of a multiprocessor; and stacks of 3×3 convolutions of stride 1 with a pooled read-out on
images of at most 32×32. Everything else falls back, with a notice, to the layer-by-layer arithmetic
of :mod:`bicore.kernels.tangent` on the same device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from bicore.kernels.architecture import State
from bicore.kernels.gpu import CompilerError, fused_flat, fused_pooled
from bicore.kernels.gpu.fused_network import Network, NotCoveredError

#: Pairs of one launch: short enough for an interrupt to be heard.
PAIRS = 1 << 20
#: And for pooled read-outs, where a pair is dearer.
POOLED_PAIRS = 1 << 16
#: Images of one launch for the diagonal.
OWN = 1000

#: From pairs of the two sets of images prepared before to the state after the last layer.
Launch = Callable[[Tensor], State]


def fused(kernel: Network, a: Tensor, b: Tensor | None) -> Tensor | None:
    """k(a, b), or the Gram matrix of ``a`` where b is None.

    None where the fused kernels do not cover this network.
    """
    first = _images(a)
    second = _images(a if b is None else b)

    def compute() -> Tensor:
        result = _filled(kernel, _launcher(kernel)(kernel, first, second), a, b)
        if b is None and kernel.pooled:
            result.diagonal().copy_(_own(kernel, a))
        return result

    return _attempt(kernel, a, compute)


def fused_diagonal(kernel: Network, a: Tensor) -> Tensor | None:
    """k(a_i, a_i) of a network whose diagonal does not follow from single positions."""
    return _attempt(kernel, a, lambda: _own(kernel, a))


def _own(kernel: Network, a: Tensor) -> Tensor:
    """The diagonal, in float64 whatever the data.

    Between an image and itself float32 would lose the angles to rounding.
    """
    found = []
    for start in range(0, len(a), OWN):
        part = _images(a)[start : start + OWN]
        index = torch.arange(len(part), device=a.device, dtype=torch.int32)[:, None].repeat(1, 2)
        exact = part.double()
        launch = _launcher(kernel)(kernel, exact, exact)
        found.append(kernel.answer(launch(index)).to(a))
    return torch.cat(found)


def _launcher(kernel: Network) -> Callable[[Network, Tensor, Tensor], Launch]:
    return fused_pooled.prepared if kernel.pooled else fused_flat.prepared


def _attempt(kernel: Network, a: Tensor, compute: Callable[[], Tensor]) -> Tensor | None:
    try:
        with torch.cuda.device(a.device):
            return compute()
    except (NotCoveredError, CompilerError) as reason:
        warnings.warn(
            f"{kernel.name} runs layer by layer on the GPU, which is slower: {reason}", stacklevel=5
        )
        return None


def _images(a: Tensor) -> Tensor:
    return a[:, None] if a.dim() == 3 else a


def _filled(kernel: Network, launch: Launch, a: Tensor, b: Tensor | None) -> Tensor:
    columns = len(a) if b is None else len(b)
    count = POOLED_PAIRS if kernel.pooled else PAIRS
    result = a.new_empty(len(a), columns)
    for pairs in _pairs(len(a), columns, b is None, count, a.device):
        values = kernel.answer(launch(pairs.int())).to(a.dtype)
        result[pairs[:, 0], pairs[:, 1]] = values
        if b is None:
            result[pairs[:, 1], pairs[:, 0]] = values
    return result


def _pairs(
    rows: int, columns: int, symmetric: bool, count: int, device: torch.device
) -> Iterator[Tensor]:
    """(i, j) of every entry, or of the upper triangle, in pieces."""
    height = max(1, count // columns)
    for top in range(0, rows, height):
        bottom = min(top + height, rows)
        i = torch.arange(top, bottom, device=device)
        j = torch.arange(top if symmetric else 0, columns, device=device)
        pairs = torch.cartesian_prod(i, j)
        yield pairs[pairs[:, 1] >= pairs[:, 0]] if symmetric else pairs

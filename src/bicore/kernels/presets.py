"""The paper's networks."""

from __future__ import annotations

from collections.abc import Sequence

from bicore.errors import InputError
from bicore.kernels.architecture import Conv, Dense, Flatten, GlobalAverage, Layer, ReLU, Residual
from bicore.kernels.tangent import TangentKernel

#: σ_w and σ_b of the paper's kernels.
SIGMA_W = 1.0
SIGMA_B = 0.05


def fully_connected(
    hidden: int = 2, kind: str = "ntk", sigma_w: float = SIGMA_W, sigma_b: float = SIGMA_B
) -> TangentKernel:
    """Dense – ReLU – … – Dense with ``hidden`` hidden layers; two of them in the paper
    (784-100-100-10)."""
    layers: list[Layer] = []
    for _ in range(hidden):
        layers += [Dense(sigma_w, sigma_b), ReLU()]
    return TangentKernel(
        [*layers, Dense(sigma_w, sigma_b)], kind, label=f"fully connected ({hidden} hidden)"
    )


def cnn(kind: str = "ntk", sigma_w: float = SIGMA_W, sigma_b: float = SIGMA_B) -> TangentKernel:
    """Conv5×5 – ReLU – Conv5×5 – ReLU – Flatten – Dense – ReLU – Dense, padding "same", no pooling."""
    conv = Conv(5, 1, "same", sigma_w, sigma_b)
    dense = Dense(sigma_w, sigma_b)
    return TangentKernel(
        [conv, ReLU(), conv, ReLU(), Flatten(), dense, ReLU(), dense], kind, label="cnn"
    )


def resnet18(kind: str = "ntk", scale: float = 0.01) -> TangentKernel:
    """The paper's ResNet-18: pre-activation blocks, a 3×3 convolution on the first shortcut of
    every group, no bias."""
    layers: list[Layer] = [Conv(3)]
    for stride in (1, 2, 2, 2):
        layers += [_block(stride, [Conv(3, stride)]), _block(1, [])]
    return TangentKernel([*layers, Flatten(), Dense(1.0, 0.05)], kind, scale, label="resnet-18")


def pooled_cntk(depth: int = 6, kind: str = "ntk", fixed: bool = False) -> TangentKernel:
    """The convolutional kernel with global average pooling of Arora et al. (2019), for images of
    any size.

    ``depth`` counts depth − 1 convolutions of 3×3 with a ReLU each, and the read-out. ``fixed``
    leaves the first and the last layer untrained, as in their released code. The paper's regression
    experiment uses it.
    """
    if depth < 2:
        raise InputError(f"depth={depth} is below 2, one convolution and the read-out.")
    layers: list[Layer] = []
    for place in range(depth - 1):
        layers += [
            Conv(3, sigma_w=1.0 if place == 0 else 2**0.5, trained=not (fixed and place == 0)),
            ReLU(),
        ]
    readout = Dense(2**0.5, trained=not fixed)
    return TangentKernel(
        [*layers, GlobalAverage(), readout], kind, label=f"pooled cntk (depth {depth})"
    )


def _block(stride: int, shortcut: Sequence[Layer]) -> Residual:
    return Residual((ReLU(), Conv(3, stride), ReLU(), Conv(3)), tuple(shortcut))

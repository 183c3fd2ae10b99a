"""The paper's three networks."""

from __future__ import annotations

from collections.abc import Sequence

from bicore.kernels.architecture import Conv, Dense, Flatten, Layer, ReLU, Residual
from bicore.kernels.tangent import TangentKernel

#: σ_w and σ_b of the paper's kernels.
SIGMA_W, SIGMA_B = 1.0, 0.05


def fully_connected(hidden: int = 2, kind: str = "ntk", sigma_w: float = SIGMA_W, sigma_b: float = SIGMA_B) -> TangentKernel:
    """Dense – ReLU – … – Dense with ``hidden`` hidden layers; two of them in the paper (784-100-100-10)."""
    layers: list[Layer] = []
    for _ in range(hidden):
        layers += [Dense(sigma_w, sigma_b), ReLU()]
    return TangentKernel([*layers, Dense(sigma_w, sigma_b)], kind, label=f"fully connected ({hidden} hidden)")


def cnn(kind: str = "ntk", sigma_w: float = SIGMA_W, sigma_b: float = SIGMA_B) -> TangentKernel:
    """Conv5×5 – ReLU – Conv5×5 – ReLU – Flatten – Dense – ReLU – Dense, padding "same", no pooling."""
    conv, dense = Conv(5, 1, "same", sigma_w, sigma_b), Dense(sigma_w, sigma_b)
    return TangentKernel([conv, ReLU(), conv, ReLU(), Flatten(), dense, ReLU(), dense], kind, label="cnn")


def resnet18(kind: str = "ntk", scale: float = 0.01) -> TangentKernel:
    """The paper's ResNet-18: pre-activation blocks, a 3×3 convolution on the first shortcut of every group, no bias."""
    layers: list[Layer] = [Conv(3)]
    for stride in (1, 2, 2, 2):
        layers += [_block(stride, [Conv(3, stride)]), _block(1, [])]
    return TangentKernel([*layers, Flatten(), Dense(1.0, 0.05)], kind, scale, label="resnet-18")


def _block(stride: int, shortcut: Sequence[Layer]) -> Residual:
    return Residual((ReLU(), Conv(3, stride), ReLU(), Conv(3)), tuple(shortcut))

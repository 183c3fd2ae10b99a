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
    """Dense – ReLU – … – Dense; two hidden layers in the paper (784-100-100-10).

    Parameters
    ----------
    hidden : int
        Hidden layers.
    kind : "ntk" or "nngp"
        The tangent kernel, or the covariance at initialisation.
    sigma_w, sigma_b : float
        Weights have variance σ_w²/fan-in, biases σ_b².

    Returns
    -------
    TangentKernel
        For vectors; images are flattened.

    Examples
    --------
    >>> from bicore.kernels import fully_connected
    >>> fully_connected(hidden=1).name
    'fully connected (1 hidden) ntk'
    """
    layers: list[Layer] = []
    for _ in range(hidden):
        layers += [Dense(sigma_w, sigma_b), ReLU()]
    layers.append(Dense(sigma_w, sigma_b))
    return TangentKernel(layers, kind, label=f"fully connected ({hidden} hidden)")


def cnn(kind: str = "ntk", sigma_w: float = SIGMA_W, sigma_b: float = SIGMA_B) -> TangentKernel:
    """Conv5×5 – ReLU – Conv5×5 – ReLU – Flatten – Dense – ReLU – Dense, without pooling.

    Parameters
    ----------
    kind : "ntk" or "nngp"
        The tangent kernel, or the covariance at initialisation.
    sigma_w, sigma_b : float
        Weights have variance σ_w²/fan-in, biases σ_b².

    Returns
    -------
    TangentKernel
        For images of any size; convolutions keep it (padding "same").

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.kernels import cnn
    >>> cnn()(np.ones((2, 8, 8))).shape
    (2, 2)
    """
    conv = Conv(5, 1, "same", sigma_w, sigma_b)
    dense = Dense(sigma_w, sigma_b)
    layers = [conv, ReLU(), conv, ReLU(), Flatten(), dense, ReLU(), dense]
    return TangentKernel(layers, kind, label="cnn")


def resnet18(kind: str = "ntk", scale: float = 0.01) -> TangentKernel:
    """The paper's ResNet-18: pre-activation blocks without bias.

    The first shortcut of every group is a 3×3 convolution, the others are identities.

    Parameters
    ----------
    kind : "ntk" or "nngp"
        The tangent kernel, or the covariance at initialisation.
    scale : float
        A constant factor on the matrix; the paper's.

    Returns
    -------
    TangentKernel
        For images.

    Examples
    --------
    >>> from bicore.kernels import resnet18
    >>> sum(layer.rectifiers for layer in resnet18().layers)
    16
    """
    layers: list[Layer] = [Conv(3)]
    for stride in (1, 2, 2, 2):
        layers += [_block(stride, [Conv(3, stride)]), _block(1, [])]
    return TangentKernel([*layers, Flatten(), Dense(1.0, 0.05)], kind, scale, label="resnet-18")


def pooled_cntk(depth: int = 6, kind: str = "ntk", fixed: bool = False) -> TangentKernel:
    """The convolutional kernel with global average pooling of Arora et al. (2019).

    The paper's regression experiment uses it.

    Parameters
    ----------
    depth : int
        Counts depth − 1 convolutions of 3×3 with a ReLU each, and the read-out.
    kind : "ntk" or "nngp"
        The tangent kernel, or the covariance at initialisation.
    fixed : bool
        Leaves the first and the last layer untrained, as in their released code.

    Returns
    -------
    TangentKernel
        For images of any size.

    Raises
    ------
    InputError
        Where ``depth`` is below 2.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.kernels import pooled_cntk
    >>> pooled_cntk(depth=2)(np.ones((1, 4, 4))).shape
    (1, 1)
    """
    if depth < 2:
        raise InputError(f"depth={depth} is below 2, one convolution and the read-out.")
    layers: list[Layer] = []
    for place in range(depth - 1):
        # A ReLU halves the variance; the gain of the layer after it makes up for that.
        gain = 1.0 if place == 0 else 2**0.5
        layers += [Conv(3, sigma_w=gain, trained=not (fixed and place == 0)), ReLU()]
    layers += [GlobalAverage(), Dense(2**0.5, trained=not fixed)]
    return TangentKernel(layers, kind, label=f"pooled cntk (depth {depth})")


def _block(stride: int, shortcut: Sequence[Layer]) -> Residual:
    return Residual((ReLU(), Conv(3, stride), ReLU(), Conv(3)), tuple(shortcut))

"""Kernels: classical ones, the infinite-width kernels of networks, and how to combine them."""

from bicore.kernels.activations import GELU, Erf, LeakyReLU, ReLU
from bicore.kernels.architecture import Conv, Dense, Flatten, GlobalAverage, Layer, Residual
from bicore.kernels.base import CallableKernel, Intercept, Kernel, Precomputed
from bicore.kernels.classical import RBF, Exponential, Laplace, Linear, Nystrom, Polynomial
from bicore.kernels.from_module import from_module
from bicore.kernels.scaling import Averaged, Normalised, Standardised, UnitRows, shifts
from bicore.kernels.tangent import TangentKernel, cnn, fully_connected, pooled_cntk, resnet18

__all__ = [
    "GELU",
    "RBF",
    "Averaged",
    "CallableKernel",
    "Conv",
    "Dense",
    "Erf",
    "Exponential",
    "Flatten",
    "GlobalAverage",
    "Intercept",
    "Kernel",
    "Laplace",
    "Layer",
    "LeakyReLU",
    "Linear",
    "Normalised",
    "Nystrom",
    "Polynomial",
    "Precomputed",
    "ReLU",
    "Residual",
    "Standardised",
    "TangentKernel",
    "UnitRows",
    "cnn",
    "from_module",
    "fully_connected",
    "pooled_cntk",
    "resnet18",
    "shifts",
]

"""Kernels: classical ones, the infinite-width kernels of networks, and how to combine them."""

from bicore.kernels.activations import GELU, Erf
from bicore.kernels.architecture import Conv, Dense, Flatten, GlobalAverage, Layer, ReLU, Residual
from bicore.kernels.averaged import Averaged, shifts
from bicore.kernels.base import CallableKernel, Intercept, Kernel, Precomputed
from bicore.kernels.classical import RBF, Exponential, Laplace, Linear, Nystrom, Polynomial
from bicore.kernels.from_module import from_module
from bicore.kernels.presets import cnn, fully_connected, pooled_cntk, resnet18
from bicore.kernels.scaling import Normalised, Standardised, UnitRows
from bicore.kernels.tangent import TangentKernel

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

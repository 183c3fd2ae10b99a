"""Kernels: classical ones, the infinite-width kernels of networks, and how to combine them."""

from bicore._deprecated import keep_old_names
from bicore.kernels.base import Kernel, Precomputed
from bicore.kernels.classical import RBF, Laplace, Linear, Nystrom, Polynomial
from bicore.kernels.from_module import from_module
from bicore.kernels.scaling import Averaged, Normalised, Standardised, UnitRows, shifts
from bicore.kernels.tangent import TangentKernel, cnn, fully_connected, pooled_cntk, resnet18

__all__ = [
    "RBF",
    "Averaged",
    "Kernel",
    "Laplace",
    "Linear",
    "Normalised",
    "Nystrom",
    "Polynomial",
    "Precomputed",
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

keep_old_names(__name__)

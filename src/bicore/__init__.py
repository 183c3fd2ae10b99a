"""bicore: coresets by bilevel optimisation.

Pick the few points of a data set which train a model almost as well as all of it.
"""

from bicore._version import __version__
from bicore.api import estimate, influence, reweight, select
from bicore.bilevel.problem import PerPoint
from bicore.comparison.answer import Worth
from bicore.comparison.worth import worth
from bicore.coreset import Coreset
from bicore.data import Dataset
from bicore.errors import (
    BicoreError,
    ConvergenceError,
    InputError,
    LargeDataWarning,
    MemoryLimitError,
    NumericalError,
    TimeLimitError,
)
from bicore.kernels.base import Kernel
from bicore.kernels.classical import RBF, Laplace, Linear, Nystrom, Polynomial
from bicore.kernels.scaling import Normalised
from bicore.kernels.tangent import TangentKernel
from bicore.losses import CrossEntropy, CustomLoss, Logistic, SquaredError
from bicore.memory.merge_reduce import MergeReduce
from bicore.memory.replay import ReplayMemory
from bicore.runtime import Context, Runtime
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector

__all__ = [
    "RBF",
    "BicoreError",
    "BilevelSelector",
    "Context",
    "ConvergenceError",
    "Coreset",
    "CrossEntropy",
    "CustomLoss",
    "Dataset",
    "InputError",
    "Kernel",
    "Laplace",
    "LargeDataWarning",
    "Linear",
    "Logistic",
    "MemoryLimitError",
    "MergeReduce",
    "Normalised",
    "NumericalError",
    "Nystrom",
    "PerPoint",
    "Polynomial",
    "ReplayMemory",
    "Runtime",
    "Selector",
    "SquaredError",
    "TangentKernel",
    "TimeLimitError",
    "Worth",
    "__version__",
    "estimate",
    "influence",
    "reweight",
    "select",
    "worth",
]

"""bicore: coresets by bilevel optimisation.

Pick the few points of a data set which train a model almost as well as all of it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bicore._deprecated import RenamedModules
from bicore._version import __version__

if TYPE_CHECKING:
    from bicore.api import estimate, influence, reweight, select
    from bicore.bilevel.problem import PerPoint
    from bicore.context_sets import contexts
    from bicore.coreset import Coreset
    from bicore.data import Dataset
    from bicore.errors import (
        BicoreError,
        ConvergenceError,
        InputError,
        LargeDataWarning,
        MemoryLimitError,
        NumericalError,
        NumericalWarning,
        TimeLimitError,
    )
    from bicore.evaluate.worth import Worth, worth
    from bicore.kernels.base import Kernel
    from bicore.kernels.classical import RBF, Laplace, Linear, Nystrom, Polynomial
    from bicore.kernels.scaling import Normalised
    from bicore.kernels.tangent import TangentKernel
    from bicore.losses import CrossEntropy, CustomLoss, Logistic, SquaredError
    from bicore.methods.base import Selector
    from bicore.methods.bilevel import BilevelSelector
    from bicore.picking import Relative
    from bicore.report.comparison import compare
    from bicore.runtime import Context, Runtime
    from bicore.streaming.merge_reduce import MergeReduce
    from bicore.streaming.moment_memory import MomentMemory
    from bicore.streaming.replay import ReplayMemory

sys.meta_path.insert(0, RenamedModules())

# oneDNN, which torch loads, can leave a perf-PID.map for profilers in the temporary folder.
if "DNNL_JIT_PROFILE" not in os.environ:  # its earlier name
    os.environ.setdefault("ONEDNN_JIT_PROFILE", "0")

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
    "MomentMemory",
    "Normalised",
    "NumericalError",
    "NumericalWarning",
    "Nystrom",
    "PerPoint",
    "Polynomial",
    "Relative",
    "ReplayMemory",
    "Runtime",
    "Selector",
    "SquaredError",
    "TangentKernel",
    "TimeLimitError",
    "Worth",
    "__version__",
    "compare",
    "contexts",
    "estimate",
    "influence",
    "reweight",
    "select",
    "worth",
]

#: Where each public name lives: it is loaded when it is first asked for, and torch with it.
_HOMES = {
    "api": ("estimate", "influence", "reweight", "select"),
    "bilevel.problem": ("PerPoint",),
    "evaluate.worth": ("Worth", "worth"),
    "context_sets": ("contexts",),
    "coreset": ("Coreset",),
    "data": ("Dataset",),
    "errors": (
        "BicoreError",
        "ConvergenceError",
        "InputError",
        "LargeDataWarning",
        "MemoryLimitError",
        "NumericalError",
        "NumericalWarning",
        "TimeLimitError",
    ),
    "kernels.base": ("Kernel",),
    "kernels.classical": ("RBF", "Laplace", "Linear", "Nystrom", "Polynomial"),
    "kernels.scaling": ("Normalised",),
    "kernels.tangent": ("TangentKernel",),
    "losses": ("CrossEntropy", "CustomLoss", "Logistic", "SquaredError"),
    "streaming.merge_reduce": ("MergeReduce",),
    "streaming.moment_memory": ("MomentMemory",),
    "streaming.replay": ("ReplayMemory",),
    "picking": ("Relative",),
    "report.comparison": ("compare",),
    "runtime": ("Context", "Runtime"),
    "methods.base": ("Selector",),
    "methods.bilevel": ("BilevelSelector",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name from its module, or a module of the package, when it is first asked for."""
    if name in _HOME_OF:
        value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":  # it is there, and lacks something itself
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""bicore: coresets by bilevel optimisation.

Select the few rows of a data set that train a model almost as well as all rows.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bicore._deprecated import RenamedModules, find_moved
from bicore._version import __version__ as __version__

if TYPE_CHECKING:
    from bicore.api import contexts as contexts
    from bicore.api import estimate as estimate
    from bicore.api import influence as influence
    from bicore.api import reweight as reweight
    from bicore.api import select as select
    from bicore.coreset import Coreset as Coreset
    from bicore.data import Dataset as Dataset
    from bicore.errors import BicoreError as BicoreError
    from bicore.errors import ConvergenceError as ConvergenceError
    from bicore.errors import DamagedFileError as DamagedFileError
    from bicore.errors import InputError as InputError
    from bicore.errors import LargeDataWarning as LargeDataWarning
    from bicore.errors import MemoryLimitError as MemoryLimitError
    from bicore.errors import NumericalError as NumericalError
    from bicore.errors import NumericalWarning as NumericalWarning
    from bicore.errors import StorageError as StorageError
    from bicore.errors import TimeLimitError as TimeLimitError
    from bicore.errors import WorkerLostError as WorkerLostError
    from bicore.evaluate.worth import worth as worth
    from bicore.methods.bilevel import BilevelSelector as BilevelSelector
    from bicore.report.comparison import compare as compare
    from bicore.runtime.context import Runtime as Runtime
    from bicore.streaming.merge_reduce import MergeReduce as MergeReduce
    from bicore.streaming.moment_memory import MomentMemory as MomentMemory
    from bicore.streaming.replay import ReplayMemory as ReplayMemory

sys.meta_path.insert(0, RenamedModules())

# oneDNN, which torch loads, can leave a perf-PID.map for profilers in the temporary folder.
if "DNNL_JIT_PROFILE" not in os.environ:  # its former name
    os.environ.setdefault("ONEDNN_JIT_PROFILE", "0")

#: Module of each public name, imported on first access, and torch with it.
_HOMES = {
    "api": "contexts estimate influence reweight select",
    "coreset": "Coreset",
    "data": "Dataset",
    "errors": "BicoreError ConvergenceError DamagedFileError InputError LargeDataWarning "
    "MemoryLimitError NumericalError NumericalWarning StorageError TimeLimitError WorkerLostError",
    "evaluate.worth": "worth",
    "methods.bilevel": "BilevelSelector",
    "report.comparison": "compare",
    "runtime.context": "Runtime",
    "streaming.merge_reduce": "MergeReduce",
    "streaming.moment_memory": "MomentMemory",
    "streaming.replay": "ReplayMemory",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted({"__version__", *_HOME_OF})
_find_moved = find_moved(__name__, level=4)


def _find(name: str) -> Any:
    """Return a public name, or a module of the package, on first access."""
    if name in _HOME_OF:
        value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            # otherwise the module exists, but one of its imports is missing
            if error.name != f"{__name__}.{name}":
                raise
    return _find_moved(name)


if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = _find


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

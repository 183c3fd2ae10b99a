"""Import libraries that are not required for development, or skip their tests."""

import importlib.util

import pytest
import torch

#: Operators that torchvision describes at import, and that its build for a GPU lacks with a torch
#: for the CPU; no test calls them.
OPERATORS = ("nms", "qnms")
_library = []


def torchvision_or_skip():
    """Import torchvision, even with a torch that it was not built for."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed", allow_module_level=True)
    try:
        import torchvision
    except RuntimeError:
        import sys

        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        _library.append(torch.library.Library("torchvision", "FRAGMENT"))
        for name in OPERATORS:
            _library[0].define(f"{name}(Tensor dets, Tensor scores, float threshold) -> Tensor")
        import torchvision
    return torchvision


def avalanche_or_skip():
    """Avalanche, which reads images by torchvision."""
    if importlib.util.find_spec("avalanche") is None:
        pytest.skip("avalanche-lib is not installed", allow_module_level=True)
    torchvision_or_skip()
    import avalanche

    return avalanche

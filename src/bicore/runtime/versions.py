"""Which versions a result was made with."""

from __future__ import annotations

import numpy as np
import torch

from bicore._version import __version__


def versions() -> dict[str, str]:
    """Of bicore and of the two libraries that do its arithmetic."""
    return {"bicore": __version__, "torch": torch.__version__, "numpy": np.__version__}

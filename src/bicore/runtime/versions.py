"""Which versions a result was made with."""

from __future__ import annotations

import numpy as np
import torch

from bicore._version import __version__


def versions() -> dict[str, str]:
    """The versions of bicore and of the two libraries that do its arithmetic.

    Returns
    -------
    dict of str
        By name.

    Examples
    --------
    >>> sorted(versions())
    ['bicore', 'numpy', 'torch']
    """
    return {"bicore": __version__, "torch": torch.__version__, "numpy": np.__version__}

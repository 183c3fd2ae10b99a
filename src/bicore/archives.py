"""Arrays in an ``.npz``, without pickle."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np


def write_arrays(file: IO[bytes], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Arrays as ``np.savez`` writes them, and never pickled.

    That of NumPy 1 leaves its archive open where a write fails, which then complains on its own.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)

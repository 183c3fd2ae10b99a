"""Data that ships with scikit-learn."""

from __future__ import annotations

import numpy as np

from bicore.data import Array


def digits() -> tuple[Array, Array]:
    """1797 handwritten digits of 8×8 pixels, and their labels.

    Returns
    -------
    tuple of array
        Pixels (1797, 64), scaled to 0 … 1, and labels 0 … 9.

    Examples
    --------
    >>> x, y = digits()
    >>> x.shape, int(y.max())
    ((1797, 64), 9)
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.asarray(bunch.data, dtype=np.float64) / 16.0, np.asarray(bunch.target, dtype=np.int64)

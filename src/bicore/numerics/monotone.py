"""The nearest series that never rises: neighbours that rise are averaged until none do."""

from __future__ import annotations

import numpy as np

from bicore.data import Array


def falling(values: Array) -> Array:
    """The series that never rises and is nearest in squares (isotonic regression).

    Series of which one lies nowhere below the other keep that order, so that an interval's ends
    stay on their sides of the middle.

    Parameters
    ----------
    values : array (n,)
        Measured one after the other, with noise.

    Returns
    -------
    array (n,)
        Never rising.

    Examples
    --------
    >>> falling(np.array([5.0, 2.0, 4.0, 1.0])).tolist()
    [5.0, 3.0, 3.0, 1.0]
    """
    means: list[float] = []
    counts: list[int] = []
    for value in values.tolist():
        means.append(value)
        counts.append(1)
        while len(means) > 1 and means[-2] < means[-1]:
            mean, count = means.pop(), counts.pop()
            means[-1] = (counts[-1] * means[-1] + count * mean) / (counts[-1] + count)
            counts[-1] += count
    return np.repeat(means, counts)

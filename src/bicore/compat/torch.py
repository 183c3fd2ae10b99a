"""A coreset as a torch ``Dataset``: what a ``DataLoader`` needs to train on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from bicore.coreset import Coreset
from bicore.data import Dataset
from bicore.errors import InputError

__all__ = ["WeightedSubset"]


class WeightedSubset(TorchDataset[tuple[Any, Any, Tensor]]):
    """Yields ``(x, y, w)`` for each chosen point, in order of selection.

    Parameters
    ----------
    source : torch.utils.data.Dataset or bicore.Dataset
        A map-style one whose items start with (x, y), or the data itself.
    coreset : Coreset
        The answer of a selector on the same rows.
    normalise : bool
        Whether weights are scaled to mean 1, the form for a mean loss.

    Raises
    ------
    InputError
        Where the coreset has rows that the source has not; or, when a point is asked for, where a
        :class:`bicore.Dataset` has no labels.

    Examples
    --------
    >>> data = Dataset(np.eye(3), [0, 1, 1])
    >>> x, y, w = WeightedSubset(data, Coreset(np.array([2, 0])))[0]
    >>> int(y), float(w)
    (1, 1.0)
    """

    def __init__(self, source: Any, coreset: Coreset, normalise: bool = False) -> None:
        if len(coreset) and coreset.indices.max() >= len(source):
            raise InputError(
                f"index {coreset.indices.max()} is beyond the {len(source)} items of source; pass "
                "the data it was selected from."
            )
        self.source = source
        self.coreset = coreset.normalised() if normalise else coreset
        self._weights = torch.tensor(self.coreset.weights, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.coreset)

    def __getitem__(self, place: int) -> tuple[Any, Any, Tensor]:
        row = int(self.coreset.indices[place])
        if isinstance(self.source, Dataset):
            if self.source.y is None:
                raise InputError("source has no labels; a WeightedSubset yields (x, y, w).")
            x = _item(self.source.x[row])
            y = _item(self.source.y[row])
        else:
            x, y = self.source[row][:2]
        return x, y, self._weights[place]


def _item(value: Any) -> Any:
    """A row as a float32 tensor, a label as a number tensor; text stays text."""
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return str(value)
    kind = np.float32 if array.dtype.kind == "f" else array.dtype
    return torch.from_numpy(np.array(array, dtype=kind))

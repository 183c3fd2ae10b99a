"""The rows themselves: for embeddings, which are features already."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.moments.features.checked import SettledMap, as_rows


@dataclass(frozen=True, eq=False)
class Rows(SettledMap):
    """The rows as they come, each as one vector.

    Parameters
    ----------
    constant : bool
        Whether a column of ones is appended.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row; filled in by ``settled``.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import Rows
    >>> x = torch.tensor([[1.0, 2.0]])
    >>> Rows(constant=True).settled(x.numpy())(x).tolist()
    [[1.0, 2.0, 1.0]]
    """

    constant: bool = False

    @property
    def width(self) -> int:
        """How many features a row has."""
        return self._columns + int(self.constant)

    def glanced(self, x: Tensor) -> Tensor:
        """The features of rows for who only reads them, not checked to be finite.

        Parameters
        ----------
        x : Tensor
            Rows of the shape that the map was settled on.

        Returns
        -------
        Tensor
            Of shape (n, width); the rows themselves where nothing is appended.
        """
        if self.constant:
            return self.features(x)
        rows = as_rows(x)
        self._agree(tuple(rows.shape[1:]))
        return rows.reshape(len(rows), self._columns)

    def _mapped(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(len(rows), self._columns)
        if not self.constant:
            # A caller may write into features, never into the rows they came from.
            return flat.clone()
        return torch.cat([flat, flat.new_ones(len(flat), 1)], 1)

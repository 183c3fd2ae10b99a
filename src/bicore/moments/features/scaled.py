"""Columns on one scale before a map sees them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from bicore.data import Array, as_tensor
from bicore.kernels.scaling import Columns
from bicore.moments.features.base import FeatureMap, not_settled
from bicore.moments.features.checked import SettledMap


@dataclass(frozen=True, eq=False)
class Standardised(SettledMap):
    """A map of columns with mean 0 and standard deviation 1 over the first rows.

    A column that is constant there loses its mean and keeps its units.

    Parameters
    ----------
    map : FeatureMap
        What sees the standardised rows, and is settled on those.
    columns : Columns, optional
        Mean and deviation of each; by default those of the first rows.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row; filled in by ``settled``.

    Raises
    ------
    InputError
        Where a column's squares are not finite.

    Examples
    --------
    >>> import torch
    >>> from bicore.moments.features import Rows, Standardised
    >>> x = torch.tensor([[0.0, 1000.0], [2.0, 3000.0]])
    >>> Standardised(Rows()).settled(x.numpy())(x).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    map: FeatureMap
    columns: Columns | None = None

    @property
    def width(self) -> int:
        """How many features a row has."""
        return self.map.width

    def _settled_on(self, rows: Array) -> FeatureMap:
        columns = Columns.of(rows) if self.columns is None else self.columns
        first = columns.standardised(as_tensor(rows))
        inner = self.map.settled(first.numpy())
        return replace(self, columns=columns, map=inner)

    def _rows_at_once(self) -> int:
        return 1 << 62  # the map within takes some at a time, and names rows by their places

    def _mapped(self, rows: Tensor) -> Tensor:
        if self.columns is None:
            raise not_settled(self)
        return self.map.features(self.columns.standardised(rows))

"""Columns on one scale before a map sees them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor, nn

from bicore.data import Array, as_tensor
from bicore.errors import InputError
from bicore.kernels.scaling import Columns
from bicore.moments.features.base import FeatureMap, not_settled
from bicore.moments.features.checked import SettledMap, as_rows


@dataclass(frozen=True, eq=False)
class Standardised(SettledMap):
    """A map of columns with mean 0 and standard deviation 1 over the first rows.

    A column that is constant there loses its mean and keeps its units. The first rows may be few
    and all of one kind: a later value can be hundreds of deviations away, and its row outweigh all
    others in a sum of squares; ``beyond`` softens that.

    Parameters
    ----------
    map : FeatureMap
        What sees the standardised rows, and is settled on those.
    columns : Columns, optional
        Mean and deviation of each; by default those of the first rows.
    beyond : float, optional
        From so many deviations on values grow like their logarithm only (in order as before); by
        default never.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row; filled in by ``settled``.

    Raises
    ------
    InputError
        Where a column's squares are not finite, or ``beyond`` is not positive.

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
    beyond: float | None = None

    def __post_init__(self) -> None:
        if self.beyond is not None:
            if not 0 < self.beyond < math.inf:
                raise InputError(
                    f"beyond={self.beyond!r} is not a finite number > 0; give one, or None."
                )
            object.__setattr__(self, "beyond", float(self.beyond))

    def network(self) -> nn.Module | None:
        """The module of the map within.

        Returns
        -------
        torch.nn.Module or None
            None where there is none.
        """
        return self.map.network()

    @property
    def width(self) -> int:
        """How many features a row has."""
        return self.map.width

    def _settled_on(self, rows: Array) -> FeatureMap:
        columns = Columns.of(rows) if self.columns is None else self.columns
        known = replace(self, columns=columns)
        inner = self.map.settled(known._scaled(as_rows(as_tensor(rows))).numpy())
        return replace(known, map=inner)

    def _rows_at_once(self) -> int:
        return 1 << 62  # the map within takes some at a time, and names rows by their places

    def _mapped(self, rows: Tensor) -> Tensor:
        return self.map.features(self._scaled(rows))

    def _scaled(self, rows: Tensor) -> Tensor:
        """The rows as the map sees them."""
        if self.columns is None:
            raise not_settled(self)
        scores = self.columns.standardised(rows)
        return scores if self.beyond is None else softened(scores, self.beyond)


def softened(scores: Tensor, beyond: float) -> Tensor:
    """±b(1 + log(|s|/b)) for scores beyond ±b, the others as they are: a smooth, rising curve."""
    excess = (scores.abs() / beyond).clamp_min_(1)
    return scores.clamp(-beyond, beyond).mul_(excess.log_().add_(1))

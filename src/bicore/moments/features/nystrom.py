"""Nyström features: a kernel seen from landmarks among the first rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bicore.data import Array
from bicore.errors import InputError
from bicore.kernels import Kernel, Laplace
from bicore.moments.features.base import FeatureMap, not_settled
from bicore.moments.features.checked import AT_ONCE, SettledMap, count_of, on
from bicore.picking import step_rng

#: Directions of the landmark matrix below this share of the largest are left out: what is divided
#: by their root would be rounding, ten thousand times as large.
CUTOFF = 1e-8


@dataclass(frozen=True, eq=False)
class Nystrom(SettledMap):
    """A kernel seen from landmarks Z: φ(x) = k(x, Z) K_ZZ^{−½}, exact between landmarks.

    Landmarks are drawn from the rows the map is settled on; rows unlike all of them have short
    features. The kernel is evaluated in float64 whatever the rows.

    Parameters
    ----------
    kernel : Kernel
        Which is seen; what it takes from data it takes from the first rows.
    landmarks : int
        How many rows are drawn, at most.
    seed : int
        Of that draw.
    reason : str, optional
        Why this map was chosen, where it was chosen by looks.
    shape : tuple of int, optional
        Of a row; filled in by ``settled``.
    rows, root : array, optional
        Z and K_ZZ^{−½}; filled in by ``settled``.

    Raises
    ------
    InputError
        Where a value is out of its bounds, or the kernel has no rows to see.

    Examples
    --------
    >>> import torch
    >>> from bicore import RBF
    >>> from bicore.moments.features import Nystrom
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> phi = Nystrom(RBF(1.0)).settled(x.numpy())(x)
    >>> [[round(value, 3) for value in row] for row in (phi @ phi.T).tolist()]
    [[1.0, 0.368], [0.368, 1.0]]
    """

    kernel: Kernel = field(default_factory=Laplace)
    landmarks: int = 512
    seed: int = 0
    rows: Array | None = field(default=None, kw_only=True, repr=False)
    root: Array | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if getattr(self.kernel, "precomputed", True):
            raise InputError(
                f"kernel={self.kernel!r} cannot be evaluated at new rows; give a kernel such as "
                "RBF() or Laplace()."
            )
        object.__setattr__(self, "landmarks", count_of(self.landmarks, "landmarks"))
        object.__setattr__(self, "seed", count_of(self.seed, "seed", 0))

    @property
    def width(self) -> int:
        """How many features a row has: at most one a landmark."""
        return int(self._root.shape[1])

    @property
    def _root(self) -> Array:
        if self.root is None:
            raise not_settled(self)
        return self.root

    def _settled_on(self, rows: Array) -> FeatureMap:
        kernel = self.kernel.fitted(rows)
        count = min(self.landmarks, len(rows))
        picked = np.sort(step_rng(self.seed, 0).choice(len(rows), count, replace=False))
        landmarks = np.array(rows[picked], dtype=np.float64)
        with torch.no_grad():
            values, vectors = torch.linalg.eigh(kernel.gram(torch.from_numpy(landmarks)))
        seen = values > CUTOFF * values.max()
        if not bool(seen.any()):
            raise InputError(
                f"kernel={kernel.name} is zero on the first rows; settle on rows that differ from "
                "zero."
            )
        root = (vectors[:, seen] * values[seen].rsqrt()).numpy()
        return replace(self, kernel=kernel, rows=landmarks, root=np.ascontiguousarray(root))

    def _rows_at_once(self) -> int:
        pair = self.kernel.bytes_per_pair(8, self._shape) // 8 + 1
        return AT_ONCE // (pair * len(self._root))

    def _mapped(self, rows: Tensor) -> Tensor:
        points = rows.double()
        landmarks, root = self._kept(rows.device, lambda: self._placed(points))
        return self.kernel.evaluate(points, landmarks) @ root

    def _placed(self, like: Tensor) -> tuple[Tensor, Tensor]:
        assert self.rows is not None
        return on(self.rows, like), on(self._root, like)

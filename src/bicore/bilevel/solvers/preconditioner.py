"""A preconditioner of the Newton system that grows with the coreset."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.bilevel.solvers.factors import lower_factor, shifted
from bicore.losses import Curvature

#: A typical curvature below this share of the largest is raised to it: rough, but rounding is not
#: amplified.
PRECONDITIONER_FLOOR = 1e-4
#: It is made anew after this many bordering rows.
REFRESH = 25
#: Rounding may push a Schur complement below the shift that bounds it; it is not let below this
#: share of it.
BORDER_FLOOR = 0.5


class Carried:
    """What one solve leaves to the next; a solver takes up its own kind and ignores others."""


@dataclass(frozen=True, eq=False)
class Preconditioner(Carried):
    """P = (s I + D K)⁻¹ = D^½ B⁻¹ D^−½ with B = s I + D^½ K D^½ and B⁻¹ stored.

    K P r needs no product by K: with y = D^−½ r it is D^−½ (y − s B⁻¹ y). Any s and D near the
    system's own serve, so an inverse lasts for many solves, and grows by a bordering row when a
    point joins.
    """

    root: Tensor
    inverse: Tensor
    shift: float
    age: int = 0

    @classmethod
    def fitting(
        cls, carried: Carried | None, gram: Tensor, curvature: Curvature, shift: float
    ) -> Preconditioner:
        """The one carried along while it fits; a bordered one when a single point is new; otherwise
        a fresh one."""
        size = len(gram)
        if isinstance(carried, cls):
            if len(carried.root) == size:
                return carried
            if len(carried.root) == size - 1 and carried.age < REFRESH:
                return carried._bordered(gram[-1], cls._roots(curvature)[-1:])
        root = cls._roots(curvature)
        inverse = torch.cholesky_inverse(lower_factor(shifted(gram, root[:, 0], shift)))
        return cls(root, inverse, shift)

    @staticmethod
    def _roots(curvature: Curvature) -> Tensor:
        typical = curvature.typical()
        return typical.clamp_min(
            PRECONDITIONER_FLOOR * float(typical.max()) + torch.finfo(typical.dtype).tiny
        ).sqrt()[:, None]

    def _bordered(self, row: Tensor, root: Tensor) -> Preconditioner:
        """Bordering: B⁻¹ of one more row and column from the inverse of the smaller matrix."""
        m = len(self.root)
        border = row[:m] * self.root[:, 0] * root[0, 0]
        solved = self.inverse @ border
        corner = self.shift + float(row[m] * root[0, 0] ** 2)
        schur = corner - float(torch.dot(border, solved))
        # in exact arithmetic it is at least the shift
        schur = max(schur, self.shift * BORDER_FLOOR)
        inverse = self.inverse.new_empty(m + 1, m + 1)
        torch.addr(self.inverse, solved, solved, alpha=1 / schur, out=inverse[:m, :m])
        inverse[:m, m] = inverse[m, :m] = solved / -schur
        inverse[m, m] = 1 / schur
        return Preconditioner(torch.cat([self.root, root]), inverse, self.shift, self.age + 1)

    def apply(self, right: Tensor) -> tuple[Tensor, Tensor]:
        """P r and K P r."""
        scaled = right / self.root
        inner = self.inverse @ scaled
        return inner * self.root, scaled.sub_(inner, alpha=self.shift).div_(self.root)

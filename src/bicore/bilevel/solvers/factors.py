"""Direct factors of the Newton system: (s I + A K)⁻¹ A, for each structure that a curvature A can
have.

    (s I + A K)⁻¹ A = A^½ (s I + A^½ K A^½)⁻¹ A^½

and, for softmax blocks, algorithm 3.3 of Rasmussen & Williams (2006): C factors of size m instead
of one of size C·m.

A preconditioner of the Newton system that grows with the coreset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bicore.errors import NumericalError
from bicore.losses import Curvature, CurvatureKind

#: Curvature below this share of the largest is raised to it where a factor needs it positive.
CURVATURE_FLOOR = 1e-12


class Factor(ABC):
    """(s I + A K)⁻¹ A for a curvature A that was factorised once."""

    @classmethod
    @abstractmethod
    def of(cls, gram: Tensor, curvature: Curvature, shift: float, outputs: int) -> Factor:
        """The factor of this curvature."""

    @abstractmethod
    def apply(self, values: Tensor) -> Tensor:
        """(s I + A K)⁻¹ A · values."""


def lower_factor(matrix: Tensor) -> Tensor:
    """The Cholesky factor, or an error in words."""
    result: Tensor
    result, info = torch.linalg.cholesky_ex(matrix)
    if bool(info.any()):
        raise NumericalError(
            "a Cholesky factor of the inner problem failed: the kernel matrix is not positive "
            "semi-definite at this "
            "precision; use float64 or a larger inner_reg."
        )
    return result


def shifted(gram: Tensor, root: Tensor, shift: float) -> Tensor:
    """s I + D^½ K D^½, for one row of roots or a batch of them."""
    matrix = gram * root.unsqueeze(-1) * root.unsqueeze(-2)
    matrix.diagonal(dim1=-2, dim2=-1).add_(shift)
    return matrix


@dataclass(frozen=True, eq=False)
class IsotropicFactor(Factor):
    """A = diag(a): A^½ (s I + A^½ K A^½)⁻¹ A^½."""

    root: Tensor
    lower: Tensor

    @classmethod
    def of(cls, gram: Tensor, curvature: Curvature, shift: float, outputs: int) -> IsotropicFactor:
        root = curvature.separate().clamp_min(0).sqrt()
        return cls(root, lower_factor(shifted(gram, root[:, 0], shift)))

    def apply(self, values: Tensor) -> Tensor:
        return self.root * torch.cholesky_solve(self.root * values, self.lower)


@dataclass(frozen=True, eq=False)
class SoftmaxFactor(Factor):
    """E − E R (Rᵀ E R)⁻¹ Rᵀ E with E_c = D_c^½ (s I + D_c^½ K D_c^½)⁻¹ D_c^½ for each class and R
    the sum over classes."""

    parts: Tensor
    lower: Tensor

    @classmethod
    def of(cls, gram: Tensor, curvature: Curvature, shift: float, outputs: int) -> SoftmaxFactor:
        weighted = curvature.separate().T.contiguous()
        root = weighted.clamp_min(CURVATURE_FLOOR * float(weighted.max())).sqrt()
        parts = torch.cholesky_inverse(lower_factor(shifted(gram, root, shift)))
        parts.mul_(root.unsqueeze(-1)).mul_(root.unsqueeze(-2))
        # positive definite but for rounding, when some weights are tiny beside others
        total = parts.sum(0)
        total.diagonal().add_(total.diagonal().max() * torch.finfo(total.dtype).eps)
        return cls(parts, lower_factor(total))

    def apply(self, values: Tensor) -> Tensor:
        single = self.parts @ values.T.unsqueeze(-1)
        common = torch.cholesky_solve(single.sum(0), self.lower)
        return (single - self.parts @ common).squeeze(-1).T


@dataclass(frozen=True, eq=False)
class GeneralFactor(Factor):
    """Any blocks A = root rootᵀ: one factor of size m·C."""

    root: Tensor
    lower: Tensor

    @classmethod
    def of(cls, gram: Tensor, curvature: Curvature, shift: float, outputs: int) -> GeneralFactor:
        blocks = curvature.blocks(outputs)
        m = len(blocks)
        eigenvalues, vectors = torch.linalg.eigh(blocks)
        root = vectors * eigenvalues.clamp_min(0).sqrt()[:, None, :]
        matrix = torch.einsum("iab,ij,jac->ibjc", root, gram, root).reshape(
            m * outputs, m * outputs
        )
        matrix.diagonal().add_(shift)
        return cls(root, lower_factor(matrix))

    def apply(self, values: Tensor) -> Tensor:
        right = torch.einsum("mab,ma->mb", self.root, values)
        inner = torch.cholesky_solve(right.reshape(-1, 1), self.lower).reshape(right.shape)
        return torch.einsum("mab,mb->ma", self.root, inner)


#: The cheapest factor that is exact for each structure of curvature.
FACTORS: dict[CurvatureKind, type[Factor]] = {
    CurvatureKind.ISOTROPIC: IsotropicFactor,
    CurvatureKind.SOFTMAX: SoftmaxFactor,
    CurvatureKind.GENERAL: GeneralFactor,
}


def factorised(gram: Tensor, curvature: Curvature, shift: float, outputs: int) -> Factor:
    """The factor of a Newton system, by the table above."""
    return FACTORS[curvature.kind].of(gram, curvature, shift, outputs)


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

"""Direct factors of the Newton system: (s I + A K)⁻¹ A, for each structure that a curvature A can
have.

    (s I + A K)⁻¹ A = A^½ (s I + A^½ K A^½)⁻¹ A^½

and, for softmax blocks, algorithm 3.3 of Rasmussen & Williams (2006): C factors of size m instead
of one of size C·m.
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

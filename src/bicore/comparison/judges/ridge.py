"""Kernel ridge regression, its penalty chosen by leaving out each point of the selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bicore.comparison.judges.base import Judge, in_parts
from bicore.comparison.judges.sample import Sample
from bicore.comparison.judges.tuning import enough, few
from bicore.errors import InputError
from bicore.kernels.base import Kernel
from bicore.kernels.classical import RBF

#: Penalties that are tried, relative to the mean of the kernel's diagonal: half decades, from one
#: that follows every label to one that leaves little but the mean.
GRID = tuple(10 ** (power / 2) for power in range(-8, 5))
#: Where points are too few to tune by: a penalty that believes a label more than not.
DEFAULT = 0.1
#: Test points that are predicted at a time.
KERNEL_ROWS = 1000
#: A share of the weight below which the points besides one tell no mean.
NO_REST = 1e-9


@dataclass(frozen=True)
class RidgeJudge(Judge):
    """Kernel ridge regression.

    Parameters
    ----------
    kernel : Kernel, optional
        By default an RBF whose bandwidth is the median distance of the test points.
    ridge : float, optional
        The penalty, relative to the mean of the kernel's diagonal. By default that of the smallest
        squared error over the selection's own points, each left out in turn; 0.1 where they are
        too few to tell.

    Raises
    ------
    InputError
        Where the penalty is not positive.

    Examples
    --------
    >>> from bicore import Laplace
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> RidgeJudge(Laplace(1.0)).scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    kernel: Kernel | None = None
    ridge: float | None = None
    name = "ridge"

    def __post_init__(self) -> None:
        if self.ridge is not None and not self.ridge > 0:
            raise InputError(
                f"ridge={self.ridge} is not positive; give ridge > 0, or None to have it tuned."
            )

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        kernel = self.kernel or RBF().fitted(test.x.double().cpu().numpy())
        return [self._predicted(kernel, sample, test, outputs) for sample in selections]

    def _predicted(self, kernel: Kernel, sample: Sample, test: Sample, outputs: int) -> Tensor:
        x = sample.x.double()
        gram = kernel.gram(x)
        targets = (F.one_hot(sample.y, outputs) if sample.classification else sample.y).double()
        weight = sample.weight.double().clamp_min(torch.finfo(torch.float64).tiny)
        centre = (weight / weight.sum()) @ targets
        ridge = self._tuned(sample, gram, targets, weight) if self.ridge is None else self.ridge
        shift = torch.diag(ridge * gram.diagonal().mean() / weight)
        alpha = torch.linalg.solve(gram + shift, targets - centre)
        parts = in_parts(test.x, KERNEL_ROWS)
        predicted = torch.cat([kernel.evaluate(part.double(), x) @ alpha for part in parts])
        return predicted + centre

    @staticmethod
    def _tuned(sample: Sample, gram: Tensor, targets: Tensor, weight: Tensor) -> float:
        if not enough(sample):
            return DEFAULT
        # the penalty stands for the noise of a label, which does not depend on how many there are
        some = few(len(sample), gram.device)
        mean = float(gram.diagonal().mean())
        errors = left_out_errors(
            gram[some][:, some], targets[some], weight[some], [mean * ridge for ridge in GRID]
        )
        return GRID[min(range(len(GRID)), key=lambda place: (errors[place], -place))]


def left_out_errors(
    gram: Tensor, targets: Tensor, weight: Tensor, penalties: Sequence[float]
) -> list[float]:
    """The squared error over points, each predicted by the model of all others, for each penalty.

    Exact, also in the mean that is subtracted first: of A = K + λW⁻¹, the error of a point is
    (A⁻¹(y − c))ᵢ/(A⁻¹)ᵢᵢ with the mean c of the others. One eigendecomposition of W^½KW^½ serves
    all penalties.

    Parameters
    ----------
    gram : Tensor (n, n)
        The kernel matrix.
    targets : Tensor (n, outputs)
        What is predicted.
    weight : Tensor (n,)
        Positive weights: of a point's error, both in the fit and here.
    penalties : sequence of float
        Values of λ.

    Returns
    -------
    list of float
        One sum a penalty.

    Examples
    --------
    >>> gram = torch.eye(2, dtype=torch.float64)
    >>> left_out_errors(gram, torch.tensor([[0.0], [1.0]]).double(), torch.ones(2).double(), [1.0])
    [2.0]
    """
    root = weight.sqrt()
    values, vectors = torch.linalg.eigh(root[:, None] * gram * root)
    values = values.clamp_min(0)
    rotated, constant = vectors.T @ (root[:, None] * targets), vectors.T @ root
    centre = _means_of_others(targets, weight)
    errors = []
    for penalty in penalties:
        inverse = vectors / (values + penalty)
        diagonal = (inverse * vectors).sum(1)
        error = inverse @ rotated - (inverse @ constant)[:, None] * centre
        errors.append(float((error / diagonal[:, None]).square().sum()))
    return errors


def _means_of_others(targets: Tensor, weight: Tensor) -> Tensor:
    """For each point the weighted mean of all others; of all points where it has all the weight."""
    total = weight.sum()
    whole = weight @ targets
    rest = (total - weight)[:, None]
    others = (whole - weight[:, None] * targets) / rest.clamp_min(NO_REST * total)
    return torch.where(rest > NO_REST * total, others, whole / total)

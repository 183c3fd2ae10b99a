"""Kernel ridge regression, its penalty chosen by rows of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bicore.errors import InputError
from bicore.evaluate.judges.base import Judge, in_parts
from bicore.evaluate.judges.sample import Sample
from bicore.evaluate.judges.tuning import apart, best
from bicore.kernels.base import Kernel
from bicore.kernels.classical import RBF

#: Penalties that are tried, relative to the mean of the kernel's diagonal: where there are no rows
#: to try them on, one that believes a label more than not; then half decades, from one that leaves
#: little but the mean to one that follows every label.
GRID = (0.1, *(10 ** (power / 2) for power in range(4, -9, -1)))
#: Points that penalties are tried with; each takes a fit.
MOST_TRIED = 500
#: Test points that are predicted at a time.
KERNEL_ROWS = 1000


@dataclass(frozen=True)
class RidgeJudge(Judge):
    """Kernel ridge regression.

    Parameters
    ----------
    kernel : Kernel, optional
        By default an RBF whose bandwidth is the median distance of the test points.
    ridge : float, optional
        The penalty, relative to the mean of the kernel's diagonal. By default that of the smallest
        squared error on rows of the pool, and 0.1 without such.
    rows : Sample, optional
        Rows of the pool to tune by.

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
    rows: Sample | None = field(default=None, compare=False, repr=False)
    name = "ridge"

    def __post_init__(self) -> None:
        if self.ridge is not None and not self.ridge > 0:
            raise InputError(
                f"ridge={self.ridge} is not positive; give ridge > 0, or None to have it tuned."
            )

    def tuned_by(self, rows: Sample) -> RidgeJudge:
        return replace(self, rows=rows)

    def predictions(
        self, selections: Sequence[Sample], test: Sample, outputs: int, seed: int
    ) -> list[Tensor]:
        kernel = self.kernel or RBF().fitted(test.x.double().cpu().numpy())
        return [self._predicted(kernel, sample, test, outputs, seed) for sample in selections]

    def _predicted(
        self, kernel: Kernel, sample: Sample, test: Sample, outputs: int, seed: int
    ) -> Tensor:
        ridge = GRID[0] if self.ridge is None else self.ridge
        if self.ridge is None and self.rows is not None:
            points, rows = apart(sample, self.rows)
            if len(points):
                tried = _Fits(kernel, _some(points, seed), outputs)
                ridge = best(GRID, rows, outputs, lambda one: tried.said(one, rows).cpu().numpy())
        return _Fits(kernel, sample, outputs).said(ridge, test)


def _some(points: Sample, seed: int) -> Sample:
    """As many as penalties are tried with: a penalty is that of a label's noise.

    They are drawn, in order: every tenth of a selection that takes classes in turn is of one class.
    """
    if len(points) <= MOST_TRIED:
        return points
    rng = np.random.default_rng((seed, MOST_TRIED))
    rows = torch.from_numpy(np.sort(rng.choice(len(points), MOST_TRIED, replace=False)))
    rows = rows.to(points.x.device)
    return Sample(points.x[rows], points.y[rows], points.weight[rows])


class _Fits:
    """Kernel ridge regressions of the same points."""

    def __init__(self, kernel: Kernel, sample: Sample, outputs: int) -> None:
        self.kernel = kernel
        self.x = sample.x.double()
        self.gram = kernel.gram(self.x)
        targets = F.one_hot(sample.y, outputs) if sample.classification else sample.y
        self.weight = sample.weight.double().clamp_min(torch.finfo(torch.float64).tiny)
        self.centre = (self.weight / self.weight.sum()) @ targets.double()
        self.rest = targets.double() - self.centre

    def said(self, ridge: float, asked: Sample) -> Tensor:
        """What the fit under a penalty says of some points."""
        shift = torch.diag(ridge * self.gram.diagonal().mean() / self.weight)
        alpha = torch.linalg.solve(self.gram + shift, self.rest)
        parts = in_parts(asked.x, KERNEL_ROWS)
        said = [self.kernel.evaluate(part.double(), self.x) @ alpha for part in parts]
        return torch.cat(said) + self.centre

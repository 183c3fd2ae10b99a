"""Linear models: logistic regression for classes, ridge regression for targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bicore.evaluate.judges.table import TableJudge
from bicore.evaluate.judges.tuning import Scaling

#: Inverse penalties, the one without rows to tune by first, then from almost nothing learnt to
#: almost nothing held back.
GRID = (1.0, 1e-2, 1e-1, 10.0, 100.0)
#: A judge's coefficients need few digits.
TOLERANCE = 1e-3
ITERATIONS = 200


@dataclass(frozen=True)
class LogisticJudge(TableJudge):
    """Multinomial logistic regression; for targets ridge regression.

    With rows of the pool to tune by, the penalty is that of the smallest squared error on them,
    and so is whether columns are scaled one by one or all together.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool that settings are chosen by, where there are any.

    Examples
    --------
    >>> import torch
    >>> from bicore.evaluate import Sample
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> LogisticJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name = "logistic"
    settings = tuple((how, one) for how in (Scaling.COLUMNS, Scaling.WHOLE) for one in GRID)

    def title(self, classification: bool) -> str:
        return "logistic" if classification else "linear (ridge regression)"

    def classifier(self, number: float, seed: int) -> Any:
        from sklearn.linear_model import LogisticRegression  # here: importing bicore stays light

        return LogisticRegression(C=number, max_iter=ITERATIONS, tol=TOLERANCE)

    def regressor(self, number: float, seed: int) -> Any:
        from sklearn.linear_model import Ridge

        return Ridge(1 / number)

"""Linear models: logistic regression for classes, ridge regression for targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.comparison.judges.sample import Sample
from bicore.comparison.judges.table import TableJudge, class_shares
from bicore.comparison.judges.tuning import enough, few, folds
from bicore.data import Array

#: Inverse penalties that are tried on columns of variance 1, from almost nothing learnt to almost
#: nothing held back.
GRID = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
#: Where points are too few to tune by.
DEFAULT = 0.3
#: Penalties of the ridge regression, likewise.
PENALTIES = tuple(10 ** (power / 2) for power in range(-1, 9))
DEFAULT_PENALTY = 1 / DEFAULT
#: A judge's coefficients need few digits.
TOLERANCE = 1e-3
ITERATIONS = 200


@dataclass(frozen=True)
class LogisticJudge(TableJudge):
    """Multinomial logistic regression; for targets ridge regression.

    The penalty is that of the smallest squared error of probabilities over three folds of the
    selection, or over its points left out one by one where they are targets.

    Examples
    --------
    >>> import torch
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> LogisticJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name = "logistic"
    scales = True

    def title(self, classification: bool) -> str:
        return "logistic" if classification else "linear (ridge regression)"

    def classifier(self, sample: Sample, seed: int) -> Any:
        return _model(_tuned(sample, seed))

    def regressor(self, sample: Sample, seed: int) -> Any:
        from sklearn.linear_model import Ridge, RidgeCV  # here: importing bicore stays light

        return RidgeCV(PENALTIES) if enough(sample) else Ridge(DEFAULT_PENALTY)


def _model(inverse_penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=inverse_penalty, max_iter=ITERATIONS, tol=TOLERANCE)


def _tuned(sample: Sample, seed: int) -> float:
    if not enough(sample):
        return DEFAULT
    some = few(len(sample), sample.x.device)
    sample = Sample(sample.x[some], sample.y[some], sample.weight[some])
    parts = folds(sample.y.numpy(), seed)
    errors = [_error(sample, parts, value, seed) for value in GRID]
    return GRID[int(np.argmin(errors))]  # of equals the one that holds back more


def _error(sample: Sample, parts: Array, inverse_penalty: float, seed: int) -> float:
    """The squared error of probabilities on each fold by a model of the others."""
    classes = int(sample.y.max()) + 1
    total = 0.0
    for part in np.unique(parts):
        out, rest = parts == part, parts != part
        inside = Sample(sample.x[rest], sample.y[rest], sample.weight[rest])
        shares = class_shares(
            lambda one, seed: _model(inverse_penalty), inside, sample.x[out].numpy(), classes, seed
        )
        goal = np.eye(classes)[sample.y[out].numpy()]
        total += float(sample.weight[out].numpy() @ np.square(shares - goal).sum(1))
    return total

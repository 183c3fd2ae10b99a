"""Boosted trees that work from a few dozen rows on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bicore.evaluate.judges.table import TableJudge

#: Each tree sees half of the rows, and a split a random few of the columns: of a few dozen rows,
#: greedy trees on all of them repeat the same splits and overfit them.
SETTINGS = {
    "n_estimators": 100,
    "learning_rate": 0.1,
    "subsample": 0.5,
    "max_features": "sqrt",
    "max_depth": 3,
}


@dataclass(frozen=True)
class BoostingJudge(TableJudge):
    """Gradient boosting: 100 rounds of small trees, each on half of the rows.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool that settings are chosen by, where there are any.

    Examples
    --------
    >>> import torch
    >>> from bicore.evaluate import Sample
    >>> x = torch.linspace(0, 1, 40)[:, None]
    >>> points = Sample(x, (x[:, 0] > 0.5).long(), torch.ones(40))
    >>> BoostingJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name = "boosting"

    def classifier(self, number: float, seed: int) -> Any:
        from sklearn.ensemble import GradientBoostingClassifier  # here: importing stays light

        return GradientBoostingClassifier(random_state=seed, **SETTINGS)

    def regressor(self, number: float, seed: int) -> Any:
        from sklearn.ensemble import GradientBoostingRegressor

        return GradientBoostingRegressor(random_state=seed, **SETTINGS)

"""A random forest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bicore.evaluate.judges.table import TableJudge

TREES = 100


@dataclass(frozen=True)
class ForestJudge(TableJudge):
    """A random forest of 100 trees.

    Parameters
    ----------
    rows : Sample, optional
        Rows of the pool that settings are chosen by, where there are any.

    Examples
    --------
    >>> import torch
    >>> from bicore.evaluate import Sample
    >>> points = Sample(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), torch.ones(2))
    >>> ForestJudge().scores([points], points, outputs=2, seed=0)
    [1.0]
    """

    name = "forest"

    def classifier(self, number: float, seed: int) -> Any:
        from sklearn.ensemble import RandomForestClassifier  # here: importing bicore stays light

        return RandomForestClassifier(TREES, n_jobs=1, random_state=seed)

    def regressor(self, number: float, seed: int) -> Any:
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(TREES, n_jobs=1, random_state=seed)

"""Linear heads trained on a few rows of an embedding, tuned as a comparison tunes its judges."""

from __future__ import annotations

import numpy as np
import torch

from bicore import Dataset, Linear
from bicore.comparison import LogisticJudge, RidgeJudge
from bicore.comparison.judges import Sample, as_sample
from bicore.comparison.judges.tuning import drawn

CLASSES = 10
CPU = torch.device("cpu")


def labelled(x: np.ndarray, y: np.ndarray) -> Sample:
    """Rows that all count the same."""
    return as_sample(x, y, np.ones(len(x)), CPU, True)


class Heads:
    """Ridge and logistic regression whose settings some rows of the stream choose.

    The same rows for every memory of a seed; none of them teaches a head.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.seed = seed
        rows = drawn(len(x), seed)
        tuning = labelled(x[rows], y[rows])
        self.judges = {
            "ridge": RidgeJudge(Linear()).tuned_by(tuning),
            "logistic": LogisticJudge().tuned_by(tuning),
        }

    def ridge(self, kept: Dataset, test: Sample) -> float:
        """Accuracy of the ridge head alone."""
        return self._score("ridge", labelled(kept.x, kept.y), test)

    def both(self, kept: Dataset, test: Sample) -> dict[str, float]:
        """Accuracies of both heads."""
        return self.both_of(kept.x, kept.y, test)

    def both_of(self, x: np.ndarray, y: np.ndarray, test: Sample) -> dict[str, float]:
        sample = labelled(x, y)
        return {name: self._score(name, sample, test) for name in self.judges}

    def _score(self, name: str, sample: Sample, test: Sample) -> float:
        return self.judges[name].scores([sample], test, CLASSES, self.seed)[0]

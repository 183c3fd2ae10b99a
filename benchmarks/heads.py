"""Linear heads trained on a few rows of an embedding, tuned as a comparison tunes its judges."""

import numpy as np
import torch

from bicore import Dataset
from bicore.evaluate.models import RIDGES as GRID
from bicore.evaluate.models import LogisticJudge, RidgeJudge
from bicore.evaluate.samples import Sample, as_sample
from bicore.evaluate.samples import choose_setting as best
from bicore.evaluate.samples import draw_tuning_rows as drawn
from bicore.evaluate.samples import separate as apart
from bicore.evaluate.samples import targets_of as goals
from bicore.kernels import Linear

CLASSES = 10
CPU = torch.device("cpu")


def labelled(x: np.ndarray, y: np.ndarray) -> Sample:
    """Rows that all count the same."""
    return as_sample(x, y, np.ones(len(x)), CPU, True)


class Heads:
    """Linear heads whose settings some rows of the stream choose.

    "ridge" and "logistic" are the judges of a comparison, both with an intercept: the ridge judge
    fits what is left of labels beyond their shares among the rows kept. "plain" is ridge regression
    without one, as a moment memory's objective has it. The rows that tune are the same for every
    memory of a seed, and none of them teaches a head.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.seed = seed
        rows = drawn(len(x), seed)
        self.tuning = labelled(x[rows], y[rows])
        self.judges = {
            "ridge": RidgeJudge(Linear()).tuned_by(self.tuning),
            "logistic": LogisticJudge().tuned_by(self.tuning),
        }

    def ridges(self, kept: Dataset, test: Sample) -> dict[str, float]:
        """Accuracies of the two that take no time."""
        sample = labelled(kept.x, kept.y)
        score = self.judges["ridge"].scores([sample], test, CLASSES, self.seed)[0]
        return {"ridge": score, "plain": self._plain(sample, test)}

    def all(self, kept: Dataset, test: Sample) -> dict[str, float]:
        """Accuracies of every head."""
        sample = labelled(kept.x, kept.y)
        logistic = self.judges["logistic"].scores([sample], test, CLASSES, self.seed)[0]
        return {**self.ridges(kept, test), "logistic": logistic}

    def _plain(self, sample: Sample, test: Sample) -> float:
        points, rows = apart(sample, self.tuning)
        x, targets = points.x.double().numpy(), goals(points, CLASSES).numpy()
        gram = x @ x.T
        scale = float(gram.diagonal().mean())

        def model(ridge: float) -> np.ndarray:
            return x.T @ np.linalg.solve(gram + ridge * scale * np.eye(len(x)), targets)

        chosen = best(GRID, rows, CLASSES, lambda ridge: rows.x.double().numpy() @ model(ridge))
        said = test.x.double().numpy() @ model(chosen)
        return float((said.argmax(1) == test.y.numpy()).mean())

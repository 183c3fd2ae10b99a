"""Linear heads trained on a few rows of an embedding, tuned like the models of a comparison."""

import numpy as np
import torch

from bicore import Dataset
from bicore.evaluate.models import (
    RIDGES,
    LogisticJudge,
    RidgeJudge,
    Sample,
    as_sample,
    choose_setting,
    draw_tuning_rows,
    split_tuning_rows,
    targets_of,
)
from bicore.kernels import Linear

CLASSES = 10
CPU = torch.device("cpu")


def label_rows(x: np.ndarray, y: np.ndarray) -> Sample:
    """Rows that all count the same."""
    return as_sample(x, y, np.ones(len(x)), CPU, True)


class Heads:
    """Linear heads whose settings some rows of the stream choose.

    "ridge" and "logistic" are the models of a comparison, both with an intercept: the ridge model
    fits what is left of labels beyond their shares among the rows kept. "plain" is ridge regression
    without one, as a moment memory's objective has it. The rows that tune are the same for every
    memory of a seed, and none of them teaches a head.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.seed = seed
        rows = draw_tuning_rows(len(x), seed)
        self.tuning = label_rows(x[rows], y[rows])
        judges = {"ridge": RidgeJudge(Linear()), "logistic": LogisticJudge()}
        self.judges = {name: judge.tune(self.tuning) for name, judge in judges.items()}

    def _score(self, name: str, kept: Dataset, test: Sample) -> float:
        sample = label_rows(kept.x, kept.y)
        return self.judges[name].scores([sample], test, CLASSES, self.seed)[0]

    def score_ridges(self, kept: Dataset, test: Sample) -> dict[str, float]:
        """Accuracies of the two that take no time."""
        return {"ridge": self._score("ridge", kept, test), "plain": self._score_plain(kept, test)}

    def score_all(self, kept: Dataset, test: Sample) -> dict[str, float]:
        """Accuracies of every head."""
        return {**self.score_ridges(kept, test), "logistic": self._score("logistic", kept, test)}

    def _score_plain(self, kept: Dataset, test: Sample) -> float:
        points, rows = split_tuning_rows(label_rows(kept.x, kept.y), self.tuning)
        x, targets = points.x.double().numpy(), targets_of(points, CLASSES).numpy()
        gram = x @ x.T
        scale = float(gram.diagonal().mean())

        def model(ridge: float) -> np.ndarray:
            return x.T @ np.linalg.solve(gram + ridge * scale * np.eye(len(x)), targets)

        tuning = rows.x.double().numpy()
        chosen = choose_setting(RIDGES, rows, CLASSES, lambda ridge: tuning @ model(ridge))
        said = test.x.double().numpy() @ model(chosen)
        return float((said.argmax(1) == test.y.numpy()).mean())

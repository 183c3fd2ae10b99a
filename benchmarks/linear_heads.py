"""Linear heads on selected rows of an embedding: accuracy on rows of a test set."""

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifier

#: Penalties, as shares of the mean eigenvalue (ridge) and as 1/C (logistic). Held-out rows of the
#: pool choose among them, the same number for every selection.
PENALTIES = (0.1, 1.0, 10.0)
TUNING_ROWS = 300
MOST_ITERATIONS = 500
CLASSES = 10
Data = dict[str, np.ndarray]


def head_accuracies(picks: np.ndarray, data: Data, logistic: bool = True) -> dict[str, float]:
    """Accuracies on ``test_x`` and ``test_y`` of heads trained on the rows ``picks``."""
    x, y = data["x"][picks].astype(np.float64), data["y"][picks]
    if len(np.unique(y)) < 2:
        score = float((data["test_y"] == y[0]).mean())
        return dict.fromkeys(["logistic", "ridge"][not logistic :], score)
    energy = x.var(0).mean() * len(x) + np.finfo(float).tiny
    heads = {
        "logistic": [LogisticRegression(C=1 / one, max_iter=MOST_ITERATIONS) for one in PENALTIES],
        "ridge": [RidgeClassifier(one * energy / x.var()) for one in PENALTIES],
    }
    scale = x.std()
    others = np.setdiff1d(np.arange(len(data["y"])), picks)
    rows = np.random.default_rng(0).choice(others, min(TUNING_ROWS, len(others)), replace=False)
    tuning = data["x"][rows].astype(np.float64) / scale, data["y"][rows]
    found = {}
    for name in list(heads)[not logistic :]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations
            fitted = [head.fit(x / scale, y) for head in heads[name]]
        best = max(fitted, key=lambda head: head.score(*tuning))
        found[name] = float(best.score(data["test_x"] / scale, data["test_y"]))
    return found

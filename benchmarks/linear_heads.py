"""Linear heads on chosen rows of an embedding: accuracy on rows of a test set."""

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

#: Penalties, as shares of the mean eigenvalue (ridge) and as 1/C (logistic); the best of three
#: counts, for every selection alike.
PENALTIES = (0.1, 1.0, 10.0)
MOST_ITERATIONS = 500
CLASSES = 10
Data = dict[str, np.ndarray]


def head_accuracies(picks: np.ndarray, data: Data, logistic: bool = True) -> dict[str, float]:
    """Accuracies of heads trained on these rows, tested on ``test_x`` and ``test_y``."""
    x, y = data["x"][picks].astype(np.float64), data["y"][picks]
    test = data["test_x"], data["test_y"]
    found = {"logistic": _logistic(x, y, *test)} if logistic else {}
    return {**found, "ridge": _ridge(x, y, *test)}


def _ridge(x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> float:
    """Of ridge regression to one-hot labels, with an intercept."""
    scale = x.var(0).mean() * len(x) + np.finfo(float).tiny
    found = []
    for share in PENALTIES:
        scores = Ridge(share * scale).fit(x, np.eye(CLASSES)[y]).predict(test_x)
        found.append(float((scores.argmax(1) == test_y).mean()))
    return max(found)


def _logistic(x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> float:
    """Of multinomial logistic regression on rows divided by their common deviation."""
    if len(np.unique(y)) < 2:
        return float((test_y == y[0]).mean())
    scale = x.std()
    found = []
    for penalty in PENALTIES:
        head = LogisticRegression(C=1.0 / penalty, max_iter=MOST_ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            head.fit(x / scale, y)
        found.append(float(head.score(test_x / scale, test_y)))
    return max(found)

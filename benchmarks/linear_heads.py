"""Linear heads on chosen rows, which embeddings are for: accuracy on rows of a test set."""

from __future__ import annotations

import warnings

import numpy as np

#: Penalties, as shares of the mean eigenvalue (ridge) and as 1/C (logistic); the
#: best of three is told, for every selection alike.
RIDGES, PENALTIES = (0.1, 1.0, 10.0), (0.1, 1.0, 10.0)
MOST_ITERATIONS = 500


def ridge_accuracy(
    x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, classes: int
) -> float:
    """Of ridge regression to one-hot labels, with an intercept."""
    mean = x.mean(0)
    rows = x - mean
    targets = np.eye(classes)[y]
    centre = targets.mean(0)
    second = rows.T @ rows
    cross = rows.T @ (targets - centre)
    scale = np.trace(second) / len(second) + np.finfo(float).tiny
    found = []
    for share in RIDGES:
        system = second + share * scale * np.eye(len(second))
        scores = (test_x - mean) @ np.linalg.solve(system, cross) + centre
        found.append(float((scores.argmax(1) == test_y).mean()))
    return max(found)


def logistic_accuracy(
    x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray
) -> float:
    """Of multinomial logistic regression on rows divided by their common deviation."""
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(y)) < 2:
        return float((test_y == y[0]).mean())
    scale = x.std()
    found = []
    for penalty in PENALTIES:
        head = LogisticRegression(C=1.0 / penalty, max_iter=MOST_ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            head.fit(x / scale, y)
        found.append(float((head.predict(test_x / scale) == test_y).mean()))
    return max(found)

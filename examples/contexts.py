"""Select eight contexts for a model that reads few rows, and average its predictions.

python examples/contexts.py [TABLE.csv COLUMN]

COLUMN holds the labels; without a table, scikit-learn's digits are used. Replace ``make_model`` by
TabPFN or any other model with ``fit(X, y)`` and ``predict_proba(X)``.
"""

import sys

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

import bicore
from bicore.errors import BicoreError
from bicore.sources.opening import open_source

#: Rows of a context, contexts, the share of rows to test on, and random draws to compare with.
SIZE, CONTEXTS, TEST, DRAWS = 30, 8, 0.25, 5


def make_model() -> KNeighborsClassifier:
    """A model that reads all rows of its context for each prediction."""
    return KNeighborsClassifier(3)


def accuracy(contexts: list[np.ndarray]) -> float:
    """Fit a model on the rows of each context and average the probabilities."""
    odds = np.zeros((len(test), len(classes)))
    for rows in contexts:
        model = make_model().fit(x[rows], y[rows])
        odds[:, model.classes_] += model.predict_proba(x[test])
    return float((odds.argmax(1) == y[test]).mean())


try:
    path, target = sys.argv[1:] or ("digits", None)
    data = open_source(path, target=target).data
except (OSError, ValueError, BicoreError) as error:
    raise SystemExit(f"{error}") from None
x, (classes, y) = data.x, np.unique(data.y, return_inverse=True)
test, pool = np.split(np.random.default_rng(0).permutation(len(x)), [int(TEST * len(x))])

selected = [pool[rows] for rows in bicore.contexts(x[pool], y[pool], SIZE, CONTEXTS)]
for count in (1, CONTEXTS):
    drawn = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        drawn.append(accuracy([rng.permutation(pool)[:SIZE] for _ in range(count)]))
    words = "1 context" if count == 1 else f"{count} contexts"
    own = f"accuracy {accuracy(selected[:count]):.3f}"
    print(f"{words} of {SIZE} rows: {own}, random rows {np.mean(drawn):.3f}")

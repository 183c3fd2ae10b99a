"""Methods for rows without labels: accuracy of models whose training rows are labelled after the
selection.

    python -m benchmarks unlabelled --sets SETS --seeds 3 --record

Ten development tables in standardised columns, pools of at most 600 rows, sizes 20, 50 and 100.
Logistic regression, nearest neighbours and a random forest are trained on the chosen rows and
tested on others. The default of ``bicore.select`` without labels is chosen here.
"""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.battery.sets import load
from benchmarks.common import draw_split, fit_score, standardise
from bicore import select

SETS = (
    *("digits", "wine", "breast-cancer", "vehicle", "satimage", "german", "penguins"),
    *("spambase", "vowel", "page-blocks"),
)
METHODS = (
    *("reconstruction", "v-design", "facility-location", "k-means-features"),
    *("k-center-features", "uniform"),
)
SIZES = (20, 50, 100)
MOST_POOL, MOST_TEST = 600, 1500


def run(arguments: Any) -> dict[str, Any]:
    rows = [
        {"data": name, "seed": seed, **one}
        for name in SETS
        for seed in range(arguments.seeds)
        for one in _scores(*load(name, Path(arguments.sets)), seed)
    ]
    return {"pool": MOST_POOL, "sizes": SIZES, "rows": rows}


def _scores(x: np.ndarray, y: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """The mean accuracy of the models by method, one line per size."""
    pool, test = draw_split(len(y), min(MOST_POOL, 2 * len(y) // 3), MOST_TEST, seed)
    x = standardise(x.reshape(len(x), -1), pool)
    found = []
    for size in (one for one in SIZES if one <= len(pool) // 2):
        scores = {}
        for name in METHODS:
            chosen = pool[select(x[pool], size=size, method=name, random_state=seed)]
            rows = (x[chosen], y[chosen], x[test], y[test])
            forest = RandomForestClassifier(100, random_state=0)
            models = [LogisticRegression(max_iter=1000), KNeighborsClassifier(3), forest]
            own = [fit_score(model, *rows) for model in models]
            scores[name] = round(float(np.mean(own)), 4)
        found.append({"size": size, **scores})
    return found

"""Problems on which an earlier default was below random rows, with the default of today.

    python -m benchmarks.battery.sets --fetch --packages DIR --data DIR --out SETS
    python -m benchmarks hard --cache DIR --seeds 20 --record

``--cache`` is the folder of the packages. A seed draws at most 1,000 rows to select from and at
most 1,000 test rows, standardised by the former. Next to the default are random samples, the
kernel that the earlier default chose, without an intercept, and the default told which model will
be trained.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsRegressor

from benchmarks.battery.sets import Rows, Sources, keel_table, r_table
from benchmarks.common import ONE_THREAD, draw_split, fit_score, standardise
from bicore import select
from bicore.kernels import Linear
from bicore.kernels.scaling import Normalised

MOST_ROWS, POOL_SHARE = 1000, 0.6
EARLIER = Normalised(Linear())
FOREST = RandomForestClassifier(100, random_state=0)
NEAREST = KNeighborsRegressor(1)
LOGISTIC = LogisticRegression(max_iter=1000)


@dataclass(frozen=True)
class Problem:
    """A table, the points chosen, the model trained on them, its name in ``select``, and the kernel
    of the earlier default."""

    name: str
    read: Callable[[Sources], Rows]
    size: int
    judge: str
    estimator: Any
    model: str
    earlier: Any = EARLIER


QUAKES, CRABS = r_table("datasets/quakes", "mag"), r_table("MASS/crabs", "sp", ("index",))
TWO, RING = keel_table("twonorm"), keel_table("ring")
PROBLEMS = (
    Problem("earthquakes (magnitude)", QUAKES, 20, "nearest neighbour (R²)", NEAREST, "neighbours"),
    Problem("crabs", CRABS, 20, "forest", FOREST, "trees"),
    Problem("twonorm", TWO, 20, "forest", FOREST, "trees", "linear"),
    Problem("ringnorm", RING, 100, "logistic", LOGISTIC, "linear", "laplace"),
)


def run(arguments: Any) -> Iterator[dict[str, Any]]:
    sources = Sources(Path(arguments.cache), Path("."))
    for problem in PROBLEMS:
        x, y = problem.read(sources)
        found = [_score(problem, x, y, seed) for seed in range(arguments.seeds)]
        ways = {way: [round(one[way], 4) for one in found] for way in found[0]}
        yield {"problem": problem.name, "size": problem.size, "judge": problem.judge, **ways}
    return {"seeds": arguments.seeds}


def _score(problem: Problem, x: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    """The score of the model by the way its rows were chosen."""
    pool, test = draw_split(len(y), min(MOST_ROWS, int(POOL_SHARE * len(y))), MOST_ROWS, seed)
    x = standardise(x, pool)
    ways = {
        "default": {},
        "earlier": {"kernel": problem.earlier, "intercept": 0.0},
        "model": {"model": problem.model},
    }
    chosen = {
        way: select(x[pool], y[pool], problem.size, runtime=ONE_THREAD, **options).indices
        for way, options in ways.items()
    }
    chosen["uniform"] = np.random.default_rng((seed, 1)).permutation(len(pool))[: problem.size]
    scores = {}
    for way, places in chosen.items():
        rows = pool[places]
        model = clone(problem.estimator)
        scores[way] = fit_score(model, x[rows], y[rows], x[test], y[test])
    return scores

"""Problems on which an earlier default was below random rows, with the default of today.

    python -m benchmarks.battery.sets --fetch --packages DIR --data DIR --out SETS
    python -m benchmarks hard --cache DIR --seeds 20 --record

``--cache`` is the folder of the packages. A seed draws at most 1,000 rows to select from and as
many test rows, standardised by the former. Next to the default are uniform samples, the kernel that
the earlier default chose, without an intercept, and the default told which model will be trained.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsRegressor

from benchmarks.battery.sets import Rows, Sources, keel_table, r_table
from benchmarks.common import report
from bicore import Runtime, select
from bicore.kernels import Linear
from bicore.kernels.scaling import Normalised

MOST_ROWS, POOL_SHARE = 1000, 0.6
RUNTIME = Runtime(device="cpu", threads=1, progress=False)


@dataclass(frozen=True)
class Problem:
    """A table, the points chosen, the model trained on them, its name in ``select``, and the kernel
    of the earlier default."""

    name: str
    read: Callable[[Sources], Rows]
    size: int
    judge: str
    make: Callable[[], Any]
    model: str
    earlier: Any = Normalised(Linear())  # noqa: RUF009


def _forest() -> Any:
    return RandomForestClassifier(100, random_state=0)


PROBLEMS = (
    Problem(
        "earthquakes (magnitude)",
        r_table("datasets/quakes", "mag"),
        20,
        "nearest neighbour (R²)",
        lambda: KNeighborsRegressor(1),
        "neighbours",
    ),
    Problem("crabs", r_table("MASS/crabs", "sp", ("index",)), 20, "forest", _forest, "trees"),
    Problem("twonorm", keel_table("balanced", "twonorm"), 20, "forest", _forest, "trees", "linear"),
    Problem(
        "ringnorm",
        keel_table("balanced", "ring"),
        100,
        "logistic",
        lambda: LogisticRegression(max_iter=1000),
        "linear",
        "laplace",
    ),
)


def run(arguments: Any) -> dict[str, Any]:
    sources = Sources(Path(arguments.cache), Path("."))
    rows = []
    for problem in PROBLEMS:
        x, y = problem.read(sources)
        found = [_scores(problem, x, y, seed) for seed in range(arguments.seeds)]
        ways = {way: [round(one[way], 4) for one in found] for way in found[0]}
        rows.append({"problem": problem.name, "size": problem.size, "judge": problem.judge, **ways})
        report({way: float(np.mean(own)) for way, own in ways.items()}, problem.name)
    return {"seeds": arguments.seeds, "rows": rows}


def _scores(problem: Problem, x: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    """The score of the model by the way its rows were chosen."""
    order = np.random.default_rng(seed).permutation(len(y))
    count = min(MOST_ROWS, int(POOL_SHARE * len(y)))
    pool, test = order[:count], order[count : count + MOST_ROWS]
    spread = x[pool].std(0)
    x = (x - x[pool].mean(0)) / np.where(spread > 0, spread, 1)
    ways = {
        "default": {},
        "earlier": {"kernel": problem.earlier, "intercept": 0.0},
        "model": {"model": problem.model},
    }
    chosen = {
        way: select(x[pool], y[pool], problem.size, runtime=RUNTIME, **options).indices
        for way, options in ways.items()
    }
    chosen["uniform"] = np.random.default_rng((seed, 1)).permutation(count)[: problem.size]
    return {
        way: float(problem.make().fit(x[pool[rows]], y[pool[rows]]).score(x[test], y[test]))
        for way, rows in chosen.items()
    }

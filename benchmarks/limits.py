"""How far a selection runs beyond ``max_seconds``, for every method, rule and strategy.

    python -m benchmarks limits --json [--record]

50 000 rows of 64 numbers and one gigabyte: no kernel matrix fits, so that products come in blocks.
The goal is an overrun of at most a tenth and a second. With ``large="exact"`` nothing stands in for
the kernel, and a limit before the first point is an error, which is a row too.
"""

import time
import warnings
from typing import Any

import numpy as np
import torch

import bicore
from benchmarks.common import report
from bicore.bilevel.rules import RULES
from bicore.bilevel.strategies import STRATEGIES
from bicore.errors import BicoreError, LargeDataWarning
from bicore.selectors import METHODS, as_selector

ROWS, FEATURES, CLASSES = 50_000, 64, 10
SIZE = 100
MEMORY = "1GB"
LIMITS = (2.0, 5.0)
#: What may be spent beyond a limit: a share of it, and seconds.
SHARE, SECONDS = 0.1, 1.0


def data() -> tuple[np.ndarray, np.ndarray]:
    """Classes that overlap, so that every point has something to say."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, ROWS)
    return rng.normal(size=(CLASSES, FEATURES))[y] + 2 * rng.normal(size=(ROWS, FEATURES)), y


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    first = [torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Dropout(0.5)]
    return torch.nn.Sequential(*first, torch.nn.Linear(64, CLASSES))


def cases() -> list[dict[str, Any]]:
    """Arguments of ``bicore.select``."""
    found: list[dict[str, Any]] = [{"method": method} for method in METHODS]
    for kernel in ("ntk", "rbf", "linear"):
        found += [{"kernel": kernel, "strategy": strategy} for strategy in STRATEGIES]
        found += [{"kernel": kernel, "rule": rule} for rule in RULES]
        found += [{"kernel": kernel, "loss": "cross-entropy", "weights": "learnt"}]
        found += [{"kernel": kernel, "large": "exact"}]
    found += [{"kernel": "rbf", "weights": "final"}, {"kernel": "rbf", "candidates": 1000}]
    found += [{"method": "facility-location", "large": "exact"}]
    return found


def run(arguments: Any) -> dict[str, Any]:
    x, y = data()
    model = network()
    rows = []
    for case in cases():
        for limit in LIMITS:
            rows.append(_timed(x, y, model, case, limit))
            report(rows[-1])
    over = [row["seconds"] - row["allowed"] for row in rows]
    facts = {"rows_of_data": ROWS, "features": FEATURES, "memory": MEMORY, "rows": rows}
    return {
        **facts,
        "beyond_the_goal": sum(one > 0 for one in over),
        "furthest_seconds_beyond": max(over),
    }


def _timed(
    x: np.ndarray, y: np.ndarray, model: torch.nn.Module, case: dict[str, Any], limit: float
) -> dict[str, Any]:
    runtime = bicore.Runtime(device="cpu", memory=MEMORY, max_seconds=limit, progress=False)
    looks = as_selector(case.get("method", "bilevel")).needs_model
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LargeDataWarning)
            seen = model if looks else None
            coreset = bicore.select(x, y, SIZE, runtime=runtime, model=seen, **case)
        ending, points = coreset.status.value, len(coreset)
    except BicoreError as error:
        ending, points = type(error).__name__, 0
    return {
        **case,
        "max_seconds": limit,
        "seconds": round(time.perf_counter() - start, 3),
        "allowed": round(limit * (1 + SHARE) + SECONDS, 3),
        "ending": ending,
        "points": points,
    }

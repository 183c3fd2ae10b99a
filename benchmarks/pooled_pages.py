"""Numbers and the figure of the pooled regression for docs/tables/benchmarks.md."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.pages import DOCS, Row, drawing, percent, read_record, spread, unique, where

CORESET = "coreset, optimised weights"
METHODS = ("uniform", "uniform, optimised weights", CORESET, "default picks, optimised weights")


def scores(rows: Sequence[Row], method: str, pool: int, size: int) -> np.ndarray:
    return percent(where(rows, method=method, pool=pool, size=size))


def pool_cells(rows: Sequence[Row], pools: Sequence[int], sizes: Sequence[int]) -> list[list[str]]:
    """A line for every method and pool that has runs."""
    body = []
    for method in METHODS:
        for pool in pools:
            cells = [spread(scores(rows, method, pool, size), none="") for size in sizes]
            drawn = "" if method.startswith("uniform") and len(pools) > 1 else f", pool {pool}"
            body += [[method + drawn, *cells]] if any(cells) else []
    return body


def kept_counts(rows: Sequence[Row], pools: Sequence[int], size: int) -> str:
    """How many points of a size have a positive weight, for each method and pool."""
    parts = []
    for method in METHODS[1:]:
        for pool in pools:
            counts = sorted(unique(where(rows, method=method, pool=pool, size=size), "kept"))
            span = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else ""
            parts += [f"{span} ({method}, {pool})"] if counts else []
    return ", ".join(parts)


def draw() -> None:
    """Accuracy against size, a line for each method and pool."""
    rows = read_record("pooled_regression")["rows"]
    path = DOCS / "images" / "pooled_regression.png"
    with drawing(path, dpi=140, figsize=(7, 4.2)) as (_, axes):
        for colour, method in enumerate(METHODS):
            for pool in sorted(unique(rows, "pool")):
                sizes = sorted(unique(where(rows, method=method, pool=pool), "size"))
                means = [scores(rows, method, pool, size).mean() for size in sizes]
                sampled = method.startswith("uniform")
                style = "-" if sampled else {2000: ":", 5000: "--"}.get(pool, "-")
                look: dict[str, Any] = {"color": f"C{colour}", "marker": "o", "markersize": 3}
                if sizes:
                    label = method if sampled else f"{method}, pool {pool}"
                    axes.plot(sizes, means, style, label=label, **look)
        axes.set(xlabel="points", ylabel="test accuracy, %")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)

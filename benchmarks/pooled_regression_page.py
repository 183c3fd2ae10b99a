"""The section and the figure of the pooled regression, from its record."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import read_record, table, told

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "pooled_regression.png"
#: The paper's figure 3b, read off its text: almost 50% at 400 points from all 50 000.
PAPER = 50.0
METHODS = (
    "uniform",
    "uniform, optimised weights",
    "coreset, optimised weights",
    "default picks, optimised weights",
)


def section(record: dict[str, Any]) -> str:
    rows = record["rows"]
    sizes = sorted({row["size"] for row in record["rows"]})
    pools = sorted({row["pool"] for row in rows})
    body = []
    for method in METHODS:
        for pool in pools:
            cells = [_cell(rows, method, pool, size) for size in sizes]
            if any(cells):
                drawn = "" if method.startswith("uniform") and len(pools) > 1 else f", pool {pool}"
                body.append([method + drawn, *cells])
    largest = max(pools)
    most = max(sizes)
    ours = {method: _scores(rows, method, largest, most) for method in METHODS}
    best = max(
        (method for method in METHODS if len(ours[method])), key=lambda method: ours[method].mean()
    )
    reached = ours[best].mean()
    growth = "; ".join(
        f"{method}: "
        + ", ".join(f"{_scores(rows, method, pool, most).mean():.1f} from {pool}" for pool in pools)
        for method in METHODS[2:]
    )
    noise = 100 * math.sqrt(reached / 100 * (1 - reached / 100) / record["tested"])
    kept = ", ".join(
        f"{min(counts)}{f' to {max(counts)}' if max(counts) > min(counts) else ''} ({method}, "
        f"{pool})"
        for method in METHODS[1:]
        for pool in pools
        if (
            counts := [
                row["kept"]
                for row in rows
                if (row["method"], row["pool"], row["size"]) == (method, pool, most)
            ]
        )
    )
    seeds = len({row["seed"] for row in rows if row["method"] == "uniform"})
    strips = record["kernel"]["strips"]
    pairs = sum(one["pairs"] for one in strips)
    seconds = sum(one["seconds"] for one in strips)
    return f"""## Kernel regression on CIFAR-10 with the pooled kernel (figure 3b)

{told(record)}

The kernel of six layers with global average pooling, first and last layer fixed, normalised; λ = {record["lambda"]:g} a point;
percent of the first {record["tested"]} test images. *Coreset* is the paper's algorithm (weights optimised after every point);
*default picks* are bicore's default selection with weights optimised once at each size. Uniform samples: mean ± standard error of
{seeds} seeds, their weights optimised on the pool they come from; the selections are deterministic, one run each. The kernel took
{seconds:.0f} s for {pairs / 1e6:.1f} million pairs, {seconds / pairs * 1e6:.1f} µs a pair.

{table(["method", *(str(size) for size in sizes)], body)}
The paper reaches almost {PAPER:.0f}% at 400 points from a pool of 50 000. Here {best} reaches {reached:.1f}% from {largest},
a distance of {PAPER - reached:.1f} points ({record["tested"]} test images alone leave ± {noise:.1f}).
Points whose weight falls to zero leave: of {most}, {kept}
are kept. What the pool contributes at {most} points: {growth}.

![Accuracy against size](images/pooled_regression.png)
"""


def _scores(rows: list[dict[str, Any]], method: str, pool: int, size: int) -> Any:
    return 100 * np.array(
        [
            row["accuracy"]
            for row in rows
            if (row["method"], row["pool"], row["size"]) == (method, pool, size)
        ]
    )


def _cell(rows: list[dict[str, Any]], method: str, pool: int, size: int) -> str:
    scores = _scores(rows, method, pool, size)
    if len(scores) == 0:
        return ""
    return (
        f"{scores[0]:.1f}"
        if len(scores) == 1
        else f"{scores.mean():.1f} ± {scores.std(ddof=1) / len(scores) ** 0.5:.1f}"
    )


def draw() -> None:
    """Accuracy against size, a line a method and pool."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = read_record("pooled_regression")["rows"]
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    pools = sorted({row["pool"] for row in rows})
    for colour, method in enumerate(METHODS):
        for pool in pools:
            sizes = sorted(
                {row["size"] for row in rows if (row["method"], row["pool"]) == (method, pool)}
            )
            if not sizes:
                continue
            means = [_scores(rows, method, pool, size).mean() for size in sizes]
            style = (
                {2000: ":", 5000: "--", 10_000: "-"}.get(pool, "-")
                if not method.startswith("uniform")
                else "-"
            )
            label = method if method.startswith("uniform") else f"{method}, pool {pool}"
            axes.plot(
                sizes, means, style, color=f"C{colour}", label=label, marker="o", markersize=3
            )
    axes.set_xlabel("points")
    axes.set_ylabel("test accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.savefig(FIGURE, dpi=140)
    pyplot.close(figure)

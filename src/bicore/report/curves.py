"""Accuracy against size, a line a method, with bands of one standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bicore.comparison.statistics import Summary
from bicore.files import replacing
from bicore.report.pictures import new_figure

_STYLES = ("-", "--", "-.", ":")


def draw_curves(
    summary: Summary, methods: Sequence[str], title: str, score: str, path: Path
) -> None:
    """Write a PNG, PDF or SVG (by the path's ending); written beside and renamed."""
    figure = new_figure()
    figure.set_size_inches(9.5, 5.8)
    axis = figure.subplots()
    for number, method in enumerate(methods):
        entries = [entry for entry in summary.entries if entry.method == method]
        if not entries:
            continue
        sizes = [entry.size for entry in entries]
        means = [entry.mean for entry in entries]
        errors = [0.0 if math.isnan(entry.error) else entry.error for entry in entries]
        colour = f"C{number % 10}"
        style = _STYLES[number // 10 % 4]
        axis.plot(
            sizes,
            means,
            style,
            color=colour,
            marker="o",
            markersize=3,
            linewidth=2.4 if number == 0 else 1.3,
            label=method,
        )
        low, high = (
            [mean + sign * error for mean, error in zip(means, errors, strict=True)]
            for sign in (-1, 1)
        )
        axis.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.set_xlabel("points selected")
    axis.set_ylabel(score)
    axis.set_title(title, fontsize=10)
    axis.grid(alpha=0.25)
    figure.legend(loc="outside right upper", fontsize=8)
    with replacing(path) as beside:
        figure.savefig(beside, dpi=120)

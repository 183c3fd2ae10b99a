"""Accuracy against size, a line a method, with bands of one standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bicore.evaluate.statistics import Entry, Summary
from bicore.files import replacing
from bicore.report.pictures import new_figure

STYLES = ("-", "--", "-.", ":")
#: How many colours matplotlib's cycle has.
COLOURS = 10


def draw_curves(
    summary: Summary,
    methods: Sequence[str],
    title: str,
    score: str,
    path: Path,
    along: str = "points selected",
) -> None:
    """Draw accuracy against size, or along a stream, with bands of one standard error.

    Parameters
    ----------
    summary : Summary
        The entries that are drawn.
    methods : sequence of str
        Which methods; the first has the thickest line.
    title, score : str
        Above the picture, and beside its upright axis.
    path : Path
        A PNG, PDF or SVG, by its ending; it is written beside and renamed.
    along : str
        What the sizes are.

    Raises
    ------
    InputError
        Where matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from bicore.evaluate.records import Row
    >>> from bicore.evaluate.statistics import summarise
    >>> rows = [Row("uniform", size, seed, 0.8, 0.1) for size in (5, 10) for seed in range(3)]
    >>> summary = summarise(rows, ["uniform"], [5, 10])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_curves(summary, ["uniform"], "digits", "accuracy", Path(folder) / "curves.png")
    ...     [file.name for file in Path(folder).iterdir()]
    ['curves.png']
    """
    figure = new_figure()
    figure.set_size_inches(9.5, 5.8)
    axis = figure.subplots()
    for number, method in enumerate(methods):
        entries = [entry for entry in summary.entries if entry.method == method]
        if entries:
            _curve(axis, number, entries)
    axis.set_xlabel(along)
    axis.set_ylabel(score)
    axis.set_title(title, fontsize=10)
    axis.grid(alpha=0.25)
    figure.legend(loc="outside right upper", fontsize=8)
    with replacing(path) as beside:
        figure.savefig(beside, dpi=120)


def _curve(axis: Any, number: int, entries: list[Entry]) -> None:
    """One method; colours come round after ten, line styles change then."""
    sizes = [entry.size for entry in entries]
    means = [entry.mean for entry in entries]
    errors = [0.0 if math.isnan(entry.error) else entry.error for entry in entries]
    colour = f"C{number % COLOURS}"
    axis.plot(
        sizes,
        means,
        STYLES[number // COLOURS % len(STYLES)],
        color=colour,
        marker="o",
        markersize=3,
        linewidth=2.4 if number == 0 else 1.3,
        label=entries[0].method,
    )
    low = [mean - error for mean, error in zip(means, errors, strict=True)]
    high = [mean + error for mean, error in zip(means, errors, strict=True)]
    axis.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)

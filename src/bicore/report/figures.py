"""Figures: selected images or rows, and score curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bicore._deprecated import renamed_keywords
from bicore.coreset import Coreset
from bicore.data import Array
from bicore.errors import import_extra
from bicore.evaluate.records import Entry, Summary
from bicore.evaluate.worth import Equivalent, Worth
from bicore.files import replacing
from bicore.report.document import main_directions
from bicore.sources.base import Source
from bicore.types import PathLike

#: Maximum number of images; the first picks matter most.
MOST_IMAGES = 100
COLUMNS = 10
#: Area of the mark of a row of mean weight, and the smallest visible relative weight.
MARK = 40
LEAST_WEIGHT = 1e-3
STYLES = ("-", "--", "-.", ":")
#: Number of colours in matplotlib's cycle.
COLOURS = 10


def new_figure() -> Any:
    """Make an empty figure that needs no display."""
    module = import_extra("matplotlib.figure", "pictures need matplotlib", "'bicore[pictures]'")
    return module.Figure(layout="constrained")


def _axes(width: float, height: float, title: str, along: str, up: str) -> tuple[Any, Any]:
    """Return a figure with one pair of axes."""
    figure = new_figure()
    figure.set_size_inches(width, height)
    axis = figure.subplots()
    axis.set(xlabel=along, ylabel=up)
    axis.set_title(title, fontsize=10)
    axis.grid(alpha=0.25)
    return figure, axis


def _save(figure: Any, path: PathLike) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)


def _band(
    axis: Any, sizes: Sequence[int], means: Sequence[float], widths: Sequence[float], colour: str
) -> None:
    """Draw a shaded band around a curve."""
    middle, half = np.array(means), np.array(widths)
    axis.fill_between(sizes, middle - half, middle + half, color=colour, alpha=0.15, linewidth=0)


@renamed_keywords()
def draw(source: Source, coreset: Coreset, path: Path) -> None:
    """Draw a selection: as images if the source has them, else as points in a plane.

    Parameters
    ----------
    source : Source
        The data.
    coreset : Coreset
        The selection.
    path : Path
        A PNG, PDF or SVG file, by its ending.

    Raises
    ------
    InputError
        If matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from bicore import Dataset
    >>> source = Source("a table", Dataset(np.random.default_rng(0).normal(size=(50, 3))))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(source, Coreset(np.arange(5)), Path(folder) / "picks.png")
    ...     [file.name for file in Path(folder).iterdir()]
    ['picks.png']
    """
    figure = new_figure()
    if source.images is not None:
        _grid(figure, source.images, source.data.y, coreset)
    else:
        _plane(figure, source, coreset)
    _save(figure, path)


def _grid(figure: Any, images: Array, labels: Array | None, coreset: Coreset) -> None:
    """Draw the first picks as images, in order of selection."""
    first = coreset.indices[:MOST_IMAGES]
    lines = -(-len(first) // COLUMNS)
    figure.set_size_inches(COLUMNS * 0.9, lines * 1.05 + 0.5)
    axes = figure.subplots(lines, COLUMNS, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, row in zip(
        axes.flat, first, strict=False
    ):  # the last line of the grid may be incomplete
        image = np.clip(images[row], 0, 1)
        colours = "gray_r" if image.ndim == 2 else None
        axis.imshow(image, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axis.set_title("" if labels is None else str(labels[row]), fontsize=8, pad=2)
    count = len(first)
    words = f"the first {count} of {len(coreset)}" if count < len(coreset) else f"{count}"
    total = coreset.provenance.rows or len(images)
    figure.suptitle(f"{words} rows selected from {total:,}, in order of selection", fontsize=10)


def _plane(figure: Any, source: Source, coreset: Coreset) -> None:
    """Draw all rows in the plane of their two main directions, with the picks ringed."""
    mean, directions, _ = main_directions(source.data.x)
    x = source.data.x.reshape(len(source.data), -1)
    flat = (x - mean) @ directions
    codes = _colours(source.data.y, len(flat))
    figure.set_size_inches(7, 5.5)
    axis = figure.subplots()
    axis.scatter(flat[:, 0], flat[:, 1], c=codes, cmap="tab10", s=8, alpha=0.35, linewidths=0)
    picked = flat[coreset.indices]
    # an area proportional to √weight keeps heavy marks from covering their neighbours
    size = MARK * np.sqrt(np.maximum(coreset.weights, LEAST_WEIGHT) / coreset.weights.mean())
    colours = {"c": codes[coreset.indices], "cmap": "tab10", "vmin": 0, "vmax": max(codes.max(), 1)}
    axis.scatter(picked[:, 0], picked[:, 1], s=size, edgecolors="black", linewidths=1.0, **colours)
    axis.set(xlabel="first principal component", ylabel="second principal component")
    words = f"{len(coreset)} rows (ringed) selected from {len(flat):,}; larger: more weight"
    axis.set_title(words, fontsize=10)


def _colours(labels: Array | None, count: int) -> Array:
    """Return a number for each row by its label or first target."""
    if labels is None:
        return np.zeros(count, int)
    _, codes = np.unique(labels, return_inverse=True)
    return np.asarray(codes.reshape(count, -1)[:, 0])


def draw_curves(
    summary: Summary,
    methods: Sequence[str],
    title: str,
    score: str,
    path: PathLike | None = None,
    along: str = "rows selected",
) -> Any:
    """Draw scores against size, or along a stream, with bands of one standard error."""
    figure, axis = _axes(9.5, 5.8, title, along, score)
    for number, method in enumerate(methods):
        entries = [entry for entry in summary.entries if entry.method == method]
        if entries:
            _curve(axis, number, entries)
    figure.legend(loc="outside right upper", fontsize=8)
    if path is not None:
        _save(figure, path)
    return figure


def _curve(axis: Any, number: int, entries: list[Entry]) -> None:
    """Draw one method; the line style changes after ten colours."""
    sizes, means = zip(*((entry.size, entry.mean) for entry in entries), strict=True)
    style, colour = STYLES[number // COLOURS % len(STYLES)], f"C{number % COLOURS}"
    width, label = 1.3 if number else 2.4, entries[0].method
    axis.plot(sizes, means, style, c=colour, marker="o", markersize=3, linewidth=width, label=label)
    _band(axis, sizes, means, np.nan_to_num([one.error for one in entries]).tolist(), colour)


def draw_worth(worth: Worth, title: str, path: Path) -> None:
    """Draw curves of random scores, and an arrow from the chosen rows to their equivalent."""
    figure, axis = _axes(7.5, 5.0, f"{title}\n{worth}", "rows", worth.metric)
    axis.set_xscale("log")
    for number, baseline in enumerate(worth.baselines):
        _baseline(axis, baseline, f"C{number}")
    axis.plot([worth.size], [worth.score], "o", color="black", label="selected rows")
    first = worth.baselines[0]
    if first.rows > 0 and not first.beyond:
        start, end = ((rows, worth.score) for rows in (worth.size, first.rows))
        axis.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "->", "color": "C0"})
    sizes = sorted({size for baseline in worth.baselines for size in baseline.sizes})
    axis.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
    axis.minorticks_off()
    axis.legend(loc="lower right", fontsize=8)
    _save(figure, path)


def _baseline(axis: Any, found: Equivalent, colour: str) -> None:
    """Draw means over seeds in a band of one standard deviation, and the interval."""
    label = f"{found.baseline} rows"
    axis.plot(found.sizes, found.means, "-o", markersize=3, color=colour, label=label)
    _band(axis, found.sizes, found.means, found.spreads, colour)
    ends = (max(found.low, found.sizes[0]), min(found.high, found.sizes[-1]))
    if ends[0] < ends[1] and math.isfinite(found.low):
        axis.axvspan(*ends, color=colour, alpha=0.08, linewidth=0)

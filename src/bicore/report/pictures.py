"""What was picked, to look at.

A grid of images, or the points in the plane of their two main directions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bicore.coreset import Coreset
from bicore.data import Array
from bicore.errors import InputError
from bicore.files import replacing
from bicore.sources.base import Source

#: At most this many images are drawn; the first picks matter most.
MOST_IMAGES = 100
COLUMNS = 10
#: The main directions are those of about this many rows, evenly spaced.
DIRECTION_ROWS = 5000
#: Area of the mark of a point of mean weight, and the least weight that can still be seen.
MARK = 40
LEAST_WEIGHT = 1e-3


def new_figure() -> Any:
    """An empty figure that needs no display.

    Returns
    -------
    matplotlib.figure.Figure
        On a canvas of its own.

    Raises
    ------
    InputError
        Where matplotlib is not installed.

    Examples
    --------
    >>> len(new_figure().axes)
    0
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("pictures need matplotlib: pip install 'bicore[pictures]'.") from error
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw(source: Source, coreset: Coreset, path: Path) -> None:
    """Draw what was picked: as images where the source has them, else as points in a plane.

    Parameters
    ----------
    source : Source
        What was chosen from.
    coreset : Coreset
        What was chosen.
    path : Path
        A PNG, PDF or SVG, by its ending; it is written beside and renamed.

    Raises
    ------
    InputError
        Where matplotlib is not installed.

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
    with replacing(path) as beside:
        figure.savefig(beside, dpi=120)


def _grid(figure: Any, images: Array, labels: Array | None, coreset: Coreset) -> None:
    """The first picks as images, in order of selection."""
    first = coreset.indices[:MOST_IMAGES]
    lines = -(-len(first) // COLUMNS)
    figure.set_size_inches(COLUMNS * 0.9, lines * 1.05 + 0.5)
    axes = figure.subplots(lines, COLUMNS, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, row in zip(axes.flat, first, strict=False):  # the last line may have places left over
        image = np.clip(images[row], 0, 1)
        colours = "gray_r" if image.ndim == 2 else None
        axis.imshow(image, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axis.set_title("" if labels is None else str(labels[row]), fontsize=8, pad=2)
    part = len(first) < len(coreset)
    count = f"the first {len(first)} of {len(coreset)}" if part else f"{len(first)}"
    rows = coreset.provenance.rows
    total = len(images) if rows is None else rows
    words = f"{count} points chosen out of {total}, in order of selection"
    figure.suptitle(words, fontsize=10)


def _plane(figure: Any, source: Source, coreset: Coreset) -> None:
    """All points in the plane of their two main directions, the picks ringed."""
    flat = _main_directions(source.data.x)
    codes = _colours(source.data.y, len(flat))
    figure.set_size_inches(7, 5.5)
    axis = figure.subplots()
    axis.scatter(flat[:, 0], flat[:, 1], c=codes, cmap="tab10", s=8, alpha=0.35, linewidths=0)
    picked = flat[coreset.indices]
    # an area in proportion to √weight: a heavy point is seen, and does not cover its neighbours
    size = MARK * np.sqrt(np.maximum(coreset.weights, LEAST_WEIGHT) / coreset.weights.mean())
    axis.scatter(
        picked[:, 0],
        picked[:, 1],
        c=codes[coreset.indices],
        cmap="tab10",
        s=size,
        edgecolors="black",
        linewidths=1.0,
        vmin=0,
        vmax=max(codes.max(), 1),
    )
    axis.set_xlabel("first main direction")
    axis.set_ylabel("second main direction")
    words = f"{len(coreset)} points (ringed) chosen out of {len(flat)}; larger: more weight"
    axis.set_title(words, fontsize=10)


def _main_directions(features: Array) -> Array:
    """The points (n, 2) along the two directions in which they vary most."""
    x = features.reshape(len(features), -1).astype(np.float64)
    centred = x - x.mean(0)
    if x.shape[1] == 1:
        return np.hstack([centred, np.zeros((len(x), 1))])
    spaced = centred[:: max(1, len(x) // DIRECTION_ROWS)]
    _, _, directions = np.linalg.svd(spaced, full_matrices=False)
    return np.asarray(centred @ directions[:2].T)


def _colours(labels: Array | None, count: int) -> Array:
    """A number for each point by its label, or by its first target."""
    if labels is None:
        return np.zeros(count, int)
    _, codes = np.unique(labels, return_inverse=True)
    return np.asarray(codes.reshape(count, -1)[:, 0])

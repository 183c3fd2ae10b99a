"""What was picked, to look at: a grid of images, or the points in the plane of their two main
directions."""

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


def new_figure() -> Any:
    """An empty figure that needs no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("pictures need matplotlib: pip install 'bicore[pictures]'.") from error
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw(source: Source, coreset: Coreset, path: Path) -> None:
    """Write a PNG, PDF or SVG (by the path's ending); written beside and renamed."""
    figure = new_figure()
    if source.images is not None:
        _grid(figure, source.images, source.data.y, coreset)
    else:
        _plane(figure, source, coreset)
    with replacing(path) as beside:
        figure.savefig(beside, dpi=120)


def _grid(figure: Any, images: Array, labels: Array | None, coreset: Coreset) -> None:
    shown = coreset.indices[:MOST_IMAGES]
    rows = -(-len(shown) // COLUMNS)
    figure.set_size_inches(COLUMNS * 0.9, rows * 1.05 + 0.5)
    axes = np.atleast_2d(figure.subplots(rows, COLUMNS, squeeze=False))
    for place, axis in enumerate(axes.ravel()):
        axis.set_axis_off()
        if place < len(shown):
            image = np.clip(images[shown[place]], 0, 1)
            axis.imshow(
                image,
                cmap="gray_r" if image.ndim == 2 else None,
                vmin=0,
                vmax=1,
                interpolation="nearest",
            )
            axis.set_title("" if labels is None else str(labels[shown[place]]), fontsize=8, pad=2)
    count = (
        f"the first {len(shown)} of {len(coreset)}"
        if len(shown) < len(coreset)
        else f"{len(shown)}"
    )
    figure.suptitle(
        f"{count} points chosen out of {coreset.info.get('n', len(images))}, in order of selection",
        fontsize=10,
    )


def _plane(figure: Any, source: Source, coreset: Coreset) -> None:
    x = source.data.x.reshape(len(source.data), -1).astype(np.float64)
    centred = x - x.mean(0)
    _, _, directions = np.linalg.svd(centred[:: max(1, len(x) // 5000)], full_matrices=False)
    flat = centred @ directions[:2].T if x.shape[1] > 1 else np.c_[centred[:, 0], np.zeros(len(x))]
    figure.set_size_inches(7, 5.5)
    axis = figure.subplots()
    _, codes = (
        np.unique(source.data.y, return_inverse=True)
        if source.data.y is not None
        else (None, np.zeros(len(x), int))
    )
    codes = codes.reshape(len(x), -1)[:, 0]
    axis.scatter(flat[:, 0], flat[:, 1], c=codes, cmap="tab10", s=8, alpha=0.35, linewidths=0)
    picked = flat[coreset.indices]
    size = 40 * np.sqrt(np.maximum(coreset.weights, 1e-3) / coreset.weights.mean())
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
    axis.set_title(
        f"{len(coreset)} points (ringed) chosen out of {len(x)}; larger: more weight", fontsize=10
    )

"""Rows of images, one a memory: the stream as it came, and what each buffer kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bicore.data import Array
from bicore.errors import InputError
from bicore.files import replacing
from bicore.report.pictures import new_figure


def draw_rows(rows: Mapping[str, tuple[Array, Array]], path: Path, columns: int = 30) -> None:
    """Draw rows of images, by label and evenly spaced.

    Parameters
    ----------
    rows : mapping
        For each name images (n, height, width) in 0 … 1, and their labels.
    path : Path
        A PNG, PDF or SVG, by its ending; it is written beside and renamed.
    columns : int
        The most images of a row.

    Raises
    ------
    InputError
        Where there are no rows, or matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> images = np.zeros((6, 8, 8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = {"the stream": (images, np.array([0, 0, 0, 1, 1, 2]))}
    ...     draw_rows(kept, Path(folder) / "rows.png")
    ...     [file.name for file in Path(folder).iterdir()]
    ['rows.png']
    """
    if not rows:
        raise InputError("rows is empty; give at least one name with images and labels.")
    figure = new_figure()
    figure.set_size_inches(0.42 * columns + 1.2, 0.8 * len(rows) + 0.2)
    axes = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axis, (name, (images, labels)) in zip(axes, rows.items(), strict=True):
        chosen = np.argsort(labels, kind="stable")[_spaced(len(labels), columns)]
        framed = [np.pad(np.clip(image, 0, 1), 1) for image in images[chosen]]
        axis.imshow(
            np.concatenate(framed, axis=1), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest"
        )
        axis.set_axis_off()
        counts = zip(*np.unique(labels, return_counts=True), strict=True)
        by_label = ", ".join(f"{label}: {count}" for label, count in counts)
        axis.set_title(f"{name} ({len(labels)}): {by_label}", fontsize=8, loc="left", pad=3)
    with replacing(path) as beside:
        figure.savefig(beside, dpi=120)


def _spaced(count: int, most: int) -> Array:
    """At most ``most`` of the places 0 … count − 1, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))

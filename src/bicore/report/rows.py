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
    """For each name images (n, height, width) in 0 … 1 and labels; at most ``columns`` are shown,
    by label and evenly spaced."""
    if not rows:
        raise InputError("rows is empty; give at least one name with images and labels.")
    figure = new_figure()
    figure.set_size_inches(0.42 * columns + 1.2, 0.8 * len(rows) + 0.2)
    axes = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axis, (name, (images, labels)) in zip(axes, rows.items(), strict=True):
        order = np.argsort(labels, kind="stable")
        shown = order[
            np.unique(np.linspace(0, len(order) - 1, min(columns, len(order))).round().astype(int))
        ]
        strip = np.concatenate([np.pad(np.clip(image, 0, 1), 1) for image in images[shown]], axis=1)
        axis.imshow(strip, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axis.set_axis_off()
        counts = np.unique(labels, return_counts=True)
        told = ", ".join(f"{label}: {count}" for label, count in zip(*counts, strict=True))
        axis.set_title(f"{name} ({len(labels)}): {told}", fontsize=8, loc="left", pad=3)
    with replacing(path) as beside:
        figure.savefig(beside, dpi=120)

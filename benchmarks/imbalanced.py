"""The paper's first figure from a real stream: MNIST, classes 0 to 8 in turn with 20 images each,
then 400 nines; 60 rows kept.

    python -m benchmarks imbalanced --data DIR --record

Draws docs/images/stream.png: the stream, what reservoir sampling keeps of it, and what the
merge-reduce buffer keeps.
"""

from typing import Any

import numpy as np

from benchmarks.common import feed, mnist_vectors
from benchmarks.pages import DOCS, drawing
from bicore import MergeReduce
from bicore.kernels import RBF
from bicore.methods.registry import greedy_selector
from bicore.sources.standard_sets import MEAN, STD
from bicore.streaming import Reservoir

FIGURE = DOCS / "images" / "stream.png"
RARE = 20
FREQUENT = 400
CAPACITY = 60
BATCH = 58
#: Limit of the images in a line of the figure.
COLUMNS = 30


def run(arguments: Any) -> dict[str, Any]:
    x, y = mnist_vectors(arguments.data, limit=10_000)
    rows = np.concatenate(
        [np.flatnonzero(y == label)[: FREQUENT if label == 9 else RARE] for label in range(10)]
    )
    selector = greedy_selector(kernel=RBF(5e-4), inner_reg=0.1)
    buffers = {
        "reservoir sampling": Reservoir(CAPACITY),
        "merge-reduce, bilevel": MergeReduce(selector, CAPACITY, slots=1),
    }
    shown = {"the stream": rows}
    for name, buffer in buffers.items():
        shown[name] = rows[feed(buffer, x[rows], y[rows], BATCH).snapshot().ids]
    images = (x * STD + MEAN).reshape(-1, 28, 28)
    _draw({name: (images[kept], y[kept]) for name, kept in shown.items()})
    counts = {name: np.bincount(y[kept], minlength=10).tolist() for name, kept in shown.items()}
    return {"counts": counts}


def _draw(rows: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Draw lines of images, by label and evenly spaced."""
    size = (0.42 * COLUMNS + 1.2, 0.8 * len(rows) + 0.2)
    with drawing(FIGURE, len(rows), 1, dpi=120, figsize=size) as (_, axes):
        for axis, (name, (images, labels)) in zip(axes, rows.items(), strict=True):
            spaced = np.linspace(0, len(labels) - 1, min(COLUMNS, len(labels))).round()
            chosen = np.argsort(labels, kind="stable")[np.unique(spaced.astype(int))]
            line = np.concatenate([np.pad(np.clip(one, 0, 1), 1) for one in images[chosen]], axis=1)
            axis.imshow(line, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
            axis.set_axis_off()
            counts = zip(*np.unique(labels, return_counts=True), strict=True)
            words = ", ".join(f"{label}: {count}" for label, count in counts)
            axis.set_title(f"{name} ({len(labels)}): {words}", fontsize=8, loc="left", pad=3)

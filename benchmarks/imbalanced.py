"""The paper's first figure from a real stream: MNIST, classes 0 to 8 in turn with 20 images each,
then 400 nines; 60 rows kept.

    python -m benchmarks imbalanced --data DIR --record

Draws docs/images/stream.png: the stream, what reservoir sampling keeps of it, and what the
merge-reduce buffer keeps.
"""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import data_folder, mnist_vectors
from bicore import RBF, BilevelSelector, MergeReduce
from bicore.memory import Reservoir
from bicore.report.figures import draw_rows
from bicore.sources.mnist import MEAN, STD

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "stream.png"
RARE = 20
FREQUENT = 400
CAPACITY = 60
BATCH = 58


def run(arguments: Any) -> dict[str, Any]:
    x, y = mnist_vectors(data_folder(arguments.data), limit=10_000)
    rows = np.concatenate(
        [np.flatnonzero(y == label)[: FREQUENT if label == 9 else RARE] for label in range(10)]
    )
    buffers = {
        "reservoir sampling": Reservoir(CAPACITY),
        "merge-reduce, bilevel": MergeReduce(
            BilevelSelector(kernel=RBF(5e-4), inner_reg=0.1), CAPACITY, slots=1
        ),
    }
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        for buffer in buffers.values():
            buffer.update(x[part], y[part])
    shown = {"the stream": rows} | {
        name: rows[buffer.snapshot().ids] for name, buffer in buffers.items()
    }
    images = (x * STD + MEAN).reshape(-1, 28, 28)
    draw_rows({name: (images[kept], y[kept]) for name, kept in shown.items()}, FIGURE)
    counts = {name: np.bincount(y[kept], minlength=10).tolist() for name, kept in shown.items()}
    return {"counts": counts}

"""A fixed memory in front of an imbalanced stream: what stays, and how a crash is survived.

python examples/streaming.py
"""

import tempfile
from pathlib import Path

import numpy as np

import bicore
from bicore.memory import Reservoir
from bicore.sources import digits

x, y = digits()
rare = np.concatenate([np.flatnonzero(y == label)[:8] for label in range(4)])
# classes 0 to 3 first, then twenty times as many fours
stream = np.concatenate([rare, np.flatnonzero(y == 4)[:160]])
selector = bicore.BilevelSelector(kernel="rbf", inner_reg=0.1)
buffer = bicore.MergeReduce(selector, capacity=30, slots=1)
chance = Reservoir(capacity=30)
state = Path(tempfile.mkdtemp()) / "state.npz"
for start in range(0, len(stream), 32):
    rows = stream[start : start + 32]
    buffer.update(x[rows], y[rows])
    chance.update(x[rows], y[rows])
    buffer.save(state)  # whole or not at all; a loaded buffer goes on as if never stopped
    buffer = bicore.MergeReduce.load(state, selector)
for name, kept in (
    ("stream", y[stream]),
    ("reservoir", chance.snapshot().y),
    ("merge-reduce", buffer.snapshot().y),
):
    print(f"{name:>12}: rows of classes 0 to 4: {np.bincount(kept, minlength=5)[:5]}")

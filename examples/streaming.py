"""Train on an imbalanced stream with a fixed memory, and survive a crash.

python examples/streaming.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import bicore
from bicore.sources import digits
from bicore.streaming import Reservoir

x, y = digits()
x = x.astype(np.float32)
rare = np.concatenate([np.flatnonzero(y == label)[:8] for label in range(4)])
# classes 0 to 3 first, then twenty times as many fours
stream = np.concatenate([rare, np.flatnonzero(y == 4)[:160]])
rest = np.setdiff1d(np.flatnonzero(y < 5), stream)
selector = bicore.BilevelSelector(kernel="rbf", inner_reg=0.1)
buffer = bicore.MergeReduce(30, selector=selector, slots=1)
chance = Reservoir(capacity=30)
state = Path(tempfile.mkdtemp()) / "state.npz"
models = {}
for name in ("no memory", "reservoir", "merge-reduce"):
    torch.manual_seed(0)
    models[name] = nn.Linear(64, 10)
criterion = nn.CrossEntropyLoss()
for start in range(0, len(stream), 32):
    rows = stream[start : start + 32]
    batch, labels = torch.from_numpy(x[rows]), torch.from_numpy(y[rows])
    for name, model in models.items():
        memory = {"reservoir": chance, "merge-reduce": buffer}.get(name)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(40):
            loss = criterion(model(batch), labels)
            if memory is not None:  # the paper's beta/|M| sum over the memory
                loss = loss + memory.loss(model, criterion, beta=1.0, weighted=False)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
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
for name, model in models.items():
    found = model(torch.from_numpy(x[rest])).argmax(1).numpy()
    print(f"{name:>12}: accuracy on other rows of these classes: {(found == y[rest]).mean():.3f}")

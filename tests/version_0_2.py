"""Code of version 0.2, from its README, examples and guide, on fewer rows and with fewer steps."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def readme(x, y, folder):
    import bicore

    coreset = bicore.select(x, y, size=50)
    assert len(coreset.indices) == 50


def continual(x, y, folder):
    import bicore

    x = torch.from_numpy(x).float()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    criterion = nn.CrossEntropyLoss()
    memory = bicore.ReplayMemory(bicore.BilevelSelector(kernel="rbf", inner_reg=0.1), capacity=50)
    for task in range(2):
        rows = np.flatnonzero(np.isin(y, (2 * task, 2 * task + 1)))
        loss = criterion(model(x[rows]), torch.from_numpy(y[rows]))
        (loss + memory.loss(model, criterion, beta=1.0)).backward()
        memory.add_task(x[rows], y[rows])


def streaming(x, y, folder):
    from bicore.memory import Reservoir

    import bicore

    selector = bicore.BilevelSelector(kernel="rbf", inner_reg=0.1)
    buffer = bicore.MergeReduce(selector, capacity=30, slots=1)
    chance = Reservoir(capacity=30)
    state = folder / "state.npz"
    for start in range(0, 96, 32):
        rows = slice(start, start + 32)
        buffer.update(x[rows], y[rows])
        chance.update(x[rows], y[rows])
        buffer.loss(nn.Linear(64, 10).double(), nn.CrossEntropyLoss(), beta=1.0, weighted=False)
        buffer.save(state)
        buffer = bicore.MergeReduce.load(state, selector)
    assert len(buffer.snapshot().y) == len(chance.snapshot().y) == 30


def guide(x, y, folder):
    from bicore.compat.sklearn import CoresetSampler
    from bicore.compat.torch import WeightedSubset, weighted_sampler
    from bicore.selectors import KCenter

    from bicore import RBF, CustomLoss, Dataset, PerPoint, select
    from bicore.shards import open_shards

    weight = np.where(y == 8, 3.0, 1.0)
    select(x, y, 5, weight=weight, kernel=RBF(0.1), inner_reg=0.1, weights="learnt", large="exact")
    robust = CustomLoss(lambda h, t: (torch.sqrt(1 + (h - t) ** 2) - 1).sum(), name="huber")
    select(x[:60], x[:60, :2], 3, loss=robust, kernel="rbf", inner_reg=PerPoint(1e-2), seed=0)
    picked = KCenter("features").select(Dataset(x, y, weight=weight), 5, rng=0)
    assert len(WeightedSubset(Dataset(x, y), picked)) == len(weighted_sampler(picked)) == 5
    CoresetSampler(6, method="bilevel", kernel="linear", inner_reg=0.1).fit_resample(x, y)
    assert open_shards((x, y)).rows == len(x)

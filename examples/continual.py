"""Continual learning with a replay memory: five tasks of two digits each, one after the other, in
plain PyTorch.

python examples/continual.py
"""

import numpy as np
import torch
from torch import nn

import bicore
from bicore.sources import digits

x, y = digits()
x, test = torch.from_numpy(x).float(), np.arange(len(x)) % 4 == 0
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
criterion = nn.CrossEntropyLoss()
memory = bicore.ReplayMemory(50, selector=bicore.BilevelSelector(kernel="rbf", inner_reg=0.1))
for task in range(5):
    rows = np.flatnonzero(np.isin(y, (2 * task, 2 * task + 1)) & ~test)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(100):
        loss = criterion(model(x[rows]), torch.from_numpy(y[rows])) + memory.loss(
            model, criterion, beta=1.0
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    memory.add_task(x[rows], y[rows])
    print(f"after task {task}: {memory}")
print(f"accuracy on all ten classes: {(model(x[test]).argmax(1).numpy() == y[test]).mean():.3f}")

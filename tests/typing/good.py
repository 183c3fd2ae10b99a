"""Calls of users that a type checker must accept."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import bicore
from bicore.active import query
from bicore.bilevel import PerPoint
from bicore.kernels import RBF, Kernel
from bicore.losses import SquaredError
from bicore.methods import Exchange, Herding, Selector, as_selector
from bicore.streaming import Reservoir

x = np.zeros((20, 3))
y = np.zeros(20, dtype=int)
kernel: Kernel = RBF(0.5)
coreset: bicore.Coreset = bicore.select(x, y, size=5, kernel=kernel, random_state=None)
again = bicore.select("rows.csv", size=0.1, target="label", initial=coreset, method="uniform")
other = bicore.select(bicore.Dataset(x, y), size="auto", method=Herding(), tolerance=0.1)
runtime = bicore.Runtime(memory="2GB", max_seconds=30.0)
seconds: float | None = bicore.estimate(x, y, 5, runtime=runtime).seconds
weights = bicore.reweight(x, y, [1, 2], loss=SquaredError(), inner_reg=PerPoint(1e-3)).weights
scores = bicore.influence(x, y, coreset, inner_reg="relative:0.1").argmax()
selector: Selector = bicore.BilevelSelector("rbf", strategy=Exchange(), quotas=None)
named: Selector = as_selector("paper").set_params(kernel="rbf")
memory = bicore.MomentMemory(capacity=50, random_state=1).update(x, y)
kept = bicore.MergeReduce(10, selector=selector, slots=2).update(x, y).snapshot()
chance = Reservoir(10)


class Frame:
    """A table of a library that this file does not import."""

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return np.zeros((20, 3))


images: npt.NDArray[np.float32] = np.zeros((20, 1, 8, 8), np.float32)
for rows in (x, torch.zeros(20, 3), [[0.0], [1.0]], Frame(), Path("rows.csv"), ["a.npy", "b.npy"]):
    bicore.select(rows, size=2)
bicore.select(x, y.tolist(), 5, sample_weight=[1.0] * 20, outer=(x, y), classes=[0, 1])
bicore.select(images, torch.zeros(20), 5, method="icarl", model=torch.nn.Linear(64, 2))
bicore.select("rows.csv", "label", 5, outer="test.csv")
data = bicore.Dataset([[0.0], [1.0]], ["a", "b"], torch.ones(2), extra={"depth": [3, 5]})
first: npt.NDArray[Any] = data.x[0]
worth = bicore.worth(x, y, coreset, test=(x, y)).score
table = bicore.compare(data, sizes=[1], methods={"mine": Herding()}, metric="balanced").rows
next_rows = query(x, y, Frame(), 3)

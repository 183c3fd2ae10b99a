"""Calls of users that a type checker must accept."""

import numpy as np

import bicore
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
kept = bicore.MergeReduce(selector, capacity=10, slots=2).update(x, y).snapshot()
chance = Reservoir(10)

"""Calls that a type checker must refuse: each is marked, and an unused mark is an error."""

import numpy as np

import bicore
from bicore import RBF  # type: ignore[attr-defined]
from bicore.methods import KCenter, as_selector

x = np.zeros((20, 3))
bicore.selekt(x, size=5)  # type: ignore[attr-defined]
bicore.select(x, size=5, kernal="rbf")  # type: ignore[call-arg]
bicore.select(x, size=5, seed=3)  # type: ignore[call-arg]
bicore.select(x, size=[5])  # type: ignore[arg-type]
bicore.select(x, size=5, exact="yes")  # type: ignore[arg-type]
bicore.select(x, size=5, random_state="0")  # type: ignore[arg-type]
bicore.estimate(x, size=5, model=3)  # type: ignore[arg-type]
bicore.select(5)  # type: ignore[arg-type]
bicore.select(None, size=5)  # type: ignore[arg-type]
bicore.select({"a": x}, size=5)  # type: ignore[arg-type]
bicore.select(x, 5)  # type: ignore[arg-type]
bicore.select(x, size=5, sample_weight=1.0)  # type: ignore[arg-type]
bicore.select(x, size=5, outer=3)  # type: ignore[arg-type]
bicore.select(x, size=5, model=3)  # type: ignore[arg-type]
bicore.Dataset(3)  # type: ignore[arg-type]
bicore.compare(None)  # type: ignore[arg-type]
bicore.worth(x, x, test=3)  # type: ignore[arg-type]
bicore.MomentMemory(50).forget(3)  # type: ignore[arg-type]
bicore.Coreset(np.arange(2)).select(3)  # type: ignore[arg-type]
bicore.BilevelSelector(candidates="all")  # type: ignore[arg-type]
bicore.MomentMemory(features="rows", capacity=5)  # type: ignore[call-arg]
as_selector("uniform", kernel="rbf")  # type: ignore[call-arg]
KCenter(size=3)  # type: ignore[call-arg]
number: int = bicore.select(x, size=5)  # type: ignore[assignment]
print(RBF, number)

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
bicore.BilevelSelector(candidates="all")  # type: ignore[arg-type]
bicore.MomentMemory(features="rows", capacity=5)  # type: ignore[call-arg]
as_selector("uniform", kernel="rbf")  # type: ignore[call-arg]
KCenter(size=3)  # type: ignore[call-arg]
number: int = bicore.select(x, size=5)  # type: ignore[assignment]
print(RBF, number)

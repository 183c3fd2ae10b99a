"""``inner_reg="auto"``: the ρ under which small random subsets of the training data predict the rest best.

The rule uses the training data alone and does not depend on the coreset size, so that prefixes stay nested:

1. Draw three random subsets of min(100, n/2) points.
2. For ρ on a decade grid from 10 down to 1e-5 times the mean of the kernel's diagonal, fit each subset (warm-started) and
   average the outer objective and its derivative in log ρ, which the implicit gradient gives for free.
3. Take the minimiser of the cubic that has these values and slopes, in the two cells around the best grid point.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from torch import Tensor

from bicore.bilevel.implicit import ImplicitForward
from bicore.bilevel.inner import InnerSolver
from bicore.bilevel.linear import LinearSolver
from bicore.bilevel.problem import Constant, Problem

SUBSETS = 3
SUBSET_SIZE = 100
#: The grid, as powers of ten times the mean of the kernel's diagonal.
EXPONENTS = (1, 0, -1, -2, -3, -4, -5)


def automatic(problem: Problem, eligible: Tensor, inner: InnerSolver, linear: LinearSolver, seed: int) -> Constant:
    """The regulariser of the rule above; ``eligible`` are the points that may be drawn."""
    scale = float(problem.train.diagonal().double().mean()) or 1.0
    points = eligible.cpu().numpy()
    size = min(SUBSET_SIZE, max(1, len(points) // 2))
    values, slopes = np.zeros(len(EXPONENTS)), np.zeros(len(EXPONENTS))
    rng = np.random.default_rng((seed, 0x5EED))
    for _ in range(SUBSETS):
        state = ImplicitForward(replace(problem, regulariser=Constant(10 * scale)), size, inner, linear)
        subset = np.sort(rng.choice(points, size, replace=False)).tolist()
        for place, exponent in enumerate(EXPONENTS):
            rho = scale * 10.0**exponent
            state.problem = replace(problem, regulariser=Constant(rho))
            if place == 0:
                state.extend(subset, [1.0] * size)
            else:
                state.fit()
            values[place] += state.objective / SUBSETS
            slopes[place] += state.rho_gradient() * rho * math.log(10) / SUBSETS
    return Constant(scale * 10.0 ** _lowest(np.array(EXPONENTS, dtype=float), values, slopes))


def _lowest(places: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> float:
    """The minimiser of the piecewise cubic through values and slopes, in the cells beside the best grid point."""
    best = int(values.argmin())
    found, lowest = float(places[best]), float(values[best])
    for other in (best - 1, best + 1):
        if 0 <= other < len(places):
            width = places[other] - places[best]
            share = np.linspace(0, 1, 101)
            curve = (
                (1 + 2 * share) * (1 - share) ** 2 * values[best]
                + share * (1 - share) ** 2 * width * slopes[best]
                + share**2 * (3 - 2 * share) * values[other]
                + share**2 * (share - 1) * width * slopes[other]
            )
            if curve.min() < lowest:
                found, lowest = float(places[best] + share[curve.argmin()] * width), float(curve.min())
    return found

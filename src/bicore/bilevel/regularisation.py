"""``inner_reg="auto"``: the ρ under which small random subsets of the training data predict the
rest best.

The rule uses the training data alone and does not depend on the coreset size, so that prefixes stay
nested:

1. Draw three random subsets of min(100, n/2) points. 2. For ρ on a decade grid from 10 down to 1e-5
times the mean of the kernel's diagonal, fit each subset (warm-started) and
   average the outer objective and its derivative in log ρ, which the implicit gradient gives for
   free.
3. Join the grid by the cubics that have these values and slopes, and take the largest ρ whose
objective lies within 1% of
   the lowest: equal in quality, better conditioned.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from torch import Tensor

from bicore.bilevel.engines.implicit import ImplicitForward
from bicore.bilevel.problem import Constant, Problem
from bicore.bilevel.solvers.inner import InnerSolver
from bicore.bilevel.solvers.linear import LinearSolver
from bicore.data import Array
from bicore.errors import NumericalError

SUBSETS = 3
SUBSET_SIZE = 100
#: The grid, as powers of ten times the mean of the kernel's diagonal.
EXPONENTS = (1, 0, -1, -2, -3, -4, -5)
#: How far above the lowest objective the chosen ρ may lie.
SLACK = 0.01


def automatic(
    problem: Problem, eligible: Tensor, inner: InnerSolver, linear: LinearSolver, seed: int
) -> Constant:
    """The regulariser of the rule above; ``eligible`` are the points that may be drawn."""
    scale = float(problem.train.diagonal().double().mean()) or 1.0
    points = eligible.cpu().numpy()
    size = min(SUBSET_SIZE, max(1, len(points) // 2))
    values = np.zeros(len(EXPONENTS))
    slopes = np.zeros(len(EXPONENTS))
    rng = np.random.default_rng((seed, 0x5EED))
    usable = len(EXPONENTS)
    for _ in range(SUBSETS):
        subset = np.sort(rng.choice(points, size, replace=False)).tolist()
        state = ImplicitForward(problem, size, inner, linear)
        for place, exponent in enumerate(EXPONENTS[:usable]):
            try:
                found = _evaluated(
                    state, subset, replace(problem, regulariser=Constant(scale * 10.0**exponent))
                )
            except NumericalError:
                if place == 0:
                    raise
                # this precision cannot solve the problem with so small a ρ: the grid ends before it
                usable = place
                break
            values[place] += found[0] / SUBSETS
            slopes[place] += found[1] / SUBSETS
    places = np.array(EXPONENTS[:usable], dtype=float)
    return Constant(scale * 10.0 ** _largest_good(places, values[:usable], slopes[:usable]))


def _evaluated(state: ImplicitForward, subset: list[int], problem: Problem) -> tuple[float, float]:
    """G of the subset under this problem's regulariser, and its derivative in log₁₀ ρ."""
    state.problem = problem
    if state.indices:
        state.fit()
    else:
        state.extend(subset, [1.0] * len(subset))
    return state.objective, state.rho_gradient() * state.rho * math.log(10)


def _largest_good(places: Array, values: Array, slopes: Array) -> float:
    """The largest place where the piecewise cubic through values and slopes is within ``SLACK`` of
    its minimum."""
    fine = [places[:1]]
    curve = [values[:1]]
    share = np.linspace(0, 1, 51)
    for left in range(len(places) - 1):
        width = places[left + 1] - places[left]
        fine.append(places[left] + share * width)
        curve.append(
            (1 + 2 * share) * (1 - share) ** 2 * values[left]
            + share * (1 - share) ** 2 * width * slopes[left]
            + share**2 * (3 - 2 * share) * values[left + 1]
            + share**2 * (share - 1) * width * slopes[left + 1]
        )
    heights = np.concatenate(curve)
    lowest = heights.min()
    good = heights <= lowest + SLACK * abs(lowest)
    return float(np.concatenate(fine)[good].max())

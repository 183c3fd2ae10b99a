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
from dataclasses import dataclass, replace

import numpy as np

from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.problem import Constant, Known, Learned, Problem, Regulariser
from bicore.bilevel.solvers.inner import Solvers
from bicore.data import Array
from bicore.errors import NumericalError
from bicore.picking import Relative
from bicore.runtime.clock import checkpoint

SUBSETS = 3
SUBSET_SIZE = 100
#: The grid, as powers of ten times the mean of the kernel's diagonal.
EXPONENTS = (1, 0, -1, -2, -3, -4, -5)
#: How far above the lowest objective the chosen ρ may lie.
SLACK = 0.01


@dataclass(frozen=True)
class Automatic(Regulariser):
    """The ρ under which small random subsets of the training data predict the rest best."""

    automatic = True

    def resolve(self, problem: Problem, eligible: Array, solvers: Solvers, seed: int) -> Known:
        scale = float(problem.train.diagonal().double().mean()) or 1.0
        size = min(SUBSET_SIZE, max(1, len(eligible) // 2))
        values = np.zeros(len(EXPONENTS))
        slopes = np.zeros(len(EXPONENTS))
        rng = np.random.default_rng((seed, 0x5EED))
        usable = len(EXPONENTS)
        for _ in range(SUBSETS):
            subset = np.sort(rng.choice(eligible, size, replace=False)).tolist()
            found = _along_the_grid(problem, subset, solvers, scale, usable)
            usable = len(found)
            for place, (value, slope) in enumerate(found):
                values[place] += value / SUBSETS
                slopes[place] += slope / SUBSETS
        places = np.array(EXPONENTS[:usable], dtype=float)
        return Constant(scale * 10.0 ** _largest_good(places, values[:usable], slopes[:usable]))


@dataclass(frozen=True)
class LearnedFromData(Automatic):
    """The ρ of :class:`Automatic` to begin with, optimised with the weights."""

    learned = True

    def resolve(self, problem: Problem, eligible: Array, solvers: Solvers, seed: int) -> Known:
        return Learned(super().resolve(problem, eligible, solvers, seed).value)


@dataclass(frozen=True)
class RelativeToKernel(Regulariser):
    """A share of the mean of k(x, x) over the training data."""

    relative: Relative

    def resolve(self, problem: Problem, eligible: Array, solvers: Solvers, seed: int) -> Known:
        return Constant(self.relative.rho(float(problem.train.diagonal().double().mean())))


def _along_the_grid(
    problem: Problem, subset: list[int], solvers: Solvers, scale: float, usable: int
) -> list[tuple[float, float]]:
    """G of the subset and its derivative in log₁₀ ρ for every ρ of the grid, warm-started; it ends
    before a ρ that is too small for this precision to solve the problem with."""
    engine = ImplicitEngine(problem, len(subset), solvers)
    found: list[tuple[float, float]] = []
    for exponent in EXPONENTS[:usable]:
        checkpoint()
        engine.problem = replace(problem, regulariser=Constant(scale * 10.0**exponent))
        try:
            if engine.chosen:
                engine.fit()
            else:
                engine.extend(subset)
            slope = float(engine.joint_gradient()[-1]) * engine.rho * math.log(10)
        except NumericalError:
            if not found:
                raise
            break
        found.append((engine.objective, slope))
    return found


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

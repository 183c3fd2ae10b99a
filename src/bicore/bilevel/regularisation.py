"""``inner_reg="auto"``: the ρ under which small random subsets of the data predict the rest best.

The rule uses the training data alone and does not depend on the coreset size, so that prefixes stay
nested:

1. Draw three random subsets of min(100, n/2) points.
2. For ρ on a decade grid from 10 down to 1e-5 times the mean of the kernel's diagonal, fit each
   subset (warm-started) and average the outer objective and its derivative in log ρ, which the
   implicit gradient gives for free.
3. Join the grid by the cubics that have these values and slopes, and take the largest ρ whose
   objective lies within 1% of the lowest: equal in quality, better conditioned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bicore.arguments import Relative
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.problem import Constant, Known, Learned, Problem, Regulariser
from bicore.bilevel.solvers.inner import Solvers
from bicore.data import Array
from bicore.errors import NumericalError
from bicore.runtime.clock import checkpoint

SUBSETS = 3
SUBSET_SIZE = 100
#: The grid, as powers of ten times the mean of the kernel's diagonal.
EXPONENTS = (1, 0, -1, -2, -3, -4, -5)
#: Relative tolerance above the lowest objective.
SLACK = 0.01


@dataclass(frozen=True)
class Automatic(Regulariser):
    """The ρ under which small random subsets of the training data best predict the rest."""

    automatic = True

    def resolve(self, problem: Problem, eligible: Array, solvers: Solvers, seed: int) -> Known:
        scale = float(problem.train.diagonal().double().mean()) or 1.0
        size = min(SUBSET_SIZE, max(1, len(eligible) // 2))
        rng = np.random.default_rng((seed, 0x5EED))
        usable, found = len(EXPONENTS), []
        for _ in range(SUBSETS):
            subset = np.sort(rng.choice(eligible, size, replace=False)).tolist()
            found.append(_objectives_on_grid(problem, subset, solvers, scale, usable))
            usable = len(found[-1])
        values, slopes = np.mean([one[:usable] for one in found], axis=0).T
        places = np.array(EXPONENTS[:usable], dtype=float)
        return Constant(scale * 10.0 ** _largest_near_minimum(places, values, slopes))


@dataclass(frozen=True)
class LearnedFromData(Automatic):
    """A ρ that begins at the one of :class:`Automatic` and is optimised with the weights."""

    learned = True

    def resolve(self, problem: Problem, eligible: Array, solvers: Solvers, seed: int) -> Known:
        return Learned(super().resolve(problem, eligible, solvers, seed).value)


@dataclass(frozen=True)
class RelativeToKernel(Regulariser):
    """A share of the mean of k(x, x) over the training data."""

    relative: Relative

    def resolve(self, problem: Problem, eligible: Array, solvers: Solvers, seed: int) -> Known:
        return Constant(self.relative.rho(float(problem.train.diagonal().double().mean())))


def predict_from_subsets(squares: Tensor, crosses: Tensor, outputs: Tensor, rho: float) -> Tensor:
    """Predict by ridge regressions on several subsets; infinity if a matrix is singular."""
    matrix = squares.clone()
    matrix.diagonal(dim1=1, dim2=2).add_(rho)
    factors, failed = torch.linalg.cholesky_ex(matrix)
    found = (torch.cholesky_solve(outputs, factors).mT @ crosses).mT
    return found.fill_(torch.inf) if failed.any() else found


def _objectives_on_grid(
    problem: Problem, subset: list[int], solvers: Solvers, scale: float, usable: int
) -> list[tuple[float, float]]:
    """Compute G of the subset and its derivative in log₁₀ ρ for every ρ of the grid.

    It ends before a ρ that is too small for this precision to solve the problem with.
    """
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


def _largest_near_minimum(places: Array, values: Array, slopes: Array) -> float:
    """Return the largest place where the piecewise cubic is within ``SLACK`` of its minimum."""
    share = np.linspace(0, 1, 51)[:, None]
    width = np.diff(places)
    curve = (
        (1 + 2 * share) * (1 - share) ** 2 * values[:-1]
        + share * (1 - share) ** 2 * width * slopes[:-1]
        + share**2 * (3 - 2 * share) * values[1:]
        + share**2 * (share - 1) * width * slopes[1:]
    )
    heights = np.append(curve, values[0])
    good = heights <= heights.min() + SLACK * abs(heights.min())
    return float(np.append(places[:-1] + share * width, places[0])[good].max())

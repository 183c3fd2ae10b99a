"""Optimise the weights of chosen points; the objective never ends above its initial value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.errors import check_number, check_settings
from bicore.numerics.descent import ProjectedDescent, Reweighable, until_time_limit
from bicore.runtime.clock import Clock, without_time_limit

#: Lengths of a step that are tried before the search ends.
ATTEMPTS = 25
#: The search ends if the predicted decrease is below this share of the objective.
FLAT = 1e-9
#: The first step changes weights by at most about this share.
FIRST_STEP = 0.5
#: Added to every weight in the metric, as a share of the mean weight, so that a weight of zero can
#: grow.
METRIC_FLOOR = 0.01


#: Lower bound of a learned ρ, as a share of its initial value.
LEAST_SHARE = 1e-4


class WithRegulariser:
    """The weights of an engine and its ρ, as a share of the initial one, in one vector.

    ∂G/∂ρ then has the scale of a weight's gradient, and one optimiser serves both.
    """

    def __init__(self, engine: ImplicitEngine) -> None:
        self.engine = engine
        self.start = engine.problem.regulariser.value
        self.weights = torch.cat([engine.weights, engine.weights.new_ones(1)])

    @property
    def objective(self) -> float:
        return self.engine.objective

    def weight_gradient(self) -> Tensor:
        gradient = self.engine.joint_gradient()
        gradient[-1] *= self.start * float(self.weights[-1] > LEAST_SHARE)
        return gradient

    def reweigh(self, weights: Tensor) -> None:
        self.weights = weights
        rho = self.start * max(float(weights[-1]), LEAST_SHARE)
        problem = self.engine.problem
        learned = replace(problem.regulariser, value=rho)
        self.engine.problem = replace(problem, regulariser=learned)
        self.engine.reweigh(weights[:-1])


def as_reweighable(engine: ImplicitEngine) -> Reweighable:
    """Return the state to optimise: the engine, or the engine with ρ if that is learned."""
    return WithRegulariser(engine) if engine.problem.regulariser.learned else engine


class WeightMode(StrEnum):
    """The weighting of the points of a coreset."""

    #: 1 for every point.
    UNIFORM = "uniform"
    #: Optimised after every point.
    LEARNED = "learned"
    #: Optimised once, after the last point.
    FINAL = "final"


class WeightOptimiser(ABC):
    """Lowers G(w) over w ≥ 0 for fixed points."""

    @abstractmethod
    def optimise(self, state: Reweighable, final: bool = False, clock: Clock | None = None) -> None:
        """Lower the objective by changing the weights.

        Parameters
        ----------
        state : engine
            The points with their weights; see ``bicore.bilevel.contract``.
        final : bool
            Allow the longer search at the end.
        clock : Clock, optional
            May end it early.
        """


@dataclass(frozen=True)
class ProjectedGradient(WeightOptimiser):
    """Projected gradients w ← P(w − η M ∂G/∂w) on 0 ≤ w ≤ ``largest``; every step lowers G.

    The metric M = diag(w + δ)², δ a hundredth of the mean weight, makes steps relative to each
    weight's own size, as if log w were optimised, and still lets a weight reach zero and come back;
    η is the Barzilai–Borwein step in that metric, to the nearest power of two, with backtracking.

    Parameters
    ----------
    steps, final_steps : int
        Most steps after each point, and after the last one.
    largest : float
        The bound of the weights. The open cone has no minimum: a common factor on the weights is a
        smaller regulariser.
    reach : float
        Bound while rows are added: weights stay within 1/reach … reach. The best weights of the
        first few points are often those of hardly any model (one class alone should say nothing);
        scores taken there all look the same, and the coreset never comes back from it.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> BilevelSelector(weighting="final", optimiser=ProjectedGradient(final_steps=20)).name
    'bilevel'
    """

    steps: int = 10
    final_steps: int = 100
    largest: float = 100.0
    reach: float = 10.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_number(name, value, least=1)

    def optimise(self, state: Reweighable, final: bool = False, clock: Clock | None = None) -> None:
        bounds = self._bounds(state.weights, final)
        descent = ProjectedDescent(
            lambda weights: weights.clamp_(*bounds), ATTEMPTS, _metric, flat=FLAT
        )
        steps = self.final_steps if final else self.steps
        descent.run(state, FIRST_STEP, steps, clock)

    def _bounds(self, weights: Tensor, final: bool) -> tuple[Tensor, Tensor]:
        """Return the lower and upper bound of each weight; the present weight is always within
        them."""
        if final:
            return weights.clamp_max(0), weights.clamp_min(self.largest)
        reach = min(self.reach, self.largest)
        return weights.clamp_max(1 / reach), weights.clamp_min(reach)


def _metric(weights: Tensor) -> Tensor:
    return (weights + METRIC_FLOOR * weights.mean()).square()


@dataclass(frozen=True)
class Adam(WeightOptimiser):
    """The paper's optimiser: a few projected Adam steps.

    The best weights seen are kept, so that it never ends worse.

    Parameters
    ----------
    rate : float
        Step length.
    steps, final_steps : int
        Steps after each point, and after the last one.
    decay, second_decay, epsilon : float
        Adam's decay rates and ε.

    Examples
    --------
    >>> from bicore import BilevelSelector
    >>> BilevelSelector(weighting="final", optimiser=Adam(rate=0.1)).weighting
    <WeightMode.FINAL: 'final'>
    """

    rate: float = 0.05
    steps: int = 10
    final_steps: int = 100
    decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check_settings(self, "steps final_steps", "rate epsilon", "decay second_decay")

    def optimise(self, state: Reweighable, final: bool = False, clock: Clock | None = None) -> None:
        best = state.weights
        best_value = state.objective
        path = self._path(state, self.final_steps if final else self.steps)
        for weights in until_time_limit(path, clock):
            if state.objective < best_value:
                best = weights
                best_value = state.objective
        if state.weights is not best:
            with without_time_limit():
                state.reweigh(best)

    def _path(self, state: Reweighable, steps: int) -> Iterator[Tensor]:
        """The weights after each step, which the state has."""
        yield state.weights
        weights = state.weights.clone()
        mean = torch.zeros_like(weights)
        square = torch.zeros_like(weights)
        for step in range(1, steps + 1):
            gradient = state.weight_gradient()
            mean = self.decay * mean + (1 - self.decay) * gradient
            square = self.second_decay * square + (1 - self.second_decay) * gradient**2
            scaled = mean / (1 - self.decay**step)
            spread = (square / (1 - self.second_decay**step)).sqrt()
            spread += self.epsilon * float(gradient.abs().max())
            tiny = torch.finfo(spread.dtype).tiny
            weights = (weights - self.rate * scaled / spread.clamp_min(tiny)).clamp_min(0)
            if not bool((weights > 0).any()):
                return
            state.reweigh(weights)
            yield weights


@dataclass(frozen=True, eq=False)
class WeightUpdater:
    """Optimises the weights of an engine, and removes points whose weight reaches zero."""

    engine: ImplicitEngine
    optimiser: WeightOptimiser

    def update(self, clock: Clock, final: bool = False) -> None:
        """Lower the objective by changing the weights; ``final`` allows the longer search at the
        end."""
        self.optimiser.optimise(as_reweighable(self.engine), final=final, clock=clock)
        gone = torch.nonzero(self.engine.weights <= 0).flatten().tolist()
        if gone:
            self.engine.drop(gone)

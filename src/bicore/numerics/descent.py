"""Line searches, searches with a time limit, and projected gradients for weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from bicore.runtime.clock import Clock, TimeOver, without_time_limit

T = TypeVar("T")

#: Share of the predicted decrease that a step must achieve (Armijo's rule): small, so that any real
#: decrease is accepted, but above zero, so that a negligible one is not.
ARMIJO = 1e-4
#: A rise of the objective by this many units of rounding is ignored.
NOISE = 10
#: Weights below this many units of rounding in the total are set to zero.
DUST = 16
#: Bisections of the interval that contains the shift of a projection.
BISECTIONS = 60


class Trial(NamedTuple, Generic[T]):
    """A point, its objective, and the change predicted by the slope (negative)."""

    point: T
    objective: float
    predicted: float


def suffices(objective: Any, before: Any, predicted: Any, noise: Any = 0.0) -> Any:
    """Whether the objective fell by a share of the predicted decrease; for numbers and tensors."""
    return objective <= before + ARMIJO * predicted + noise


def first_descent(trials: Iterable[Trial[T]], before: float, noise: float = 0.0) -> Trial[T] | None:
    """Return the first trial that lowers the objective enough; None if none does.

    ``trials`` is best a generator: it evaluates a length only if the ones before it failed.
    """
    trying = (one for one in trials if suffices(one.objective, before, one.predicted, noise))
    return next(trying, None)


def step_lengths(first: float, count: int, factor: float = 2.0) -> Iterator[float]:
    """Yield ``count`` lengths, each shorter than the one before by ``factor``."""
    for _ in range(count):
        yield first
        first /= factor


def until_time_limit(path: Iterator[T], clock: Clock | None) -> Iterator[T]:
    """Yield the steps of a path until the time limit.

    The path ends at the first look at ``clock`` after a step that finds the time over, or at a step
    that is interrupted for that.
    """
    try:
        for step in path:
            yield step
            if clock is not None and clock.over:
                return
    except TimeOver:
        return


def cap_weights(weights: Tensor, total: float, largest: float = 1.0) -> Tensor:
    """Return the nearest point of {0 ≤ w ≤ largest, Σw = total}."""
    low = float(weights.max()) - total if math.isinf(largest) else float(weights.min()) - largest
    high = float(weights.max())
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if float((weights - middle).clamp(0, largest).sum()) > total:
            low = middle
        else:
            high = middle
    found = (weights - high).clamp(0, largest)
    return torch.where(found > DUST * torch.finfo(found.dtype).eps * total, found, 0)


class Reweighable(Protocol):
    """An objective of weights, evaluated at its current weights."""

    @property
    def objective(self) -> float: ...

    @property
    def weights(self) -> Tensor: ...

    def weight_gradient(self) -> Tensor: ...

    def reweigh(self, weights: Tensor) -> None: ...


def spectral_length(
    change: Tensor, difference: Tensor, longer: float, metric: Tensor | None = None
) -> float:
    """Return ⟨s, M⁻¹s⟩/⟨s, y⟩ for a step s that changed the gradient by y, or ``longer`` without
    curvature."""
    along = float(change @ difference)
    if not along > 0:
        return longer
    return float((change.square() / (1.0 if metric is None else metric)).sum()) / along


def round_to_power(length: float) -> float:
    """Return the nearest power of two.

    A spectral step is a quotient of small differences. Taken as it is it carries their last digits
    into the next step, and a long search ends elsewhere when the problem changes by 1e-14. Nothing
    is lost between powers of two: the step is a guess.
    """
    return float(2.0 ** round(math.log2(length))) if 0 < length < math.inf else length


@dataclass(frozen=True)
class ProjectedDescent:
    """w ← P(w − η M ∇), with η the spectral step in the metric M, shortened until G falls.

    ``project`` is P; ``metric`` gives the diagonal of M at some weights (none: the identity). A
    step is tried at ``attempts`` lengths, each shorter by ``factor``; the
    search ends if the predicted decrease is below the share ``flat`` of the objective, or below
    its rounding.
    """

    project: Callable[[Tensor], Tensor]
    attempts: int
    metric: Callable[[Tensor], Tensor] = torch.ones_like
    factor: float = 2.0
    flat: float = 0.0

    def run(self, state: Reweighable, first: float, steps: int, clock: Clock | None) -> None:
        """Lower the objective; it never ends above its initial value.

        ``first`` is the largest change of an entry by the first step. When the time is over, also
        in the middle of a step, the state is left at the best weights so far.
        """
        best = state.weights
        for weights in until_time_limit(self._path(state, best, first, steps), clock):
            best = weights
        if state.weights is not best:
            with without_time_limit():
                state.reweigh(best)

    def _path(
        self, state: Reweighable, weights: Tensor, first: float, steps: int
    ) -> Iterator[Tensor]:
        """Yield weights with lower and lower objective, beginning with the given ones."""
        yield weights
        value = state.objective
        gradient = state.weight_gradient()
        metric = self.metric(weights)
        steepest = float((metric.sqrt() * gradient).abs().max())
        length = round_to_power(first / max(steepest, torch.finfo(gradient.dtype).tiny))
        for _ in range(steps):
            trials = self._trials(state, weights, value, gradient, metric * gradient, length)
            found = first_descent(trials, value)
            if found is None:
                return
            yield found.point
            fresh = state.weight_gradient()
            change = found.point - weights
            length = round_to_power(spectral_length(change, fresh - gradient, 2 * length, metric))
            weights, value, gradient = found.point, found.objective, fresh
            metric = self.metric(weights)

    def _trials(
        self,
        state: Reweighable,
        weights: Tensor,
        value: float,
        gradient: Tensor,
        direction: Tensor,
        longest: float,
    ) -> Iterator[Trial[Tensor]]:
        """Yield points along the projected path while their predicted decrease exceeds rounding."""
        least = max(self.flat, NOISE * torch.finfo(weights.dtype).eps) * abs(value)
        for length in step_lengths(longest, self.attempts, self.factor):
            point = self.project(weights - length * direction)
            predicted = float(gradient @ (point - weights))
            if -predicted <= least:
                return
            if bool((point > 0).any()):  # without weights there is nothing to fit
                state.reweigh(point)
                yield Trial(point, state.objective, predicted)

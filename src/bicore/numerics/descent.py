"""How far to go along a direction: the first length that lowers an objective enough.

Searches that can be left after every step, when their time is over.

The nearest point of a simplex with bounded coordinates.

Projected gradients with Barzilai–Borwein steps: weights on a convex set, any objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from bicore.runtime import Clock, TimeOver, unhurried

T = TypeVar("T")

#: Share of the promised decrease that a step must achieve (Armijo's rule): small, so that any real
#: decrease is accepted, and not zero, so that a step that only creeps is not.
ARMIJO = 1e-4
#: So many units of rounding in an objective are no rise.
NOISE = 10


class Trial(NamedTuple, Generic[T]):
    """A point, its objective, and the change that the slope promised (below zero)."""

    point: T
    objective: float
    promised: float


def enough(objective: Any, before: Any, promised: Any, noise: Any = 0.0) -> Any:
    """Whether an objective has fallen by its share of the promise; numbers or tensors of them."""
    return objective <= before + ARMIJO * promised + noise


def first_enough(trials: Iterable[Trial[T]], before: float, noise: float = 0.0) -> Trial[T] | None:
    """The first trial that lowers the objective enough; None where none does.

    ``trials`` is best a generator: it evaluates a length only when the ones before it failed.
    """
    for trial in trials:
        if enough(trial.objective, before, trial.promised, noise):
            return trial
    return None


def lengths(first: float, count: int, factor: float = 2.0) -> Iterator[float]:
    """``first`` and ever shorter ones, ``count`` in all."""
    length = first
    for _ in range(count):
        yield length
        length /= factor


Step = TypeVar("Step")


def until_over(path: Iterator[Step], clock: Clock | None) -> Iterator[Step]:
    """The steps of a path while there is time: to its end, to the first look at ``clock`` after a
    step that finds the time over, or to a step that is interrupted for that."""
    try:
        for step in path:
            yield step
            if clock is not None and clock.over:
                return
    except TimeOver:
        return


#: Weights below this many units of rounding in the total are none.
DUST = 16
#: Halvings of the interval in which the shift lies.
BISECTIONS = 60


def capped(weights: Tensor, total: float, largest: float = 1.0) -> Tensor:
    """The nearest point of {0 ≤ w ≤ largest, Σw = total}: one number is taken off all, found by
    halving."""
    low = float(weights.max()) - total if math.isinf(largest) else float(weights.min()) - largest
    high = float(weights.max())
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if float((weights - middle).clamp(0, largest).sum()) > total
            else (low, middle)
        )
    found = (weights - high).clamp(0, largest)
    # what rounding alone has left
    return torch.where(found > DUST * torch.finfo(found.dtype).eps * total, found, 0)


class Weighed(Protocol):
    """An objective of weights that remembers where it was evaluated last."""

    @property
    def weights(self) -> Tensor: ...

    def value(self) -> float: ...

    def gradient(self) -> Tensor: ...

    def move(self, weights: Tensor) -> None: ...


def spectral_length(
    change: Tensor, difference: Tensor, longer: float, metric: Tensor | None = None
) -> float:
    """⟨s, M⁻¹s⟩/⟨s, y⟩ for a step s that changed the gradient by y; ``longer`` where that is no
    curvature."""
    along = float(change @ difference)
    if not along > 0:
        return longer
    if metric is None:
        return float(change @ change) / along
    return float((change.square() / metric).sum()) / along


def rounded(length: float) -> float:
    """The nearest power of two.

    A spectral step is a quotient of small differences. Taken as it is it carries their last digits
    into the next step, and a long search ends elsewhere when the problem changes by 1e-14. Nothing
    is lost between powers of two: the step is a guess.
    """
    return float(2.0 ** round(math.log2(length))) if 0 < length < math.inf else length


@dataclass(frozen=True)
class ProjectedDescent:
    """w ← P(w − η M ∇), with η the spectral step in the metric M, shortened until it pays.

    ``project`` is P; ``metric`` gives the diagonal of M at some weights (none: the identity). A
    step is tried at ``attempts`` lengths, each shorter by ``factor``; one that promises less than
    the share ``flat`` of the objective, or than its rounding, ends the search.
    """

    project: Callable[[Tensor], Tensor]
    attempts: int
    metric: Callable[[Tensor], Tensor] | None = None
    factor: float = 2.0
    flat: float = 0.0

    def run(
        self,
        state: Weighed,
        first: Callable[[Tensor], float],
        steps: int,
        clock: Clock | None,
    ) -> None:
        """Lower the objective; the state never ends above where it began.

        ``first`` is the length to try first, from the direction of steepest descent. When the time
        is over, also in the middle of a step, the state is left at the best weights so far.
        """
        best = state.weights
        for weights in until_over(self._path(state, best, first, steps), clock):
            best = weights
        if state.weights is not best:
            with unhurried():
                state.move(best)

    def _path(
        self, state: Weighed, weights: Tensor, first: Callable[[Tensor], float], steps: int
    ) -> Iterator[Tensor]:
        """Ever better weights, from those at hand on."""
        yield weights
        value = state.value()
        gradient = state.gradient()
        metric = None if self.metric is None else self.metric(weights)
        length = rounded(first(_scaled(gradient, metric)))
        for _ in range(steps):
            found = first_enough(
                self._trials(state, weights, value, gradient, metric, length), value
            )
            if found is None:
                return
            yield found.point
            fresh = state.gradient()
            change = found.point - weights
            length = rounded(spectral_length(change, fresh - gradient, 2 * length, metric))
            weights = found.point
            value = found.objective
            gradient = fresh
            metric = None if self.metric is None else self.metric(weights)

    def _trials(
        self,
        state: Weighed,
        weights: Tensor,
        value: float,
        gradient: Tensor,
        metric: Tensor | None,
        longest: float,
    ) -> Iterator[Trial[Tensor]]:
        """Points along the projected path, while they promise anything."""
        direction = gradient if metric is None else metric * gradient
        least = max(self.flat, NOISE * torch.finfo(weights.dtype).eps) * abs(value)
        for length in lengths(longest, self.attempts, self.factor):
            point = self.project(weights - length * direction)
            promised = float(gradient @ (point - weights))
            if -promised <= least:
                return
            if bool((point > 0).any()):  # without any weight there is nothing to fit
                state.move(point)
                yield Trial(point, state.value(), promised)


def _scaled(gradient: Tensor, metric: Tensor | None) -> Tensor:
    """The gradient in the metric's own units."""
    return gradient if metric is None else metric.sqrt() * gradient


def steepest(gradient: Tensor) -> float:
    """The largest entry, never zero: what a first step is measured by."""
    return max(float(gradient.abs().max()), torch.finfo(gradient.dtype).tiny)

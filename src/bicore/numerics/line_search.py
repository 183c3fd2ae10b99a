"""How far to go along a direction: the first length that lowers an objective enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

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

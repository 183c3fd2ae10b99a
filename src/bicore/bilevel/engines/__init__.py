"""The table of engines, and several engines combined in one.

The first engine of the table that can do what is asked and suits the problem is used. To add one,
write a file with a :class:`bicore.bilevel.contract.ListedEngine` and name it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from bicore.bilevel.contract import Engine, ListedEngine, Quantity, Requirements
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.engines.recorded_softmax import RecordedSoftmaxEngine
from bicore.bilevel.engines.ridge import RidgeEngine
from bicore.bilevel.problem import Problem
from bicore.bilevel.solvers.inner import Solvers


class JointEngine(Engine):
    """Several engines combined; quantities are sums weighted by their shares."""

    def __init__(self, engines: Sequence[Engine], shares: Sequence[float]) -> None:
        self.engines = list(engines)
        self.shares = list(shares)
        self.problem = engines[0].problem
        self.supported_quantities = frozenset.intersection(
            *(engine.supported_quantities for engine in engines)
        )
        self.cheap_steps = all(engine.cheap_steps for engine in engines)

    @property
    def chosen(self) -> list[int]:  # type: ignore[override]
        return self.engines[0].chosen

    @property
    def objective(self) -> float:  # type: ignore[override]
        parts = zip(self.shares, self.engines, strict=True)
        return sum(share * engine.objective for share, engine in parts)

    def extend(self, points: Sequence[int]) -> None:
        for engine in self.engines:
            engine.extend(points)

    def drop(self, places: Sequence[int]) -> None:
        for engine in self.engines:
            engine.drop(places)

    def quantity(self, what: Quantity, columns: Tensor | None = None) -> Tensor:
        total = torch.zeros(())
        for share, engine in zip(self.shares, self.engines, strict=True):
            total = total + share * engine.quantity(what, columns)
        return total


#: From the fastest, for special problems, to the most general one, without exact gains.
ENGINES: list[type[ListedEngine]] = [
    RidgeEngine,  # squared error: rank-one updates, CPU or GPU
    RecordedSoftmaxEngine,  # cross-entropy on a GPU: one step, recorded and replayed
    ImplicitEngine,  # any loss, any weights: a fit after every point
]


def is_supported(requirements: Requirements) -> bool:
    """Whether any engine meets the requirements, for any data."""
    return any(engine.supports(requirements) for engine in ENGINES)


def choose(problem: Problem, requirements: Requirements) -> Engine:
    """Return an engine for the problem, without chosen points."""
    for engine in ENGINES:
        if engine.supports(requirements) and engine.fits(problem):
            return engine.build(problem, requirements)
    raise LookupError(f"no engine supports {requirements}")


def choose_reweighable(problem: Problem, capacity: int, solvers: Solvers) -> ImplicitEngine:
    """Return an engine of the table whose weights may change, without chosen points."""
    needs = ImplicitEngine.supported_quantities
    requirements = Requirements(capacity, needs, False, reweighs=True, solvers=solvers)
    return cast(ImplicitEngine, choose(problem, requirements))

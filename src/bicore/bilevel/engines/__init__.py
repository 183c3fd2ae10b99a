"""Which engine serves when: the first of the table that can do what is asked and suits the problem.

To add one, write a file with an :class:`bicore.bilevel.contract.ListedEngine` and name it here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from bicore.bilevel.contract import Demand, Engine, ListedEngine, ReweighableEngine
from bicore.bilevel.engines.dense_ridge import DenseRidgeEngine
from bicore.bilevel.engines.implicit import ImplicitEngine
from bicore.bilevel.engines.recorded_softmax import RecordedSoftmaxEngine
from bicore.bilevel.engines.ridge import RidgeEngine
from bicore.bilevel.problem import Problem

#: From the fastest and narrowest to the one that does everything but exact gains.
ENGINES: list[type[ListedEngine]] = [
    DenseRidgeEngine,  # squared error, a few hundred points: K' as a matrix
    RidgeEngine,  # squared error: rank-one updates, CPU or GPU
    RecordedSoftmaxEngine,  # cross-entropy on a GPU: one step, recorded and replayed
    ImplicitEngine,  # any loss, any weights: a fit after every point
]


def supported(demand: Demand) -> bool:
    """Whether some engine can do what is asked, whatever the data."""
    return any(engine.supports(demand) for engine in ENGINES)


def choose(problem: Problem, demand: Demand) -> Engine:
    """An empty engine for the problem."""
    for engine in ENGINES:
        if engine.supports(demand) and engine.fits(problem):
            return engine.build(problem, demand)
    raise LookupError(f"no engine supports {demand}")


def reweighable(problem: Problem, demand: Demand) -> ReweighableEngine:
    """An empty engine whose weights may change, from the same table."""
    return cast(ReweighableEngine, choose(problem, replace(demand, reweighs=True, exact=False)))

"""What the proxy itself can be asked: predictions, and how much each point would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bicore.bilevel.contract import Demand, Quantity, ReweighableEngine
from bicore.bilevel.engines import reweighable
from bicore.bilevel.prepare import Prepared, Proxy, Room, prepare, targets_of
from bicore.coreset import Coreset
from bicore.data import Array, Dataset, as_features, as_weights, of_mean_one
from bicore.errors import InputError
from bicore.picking import Start, as_start
from bicore.runtime import Clock, Context


def fitted(prepared: Prepared, start: Start) -> ReweighableEngine:
    """The model fitted on these points with these weights."""
    needs = frozenset({Quantity.GRADIENT})
    demand = Demand(len(start.points), needs, closed_form=False, solvers=prepared.solvers)
    engine = reweighable(prepared.problem, demand)
    if start.points:
        engine.extend(start.points, start.weights)
    return engine


def starting_points(data: Dataset, indices: Sequence[int], weights: Any) -> Start:
    """Points whose weights are to be learnt, with those to start from."""
    found = as_start(indices, data, max(len(indices), 1), "indices", continues=False)
    if not found.points:
        raise InputError("indices is empty; give at least one row number.")
    if weights is None:
        return found
    return Start(found.points, as_weights(weights, len(found.points), "start").tolist())


def influence(
    proxy: Proxy,
    data: Dataset,
    coreset: Coreset | Sequence[int],
    outer: Dataset | None,
    seed: int,
    context: Context | None,
) -> Array:
    """−∂G/∂w_k for every point k at the model fitted on the coreset."""
    runtime = (context or Context()).runtime
    start = as_start(coreset, data, len(data), "coreset", continues=False)
    with runtime.applied(), Clock(runtime.max_seconds).running():
        known = proxy.settled(data, len(start.points), start.coreset)
        prepared = prepare(known, data, outer, Room(len(start.points)), seed, runtime)
        gradient = fitted(prepared, start).quantity(Quantity.GRADIENT)
        result: Array = -gradient.double().cpu().numpy()
        return result


def predict(
    proxy: Proxy,
    data: Dataset,
    x: Any,
    coreset: Coreset | Sequence[int] | None,
    seed: int,
    context: Context | None,
) -> Array:
    """Labels or targets of the rows of ``x`` by the model fitted on the coreset, or on all data."""
    runtime = (context or Context()).runtime
    rows = as_features(x, "x")
    targets_of(proxy, data, None)  # which refuses data without labels
    if rows.shape[1:] != data.x.shape[1:]:
        raise InputError(
            f"x has rows of shape {rows.shape[1:]} and data of {data.x.shape[1:]}; they must match."
        )
    if coreset is None:
        points = np.flatnonzero(data.weights > 0)
        # As the outer objective counts them, a common factor plays no part.
        start = Start(points.tolist(), of_mean_one(data.weights[points]).tolist())
    else:
        start = as_start(coreset, data, len(data), "coreset", continues=False)
    # The rows stand in for an outer set; its labels are never looked at.
    unknown = Dataset(rows, np.repeat(np.asarray(data.y)[:1], len(rows), axis=0))
    limit = Clock(runtime.max_seconds)
    with runtime.applied(), limit.running():
        known = proxy.settled(data, len(start.points), start.coreset)
        prepared = prepare(known, data, unknown, Room(len(start.points)), seed, runtime)
        return prepared.decoded(fitted(prepared, start).predictions)
